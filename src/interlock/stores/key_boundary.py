"""The boundary before which deduplication keys expire: it is stored, and passing time moves it.

Rule 1: the boundary moves by at most 5/4 of the time that passed, by the monotonic clock, since this process loaded or
moved it last. Wall clocks, and the entries that they stamp, only hold it back: it never comes nearer than the window,
`KEY_WINDOW_MS`, to either. So a clock that is an hour ahead makes a store delete the keys of five quarters of an hour,
and no more; a clock that stays ahead makes it keep keys for 24 days instead of 30. A new store starts one window before
its clock: a clock that is ahead at that moment is trusted.
Rule 2: the boundary never moves back; while the clock says less, the clock counts. Where nothing holds it up, a window
and more before the oldest key, it may skip: keys from a clock that was years behind hold it up for weeks, not years.
Rule 3: time in which no process has the store open does not count, and what one process moved is not counted again by
another, which continues from what it loaded. Then keys expire late, never early; the quarter makes up for it.
"""

from __future__ import annotations

from time import monotonic_ns

from interlock.model.limits import KEY_WINDOW_MS

MORE = 4
"""The part of the time that passed that is added: a quarter makes up for pauses, and leaves a key its weeks."""

MORE_MS_MAX = 1_800_000
"""The most that is added in one step: that of two hours. A writer that did not move the boundary for a month would
otherwise have days to spare when a clock jumps."""


class KeyBoundary:
    """The boundary as this process moved it, and when that was."""

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self._moved_ns = monotonic_ns()

    def advance(self, window_ms: int) -> int:
        """Move the boundary as far as time allows, and return the time before which keys are expired now."""
        now_ns = monotonic_ns()
        passed_ms = (now_ns - self._moved_ns) // 1_000_000
        self._moved_ns = now_ns
        reached_ms = self.time_ms + passed_ms + min(passed_ms // MORE, MORE_MS_MAX)
        self.time_ms = max(self.time_ms, min(reached_ms, window_ms))
        return min(self.time_ms, window_ms)

    def skip_to(self, time_ms: int) -> None:
        """Skip to a time that is a window before every key: there is nothing to wait for."""
        self.time_ms = max(self.time_ms, time_ms)


def window_start_ms(now_ms: int, newest_ms: int) -> int:
    """Return the start of the window, by the earlier of a clock and the newest entry."""
    return min(now_ms, newest_ms) - KEY_WINDOW_MS
