"""The owner's side of a pool while it runs: the bell that workers ring, the timer, and what a task came to.

Rule 1: the owner says that it sleeps before it looks for the last time, as every consumer of a bell does; workers ring
only then. What a killed worker ended without ringing is found by the timer, a quarter of a second later at worst.
Rule 2: each start is a new term of the owner's seat: a worker of an earlier owner sees that, and ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from interlock.errors import InterlockError
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.pool.layout import DONE, POISONED, TERM, Shape
from interlock.shm.pool.member import PoolMember, decode_error, decode_value, poisoned
from interlock.shm.pool.worker import OWNER, PoolLocation
from interlock.shm.queue.notifier import EventNotifier
from interlock.shm.queue.ring import LINE


class Tasks(Protocol):
    """The tasks that wait for the bell."""

    def collect(self) -> None:
        """Give every ended task to whoever awaits it."""

    def tend(self) -> None:
        """Reap dead workers, and find what they ended without ringing."""


class Running:
    """What a pool has while it runs: its seat, its lifecycle, its bell, and the loop they belong to."""

    def __init__(
        self, tasks: Tasks, region: MemoryRegion, offset: int, shape: Shape, seat: PoolMember, life: Lifecycle
    ) -> None:
        """Begin a new term of the owner's seat."""
        self.seat, self.life, self.bell = seat, life, EventNotifier()
        self.loop = asyncio.get_running_loop()
        self.ended = self.closed = False
        self.worker_gone = asyncio.Event()
        self.born: dict[int, float] = {}
        self._tasks = tasks
        self._words = region.words
        self._rings = offset + shape.rings_at
        term = self._words.add(offset + shape.seats_at + OWNER * LINE + TERM, 1) + 1
        self.place = PoolLocation(offset=offset, shape=shape, term=term)
        self._timer: asyncio.TimerHandle | None = None

    def listen(self) -> None:
        """Hear the bell from now on, and look four times a second for those who died before they could ring."""
        self.loop.add_reader(self.bell.listen(), self._heard)
        self._words.store(self.seat.asleep, 1)
        self._tick()

    def wake_all(self) -> None:
        """Make every sleeping worker look."""
        self._words.add(self._rings, 1)
        self._words.wake(self._rings)

    async def next_end(self, seconds: float) -> None:
        """Wait until a worker's process has ended, within a bound."""
        self.worker_gone.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.worker_gone.wait()

    def close(self) -> None:
        """Let go of the loop, the bell, the seat and the slot."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self.bell.listen())
        self.bell.close()
        self.seat.leave()
        self.life.leave()

    def _heard(self) -> None:
        self.bell.clear()
        self._words.store(self.seat.asleep, 0)
        self._tasks.collect()
        self._words.store(self.seat.asleep, 1)
        self._tasks.collect()  # what ended while nobody would have rung

    def _tick(self) -> None:
        self._timer = self.loop.call_later(WAIT_SECONDS_MAX, self._tick)
        self._tasks.tend()
        if not self.seat.settled:
            self.seat.settle()


def resolve(answer: asyncio.Future[Any], state: int, data: bytes, claims_max: int) -> None:
    """Give an ended task to whoever awaits it."""
    if state == DONE:
        try:
            answer.set_result(decode_value(data))
        except InterlockError as error:
            answer.set_exception(error)
    elif state == POISONED:
        answer.set_exception(poisoned(claims_max))
    else:
        answer.set_exception(decode_error(data))


def fresh(error: InterlockError) -> InterlockError:
    """The same once more: one that is raised again and again would hold on to the frames of all who heard it."""
    return type(error)(error.message, code=error.code, hint=error.hint)
