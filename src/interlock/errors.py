"""All exceptions of Interlock, one class per reaction of the caller, and the diagnostics of definitions.

Rule 1: every class derives from `InterlockError` and has a stable dotted `code`. A `hint` names the fix, if it is
        known.
Rule 2: a message names the value, the place and what was expected. It never contains secrets or whole payloads.
Rule 3: errors can be pickled, because they cross processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """A position in a definition: file, line and column (from 1), the end, and the path of keys to it."""

    file: str = "<definition>"
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    path: str = ""

    def with_path(self, path: str) -> SourceLocation:
        """Return the same position with another path of keys."""
        return SourceLocation(self.file, self.line, self.column, self.end_line, self.end_column, path)

    def shift(self, start: int, end: int) -> SourceLocation:
        """Return the position of the characters from `start` to `end` of an expression on one line."""
        column = self.column + start
        return SourceLocation(self.file, self.line, column, self.line, max(column + 1, self.column + end), self.path)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NO_LOCATION = SourceLocation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem of a definition: its code, message, position and severity, and the fix if it is known."""

    code: str
    message: str
    location: SourceLocation = NO_LOCATION
    severity: Severity = "error"
    hint: str | None = None

    def __str__(self) -> str:
        path = f" {self.location.path}" if self.location.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.location} {self.severity} {self.code}{path}: {self.message}{hint}"

    def annotation(self) -> str:
        """Return a GitHub workflow command that shows this diagnostic at its line in a pull request."""
        level = {"error": "error", "warning": "warning", "info": "notice"}[self.severity]
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        location = self.location
        return (
            f"::{level} file={location.file},line={location.line},col={location.column},"
            f"endLine={location.end_line},endColumn={location.end_column},title={self.code}::{text}"
        )


class InterlockError(Exception):
    """Base class of every exception that Interlock raises.

    `code` is stable and dotted. `hint` names the fix, or is None. `is_recorded`: the audit has a row about it, or
    needs none.
    """

    code = "interlock"
    is_recorded = False

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (type(self), self.args, self.__dict__.copy())


def _unpickle(cls: type[InterlockError], args: tuple[object, ...], fields: dict[str, object]) -> InterlockError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class DefinitionError(InterlockError):
    """The definition is invalid: fix the chart.

    The message lists the errors. `diagnostics` also has warnings and notes, sorted by position.
    """

    code = "definition"

    def __init__(self, diagnostics: Iterable[Diagnostic], *, what: str = "definition") -> None:
        found = tuple(sorted(diagnostics, key=lambda each: (each.location, each.code)))
        errors = [each for each in found if each.severity == "error"]
        lines = "\n".join(f"  {each}" for each in errors)
        super().__init__(f"{len(errors)} error{'s' if len(errors) != 1 else ''} in the {what}\n{lines}")
        self.diagnostics = found


class RejectedError(InterlockError):
    """The chart rejected the event: do not retry."""

    code = "rejected"


class DeniedError(InterlockError):
    """The policy denied the event: do not retry."""

    code = "denied"


class NotFoundError(InterlockError):
    """The entity, file or name does not exist: check the id, or create it first."""

    code = "not_found"


class ArchivedError(NotFoundError):
    """The journal was moved to an archive: read it there. `archive` is the address."""

    code = "journal.archived"

    def __init__(self, entity: str, version: int, archive: str) -> None:
        message = f"the journal of `{entity}` up to version {version} is in the archive {archive}"
        super().__init__(message, hint=f"read it there: interlock journal {archive} {entity}")
        self.archive = archive


class CompactedError(NotFoundError):
    """The oldest entries of the journal were compacted: the oldest version that can be read is `since`."""

    code = "journal.compacted"

    def __init__(self, entity: str, version: int) -> None:
        message = f"the journal of `{entity}` was compacted: its entries up to version {version} are removed"
        super().__init__(message, hint=f"the oldest state that can be read is that of version {version}")
        self.since = version


class PrunedError(NotFoundError):
    """The entity was removed by retention, and its id is never used again. `version` was its last one.

    `archive` is the address of the archive that has its journal, if one has it.
    """

    code = "entity.pruned"

    def __init__(self, entity: str, version: int, archive: str | None = None) -> None:
        hint = "use another id: an id is never used twice"
        if archive:
            hint = f"read its journal in the archive: interlock journal {archive} {entity}"
        super().__init__(f"`{entity}` was removed by retention; its last version was {version}", hint=hint)
        self.version = version
        self.archive = archive


class ConflictError(InterlockError):
    """Another writer changed the entity first: retry on a fresh snapshot. The driver has already retried."""

    code = "conflict"


class UnavailableError(InterlockError):
    """The store is unreachable or busy: retry later with the same key. Nothing was acknowledged.

    `retry_after_ms` is how long to wait, if that is known.
    """

    code = "unavailable"

    def __init__(
        self, message: str, *, code: str | None = None, hint: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after_ms = retry_after_ms


class CorruptionError(InterlockError):
    """Stored data is corrupt: stop this entity, keep the evidence and inform an operator."""

    code = "corruption"


class MissingExtraError(InterlockError):
    """An optional dependency is missing: install the extra that the message names."""

    code = "missing_extra"


class UsageError(InterlockError, ValueError):
    """The call is invalid, such as an argument or a name that is not registered: fix the calling code."""

    code = "usage"


class ImpureFunctionError(UsageError):
    """A guard or assign function is not pure. Raised by the test kit. `function` is its registered name."""

    code = "function.impure"

    def __init__(self, message: str, *, function: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.function = function


class InternalError(InterlockError):
    """A bug in Interlock. The message says how to report it."""

    code = "internal"
