"""Collects diagnostics, so that all problems of a definition are reported together."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from interlock.errors import NO_LOCATION, Diagnostic, SourceLocation


class Diagnostics:
    """A growing list of diagnostics. Readers and the compiler continue after an error."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Diagnostic] = ()) -> None:
        self.items = list(items)

    def error(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add an error: the definition cannot be used."""
        self.items.append(Diagnostic(code=code, message=message, location=location, severity="error", hint=hint))

    def warning(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add a warning: probably a mistake."""
        self.items.append(Diagnostic(code=code, message=message, location=location, severity="warning", hint=hint))

    def info(self, code: str, message: str, location: SourceLocation = NO_LOCATION, hint: str | None = None) -> None:
        """Add an info: not a mistake, but useful to know."""
        self.items.append(Diagnostic(code=code, message=message, location=location, severity="info", hint=hint))

    @property
    def has_errors(self) -> bool:
        """Whether any diagnostic is an error."""
        return any(each.severity == "error" for each in self.items)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """The diagnostics by position, then by code."""
        return tuple(sorted(self.items, key=lambda each: (each.location, each.code)))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one, or differs in case only; None if none is similar."""
    candidates = list(known)
    similar = get_close_matches(word, candidates, 1, 0.6)
    return next(iter(similar), None) or next((each for each in candidates if each.lower() == word.lower()), None)


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean "paid"?` for the most similar known word; None if none is similar."""
    found = nearest(word, known)
    return None if found is None else f'did you mean "{found}"?'
