"""Diagnostics: collected, sorted, and the nearest word."""

from __future__ import annotations

from interlock.errors import Place
from interlock.model.diagnostics import Diagnostics, suggestion


def test_diagnostics_are_reported_by_position() -> None:
    diagnostics = Diagnostics()
    diagnostics.warning("b", "second", Place("f", 2, 1))
    diagnostics.info("a", "first", Place("f", 1, 1))

    assert [each.code for each in diagnostics.sorted()] == ["a", "b"]
    assert not diagnostics.has_errors
    diagnostics.error("c", "third", Place("f", 3, 1), "fix it")
    assert diagnostics.has_errors


def test_the_nearest_known_word_is_suggested() -> None:
    assert suggestion("payed", ["paid", "payd"]) == 'did you mean "payd"?'
    assert suggestion("zzz", ["paid"]) is None
