"""Decides whether a caller waits for the disk itself or hands its call to a thread, by measuring.

A hop to a thread and back costs about 150 us. If the disk answers within that, it is cheaper to wait in place: the
event loop is blocked for less time than the hop would take. A disk that takes milliseconds, or stalls now and then, is
waited for by threads.

Rule 1: a number of quick calls is required before a caller waits in place. A slow call adds as many as quick calls fit
into it. So after a disk stalled for a tenth of a second, a hundred quick calls are required.
Rule 2: a caller that waits in place lets others run after a millisecond at most, however many calls that was.
Rule 3: only a caller that came alone waits in place: many share a flush, or are flushed in parallel.
Rule 4: durations are counted without a lock: calls that end at the same moment may count as one.
"""

from __future__ import annotations

from threading import Lock

QUICK_NS = 1_000_000
"""A call that takes no longer is quick."""

TURN_NS = 1_000_000
"""How long calls may follow one another in place before other tasks of the event loop run."""

QUICK_CALLS_FIRST = 16
"""Quick calls before the first one that is waited for in place."""

QUICK_CALLS_MAX = 10_000
"""The most quick calls that are required after a stall."""


class InlinePolicy:
    """How quick recent calls were, and how many are in progress."""

    def __init__(self) -> None:
        self._quick_calls_needed = QUICK_CALLS_FIRST
        self._turn_ns = 0
        # Changed by the callers under the guard: they may be in several threads, and methods would cost more.
        self.guard = Lock()
        self.running = 0

    @property
    def is_quick(self) -> bool:
        """Whether the next call may be waited for in place."""
        return self._quick_calls_needed == 0

    def should_yield(self, now_ns: int) -> bool:
        """Return whether others should run before the next call; if so, a new turn starts."""
        if now_ns - self._turn_ns < TURN_NS:
            return False
        self._turn_ns = now_ns
        return True

    def record(self, ns: int) -> None:
        """Record how long a call took."""
        owed = self._quick_calls_needed
        self._quick_calls_needed = max(0, owed - 1) if ns <= QUICK_NS else min(QUICK_CALLS_MAX, owed + ns // QUICK_NS)
