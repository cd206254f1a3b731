"""When a disk is waited for in place."""

from __future__ import annotations

from interlock.stores.threads.inline_policy import QUICK_CALLS_FIRST, QUICK_CALLS_MAX, QUICK_NS, TURN_NS, InlinePolicy


def quick_calls(pace: InlinePolicy) -> int:
    """How many quick calls it takes until the next is waited for in place."""
    count = 0
    while not pace.is_quick:
        pace.record(QUICK_NS)
        count += 1
    return count


def test_a_disk_is_measured_before_it_is_believed() -> None:
    """The first calls go to threads."""
    assert QUICK_CALLS_FIRST == quick_calls(InlinePolicy())


def test_what_stood_still_is_avoided_for_as_long_as_it_cost() -> None:
    """A stall of a tenth of a second is worth a hundred quick calls; a slow disk is never waited for in place."""
    pace = InlinePolicy()
    quick_calls(pace)

    pace.record(100_000_000)
    after_stall = quick_calls(pace)
    for _ in range(10):
        pace.record(2 * QUICK_NS)

    assert (100, 20) == (after_stall, quick_calls(pace))


def test_even_an_hour_is_forgiven() -> None:
    """There is a most that is owed."""
    pace = InlinePolicy()
    pace.record(3_600_000_000_000)

    assert QUICK_CALLS_MAX == quick_calls(pace)


def test_others_get_their_turn_after_a_millisecond() -> None:
    """However many calls were waited for in place meanwhile."""
    pace = InlinePolicy()
    times = [TURN_NS, TURN_NS + 1, 2 * TURN_NS - 1, 2 * TURN_NS, 2 * TURN_NS + 1]

    assert [True, False, False, True, False] == [pace.should_yield(each) for each in times]


def test_a_quick_disk_stays_quick() -> None:
    """Nothing is paid in advance: one slow call counts immediately."""
    pace = InlinePolicy()
    quick_calls(pace)
    for _ in range(100):
        pace.record(1)
    pace.record(QUICK_NS + 1)

    assert not pace.is_quick
    assert 1 == quick_calls(pace)
