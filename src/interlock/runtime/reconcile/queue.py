"""A queue of values by key: each key once, at a limited rate, and later each time that it failed.

Rule 1: a key that waits, runs or is postponed is not added a second time; its value is the newest one given.
Rule 2: a key that failed waits twice as long each time, up to a limit; the failures of a key that is done are
forgotten.
Rule 3: it never waits and reads no clock: its owner asks when the next key may run.
Rule 4: a time further in the future than any wait comes from a clock that was ahead, and counts as due.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

from interlock.model.backoff import Backoff
from interlock.model.limits import RECONCILE_BACKOFF_MS_MAX, RECONCILE_BACKOFF_MS_MIN, RECONCILE_FAILING_MAX

T = TypeVar("T")

_BACKOFF = Backoff(RECONCILE_BACKOFF_MS_MIN, RECONCILE_BACKOFF_MS_MAX, jitter=0.5)
"""The wait after a failure. Half of it is not random, so that a key is never retried immediately."""


class KeyedQueue(Generic[T]):
    """Values by key, in the order in which they were added."""

    def __init__(self, *, rate: float, failing_max: int = RECONCILE_FAILING_MAX) -> None:
        self._between_ms = 1_000 / rate
        self._failing_max = failing_max
        self._free_ms = 0.0
        self._waiting: dict[str, T] = {}
        self._running: set[str] = set()
        self._failures: dict[str, int] = {}
        self._postponed: dict[str, tuple[float, T]] = {}
        self._schedule: list[tuple[float, str]] = []

    @property
    def waiting(self) -> int:
        """How many keys may run as soon as the rate allows; postponed ones do not count."""
        return len(self._waiting)

    def add(self, key: str, value: T) -> bool:
        """Add a value; False when its key is queued or running already."""
        if key in self._postponed:
            self._postponed[key] = (self._postponed[key][0], value)
        elif key in self._waiting:
            self._waiting[key] = value
        elif key not in self._running:
            self._waiting[key] = value
            return True
        return False

    def take(self, now_ms: float) -> tuple[str, T] | None:
        """Return the next key and its value, and mark it as running; None when none may run now."""
        while (soonest := self._soonest()) is not None and not 0 < soonest[0] - now_ms <= RECONCILE_BACKOFF_MS_MAX:
            self._waiting[soonest[1]] = self._postponed.pop(soonest[1])[1]
        if not self._waiting or 0 < self._free_ms - now_ms <= self._between_ms:
            return None
        self._free_ms = now_ms + self._between_ms
        key = next(iter(self._waiting))
        self._running.add(key)
        return key, self._waiting.pop(key)

    def next_ms(self) -> float | None:
        """Return when the next key may run; None when there is none."""
        if self._waiting:
            return self._free_ms
        soonest = self._soonest()
        return None if soonest is None else max(soonest[0], self._free_ms)

    def _soonest(self) -> tuple[float, str] | None:
        """Return the first postponed key; outdated entries of the schedule are dropped."""
        while self._schedule:
            due_ms, key = self._schedule[0]
            if key in self._postponed and self._postponed[key][0] == due_ms:
                return due_ms, key
            heappop(self._schedule)
        return None

    def done(self, key: str) -> None:
        """Mark a key as done, and forget its failures."""
        self._running.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: str, value: T, *, now_ms: float, chance: float) -> float:
        """Postpone a key that failed; return when it runs again. When too many fail, the first is forgotten."""
        self._running.discard(key)
        count = self._failures.pop(key, 0)
        self._failures[key] = count + 1
        due_ms = now_ms + _BACKOFF.wait_ms(count, chance)
        self._postponed[key] = (due_ms, value)
        heappush(self._schedule, (due_ms, key))
        if len(self._failures) > self._failing_max:
            forgotten = next(iter(self._failures))
            del self._failures[forgotten]
            self._postponed.pop(forgotten, None)
        return due_ms
