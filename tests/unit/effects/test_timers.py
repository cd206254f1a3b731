"""What downtime does to a timer (S39)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock.effects.timers import TimerShift, shift_for_downtime
from interlock.model.snapshot import Timer
from interlock.ports.leases import Downtime

SET = 1_000
TIMER = Timer("t", "due", SET + 100, 2, 0)
REMAINING, RESTART = replace(TIMER, restore="remaining"), replace(TIMER, restore="restart")


def test_a_deadline_is_never_moved() -> None:
    """The moment counts."""
    assert None is shift_for_downtime((Downtime(1_010, 1_500),), TIMER, SET)


@pytest.mark.parametrize(
    ("gaps", "due_ms"),
    [
        ([(1_030, 1_530)], 1_600),
        ([(1_030, 1_060)], 1_130),
        ([(900, 1_500)], 1_600),
        ([(1_010, 1_020), (1_030, 1_530)], 1_610),
        ([(1_030, 1_530), (1_590, 2_590)], 2_600),
        ([(1_099, 1_200)], 1_201),
    ],
    ids=["over its end", "within", "set meanwhile", "two", "one after it was moved", "just before"],
)
def test_a_remaining_timer_keeps_its_remaining_time(gaps: list[tuple[int, int]], due_ms: int) -> None:
    downtimes = tuple(Downtime(*each) for each in gaps)

    assert TimerShift(due_ms, downtimes[-1].ended_ms) == shift_for_downtime(downtimes, REMAINING, SET)


def test_a_restarted_timer_counts_from_the_end_of_the_last_downtime() -> None:
    assert TimerShift(1_600, 1_500) == shift_for_downtime((Downtime(1_099, 1_500),), RESTART, SET)
    assert TimerShift(2_100, 2_000) == shift_for_downtime(
        (Downtime(1_010, 1_500), Downtime(1_550, 2_000)), RESTART, SET
    )


@pytest.mark.parametrize("timer", [REMAINING, RESTART])
@pytest.mark.parametrize("gap", [(1_100, 2_000), (1_101, 2_000), (500, 1_000), (500, 900)])
def test_a_downtime_after_the_due_time_or_before_the_timer_was_set_has_no_effect(
    timer: Timer, gap: tuple[int, int]
) -> None:
    assert None is shift_for_downtime((Downtime(*gap),), timer, SET)


@given(
    st.lists(st.integers(0, 500), min_size=2, max_size=12).map(sorted),
    st.sampled_from(["remaining", "restart"]),
    st.integers(0, 300),
    st.integers(1, 300),
)
def test_no_downtime_is_counted_twice(times: list[int], restore: str, since_ms: int, delay_ms: int) -> None:
    """A shifted timer that is shifted again by the same downtimes stays the same."""
    gaps = tuple(Downtime(*pair) for pair in zip(times[::2], times[1::2], strict=False) if pair[0] < pair[1])
    timer = Timer("t", "due", since_ms + delay_ms, 1, 0, restore=restore)
    moved = shift_for_downtime(gaps, timer, since_ms)
    if moved is None:
        return

    assert None is shift_for_downtime(
        gaps, replace(timer, due_ms=moved.due_ms, since_ms=moved.since_ms), moved.since_ms
    )
    assert moved.due_ms >= timer.due_ms
    if restore == "remaining":
        up = sum(1 for ms in range(since_ms, moved.due_ms) if not any(g.started_ms <= ms < g.ended_ms for g in gaps))
        assert delay_ms == up
    else:
        assert moved.since_ms + delay_ms == moved.due_ms
