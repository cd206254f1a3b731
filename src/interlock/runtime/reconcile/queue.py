"""A queue of keyed values: each key once, at a rate, and later each time that it failed.

Rule 1: a key that waits, is in hand or is put off is not added a second time; its value is the newest one given.
Rule 2: what failed waits twice as long each time, up to a cap; what was done is forgotten.
Rule 3: it never waits by itself and reads no clock: its owner asks when the next may go.
Rule 4: a time that is further ahead than any wait is from a clock that was ahead, and counts as come.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

from interlock.model.limits import RECONCILE_BACKOFF_MS_MAX, RECONCILE_BACKOFF_MS_MIN, RECONCILE_FAILING_MAX

T = TypeVar("T")


class KeyedQueue(Generic[T]):
    """Values by key, in the order in which they came."""

    def __init__(self, *, rate: float, failing_max: int = RECONCILE_FAILING_MAX) -> None:
        self._between_ms = 1_000 / rate
        self._failing_max = failing_max
        self._free_ms = 0.0
        self._waiting: dict[str, T] = {}
        self._in_hand: set[str] = set()
        self._failures: dict[str, int] = {}
        self._put_off: dict[str, tuple[float, T]] = {}
        self._line: list[tuple[float, str]] = []

    @property
    def waiting(self) -> int:
        """How many may go as soon as the rate lets them; those that were put off do not count."""
        return len(self._waiting)

    def add(self, key: str, value: T) -> bool:
        """Put a value in; False when its key is in already."""
        if key in self._put_off:
            self._put_off[key] = (self._put_off[key][0], value)
        elif key in self._waiting:
            self._waiting[key] = value
        elif key not in self._in_hand:
            self._waiting[key] = value
            return True
        return False

    def take(self, now_ms: float) -> tuple[str, T] | None:
        """The next key and its value, which is then in hand; None when none may go now."""
        while (soonest := self._soonest()) is not None and not 0 < soonest[0] - now_ms <= RECONCILE_BACKOFF_MS_MAX:
            self._waiting[soonest[1]] = self._put_off.pop(soonest[1])[1]
        if not self._waiting or 0 < self._free_ms - now_ms <= self._between_ms:
            return None
        self._free_ms = now_ms + self._between_ms
        key = next(iter(self._waiting))
        self._in_hand.add(key)
        return key, self._waiting.pop(key)

    def next_ms(self) -> float | None:
        """When the next may go; None when there is none."""
        if self._waiting:
            return self._free_ms
        soonest = self._soonest()
        return None if soonest is None else max(soonest[0], self._free_ms)

    def _soonest(self) -> tuple[float, str] | None:
        """The first of those that were put off; what no longer stands is dropped on the way."""
        while self._line:
            due_ms, key = self._line[0]
            if key in self._put_off and self._put_off[key][0] == due_ms:
                return due_ms, key
            heappop(self._line)
        return None

    def done(self, key: str) -> None:
        """It is no longer in hand, and its failures are forgotten."""
        self._in_hand.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: str, value: T, *, now_ms: float, jitter: float) -> float:
        """It goes again, later; gives when. Of too many failing ones the first is forgotten."""
        self._in_hand.discard(key)
        count = self._failures.pop(key, 0)
        self._failures[key] = count + 1
        longest = min(RECONCILE_BACKOFF_MS_MAX, RECONCILE_BACKOFF_MS_MIN << min(count, 40))
        due_ms = now_ms + longest * (1 + jitter) / 2  # never at once: half of it is sure
        self._put_off[key] = (due_ms, value)
        heappush(self._line, (due_ms, key))
        if len(self._failures) > self._failing_max:
            forgotten = next(iter(self._failures))
            del self._failures[forgotten]
            self._put_off.pop(forgotten, None)
        return due_ms
