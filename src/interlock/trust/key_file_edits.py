"""Changes of a key file that keep its comments and its order: tables are added, changed or removed as text.

Rule 1: after each change the text is parsed again and must have exactly the wanted tables. If not, because the file is
written in another form of TOML, nothing is written and the error says so.
Rule 2: a change holds a lock on the folder and replaces the file atomically, so two commands do not lose a change, and
a running server reads the old file or the new one.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interlock.errors import UsageError
from interlock.model.limits import KEY_FILE_BYTES_MAX
from interlock.ports.replaced_file import replace_file
from interlock.ports.trust.private_file import read_private_text
from interlock.trust.key_file import parse_key_file

_HEADER = re.compile(r"^[ \t]*\[(\[?)[ \t]*([A-Za-z0-9_-]+)((?:[ \t]*\.[ \t]*[A-Za-z0-9_-]+)*)[ \t]*\]", re.MULTILINE)

Tables = dict[str, Any]


class KeyFileText:
    """The text of a key file, and what it contains."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._wanted: Tables = tomllib.loads(text)

    def tables(self, name: str) -> list[Tables]:
        """Return the tables `[[name]]`, in order."""
        found = self._wanted.get(name, [])
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def add(self, name: str, table: Mapping[str, Any]) -> None:
        """Add a table at the end. Fields that are None are left out."""
        given = {field: value for field, value in table.items() if value is not None}
        lines = [f"[[{name}]]", *(f"{field} = {toml_value(value)}" for field, value in given.items())]
        start = "" if not self.text.strip() else self.text.rstrip("\n") + "\n\n"
        self.text = start + "\n".join(lines) + "\n"
        self._wanted.setdefault(name, []).append(given)

    def set(self, name: str, index: int, field: str, value: object) -> None:
        """Set a field of a table."""
        start, end = self._block(name, index)
        header, newline, body = self.text[start:end].partition("\n")
        body = re.sub(rf"(?m)^[ \t]*{re.escape(field)}[ \t]*=.*\n?", "", body)
        changed = f"{header}{newline or chr(10)}{field} = {toml_value(value)}\n{body}"
        self.text = self.text[:start] + changed + self.text[end:]
        self._wanted[name][index][field] = value

    def remove(self, name: str, index: int) -> None:
        """Remove a table, with the comments inside it."""
        start, end = self._block(name, index)
        self.text = self.text[:start] + self.text[end:]
        del self._wanted[name][index]
        if not self._wanted[name]:
            del self._wanted[name]

    def checked(self, path: Path, check: Callable[[str, Path], object] = parse_key_file) -> str:
        """Return the text, valid and with exactly the wanted tables. Raises UsageError."""
        try:
            is_wanted = tomllib.loads(self.text) == self._wanted
        except tomllib.TOMLDecodeError:
            is_wanted = False
        if not is_wanted:
            raise _unknown_form(path)
        check(self.text, path)
        return self.text

    def _block(self, name: str, index: int) -> tuple[int, int]:
        """Where a table is in the text, with its sub-tables; an empty range if it is written in another form."""
        own, start = -1, None
        for header in _HEADER.finditer(self.text):
            is_sub = bool(header[3])
            if start is not None and not (is_sub and header[2] == name):
                return start, header.start()
            if header[1] and header[2] == name and not is_sub:
                own += 1
                if own == index:
                    start = header.start()
        return (0, 0) if start is None else (start, len(self.text))


def toml_value(value: object) -> str:
    """Return a value as TOML writes it: text, a number, a truth value, a time, a list or an inline table."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml_value(each)}" for name, each in value.items()) + "}"
    text = json.dumps(value, ensure_ascii=False)  # TOML has the same text, numbers and truth values
    return text.replace("\x7f", "\\u007f")


def edit_key_file(
    path: Path,
    change: Callable[[KeyFileText], None],
    *,
    create: bool = False,
    check: Callable[[str, Path], object] = parse_key_file,
) -> None:
    """Change a key file. With `create`, a missing one is created, which only its owner can read.

    `check` raises UsageError for a text that is not valid: of a key file, unless another is given.

    Raises UsageError if the file is or would be invalid, NotFoundError if it does not exist.
    """
    with _locked(path):
        text = "" if create and not path.exists() else read_private_text(path, bytes_max=KEY_FILE_BYTES_MAX)
        if text or not create:
            check(text, path)
        found = KeyFileText(text)
        change(found)
        data = found.checked(path, check).encode()
        try:
            replace_file(path.resolve(), data, mode=0o600)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}", code="keys.unwritable") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the folder. Without such locks on this system, the last of two changes wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        hint = "create the folder first"
        raise UsageError(f"cannot open the folder of {path}: {error.strerror}", code="keys.folder", hint=hint) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _unknown_form(path: Path) -> UsageError:
    message = f"{path} is written in a form that this command cannot change"
    hint = "write each key as a table [[key]] with one field per line, or edit the file yourself"
    return UsageError(message, code="keys.form", hint=hint)
