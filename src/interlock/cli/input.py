"""Files of the command line: read whole, written whole or not at all.

Rule 1: `-` is stdin or stdout, and needs its format named.
Rule 2: a file is written beside its target under another name, flushed, and renamed: a reader sees the old or the new.
Rule 3: every refusal names the file and what to do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from interlock.assemble.charts import FORMATS, format_for_suffix, get_format, read_file, read_text
from interlock.definition.format import ReadResult
from interlock.errors import NotFoundError, UsageError
from interlock.model.limits import DEFINITION_BYTES_MAX

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A definition as found: its name for messages, its bytes, and the format they are in. No path: it was on stdin."""

    name: str
    data: bytes
    format: str
    path: Path | None
    allow_src: bool = False

    def lines(self) -> list[str]:
        """The text by lines, as far as it can be shown."""
        return self.data.decode("utf-8", "replace").splitlines()

    def reading(self) -> ReadResult:
        """What the reader of its format makes of it. With `allow_src` a file may include others of its folder."""
        if self.path is None or not self.path.is_file():
            return read_text(self.data, format=self.format, source=self.name)
        return read_file(self.path, format=self.format, allow_src=self.allow_src)


def read_source(name: str, format: str | None = None, *, allow_src: bool = False) -> Source:
    """The definition in a file, or on stdin. `allow_src`: it may include other files of its folder.

    Raises NotFoundError when there is no such file, UsageError when it is not a file or its format is not known.
    """
    if format is not None:
        get_format(format)
    known = "|".join(FORMATS)
    if name == STDIN:
        if format is None:
            raise UsageError(f"the format of stdin is not known; add --from {known}", code="format.unknown")
        data = sys.stdin.buffer.read(DEFINITION_BYTES_MAX + 1)
        return Source(name="<stdin>", data=data, format=format, path=None)
    path = Path(name)
    if path.is_dir():
        raise UsageError(f'"{path}" is a directory; name the file in it', code="file.directory")
    data = read_bytes(path)
    found = format or format_for_suffix(name)
    if found is None:
        raise UsageError(f'the name "{name}" does not tell its format; add --from {known}', code="format.unknown")
    return Source(name=name, data=data, format=found, path=path, allow_src=allow_src)


def read_bytes(path: Path) -> bytes:
    """What a file holds, up to one byte more than a definition may have: whoever reads it then refuses it by its size.

    Raises NotFoundError when there is no such file, OSError when it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(DEFINITION_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f'no file "{path}"', code="file.unknown", hint=_similar(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # reading itself does not name the file


def _similar(path: Path) -> str | None:
    """The nearest name beside a file that is not there."""
    try:
        known = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return f'there is no folder "{path.parent}"'
    close = get_close_matches(path.name, known, 1, 0.6)
    return f'did you mean "{path.parent / close[0]}"?' if close else None


def write_text(path: Path, text: str) -> None:
    """Make a file hold exactly this text, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Make a file hold exactly these bytes, at once; the mode of a file that was there stays.

    Raises NotFoundError when its folder is missing, UsageError for a directory, OSError when it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f'"{path}" is a directory; name a file to write', code="file.directory")
    if not path.parent.is_dir():
        raise NotFoundError(f'no folder "{path.parent}" to write "{path.name}" into', code="file.folder")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe: there is nothing to replace
        else:
            _replace(path.resolve(), data)  # a link keeps pointing to the file that changes
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the name the caller knows


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, flush, rename. Whatever goes wrong, the target is as it was."""
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The mask of this process; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
