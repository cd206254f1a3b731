"""Exponential backoff."""

from __future__ import annotations

import pytest

from interlock.model.backoff import Backoff


def test_wait_doubles_up_to_the_bound() -> None:
    backoff = Backoff(100, 1_000, jitter=0)
    assert [backoff.wait_ms(failures, 0.0) for failures in range(6)] == [100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.parametrize(("jitter", "shortest"), [(0.0, 800), (0.5, 400), (1.0, 0)])
def test_jitter_is_the_random_part_of_the_wait(jitter: float, shortest: float) -> None:
    backoff = Backoff(100, 1_000, jitter=jitter)
    assert backoff.wait_ms(3, 0.0) == shortest
    assert backoff.wait_ms(3, 1.0) == 800


def test_any_number_of_failures_is_accepted() -> None:
    assert Backoff(1, 60_000).wait_ms(10**9, 1.0) == 60_000


@pytest.mark.parametrize("values", [(2, 1, 1.0), (-1, 1, 1.0), (1, 2, 1.5), (1, 2, -0.1)])
def test_bounds_out_of_order_are_a_defect(values: tuple[float, float, float]) -> None:
    with pytest.raises(AssertionError):
        Backoff(*values)
