"""The inbox: many producers in many processes, one consumer, usually an event loop.

Rule 1: every producer has lanes of its own, one for each priority, so nobody waits for anybody, alive or dead.
Rule 2: a lane belongs to who holds its lock byte; the next owner continues at what was published.
Rule 3: a producer publishes, then looks whether the consumer sleeps, then rings; it never clears `asleep`. The
consumer reads the bell and clears `asleep`, then takes on; before it sleeps it stores `asleep` and looks again.
Rule 4: the event loop is never blocked and never starved: a batch at a time, and the loop's turn when the budget is
spent. What a killed producer published without ringing is found a quarter of a second later, at worst.
Rule 5: delivery is at most once: a message that was taken is in this process's memory only. Durable work belongs in a
store.

`inbox_shape` says where everything stands, `inbox_lanes` what is taken next, `wakeup` how a task sleeps.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from time import monotonic, perf_counter_ns
from typing import Any, Literal, Self

from interlock.errors import ConflictError, UnavailableError
from interlock.ports.fork import after_fork
from interlock.shm.memory.process_locks import ByteLocks
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.queue.inbox_rings import Batch, InboxRings
from interlock.shm.queue.layout import ASLEEP_AT, InboxShape, checked, claim_area
from interlock.shm.queue.loop_wait import Sleeper
from interlock.shm.queue.notifier import EventNotifier, Notifier
from interlock.shm.queue.ring import QUEUE_BYTES, Producer, Ring, open_ring, payload_bytes_max

BATCH_MAX = 128
"""Messages of one lane taken at once: long enough to be cheap, short enough to be fair."""

DRAIN_US_MAX = 500
"""How long an event loop takes messages before it gives others their turn."""

SPIN_US_MAX = 50
"""How long a thread looks before it lies down: every lying down costs the next producer a ring."""

TASKS_MAX = 1024
"""Handlers of `serve` at once."""

RING_BYTES = 64 * 1024


class Inbox:
    """Messages from `producers` processes to the one that takes them, in one thread or event loop.

    Every process makes its own `Inbox` with the same numbers on the same region. `priorities` lanes per producer: 0 is
    the most urgent. `doorbell` is how producers wake the consumer: "socket" for a region with a name, "eventfd" for
    one without (children inherit it; others pass `EventNotifier(fd)`), or "waiter".

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region, Inbox(region, producers=2) as inbox:
    ...     producer = inbox.producer()
    ...     producer.push(b"hello"), inbox.take().messages
    (True, [b'hello'])
    """

    def __init__(
        self,
        region: MemoryRegion,
        *,
        name: str = "inbox",
        producers: int = 8,
        priorities: int = 1,
        ring_bytes: int = RING_BYTES,
        doorbell: Literal["auto", "eventfd", "socket", "waiter"] | EventNotifier = "auto",
    ) -> None:
        self._region, self._name = region, name
        self._shape = InboxShape(producers=producers, priorities=priorities, ring_bytes=ring_bytes)
        self._offset, self._bell = claim_area(region, name, self._shape, doorbell)
        self._asleep = self._offset + ASLEEP_AT
        self._locks: ByteLocks | None = None
        self._lanes: InboxRings | None = None
        self._sleeper: Sleeper | None = None
        after_fork(self, Inbox._forget)

    @property
    def doorbell(self) -> Notifier:
        """The bell; `fd` of an `EventNotifier` is what other processes need of it."""
        return self._bell

    @property
    def message_bytes_max(self) -> int:
        """The largest message: half of a ring."""
        return payload_bytes_max(self._shape.ring_bytes)

    def producer(self) -> Producer:
        """A free place to push from, with its lanes; it is given back by `close`, or by the end of the process.

        Raises UnavailableError when all places are taken.
        """
        locks = self._region.locks()
        for index in range(self._shape.producers):
            if locks.claim(QUEUE_BYTES + self._lane_offset(index, 0)):
                lanes = {level: self._lane(index, level) for level in range(self._shape.priorities)}
                return Producer(index, lanes, self._bell, locks, locked=self._needs_lock)
        locks.close()
        raise UnavailableError(
            f"all {self._shape.producers} places of inbox `{self._name}` are taken",
            code="inbox.producers",
            hint="close a producer, or make the inbox with more",
        )

    def take(self, limit: int = BATCH_MAX) -> Batch | None:
        """The next batch, or None when nothing waits. Becomes the consumer; never waits.

        Raises ConflictError when another process is the consumer, CorruptionError when a lane holds what no producer
        wrote (once: that lane is then left alone).
        """
        lanes = self._lanes if self._lanes is not None else self._become_consumer()
        return lanes.take(limit)

    def wait(self, timeout: float) -> bool:
        """Block this thread until something waits, at most so many seconds; True when it does. Not for event loops."""
        lanes = self._lanes if self._lanes is not None else self._become_consumer()
        end = monotonic() + timeout
        spin_end = perf_counter_ns() + 1000 * SPIN_US_MAX
        while not lanes.waiting():
            if perf_counter_ns() > spin_end:
                break
            os.sched_yield()  # a producer without a processor could not end the wait
        else:
            return True  # we are awake: nobody rang, and there is no bell to clear
        poll = select.poll()
        poll.register(self._bell.listen(), select.POLLIN)
        while not self._disarmed_by_message(lanes):
            left = end - monotonic()
            if left <= 0:
                break
            poll.poll(1000 * min(left, WAIT_SECONDS_MAX))
            self._awake()
        self._awake()
        return lanes.waiting()

    def batches(self, *, budget_us: int = DRAIN_US_MAX, limit: int = BATCH_MAX) -> AsyncIterator[Batch]:
        """Batches for ever, as they come, until the inbox is closed.

        Other tasks of the loop get their turn when the budget is spent. Raises what `take` raises, and ConflictError
        while another task waits for this inbox; a task that waits when it is closed is cancelled.
        """
        budget_ns = 1000 * checked("budget_us", budget_us, 1, 10_000_000)
        return _Batches(self._following, budget_ns, checked("limit", limit, 1, 1_000_000))

    async def serve(
        self,
        handler: Callable[[bytes], Awaitable[object]],
        *,
        tasks_max: int = TASKS_MAX,
        budget_us: int = DRAIN_US_MAX,
    ) -> None:
        """Run a task per message for ever, at most `tasks_max` at once; an exception of one ends all and is raised."""
        checked("tasks_max", tasks_max, 1, 1_000_000)
        room = asyncio.Semaphore(tasks_max)

        async def handled(message: bytes) -> None:
            try:
                await handler(message)
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:  # holds its tasks: nothing vanishes in the middle
            async for batch in self.batches(budget_us=budget_us):
                for message in batch:
                    await room.acquire()
                    group.create_task(handled(message))

    def close(self) -> None:
        """Stop being the consumer, and let go of the bell. Messages stay for the next one."""
        if self._sleeper is not None:
            self._sleeper.close()
        self._bell.close()
        if self._locks is not None:
            self._locks.close()
        self._locks, self._lanes, self._sleeper = None, None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Inbox], tuple[object, ...]]:
        shape = self._shape
        return _again, (self._region, self._name, shape.producers, shape.priorities, shape.ring_bytes)

    @property
    def _needs_lock(self) -> bool:
        """Whether threads of this process need a lock around a push: the GIL is one, in the C core only."""
        return self._region.mode != "native" or not getattr(sys, "_is_gil_enabled", lambda: True)()

    def _lane_offset(self, producer: int, priority: int) -> int:
        return self._offset + self._shape.lane_at(producer, priority)

    def _lane(self, producer: int, priority: int) -> Ring:
        return open_ring(self._region, self._lane_offset(producer, priority), self._shape.ring_bytes, self._asleep)

    def _become_consumer(self) -> InboxRings:
        locks = self._region.locks()
        if not locks.claim(QUEUE_BYTES + self._offset):
            locks.close()
            raise ConflictError(
                f"inbox `{self._name}` has a consumer", code="inbox.consumer", hint="one at a time; the next may follow"
            )
        self._locks = locks
        self._lanes = InboxRings(
            self._name,
            [
                [self._lane(producer, priority) for producer in range(self._shape.producers)]
                for priority in range(self._shape.priorities)
            ],
        )
        self._bell.listen()
        self._awake()  # or producers would ring at every push, when the last consumer died asleep
        return self._lanes

    def _disarmed_by_message(self, lanes: InboxRings) -> bool:
        """Say that we sleep, look again; something there: we do not."""
        self._region.words.store(self._asleep, 1)
        if not lanes.waiting():
            return False
        self._region.words.store(self._asleep, 0)
        return True

    def _awake(self) -> None:
        """Read the bell first, then clear the word; then (the caller) the lanes."""
        self._bell.clear()
        self._region.words.store(self._asleep, 0)

    async def _following(self, batches: _Batches) -> Batch:
        """The next batch of an iteration. Raises StopAsyncIteration when the inbox was closed."""
        lanes, sleeper = batches.lanes, batches.sleeper
        if lanes is None or sleeper is None:
            batches.lanes = lanes = self._lanes if self._lanes is not None else self._become_consumer()
            batches.sleeper = sleeper = self._sleeper_here()
            batches.end = perf_counter_ns() + batches.budget_ns
        elif sleeper.rang and self._lanes is lanes:  # for the batch before this one
            sleeper.hush()
        if perf_counter_ns() > batches.end:
            await asyncio.sleep(0)  # with nothing in our hands: whoever is cancelled here loses no message
            batches.end = perf_counter_ns() + batches.budget_ns
        while self._lanes is lanes:
            batch = lanes.take(batches.limit)
            if batch is not None:
                return batch
            if sleeper.rang:
                sleeper.hush()
            if self._disarmed_by_message(lanes):
                await asyncio.sleep(0)  # whoever never sleeps still lets the others run
            else:
                await sleeper
            batches.end = perf_counter_ns() + batches.budget_ns
        raise StopAsyncIteration

    def _sleeper_here(self) -> Sleeper:
        """Where tasks of the running loop sleep."""
        loop = asyncio.get_running_loop()
        if self._sleeper is None or self._sleeper.get_loop() is not loop:
            if self._sleeper is not None:
                self._sleeper.close()
            self._sleeper = Sleeper(loop, self._bell.listen(), self._awake)
        return self._sleeper

    def _forget(self) -> None:
        # In a forked child: the parent is still the consumer, and its loop is not ours.
        self._locks, self._lanes, self._sleeper = None, None, None


class _Batches:
    """What `batches` gives. No generator: what one wraps around each batch is on the way from a ring to its message."""

    __slots__ = ("_following", "budget_ns", "end", "lanes", "limit", "sleeper")

    def __init__(self, following: Callable[[_Batches], Coroutine[Any, Any, Batch]], budget_ns: int, limit: int) -> None:
        self._following = following
        self.budget_ns, self.limit, self.end = budget_ns, limit, 0
        self.lanes: InboxRings | None = None
        self.sleeper: Sleeper | None = None

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Batch]:
        return self._following(self)


def _again(region: MemoryRegion, name: str, producers: int, priorities: int, ring_bytes: int) -> Inbox:
    return Inbox(region, name=name, producers=producers, priorities=priorities, ring_bytes=ring_bytes)
