"""Up to when keys are forgotten: with the time that passes, never by a clock alone."""

from __future__ import annotations

import pytest

from interlock.model.limits import KEY_WINDOW_MS
from interlock.stores import key_boundary
from interlock.stores.key_boundary import MORE_MS_MAX, KeyBoundary, window_start_ms

NOW = 1_800_000_000_000
BEGIN = NOW - KEY_WINDOW_MS
HOUR = 3_600_000
FAR = NOW * 2


class Ticks:
    """The monotonic clock, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 5_000.0
        monkeypatch.setattr(key_boundary, "monotonic_ns", lambda: int(self.ms * 1_000_000))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """What passes for time."""
    return Ticks(monkeypatch)


@pytest.mark.parametrize(
    ("now_ms", "newest_ms"), [(NOW, NOW), (FAR, NOW), (NOW, FAR)], ids=["both", "clock ahead", "entry ahead"]
)
def test_the_window_is_that_of_the_earlier_of_two_clocks(now_ms: int, newest_ms: int) -> None:
    """The machine's own, and that of the newest entry."""
    assert BEGIN == window_start_ms(now_ms, newest_ms)


def test_a_boundary_keeps_to_the_window_while_time_passes(ticks: Ticks) -> None:
    """The clock is right: every hour lets go of an hour."""
    kept, reached = KeyBoundary(BEGIN), list[int]()
    for hours in range(1, 4):
        ticks.ms += HOUR
        reached.append(kept.advance(BEGIN + hours * HOUR))

    assert [BEGIN + HOUR, BEGIN + 2 * HOUR, BEGIN + 3 * HOUR] == reached


def test_a_clock_that_jumps_moves_nothing(ticks: Ticks) -> None:
    """However far ahead it says the window starts; a second later it is a second and a quarter."""
    kept = KeyBoundary(BEGIN)
    at_once = kept.advance(FAR)
    ticks.ms += 1_000
    later = kept.advance(FAR)

    assert (BEGIN, BEGIN + 1_250) == (at_once, later)


def test_after_a_jump_the_boundary_waits_until_the_window_is_there(ticks: Ticks) -> None:
    """What was moved too far expires no more keys, and the window counts."""
    kept = KeyBoundary(BEGIN)
    ticks.ms += HOUR
    too_far = kept.advance(FAR)
    back = kept.advance(BEGIN + HOUR)
    ticks.ms += HOUR
    level = kept.advance(BEGIN + 2 * HOUR)

    assert (BEGIN + HOUR * 5 // 4, BEGIN + HOUR, BEGIN + 2 * HOUR) == (too_far, back, level)
    assert BEGIN + 2 * HOUR == kept.time_ms


def test_a_clock_that_falls_back_does_not_move_the_boundary_back(ticks: Ticks) -> None:
    """A machine that starts in 1970 would need decades to make up for it."""
    kept = KeyBoundary(BEGIN)
    fallen = kept.advance(-KEY_WINDOW_MS)
    ticks.ms += HOUR
    risen = kept.advance(BEGIN + HOUR)

    assert (-KEY_WINDOW_MS, BEGIN + HOUR) == (fallen, risen)


def test_time_that_the_clock_held_back_is_not_saved_up(ticks: Ticks) -> None:
    """After a year at the window, a jump finds no quarter of a year to spend."""
    kept = KeyBoundary(BEGIN)
    for hours in range(1, 365 * 24 + 1):
        ticks.ms += HOUR
        kept.advance(BEGIN + hours * HOUR)

    assert BEGIN + 365 * 24 * HOUR == kept.advance(FAR)


def test_a_writer_without_a_quiet_moment_saves_up_little(ticks: Ticks) -> None:
    """A month between two looks adds half an hour, not a week."""
    kept = KeyBoundary(BEGIN)
    ticks.ms += KEY_WINDOW_MS

    assert BEGIN + KEY_WINDOW_MS + MORE_MS_MAX == kept.advance(FAR)


def test_a_boundary_that_is_behind_catches_up_by_a_quarter(ticks: Ticks) -> None:
    """After a day in which no process had the store open: in four."""
    day = 24 * HOUR
    kept, reached = KeyBoundary(BEGIN - day), list[int]()
    for hours in range(1, 5 * 24):
        ticks.ms += HOUR
        reached.append(BEGIN + hours * HOUR - kept.advance(BEGIN + hours * HOUR))

    assert (day - HOUR // 4, HOUR // 4, 0) == (reached[0], reached[4 * 24 - 2], reached[4 * 24 - 1])
