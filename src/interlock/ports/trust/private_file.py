"""Files with secrets, which other users of the machine must not be able to read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from interlock.errors import NotFoundError, UsageError


def read_private_text(path: Path, *, bytes_max: int) -> str:
    """Return the text of a file that only its owner can read.

    Raises UsageError if others can read it, if it is too large or not UTF-8, NotFoundError if it does not exist. No
    error shows a part of it.
    """
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            hint = f"chmod 600 {path}"
            raise UsageError(f"{path} can be read by other users of this machine", code="keys.mode", hint=hint)
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            message = f"{path} is larger than {bytes_max:,} bytes"
            raise UsageError(message, code="keys.malformed", hint="remove keys that have ended")
        return data.decode()
    except FileNotFoundError:
        raise NotFoundError(f"file not found: {path}", code="file.not_found") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="keys.malformed") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8", code="keys.malformed") from None


_QUOTING = ("Object contains unknown field ", "Invalid enum value ")
_WORD = re.compile(r"[a-z_:]{1,24}")


def without_values(text: str) -> str:
    """Return a validation error without the name or value that it quotes, unless that is as short as a misspelt word.

    A secret may be in the wrong place.
    """
    what, at, place = text.rpartition(" - at ")
    start = next((each for each in _QUOTING if what.startswith(each)), None)
    if start is None or _WORD.fullmatch(what.removeprefix(start)[1:-1]):
        return text
    return f"{start}(not shown){at}{place}"


def file_signature(path: Path) -> tuple[int, ...] | None:
    """Return what differs when a file was changed or replaced; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
