"""Diagnostics: collected, sorted, and the nearest word."""

from __future__ import annotations

from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.limits import DIAGNOSTIC_LENGTH_MAX, DIAGNOSTICS_MAX


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


def test_a_long_message_keeps_its_start_and_its_end() -> None:
    diagnostics = Diagnostics()
    diagnostics.error("a", f'"{"x" * 1_000_000}" is not a name')
    (found,) = diagnostics.items

    assert DIAGNOSTIC_LENGTH_MAX == len(found.message)
    assert found.message.startswith('"xxx')
    assert found.message.endswith('xxx" is not a name')


def test_diagnostics_beyond_the_limit_are_counted_and_not_kept() -> None:
    diagnostics = Diagnostics()
    for number in range(DIAGNOSTICS_MAX + 5):
        diagnostics.warning("a", str(number))
    diagnostics.error("b", "still reported")

    assert DIAGNOSTICS_MAX + 2 == len(diagnostics.items)
    assert ["definition.problems", "b"] == [each.code for each in diagnostics.items[-2:]]
