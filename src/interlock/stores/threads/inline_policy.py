"""Whether a call to the disk is worth a thread: measured, not guessed.

A hop to a thread and back costs some 150 us. A disk that answers within that is better waited for in place: an event
loop is away for less than the hop would have taken of it. One that takes milliseconds, or stands still now and then,
is waited for by threads.

Rule 1: it is in debt at first. A quick call pays one back; a slow one adds as many as quick calls fit into it. So a
disk that stood still for a tenth of a second is believed again after a hundred quick calls, and never before.
Rule 2: whoever waits in place gives others their turn after a millisecond at most, however many calls that was.
Rule 3: only one that came alone waits in place: many share a flush, or are flushed side by side.
Rule 4: how long calls took is counted without a lock: those that end at the same moment may count as one.
"""

from __future__ import annotations

from threading import Lock

QUICK_NS = 1_000_000
"""A call that takes no longer is quick."""

TURN_NS = 1_000_000
"""How long calls may follow one another in place before others get their turn."""

OWED_FIRST = 16
"""Quick calls before the first that is waited for in place."""

OWED_MAX = 10_000
"""The most that is owed, however long something stood still."""


class InlinePolicy:
    """How quick the calls of late were, and how many are under way."""

    def __init__(self) -> None:
        self._owed = OWED_FIRST
        self._turn_ns = 0
        # Counted by those who call, under the guard: they may be in several threads, and methods would cost more.
        self.guard = Lock()
        self.under_way = 0

    @property
    def is_quick(self) -> bool:
        """Whether the next call may be waited for in place."""
        return self._owed == 0

    def is_turn_over(self, now_ns: int) -> bool:
        """Whether others are to get their turn before the next call; it begins with this."""
        if now_ns - self._turn_ns < TURN_NS:
            return False
        self._turn_ns = now_ns
        return True

    def took(self, ns: int) -> None:
        """Hears how long a call took."""
        owed = self._owed
        self._owed = max(0, owed - 1) if ns <= QUICK_NS else min(OWED_MAX, owed + ns // QUICK_NS)
