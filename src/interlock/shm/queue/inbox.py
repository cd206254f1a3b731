"""The inbox: many producers in many processes, one consumer, usually an event loop.

Rule 1: every producer has its own rings, one per priority, so no producer waits for another one, alive or dead.
Rule 2: a ring belongs to the process that holds its lock byte; the next owner continues at the published tail.
Rule 3: a producer publishes, then loads `asleep`, then notifies if it is 1; it never clears `asleep`. The consumer
clears the notifier and `asleep`, then receives; before it sleeps it stores `asleep` = 1 and checks again.
Rule 4: the event loop is never blocked and never starved: the consumer receives one batch at a time, and yields to the
loop when its budget is used up. Messages of a producer that was killed before it notified are found within a quarter of
a second.
Rule 5: delivery is at most once: a message that was received is only in this process's memory. Use a store for durable
work.
Rule 6: producers of one priority take turns, a batch each (`priority` chooses the priority).
Rule 7: a corrupt ring is reported once and then ignored; the others continue.

`layout` has the offsets, `loop_wait` is how a task waits.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from time import monotonic, perf_counter_ns
from typing import Any, Literal, Self

from msgspec import Struct

from interlock.errors import ConflictError, CorruptionError, UnavailableError
from interlock.ports.fork import after_fork
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.process_locks import QUEUE_BYTES, ByteLocks
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WAIT_SECONDS_MAX
from interlock.shm.queue.layout import ASLEEP_AT, InboxLayout, open_inbox_area
from interlock.shm.queue.loop_wait import LoopWait
from interlock.shm.queue.notifier import EventNotifier, Notifier
from interlock.shm.queue.priority import choose_priority
from interlock.shm.queue.ring import Producer, Ring, open_ring, payload_bytes_max

BATCH_MAX = 128
"""Messages of one ring in a batch: enough to be efficient, few enough to be fair."""

DRAIN_US_MAX = 500
"""How long an event loop receives messages before it runs other tasks."""

SPIN_US_MAX = 50
"""How long a thread spins before it sleeps: every sleep costs the next producer a notification."""

TASKS_MAX = 1024
"""Handlers of `serve` that run at the same time."""

RING_BYTES = 64 * 1024


class Batch(Struct, frozen=True):
    """Messages that one producer pushed with one priority, oldest first."""

    messages: list[bytes]
    priority: int
    producer: int

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Inbox:
    """Messages from `producers` processes to the one that receives them, in one thread or event loop.

    Every process creates its own `Inbox` with the same numbers on the same region. `priorities` is the number of rings
    per producer; 0 is the most urgent. `notifier` is how producers wake the consumer: "socket" for a region with a
    name, "eventfd" for one without (children inherit it; others pass `EventNotifier(fd)`), or "waiter".

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
        notifier: Literal["auto", "eventfd", "socket", "waiter"] | EventNotifier = "auto",
    ) -> None:
        self._region, self._name = region, name
        self._layout = InboxLayout(producers=producers, priorities=priorities, ring_bytes=ring_bytes)
        self._offset, self._notifier = open_inbox_area(region, name, self._layout, notifier)
        self._asleep = self._offset + ASLEEP_AT
        self._locks: ByteLocks | None = None
        self._rings: _ConsumerRings | None = None
        self._loop_wait: LoopWait | None = None
        after_fork(self, Inbox._reset_after_fork)

    @property
    def notifier(self) -> Notifier:
        """The notifier. Other processes need the `fd` of an `EventNotifier`."""
        return self._notifier

    @property
    def message_bytes_max(self) -> int:
        """The size of the largest message: half of a ring."""
        return payload_bytes_max(self._layout.ring_bytes)

    def producer(self) -> Producer:
        """Become a producer, until `close` or the end of the process.

        Raises UnavailableError if there are `producers` producers already.
        """
        locks = self._region.locks()
        for index in range(self._layout.producers):
            if locks.claim(QUEUE_BYTES + self._ring_offset(index, 0)):
                rings = {priority: self._ring(index, priority) for priority in range(self._layout.priorities)}
                return Producer(index, rings, self._notifier, locks, needs_mutex=self._needs_mutex)
        locks.close()
        raise UnavailableError(
            f"inbox `{self._name}` already has {self._layout.producers} producers",
            code="inbox.producers",
            hint="close a producer, or create the inbox with more",
        )

    def take(self, limit: int = BATCH_MAX) -> Batch | None:
        """Return the next batch, or None if there are no messages. Becomes the consumer; never waits.

        Raises ConflictError if another process is the consumer, CorruptionError if a ring is corrupt (once: that ring
        is ignored afterwards).
        """
        rings = self._rings if self._rings is not None else self._become_consumer()
        return rings.take(limit)

    def wait(self, timeout: float) -> bool:
        """Block this thread until there are messages, at most `timeout` seconds. True if there are.

        Do not call it in an event loop.
        """
        rings = self._rings if self._rings is not None else self._become_consumer()
        end = monotonic() + timeout
        spin_end = perf_counter_ns() + 1000 * SPIN_US_MAX
        while not rings.has_messages():
            if perf_counter_ns() > spin_end:
                break
            os.sched_yield()  # a producer needs a processor to end the wait
        else:
            return True  # the consumer did not sleep, so there is no notification to clear
        poll = select.poll()
        poll.register(self._notifier.listen(), select.POLLIN)
        while not self._arm(rings):
            left = end - monotonic()
            if left <= 0:
                break
            poll.poll(1000 * min(left, WAIT_SECONDS_MAX))
            self._disarm()
        self._disarm()
        return rings.has_messages()

    def batches(self, *, budget_us: int = DRAIN_US_MAX, limit: int = BATCH_MAX) -> AsyncIterator[Batch]:
        """Iterate over batches as they arrive, until the inbox is closed.

        Other tasks of the loop run when the budget is used up. Raises what `take` raises, and ConflictError while
        another task waits for this inbox. A task that waits when the inbox is closed is cancelled.
        """
        budget_ns = 1000 * check_int("budget_us", budget_us, 1, 10_000_000, code="inbox.budget_us")
        return _Batches(self._next_batch, budget_ns, check_int("limit", limit, 1, 1_000_000, code="inbox.limit"))

    async def serve(
        self,
        handler: Callable[[bytes], Awaitable[object]],
        *,
        tasks_max: int = TASKS_MAX,
        budget_us: int = DRAIN_US_MAX,
    ) -> None:
        """Run a task per message, at most `tasks_max` at the same time. An exception of one ends all and is raised."""
        check_int("tasks_max", tasks_max, 1, 1_000_000, code="inbox.tasks_max")
        capacity = asyncio.Semaphore(tasks_max)

        async def run(message: bytes) -> None:
            try:
                await handler(message)
            finally:
                capacity.release()

        async with asyncio.TaskGroup() as group:  # holds references to its tasks
            async for batch in self.batches(budget_us=budget_us):
                for message in batch:
                    await capacity.acquire()
                    group.create_task(run(message))

    def close(self) -> None:
        """Stop being the consumer, and close the notifier. Messages stay for the next consumer."""
        if self._loop_wait is not None:
            self._loop_wait.close()
        self._notifier.close()
        if self._locks is not None:
            self._locks.close()
        self._locks, self._rings, self._loop_wait = None, None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Inbox], tuple[object, ...]]:
        layout = self._layout
        return _rebuild, (self._region, self._name, layout.producers, layout.priorities, layout.ring_bytes)

    @property
    def _needs_mutex(self) -> bool:
        """Whether threads of this process need a lock around a push. With the C core, the GIL is one."""
        return self._region.mode != "native" or not getattr(sys, "_is_gil_enabled", lambda: True)()

    def _ring_offset(self, producer: int, priority: int) -> int:
        return self._offset + self._layout.ring_at(producer, priority)

    def _ring(self, producer: int, priority: int) -> Ring:
        return open_ring(self._region, self._ring_offset(producer, priority), self._layout.ring_bytes, self._asleep)

    def _become_consumer(self) -> _ConsumerRings:
        locks = self._region.locks()
        if not locks.claim(QUEUE_BYTES + self._offset):
            locks.close()
            raise ConflictError(
                f"inbox `{self._name}` already has a consumer", code="inbox.consumer", hint="use one at a time"
            )
        self._locks = locks
        self._rings = _ConsumerRings(
            self._name,
            [
                [self._ring(producer, priority) for producer in range(self._layout.producers)]
                for priority in range(self._layout.priorities)
            ],
        )
        self._notifier.listen()
        self._disarm()  # if the last consumer died asleep, producers would notify at every push
        return self._rings

    def _arm(self, rings: _ConsumerRings) -> bool:
        """Store that the consumer sleeps, and check again. If there is a message, undo it and return True."""
        self._region.words.store(self._asleep, 1)
        if not rings.has_messages():
            return False
        self._region.words.store(self._asleep, 0)
        return True

    def _disarm(self) -> None:
        """Clear the notifier, then the word. The caller checks the rings after that."""
        self._notifier.clear()
        self._region.words.store(self._asleep, 0)

    async def _next_batch(self, batches: _Batches) -> Batch:
        """Return the next batch of an iteration. Raises StopAsyncIteration if the inbox was closed."""
        rings, wait = batches.rings, batches.wait
        if rings is None or wait is None:
            batches.rings = rings = self._rings if self._rings is not None else self._become_consumer()
            batches.wait = wait = self._open_loop_wait()
            batches.end = perf_counter_ns() + batches.budget_ns
        elif wait.notified and self._rings is rings:  # for the previous batch
            wait.clear()
        if perf_counter_ns() > batches.end:
            await asyncio.sleep(0)  # before a batch is received: a task that is cancelled here loses no message
            batches.end = perf_counter_ns() + batches.budget_ns
        while self._rings is rings:
            batch = rings.take(batches.limit)
            if batch is not None:
                return batch
            if wait.notified:
                wait.clear()
            if self._arm(rings):
                await asyncio.sleep(0)  # a consumer that never sleeps still lets other tasks run
            else:
                await wait
            batches.end = perf_counter_ns() + batches.budget_ns
        raise StopAsyncIteration

    def _open_loop_wait(self) -> LoopWait:
        """Return the wait of the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop_wait is None or self._loop_wait.get_loop() is not loop:
            if self._loop_wait is not None:
                self._loop_wait.close()
            self._loop_wait = LoopWait(loop, self._notifier.listen(), self._disarm)
        return self._loop_wait

    def _reset_after_fork(self) -> None:
        # The parent is still the consumer, and its loop does not run in the child.
        self._locks, self._rings, self._loop_wait = None, None, None


class _Batches:
    """The iterator of `batches`. Not a generator, whose frame would be on the path from a notification to a message."""

    __slots__ = ("_next_batch", "budget_ns", "end", "limit", "rings", "wait")

    def __init__(
        self, next_batch: Callable[[_Batches], Coroutine[Any, Any, Batch]], budget_ns: int, limit: int
    ) -> None:
        self._next_batch = next_batch
        self.budget_ns, self.limit, self.end = budget_ns, limit, 0
        self.rings: _ConsumerRings | None = None
        self.wait: LoopWait | None = None

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Batch]:
        return self._next_batch(self)


class _ConsumerRings:
    """All rings of an inbox, by priority and producer, as the consumer uses them."""

    def __init__(self, name: str, rings: list[list[Ring]]) -> None:
        self._name = name
        # Bound once: there are no attribute lookups between a notification and the message.
        self._pops: list[list[Callable[[int], list[bytes] | None]]] = [[each.pop_many for each in row] for row in rings]
        self._checks: list[list[Callable[[], bool]]] = [[each.has_messages for each in row] for row in rings]
        self._turns = [0] * len(rings)
        self._skips = [0] * len(rings)

    def take(self, limit: int) -> Batch | None:
        """Return the next batch of at most `limit` messages, or None. Raises CorruptionError, once for each ring."""
        priority = 0 if len(self._pops) == 1 else self._next_priority()
        if priority is None:
            return None
        pops = self._pops[priority]
        index = self._turns[priority]
        for _ in pops:
            messages = pops[index](limit)
            producer, index = index, index + 1
            if index == len(pops):
                index = 0
            if messages:
                self._turns[priority] = index
                return Batch(messages, priority, producer)
            if messages is None:
                self._disable(priority, producer)
        return None

    def has_messages(self) -> bool:
        """Return whether any ring has messages."""
        return any(check() for row in self._checks for check in row)

    def _next_priority(self) -> int | None:
        waiting = [priority for priority, row in enumerate(self._checks) if any(check() for check in row)]
        return choose_priority(waiting, self._skips)

    def _disable(self, priority: int, producer: int) -> None:
        self._pops[priority][producer] = lambda _limit: []
        self._checks[priority][producer] = lambda: False
        raise CorruptionError(
            f"corrupt ring: producer {producer}, priority {priority} of inbox `{self._name}`",
            code="lane.corrupt",
            hint="other code writes to the region; the other rings continue",
        )


def _rebuild(region: MemoryRegion, name: str, producers: int, priorities: int, ring_bytes: int) -> Inbox:
    return Inbox(region, name=name, producers=producers, priorities=priorities, ring_bytes=ring_bytes)
