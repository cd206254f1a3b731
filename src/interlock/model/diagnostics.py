"""Collects diagnostics, so that all problems of a definition are reported together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches

from interlock.errors import NO_LOCATION, Diagnostic, Severity, SourceLocation
from interlock.model.limits import DIAGNOSTIC_LENGTH_MAX, DIAGNOSTICS_MAX


class Diagnostics:
    """A growing list of diagnostics. Readers and the compiler continue after an error."""

    __slots__ = ("_counts", "items")

    def __init__(self, items: Iterable[Diagnostic] = ()) -> None:
        self.items = list(items)
        self._counts = Counter(each.severity for each in self.items)

    def error(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add an error: the definition cannot be used."""
        self.add("error", code, message, location, hint)

    def warning(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add a warning: probably a mistake."""
        self.add("warning", code, message, location, hint)

    def info(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add an info: not a mistake, but useful to know."""
        self.add("info", code, message, location, hint)

    def add(self, severity: Severity, code: str, message: str, location: SourceLocation, hint: str | None) -> None:
        """Add a diagnostic of this severity. After a thousand of them, one more says that the others are left out."""
        self._counts[severity] += 1
        if self._counts[severity] > DIAGNOSTICS_MAX:
            if self._counts[severity] > DIAGNOSTICS_MAX + 1:
                return
            code, message, hint = "definition.problems", f"more than {DIAGNOSTICS_MAX:,} diagnostics like this", None
        text = shorten(message)
        self.items.append(Diagnostic(code=code, message=text, location=location, severity=severity, hint=hint))

    @property
    def has_errors(self) -> bool:
        """Whether any diagnostic is an error."""
        return any(each.severity == "error" for each in self.items)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """The diagnostics by position, then by code."""
        return tuple(sorted(self.items, key=lambda each: (each.location, each.code)))


def shorten(message: str) -> str:
    """Return a message with its start and its end, if it is too long: it quotes the text, which may be a megabyte."""
    if len(message) <= DIAGNOSTIC_LENGTH_MAX:
        return message
    end = DIAGNOSTIC_LENGTH_MAX // 4
    return f"{message[: DIAGNOSTIC_LENGTH_MAX - end - 5]} ... {message[-end:]}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one, or differs in case only; None if none is similar."""
    candidates = list(known)
    similar = get_close_matches(word, candidates, 1, 0.6)
    return next(iter(similar), None) or next((each for each in candidates if each.lower() == word.lower()), None)


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean "paid"?` for the most similar known word; None if none is similar."""
    found = nearest(word, known)
    return None if found is None else f'did you mean "{found}"?'
