"""Reads the small text files that a person writes: projects, mappings, keys. Never more than a limit."""

from __future__ import annotations

from pathlib import Path

from interlock.errors import UsageError
from interlock.model.limits import TEXT_FILE_BYTES_MAX


def read_text_file(path: Path) -> str:
    """Return the text of a file.

    Raises UsageError (`file.size`, `file.encoding`) if it is too large or not UTF-8, OSError if it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(TEXT_FILE_BYTES_MAX + 1)
    if len(data) > TEXT_FILE_BYTES_MAX:
        message = f"{path} has more than {TEXT_FILE_BYTES_MAX:,} bytes"
        raise UsageError(message, code="file.size", hint="check that it is the file that you mean")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8: invalid byte at offset {error.start}"
        raise UsageError(message, code="file.encoding", hint="save it as UTF-8") from None
