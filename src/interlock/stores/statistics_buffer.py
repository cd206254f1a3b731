"""Rates and dwell times of recent steps, kept in memory until a store writes them.

Rule 1: a buffer belongs to one thread. Its content is lost when its process ends: it is statistics, not truth.
Rule 2: a step is only noted. Notes are summed when they are read, or when there are `NOTES_MAX` of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from interlock.ports.statistics import DAY_MS, DWELL_BOUNDS_MS, MINUTE_MS

BUCKETS = len(DWELL_BOUNDS_MS) + 1

NOTES_MAX = 4_096
"""Notes before they are summed: a few hundred KiB."""

STEPS, CONFLICTS, REFUSALS = range(3)


class StatisticsBuffer:
    """Stays by (kind, state, day, bucket), and steps, conflicts and refusals by (kind, minute)."""

    __slots__ = ("_minutes", "_notes", "_stays")

    def __init__(self) -> None:
        self._notes: list[tuple[str, int, int, Sequence[tuple[str, int]]]] = []
        self._stays: dict[tuple[str, str, int, int], int] = {}
        self._minutes: dict[tuple[str, int], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._notes or self._stays or self._minutes)

    @property
    def stays(self) -> dict[tuple[str, str, int, int], int]:
        """Stays that ended, by kind, state, day and bucket."""
        self._sum()
        return self._stays

    @property
    def minutes(self) -> dict[tuple[str, int], list[int]]:
        """Steps, conflicts and refusals, by kind and minute."""
        self._sum()
        return self._minutes

    def clear(self) -> None:
        """Empty the buffer."""
        self._notes.clear()
        self._stays.clear()
        self._minutes.clear()

    def count_step(self, kind: str, states_left: Sequence[tuple[str, int]], time_ms: int) -> None:
        """Count a step, and the dwell times of the states that it left; each state comes with its entry time."""
        self._notes.append((kind, STEPS, time_ms, states_left))
        if len(self._notes) >= NOTES_MAX:
            self._sum()

    def count(self, kind: str, what: int, time_ms: int) -> None:
        """Count one step (`STEPS`), conflict (`CONFLICTS`) or refusal (`REFUSALS`)."""
        self._notes.append((kind, what, time_ms, ()))

    def forget_after(self, now_ms: int) -> None:
        """Delete counts of days and minutes that have not started yet: a clock was ahead."""
        self._stays = {place: count for place, count in self.stays.items() if place[2] <= now_ms}
        self._minutes = {when: counts for when, counts in self.minutes.items() if when[1] <= now_ms}

    def add(self, other: StatisticsBuffer) -> None:
        """Add what another buffer has."""
        self._notes += other._notes
        for place, count in other._stays.items():
            self._stays[place] = self._stays.get(place, 0) + count
        for when, counts in other._minutes.items():
            mine = self._minutes.setdefault(when, [0, 0, 0])
            for what, count in enumerate(counts):
                mine[what] += count
        if len(self._notes) >= NOTES_MAX:
            self._sum()

    def _sum(self) -> None:
        stays, minutes = self._stays, self._minutes
        for kind, what, time_ms, states_left in self._notes:
            minute = (kind, time_ms // MINUTE_MS * MINUTE_MS)
            counts = minutes.get(minute)
            if counts is None:
                counts = minutes[minute] = [0, 0, 0]
            counts[what] += 1
            for state, entered_ms in states_left:
                place = (kind, state, time_ms // DAY_MS * DAY_MS, bisect_left(DWELL_BOUNDS_MS, time_ms - entered_ms))
                stays[place] = stays.get(place, 0) + 1
        self._notes.clear()
