"""Every exception of Interlock, by what the caller should do next, and the diagnostics of definitions.

Rule 1: one root, `InterlockError`; each class has a stable dotted `code` and, when we know the cure, a `hint`.
Rule 2: messages name the value, the place and the wish; they never carry secrets or whole payloads.
Rule 3: errors survive pickling, because they cross processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands in a definition: file, line and column (from 1), the end, and the path of keys to it."""

    file: str = "<definition>"
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    path: str = ""

    def at(self, path: str) -> Place:
        """The same position under another path of keys."""
        return Place(self.file, self.line, self.column, self.end_line, self.end_column, path)

    def shifted(self, start: int, end: int) -> Place:
        """The part of this place from character `start` to `end`: a position inside a one-line expression."""
        column = self.column + start
        return Place(self.file, self.line, column, self.line, max(column + 1, self.column + end), self.path)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding about a definition: what, where, how bad, and the fix when we know it."""

    code: str
    message: str
    place: Place = NOWHERE
    severity: Severity = "error"
    hint: str | None = None

    def __str__(self) -> str:
        path = f" {self.place.path}" if self.place.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.place} {self.severity} {self.code}{path}: {self.message}{hint}"

    def annotation(self) -> str:
        """The finding as a GitHub workflow command, so that it shows beside the line in a pull request."""
        level = {"error": "error", "warning": "warning", "info": "notice"}[self.severity]
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        place = self.place
        return (
            f"::{level} file={place.file},line={place.line},col={place.column},"
            f"endLine={place.end_line},endColumn={place.end_column},title={self.code}::{text}"
        )


class InterlockError(Exception):
    """The root of every exception that Interlock raises."""

    code = "interlock"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__.copy())


def _rebuilt(cls: type[InterlockError], args: tuple[object, ...], fields: dict[str, object]) -> InterlockError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class DefinitionError(InterlockError):
    """The definition is wrong: fix the chart. Tells the errors; carries all diagnostics, sorted by position."""

    code = "definition"

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        found = tuple(sorted(diagnostics, key=lambda each: (each.place, each.code)))
        errors = [each for each in found if each.severity == "error"]
        lines = "\n".join(f"  {each}" for each in errors)
        super().__init__(f"{len(errors)} error{'s' if len(errors) != 1 else ''} in the definition\n{lines}")
        self.diagnostics = found


class RejectedError(InterlockError):
    """The chart said no: do not retry."""

    code = "rejected"


class DeniedError(InterlockError):
    """The policy said no: do not retry."""

    code = "denied"


class NotFoundError(InterlockError):
    """No such entity, file or name: check the id, or create it first."""

    code = "not_found"


class ArchivedError(NotFoundError):
    """The journal left for an archive: read it there. `archive` is the address."""

    code = "journal.archived"

    def __init__(self, entity: str, version: int, archive: str) -> None:
        message = f"the journal of `{entity}` up to version {version} is in the archive {archive}"
        super().__init__(message, hint=f"read it there: interlock journal {archive} {entity}")
        self.archive = archive


class ConflictError(InterlockError):
    """The compare-and-swap was lost: retry on a fresh snapshot. The driver already did, several times."""

    code = "conflict"


class UnavailableError(InterlockError):
    """The store cannot keep its promise now: retry later with the same key. Nothing was acknowledged."""

    code = "unavailable"


class CorruptionError(InterlockError):
    """Stored bytes do not mean what they should: stop this entity, call a person, keep the evidence."""

    code = "corruption"


class MissingExtraError(InterlockError):
    """A part that is installed separately is needed: install the extra that the message names."""

    code = "missing_extra"


class UsageError(InterlockError, ValueError):
    """The call itself is wrong (an argument, a name that was never registered): fix the calling code."""

    code = "usage"


class InternalError(InterlockError):
    """Our bug. The message says how to report it."""

    code = "internal"
