"""The stays that ended by steps of one process, since its store was opened: what a histogram of metrics needs.

Rule 1: it only grows. What a store keeps by day is deleted after a while, and a histogram that goes down looks like one
that started again.
Rule 2: buffers are added when they are written, about once a second, so a step pays nothing for it.
"""

from __future__ import annotations

from threading import Lock

from interlock.ports.reading.statistics import ProcessStays
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer


class StayTally:
    """Counts of stays by kind, state and bucket, and their lengths. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stays: dict[tuple[str, str], list[int]] = {}
        self._totals: dict[tuple[str, str], int] = {}

    def add(self, buffer: StatisticsBuffer) -> None:
        """Add the stays of a buffer that will be cleared or thrown away."""
        with self._lock:
            for (kind, state, _, bucket), count in buffer.stays.items():
                self._stays.setdefault((kind, state), [0] * BUCKETS)[bucket] += count
            for place, total_ms in buffer.totals.items():
                self._totals[place] = self._totals.get(place, 0) + total_ms

    def stays(self) -> tuple[ProcessStays, ...]:
        """Return everything that was added."""
        with self._lock:
            return tuple(
                ProcessStays(*place, tuple(stays), self._totals.get(place, 0))
                for place, stays in sorted(self._stays.items())
            )
