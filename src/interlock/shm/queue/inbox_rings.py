"""The lanes of an inbox as its consumer sees them: what waits, and what is taken next.

Rule 1: the most urgent priority that waits is served, unless another was passed over too often: then that one. So
nothing starves, and nobody reads a clock.
Rule 2: producers of one priority take turns, a batch each.
Rule 3: a lane that holds what no producer wrote is told of once and then left alone; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.shm.queue.ring import Ring

SKIPS_MAX = 8
"""How often a waiting priority is passed over before it is served: no starvation without a clock."""


class Batch(Struct, frozen=True):
    """Messages that one producer pushed with one priority, oldest first."""

    messages: list[bytes]
    priority: int
    producer: int

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class InboxRings:
    """All lanes of an inbox, by priority and producer. One consumer at a time has them."""

    def __init__(self, name: str, lanes: list[list[Ring]]) -> None:
        self._name = name
        # Bound once: between a ring and the message every lookup counts.
        self._pops: list[list[Callable[[int], list[bytes] | None]]] = [[each.pop_many for each in row] for row in lanes]
        self._looks: list[list[Callable[[], bool]]] = [[each.waiting for each in row] for row in lanes]
        self._turns = [0] * len(lanes)
        self._skips = [0] * len(lanes)

    def take(self, limit: int) -> Batch | None:
        """The next batch of at most so many messages, or None. Raises CorruptionError, once for each lane."""
        level = 0 if len(self._pops) == 1 else self._next_level()
        if level is None:
            return None
        pops = self._pops[level]
        index = self._turns[level]
        for _ in pops:
            messages = pops[index](limit)
            taken, index = index, index + 1
            if index == len(pops):
                index = 0
            if messages:
                self._turns[level] = index
                return Batch(messages, level, taken)
            if messages is None:
                self._leave_alone(level, taken)
        return None

    def waiting(self) -> bool:
        """Whether anything waits."""
        return any(look() for row in self._looks for look in row)

    def _next_level(self) -> int | None:
        waiting = [level for level, row in enumerate(self._looks) if any(look() for look in row)]
        if not waiting:
            return None
        aged = max(waiting, key=lambda level: self._skips[level])
        chosen = aged if self._skips[aged] >= SKIPS_MAX else waiting[0]
        for level in range(len(self._skips)):
            self._skips[level] = self._skips[level] + 1 if level in waiting and level != chosen else 0
        return chosen

    def _leave_alone(self, level: int, index: int) -> None:
        self._pops[level][index], self._looks[level][index] = _nothing, _never
        raise CorruptionError(
            f"the lane of producer {index}, priority {level}, of inbox `{self._name}` holds no messages",
            code="lane.corrupt",
            hint="something else writes into the region; the other lanes go on",
        )


def _nothing(_limit: int) -> list[bytes]:
    return []


def _never() -> bool:
    return False
