"""An event, and the clock of the driver that took it."""

from __future__ import annotations

from interlock.model.codec import encode
from interlock.model.event import Event


def test_an_event_was_taken_at_its_time_unless_the_clock_was_behind() -> None:
    """Another clock had been ahead: the entity's time waits, and the driver's own is kept."""
    assert (5, 5) == (Event("a", time_ms=5).at_ms, Event("a", time_ms=7, clock_ms=5).at_ms)


def test_a_clock_that_is_not_behind_leaves_no_trace() -> None:
    """Journals stay as they were."""
    assert b"clock_ms" not in encode(Event("a", time_ms=5))
    assert b'"clock_ms":5' in encode(Event("a", time_ms=7, clock_ms=5))
