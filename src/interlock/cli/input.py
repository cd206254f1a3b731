"""Definitions and JSON from files or stdin, and files that are written whole or not at all.

Rule 1: `-` is stdin or stdout; the format of a definition on stdin must be given.
Rule 2: a file is written next to its target under another name, flushed, and renamed: a reader sees the old file or the
new one.
Rule 3: every error names the file and the fix.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from interlock.assemble.charts import FORMATS, format_for_text, get_format, read_file, read_text
from interlock.definition.format import ReadResult
from interlock.errors import NotFoundError, UsageError
from interlock.model.diagnostics import nearest
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX, PAYLOAD_BYTES_MAX
from interlock.ports.replaced_file import replace_file

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A definition: its name for messages, its bytes and their format. `path` is None for stdin."""

    name: str
    data: bytes
    format: str
    path: Path | None
    allow_src: bool = False

    def lines(self) -> list[str]:
        """Return the lines of the text, with replacement characters for invalid UTF-8."""
        return self.data.decode("utf-8", "replace").splitlines()

    def reading(self) -> ReadResult:
        """Parse the definition. With `allow_src` a file may include others of its folder."""
        if self.path is None or not self.path.is_file():
            return read_text(self.data, format=self.format, source=self.name)
        return read_file(self.path, format=self.format, allow_src=self.allow_src)


def read_source(name: str, format: str | None = None, *, allow_src: bool = False) -> Source:
    """Return the definition in a file or on stdin. With `allow_src` it may include other files of its folder.

    Raises NotFoundError if the file does not exist, UsageError if it is a directory or its format is not known.
    """
    if format is not None:
        get_format(format)
    known = "|".join(FORMATS)
    if name == STDIN:
        if format is None:
            raise UsageError("the format of stdin is not known", code="format.unknown", hint=f"add --from {known}")
        data = sys.stdin.buffer.read(DEFINITION_STORED_BYTES_MAX + 1)
        return Source(name="<stdin>", data=data, format=format, path=None)
    path = Path(name)
    if path.is_dir():
        raise UsageError(f'"{path}" is a directory', code="file.directory", hint="name a file in it")
    data = read_bytes(path)
    found = format or format_for_text(name, data)
    if found is None:
        raise UsageError(f'the format of "{name}" is not known', code="format.unknown", hint=f"add --from {known}")
    return Source(name=name, data=data, format=found, path=path, allow_src=allow_src)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, at most one byte more than a definition may have; its reader checks the size.

    Raises NotFoundError if the file does not exist, OSError if it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(DEFINITION_STORED_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f'file not found: "{path}"', code="file.unknown", hint=_similar(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # `read` does not name the file


def _similar(path: Path) -> str | None:
    """The most similar name in the folder of a missing file."""
    try:
        known = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return f'the folder "{path.parent}" does not exist'
    similar = nearest(path.name, known)
    return None if similar is None else f'did you mean "{path.parent / similar}"?'


def read_json(text: str | None, what: str) -> Any:
    """Return the value of JSON text, of `-` (stdin) or of `@FILE`; None for None. Raises UsageError for other text."""
    if text is None:
        return None
    data: str | bytes = text
    if text == STDIN:
        data = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX * 2)  # more is refused by its size anyway
    elif text.startswith("@"):
        data = read_bytes(Path(text[1:]))
    try:
        return msgspec.json.decode(data)
    except UNDECODABLE as error:
        hint = """write it like '{"id": "p-1"}', and a string with its own quotes: '"yes"'"""
        raise UsageError(f"{what} is not JSON: {error}", code="payload.json", hint=hint) from None


def read_json_object(text: str | None, what: str) -> dict[str, Any] | None:
    """Return the value of a JSON object, as `read_json` does. Raises UsageError for another type."""
    found = read_json(text, what)
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{what} is not a JSON object", code="context.type", hint="""write '{"amount": 5}'""")
    return found


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically; an existing file keeps its mode.

    Raises NotFoundError if its folder does not exist, UsageError for a directory, OSError if it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f'"{path}" is a directory', code="file.directory", hint="name a file")
    if not path.parent.is_dir():
        raise NotFoundError(f'the folder "{path.parent}" does not exist', code="file.folder", hint="create it first")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe cannot be replaced
        else:
            replace_file(path.resolve(), data)  # a link keeps its target
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # with the name that the caller gave
