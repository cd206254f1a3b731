"""GCRA, and the limiter by class and key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.trust.rate_limits import Gcra, Rate, RateLimiter, RequestClass

START = 1_790_000_000_000


def test_a_burst_is_allowed_at_once_and_then_the_rate() -> None:
    limit = Gcra(Rate(10, 100))
    assert [limit.take(START) for _ in range(100)] == [None] * 100
    assert limit.take(START) == 100
    assert limit.take(START + 99) == 1
    assert limit.take(START + 100) is None
    assert limit.take(START + 100) == 100


def test_a_refused_request_costs_nothing() -> None:
    limit = Gcra(Rate(1, 1))
    assert limit.take(START) is None
    assert [limit.take(START + ms) for ms in range(0, 1000, 100)] == [1000 - ms for ms in range(0, 1000, 100)]
    assert limit.take(START + 1000) is None


def test_the_burst_comes_back_after_a_pause_but_never_more() -> None:
    limit = Gcra(Rate(10, 5))
    for _ in range(5):
        assert limit.take(START) is None
    later = START + 3_600_000
    assert [limit.take(later) is None for _ in range(6)] == [True] * 5 + [False]


def test_a_clock_that_was_set_back_delays_by_no_more_than_an_empty_limit() -> None:
    limit = Gcra(Rate(10, 5))
    for _ in range(5):
        limit.take(START)
    before = START - 86_400_000
    assert limit.take(before) == 100
    assert limit.take(before + 100) is None


@given(
    per_second=st.sampled_from([0.1, 0.3, 1, 3, 7, 10, 999.5]),
    burst=st.integers(1, 20),
    gaps=st.lists(st.integers(0, 3000), min_size=1, max_size=200),
)
def test_no_window_ever_allows_more_than_burst_and_rate(per_second: float, burst: int, gaps: list[int]) -> None:
    limit, now, allowed = Gcra(Rate(per_second, burst)), START, list[int]()
    for gap in gaps:
        now += gap
        wait = limit.take(now)
        if wait is None:
            allowed.append(now)
        else:
            assert wait >= 1
            assert limit.take(now + wait - 1) is not None  # not longer than needed
    for first, start in enumerate(allowed):
        for last in range(first, len(allowed)):
            count = last - first + 1
            assert count <= burst + (allowed[last] - start) / 1000 * per_second + 1e-3


@given(per_second=st.sampled_from([0.3, 1, 3, 7, 10, 999.5]), burst=st.integers(1, 20))
def test_waiting_for_the_answer_is_enough(per_second: float, burst: int) -> None:
    limit, now = Gcra(Rate(per_second, burst)), START
    for _ in range(burst * 3):
        wait = limit.take(now)
        if wait is not None:
            now += wait
            assert limit.take(now) is None


def test_keys_and_classes_do_not_share() -> None:
    limiter = RateLimiter({RequestClass.SEND: Rate(1, 1), RequestClass.READ: Rate(1, 1)})
    assert limiter.take(RequestClass.SEND, "ada", START) is None
    assert limiter.take(RequestClass.SEND, "ada", START) == 1000
    assert limiter.take(RequestClass.SEND, "bob", START) is None
    assert limiter.take(RequestClass.READ, "ada", START) is None


def test_a_class_without_a_rate_is_unlimited() -> None:
    limiter = RateLimiter({})
    assert [limiter.take(RequestClass.SEND, "ada", START) for _ in range(1000)] == [None] * 1000


def test_the_least_recently_used_key_is_forgotten_and_only_in_its_class() -> None:
    limiter = RateLimiter({RequestClass.ANONYMOUS: Rate(1, 1), RequestClass.SEND: Rate(1, 1)}, keys_max=2)
    assert limiter.take(RequestClass.SEND, "ada", START) is None
    assert limiter.take(RequestClass.ANONYMOUS, "a", START) is None
    assert limiter.take(RequestClass.ANONYMOUS, "b", START) is None
    assert limiter.take(RequestClass.ANONYMOUS, "a", START) == 1000  # used again
    assert limiter.take(RequestClass.ANONYMOUS, "c", START) is None  # b is forgotten
    assert limiter.take(RequestClass.ANONYMOUS, "a", START) == 1000
    assert limiter.take(RequestClass.ANONYMOUS, "b", START) is None
    assert limiter.take(RequestClass.SEND, "ada", START) == 1000


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0), (1e9, 1), (1, 10**9)])
def test_a_rate_outside_the_limits_is_a_usage_error(per_second: float, burst: int) -> None:
    with pytest.raises(UsageError) as caught:
        Rate(per_second, burst)
    assert caught.value.code == "rate.range"
