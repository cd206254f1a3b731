"""Findings: collected, sorted, and the nearest word."""

from __future__ import annotations

from interlock.errors import Place
from interlock.model.diagnostics import Findings, suggestion


def test_diagnostics_are_sorted_by_position() -> None:
    """Whatever the order in which they were found."""
    findings = Findings()
    findings.warning("b", "second", Place("f", 2, 1))
    findings.info("a", "first", Place("f", 1, 1))

    assert [each.code for each in findings.sorted()] == ["a", "b"]
    assert not findings.failed
    findings.error("c", "third", Place("f", 3, 1), "fix it")
    assert findings.failed


def test_the_nearest_known_word_is_suggested() -> None:
    assert suggestion("payed", ["paid", "payd"]) == 'did you mean "payd"?'
    assert suggestion("zzz", ["paid"]) is None
