"""What is printed and written: every figure with its spread, and no quick run that looks like a real one."""

from __future__ import annotations

import pytest

from bench.workloads import WORKLOADS, WrongResultError, check_regions, check_toggle, fitting


def test_counts_fit_the_checks() -> None:
    """Whole cycles, and odd where a peer that never moves would otherwise pass."""
    assert {"W1": 99, "W2": 100, "W3": 96, "W4": 99, "W5": 100, "W6": 100} == {
        each: fitting(each, 100) for each in WORKLOADS
    }
    assert {"W1": 1, "W2": 10, "W3": 6} == {each: fitting(each, 0) for each in ("W1", "W2", "W3")}


def test_a_peer_that_never_moves_is_caught() -> None:
    """The check after every repeat is what makes the figures mean something."""
    with pytest.raises(WrongResultError, match="wanted 'on', found 'off'"):
        check_toggle("off", fitting("W1", 100))
    with pytest.raises(WrongResultError):
        check_regions(["on", "on", "on", "off"], fitting("W4", 100))
