"""Diagnostics: collected, sorted, and the nearest word."""

from __future__ import annotations

from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion


def test_diagnostics_are_reported_by_position() -> None:
    diagnostics = Diagnostics()
    diagnostics.warning("b", "second", SourceLocation("f", 2, 1))
    diagnostics.info("a", "first", SourceLocation("f", 1, 1))

    assert [each.code for each in diagnostics.sorted()] == ["a", "b"]
    assert not diagnostics.has_errors
    diagnostics.error("c", "third", SourceLocation("f", 3, 1), "fix it")
    assert diagnostics.has_errors


def test_the_nearest_known_word_is_suggested() -> None:
    assert suggestion("payed", ["paid", "payd"]) == 'did you mean "payd"?'
    assert suggestion("zzz", ["paid"]) is None
