"""Rates and dwell times of recent steps, summed in memory until a store writes them.

Rule: a buffer belongs to one thread. What it has is lost with its process: it is statistics, not truth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from interlock.ports.statistics import DAY_MS, DWELL_BOUNDS_MS, MINUTE_MS

BUCKETS = len(DWELL_BOUNDS_MS) + 1

STEPS, CONFLICTS, REFUSALS = range(3)


class StatisticsBuffer:
    """Stays by (kind, state, day, bucket), and steps, conflicts and refusals by (kind, minute)."""

    __slots__ = ("minutes", "stays")

    def __init__(self) -> None:
        self.stays: dict[tuple[str, str, int, int], int] = {}
        self.minutes: dict[tuple[str, int], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.stays or self.minutes)

    def clear(self) -> None:
        """Empty the buffer."""
        self.stays.clear()
        self.minutes.clear()

    def count_step(self, kind: str, states_left: Iterable[tuple[str, int]], time_ms: int) -> None:
        """Count a step, and the dwell times of the states that it left; each state comes with its entry time."""
        self.count(kind, STEPS, time_ms)
        for state, entered_ms in states_left:
            bucket = bisect_left(DWELL_BOUNDS_MS, time_ms - entered_ms)
            place = (kind, state, time_ms // DAY_MS * DAY_MS, bucket)
            self.stays[place] = self.stays.get(place, 0) + 1

    def count(self, kind: str, what: int, time_ms: int) -> None:
        """Count one step (`STEPS`), conflict (`CONFLICTS`) or refusal (`REFUSALS`)."""
        minute = self.minutes.setdefault((kind, time_ms // MINUTE_MS * MINUTE_MS), [0, 0, 0])
        minute[what] += 1

    def forget_after(self, now_ms: int) -> None:
        """Delete counts of days and minutes that have not started yet: a clock was ahead."""
        self.stays = {place: count for place, count in self.stays.items() if place[2] <= now_ms}
        self.minutes = {when: counts for when, counts in self.minutes.items() if when[1] <= now_ms}

    def add(self, other: StatisticsBuffer) -> None:
        """Add the counts of another buffer."""
        for place, count in other.stays.items():
            self.stays[place] = self.stays.get(place, 0) + count
        for when, counts in other.minutes.items():
            mine = self.minutes.setdefault(when, [0, 0, 0])
            for what, count in enumerate(counts):
                mine[what] += count
