"""Up to when keys are forgotten: a boundary that is kept in the store, and that passing time moves.

Rule 1: it moves by at most 5/4 of the time that passed, by the monotonic clock, since this process read it or moved it
last. Clocks of the wall, and the entries that they stamp, only hold it back: it is never moved nearer than the window,
`KEY_WINDOW_MS`, to either. So a clock that is ahead for an hour makes a store forget what five quarters of an hour
would have let go, and no more; one that stays ahead, keys of 24 days instead of 30. It begins the window before the
store does, by the clock: one that was ahead then is believed.
Rule 2: it is never moved back; while the clock says less, that counts. Where it is held up by nothing, a window and
more before the oldest key, it may skip: a few keys from a clock that was years behind hold it up for weeks, not years.
Rule 3: time in which no process has the store open does not count, and what one process moved is not counted again by
another, which goes on from what it read. Then keys are forgotten late, never early; the quarter makes up for it.
"""

from __future__ import annotations

from time import monotonic_ns

from interlock.model.limits import KEY_WINDOW_MS

MORE = 4
"""Which part of the time that passed is added to it: a quarter makes up for pauses, and leaves a key its weeks."""

MORE_MS_MAX = 1_800_000
"""What is added at most at once: that of two hours. A writer that finds no moment to move it for a month would have
days to spare when a clock jumps."""


class KeyExpiry:
    """The time up to which a process moved it, and when that was."""

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self._moved_ns = monotonic_ns()

    def moved(self, window_ms: int) -> int:
        """Move it as far as time allows, at most to where the window begins; gives up to when keys may go now."""
        now_ns = monotonic_ns()
        passed_ms = (now_ns - self._moved_ns) // 1_000_000
        self._moved_ns = now_ns
        reached_ms = self.time_ms + passed_ms + min(passed_ms // MORE, MORE_MS_MAX)
        self.time_ms = max(self.time_ms, min(reached_ms, window_ms))
        return min(self.time_ms, window_ms)

    def skip_to(self, time_ms: int) -> None:
        """Pass over a time to which no key is nearer than the window: there is nothing to wait for."""
        self.time_ms = max(self.time_ms, time_ms)


def window_begin_ms(now_ms: int, newest_ms: int) -> int:
    """Where the window begins, by the earlier of a clock and the newest entry."""
    return min(now_ms, newest_ms) - KEY_WINDOW_MS
