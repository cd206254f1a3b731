"""A queue of values by key: each key once, at a rate, later each time that it failed."""

from __future__ import annotations

import pytest

from interlock.model.limits import RECONCILE_BACKOFF_MS_MAX, RECONCILE_BACKOFF_MS_MIN
from interlock.runtime.reconcile.queue import KeyedQueue


def queue(rate: float = 1_000, failing_max: int = 100) -> KeyedQueue[int]:
    """A queue of numbers."""
    return KeyedQueue(rate=rate, failing_max=failing_max)


def test_values_come_in_the_order_in_which_they_were_added() -> None:
    made = queue()
    for key in "abc":
        made.add(key, ord(key))

    assert [("a", 97), ("b", 98), ("c", 99)] == [made.take(each) for each in (0, 1, 2)]
    assert None is made.take(3)


def test_a_key_waits_once_with_its_newest_value() -> None:
    made = queue()

    assert [True, True, False] == [made.add("a", 1), made.add("b", 1), made.add("a", 2)]
    assert [("a", 2), ("b", 1), None] == [made.take(each) for each in (0, 1, 2)]


def test_a_running_key_is_not_added_until_it_is_done() -> None:
    made = queue()
    made.add("a", 1)
    made.take(0)

    assert (False, None) == (made.add("a", 2), made.take(1))
    made.done("a")
    assert (True, ("a", 2)) == (made.add("a", 2), made.take(2))


def test_the_rate_spaces_them_out() -> None:
    """Four a second: one each quarter, and none is saved up."""
    made = queue(rate=4)
    for key in "abc":
        made.add(key, 0)

    assert [True, False, True, False] == [made.take(each) is not None for each in (1_000, 1_249, 1_250, 1_251)]
    assert 1_500 == made.next_ms()
    assert None is not made.take(9_000)
    made.add("d", 0)
    assert None is made.take(9_001)


def test_a_failed_key_waits_twice_as_long_each_time() -> None:
    made = queue()
    waits = []
    for _ in range(14):
        made.add("a", 1)
        now = made.next_ms() or 0
        assert ("a", 1) == made.take(now)
        waits.append(made.failed("a", 1, now_ms=now, chance=1.0) - now)

    assert [RECONCILE_BACKOFF_MS_MIN << each for each in range(9)] == waits[:9]
    assert RECONCILE_BACKOFF_MS_MAX == waits[-1]
    assert RECONCILE_BACKOFF_MS_MAX / 2 == made.failed("a", 1, now_ms=0, chance=0.0)


def test_a_postponed_key_waits_for_its_time_even_if_it_is_added_again() -> None:
    made = queue()
    made.add("a", 1)
    made.take(0)
    due = made.failed("a", 1, now_ms=0, chance=1.0)

    assert (False, None, due) == (made.add("a", 2), made.take(due - 1), made.next_ms())
    assert 0 == made.waiting
    assert ("a", 2) == made.take(due)


def test_a_success_resets_the_failures() -> None:
    made = queue()
    for _ in range(3):
        made.failed("a", 1, now_ms=0, chance=1.0)
    made.done("a")

    assert RECONCILE_BACKOFF_MS_MIN == made.failed("a", 1, now_ms=0, chance=1.0)


def test_of_too_many_failing_ones_the_one_that_failed_longest_ago_is_forgotten() -> None:
    """A new pass finds it again."""
    made = queue(failing_max=2)
    for key in "abac":
        made.failed(key, 1, now_ms=0, chance=1.0)

    assert {"a", "c"} == {found[0] for each in range(3) if (found := made.take(100_000 + each))}


@pytest.mark.parametrize("rate", [1, 50, 1_000])
def test_an_empty_queue_has_no_next(rate: float) -> None:
    assert (None, None, 0) == (queue(rate).next_ms(), queue(rate).take(1), queue(rate).waiting)


def test_a_clock_that_was_ahead_blocks_nothing() -> None:
    queue: KeyedQueue[int] = KeyedQueue(rate=1)
    queue.add("a", 1)
    queue.add("b", 2)
    ahead_ms = 10**12
    assert ("a", 1) == queue.take(ahead_ms)
    queue.failed("a", 1, now_ms=ahead_ms, chance=1.0)

    assert ("b", 2) == queue.take(0)
    assert None is queue.take(999)
    assert ("a", 1) == queue.take(1_000)
