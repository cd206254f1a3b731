"""The clock of the write path: it reports when the time went back, and when an entity's time is ahead."""

from __future__ import annotations

from collections.abc import Callable

from interlock.model.limits import CLOCK_AHEAD_MS_MAX
from interlock.ports.clock import Clock

OnClock = Callable[[str | None], None]
"""Called with an entity that is stepped while its time is ahead of the clock, or None: the clock went back."""


class WatchedClock:
    """Reads a clock for the steps of one connection. `latest_ms` is the newest time it has read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: list[OnClock] = []
        self.latest_ms = 0

    def on_problem(self, listener: OnClock) -> Callable[[], None]:
        """Call a function at each report; return what unregisters it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def now_ms(self) -> int:
        """Return the time; report when it went back by more than clocks normally differ."""
        now_ms = self._clock.now_ms()
        if now_ms < self.latest_ms - CLOCK_AHEAD_MS_MAX:
            self.latest_ms = now_ms
            self.report(None)
        elif now_ms > self.latest_ms:
            self.latest_ms = now_ms
        return now_ms

    def report(self, entity: str | None) -> None:
        """Call the listeners."""
        for listener in self._listeners:
            listener(entity)
