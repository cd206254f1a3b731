"""The inbox: many producers in many processes, one consumer, usually an event loop.

Rule 1: every producer has lanes of its own, one for each priority, so nobody waits for anybody, alive or dead.
Rule 2: a lane belongs to who holds its lock byte; the next owner continues at what was published.
Rule 3: a producer publishes, then looks whether the consumer sleeps, then rings; it never clears `asleep`. The
consumer clears the bell and `asleep`, then takes; before it sleeps it stores `asleep` and looks again.
Rule 4: the event loop is never blocked and never starved: a batch at a time, and the loop's turn when the budget is
spent. What a killed producer published without ringing is found a quarter of a second later, at worst.
Rule 5: delivery is at most once: a message that was taken is in this process's memory only. Durable work belongs in a
store.

    An area: producers u32, priorities u32, ring bytes u64, doorbell kind u64 (one line); asleep u64 (one line);
    rings u64 (one line); then for each producer its lanes, most urgent first.
"""

from __future__ import annotations

import asyncio
import os
import select
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from time import monotonic, perf_counter_ns
from typing import Literal, Self

from msgspec import Struct

from interlock.errors import ConflictError, CorruptionError, UnavailableError, UsageError
from interlock.shm.doorbell import Doorbell, EventBell, SocketBell, WaiterBell
from interlock.shm.lane import (
    LINE,
    QUEUE_BYTES,
    RING_BYTES_MIN,
    Lane,
    Producer,
    lane_bytes,
    open_lane,
    payload_bytes_max,
)
from interlock.shm.liveness import ByteLocks, reopened_after_fork
from interlock.shm.region import Region
from interlock.shm.region_file import region_path
from interlock.shm.wakeup import Wakeup
from interlock.shm.word import WAIT_SECONDS_MAX

BATCH_MAX = 128
"""Messages of one lane taken at once: long enough to be cheap, short enough to be fair."""

DRAIN_US_MAX = 500
"""How long an event loop takes messages before it gives others their turn."""

SPIN_US_MAX = 50
"""How long a thread looks before it lies down: every lying down costs the next producer a ring."""

SKIPS_MAX = 8
"""How often a waiting priority is passed over before it is served: no starvation without a clock."""

PRIORITIES_MAX = 8
PRODUCERS_MAX = 4095
TASKS_MAX = 1024
"""Handlers of `serve` at once."""

RING_BYTES = 64 * 1024
_HEAD = struct.Struct("<IIQQ")
_KINDS = {EventBell.kind: "eventfd", SocketBell.kind: "socket", WaiterBell.kind: "waiter"}


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
    """Messages from `producers` processes to the one that takes them, in one thread or event loop.

    Every process makes its own `Inbox` with the same numbers on the same region. `priorities` lanes per producer: 0 is
    the most urgent. `doorbell` is how producers wake the consumer: "socket" for a region with a name, "eventfd" for
    one without (children inherit it; others pass `EventBell(fd)`), or "waiter".

    >>> from interlock.shm.region import Region
    >>> with Region.create() as region, Inbox(region, producers=2) as inbox:
    ...     producer = inbox.producer()
    ...     producer.push(b"hello"), inbox.take().messages
    (True, [b'hello'])
    """

    def __init__(
        self,
        region: Region,
        *,
        name: str = "inbox",
        producers: int = 8,
        priorities: int = 1,
        ring_bytes: int = RING_BYTES,
        doorbell: Literal["auto", "eventfd", "socket", "waiter"] | EventBell = "auto",
    ) -> None:
        _check("producers", producers, 1, PRODUCERS_MAX)
        _check("priorities", priorities, 1, PRIORITIES_MAX)
        _check("ring_bytes", ring_bytes, RING_BYTES_MIN, 1 << 30)
        if ring_bytes & (ring_bytes - 1):
            raise UsageError(f"ring_bytes={ring_bytes} is no power of two", code="inbox.ring", hint="such as 65536")
        self._region, self._name = region, name
        self._producers, self._priorities, self._ring_bytes = producers, priorities, ring_bytes
        kind = _kind_wanted(region, doorbell)
        default = EventBell.kind if region.name is None else SocketBell.kind
        made: list[int] = []

        def prepare(offset: int) -> None:
            _HEAD.pack_into(region.buffer, offset, producers, priorities, ring_bytes, kind or default)
            made.append(offset)

        size = 3 * LINE + producers * priorities * lane_bytes(ring_bytes)
        self._offset = region.area(f"inbox.{name}", size, prepare=prepare)
        self._asleep = self._offset + LINE
        self._bell = self._open_bell(doorbell, kind, created=bool(made))
        self._locks: ByteLocks | None = None
        self._lanes: list[list[Lane]] = []
        self._turns = [0] * priorities
        self._skips = [0] * priorities
        self._aside: set[tuple[int, int]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: Wakeup | None = None
        reopened_after_fork(self, Inbox._forget)

    @property
    def doorbell(self) -> Doorbell:
        """The bell; `fd` of an `EventBell` is what other processes need of it."""
        return self._bell

    @property
    def message_bytes_max(self) -> int:
        """The largest message: half of a ring."""
        return payload_bytes_max(self._ring_bytes)

    def producer(self) -> Producer:
        """A free place to push from, with its lanes; it is given back by `close`, or by the end of the process.

        Raises UnavailableError when all places are taken.
        """
        locks = self._region.locks()
        for index in range(self._producers):
            if locks.claim(QUEUE_BYTES + self._lane_offset(index, 0)):
                lanes = {level: self._lane(index, level) for level in range(self._priorities)}
                return Producer(index, lanes, self._bell, locks, locked=self._needs_lock)
        locks.close()
        raise UnavailableError(
            f"all {self._producers} places of inbox `{self._name}` are taken",
            code="inbox.producers",
            hint="close a producer, or make the inbox with more",
        )

    def take(self, limit: int = BATCH_MAX) -> Batch | None:
        """The next batch, or None when nothing waits. Becomes the consumer; never waits.

        Raises ConflictError when another process is the consumer, CorruptionError when a lane holds what no producer
        wrote (once: that lane is then left alone).
        """
        if self._locks is None:
            self._become_consumer()
        priority = self._next_priority()
        if priority is None:
            return None
        lanes, first = self._lanes[priority], self._turns[priority]
        for turn in range(self._producers):
            index = (first + turn) % self._producers
            if self._aside and (index, priority) in self._aside:
                continue
            messages = lanes[index].pop_many(limit)
            if messages is None:
                self._aside.add((index, priority))
                raise CorruptionError(
                    f"the lane of producer {index}, priority {priority}, of inbox `{self._name}` holds no messages",
                    code="lane.corrupt",
                    hint="something else writes into the region; the other lanes go on",
                )
            if messages:
                self._turns[priority] = (index + 1) % self._producers
                return Batch(messages, priority, index)
        return None

    def wait(self, timeout: float) -> bool:
        """Block this thread until something waits, at most so many seconds; True when it does. Not for event loops."""
        if self._locks is None:
            self._become_consumer()
        end = monotonic() + timeout
        spin_end = perf_counter_ns() + 1000 * SPIN_US_MAX
        while not self._waiting():
            if perf_counter_ns() > spin_end:
                break
            os.sched_yield()  # a producer without a processor could not end the wait
        else:
            return True  # we are awake: nobody rang, and there is no bell to clear
        poll = select.poll()
        poll.register(self._bell.listen(), select.POLLIN)
        while not self._disarmed_by_message():
            left = end - monotonic()
            if left <= 0:
                break
            poll.poll(1000 * min(left, WAIT_SECONDS_MAX))
            self._awake()
        self._awake()
        return self._waiting()

    async def batches(self, *, budget_us: int = DRAIN_US_MAX, limit: int = BATCH_MAX) -> AsyncIterator[Batch]:
        """Batches for ever, as they come. Other tasks of the loop get their turn when the budget is spent."""
        _check("budget_us", budget_us, 1, 10_000_000)
        _check("limit", limit, 1, 1_000_000)
        begun = perf_counter_ns()
        while True:
            batch = self.take(limit)
            if batch is None:
                await self._rung()
                begun = perf_counter_ns()
                continue
            if perf_counter_ns() - begun > 1000 * budget_us:
                await asyncio.sleep(0)
                begun = perf_counter_ns()
            yield batch

    async def serve(
        self,
        handler: Callable[[bytes], Awaitable[object]],
        *,
        tasks_max: int = TASKS_MAX,
        budget_us: int = DRAIN_US_MAX,
    ) -> None:
        """Run a task per message for ever, at most `tasks_max` at once; an exception of one ends all and is raised."""
        _check("tasks_max", tasks_max, 1, 1_000_000)
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
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._bell.listen())
        self._loop = None
        if self._waiter is not None:
            self._waiter.cancel()
        self._bell.close()
        if self._locks is not None:
            self._locks.close()
            self._locks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Inbox], tuple[object, ...]]:
        return _again, (self._region, self._name, self._producers, self._priorities, self._ring_bytes)

    @property
    def _needs_lock(self) -> bool:
        """Whether threads of this process need a lock around a push: the GIL is one, in the C core only."""
        return self._region.mode != "native" or not getattr(sys, "_is_gil_enabled", lambda: True)()

    def _lane_offset(self, producer: int, priority: int) -> int:
        return self._offset + 3 * LINE + (producer * self._priorities + priority) * lane_bytes(self._ring_bytes)

    def _lane(self, producer: int, priority: int) -> Lane:
        return open_lane(self._region, self._lane_offset(producer, priority), self._ring_bytes, self._asleep)

    def _open_bell(self, doorbell: str | EventBell, kind: int | None, *, created: bool) -> Doorbell:
        known = _HEAD.unpack_from(self._region.buffer, self._offset)
        if known[:3] != (self._producers, self._priorities, self._ring_bytes):
            raise UsageError(
                f"inbox `{self._name}` has producers={known[0]}, priorities={known[1]}, ring_bytes={known[2]}",
                code="inbox.shape",
                hint="give the same numbers everywhere, or another name",
            )
        if kind not in {None, known[3]}:
            raise UsageError(
                f"inbox `{self._name}` is rung by {_KINDS[known[3]]}", code="inbox.bell", hint="use the same doorbell"
            )
        if isinstance(doorbell, EventBell):
            return doorbell
        if known[3] == WaiterBell.kind:
            return WaiterBell(self._region.words, self._offset + 2 * LINE)
        if known[3] == SocketBell.kind and self._region.name is not None:
            folder = region_path(self._region.name).parent
            return SocketBell(folder, f".{self._region.epoch:016x}-{self._offset}.bell")
        if known[3] == EventBell.kind and created:
            return EventBell()
        raise UsageError(
            f"the doorbell of inbox `{self._name}` is a descriptor of its maker",
            code="inbox.bell_missing",
            hint="inherit or send `inbox.doorbell.fd`, and give doorbell=EventBell(fd)",
        )

    def _become_consumer(self) -> None:
        locks = self._region.locks()
        if not locks.claim(QUEUE_BYTES + self._offset):
            locks.close()
            raise ConflictError(
                f"inbox `{self._name}` has a consumer", code="inbox.consumer", hint="one at a time; the next may follow"
            )
        self._locks = locks
        self._lanes = [
            [self._lane(producer, priority) for producer in range(self._producers)]
            for priority in range(self._priorities)
        ]
        self._bell.listen()
        self._awake()  # or producers would ring at every push, when the last consumer died asleep

    def _next_priority(self) -> int | None:
        """The most urgent that waits, unless another was passed over too often: then that one."""
        if self._priorities == 1:
            return 0
        waiting = [level for level in range(self._priorities) if self._level_waiting(level)]
        if not waiting:
            return None
        aged = max(waiting, key=lambda level: self._skips[level])
        chosen = aged if self._skips[aged] >= SKIPS_MAX else waiting[0]
        for level in range(self._priorities):
            self._skips[level] = self._skips[level] + 1 if level in waiting and level != chosen else 0
        return chosen

    def _level_waiting(self, level: int) -> bool:
        return any(lane.waiting() for index, lane in enumerate(self._lanes[level]) if (index, level) not in self._aside)

    def _waiting(self) -> bool:
        return any(self._level_waiting(level) for level in range(self._priorities))

    def _disarmed_by_message(self) -> bool:
        """Step 4: say that we sleep, look again; something there: we do not."""
        self._region.words.store(self._asleep, 1)
        if not self._waiting():
            return False
        self._region.words.store(self._asleep, 0)
        return True

    def _awake(self) -> None:
        """Step 2: the bell first, then the word, then (the caller) the lanes."""
        self._bell.clear()
        self._region.words.store(self._asleep, 0)

    async def _rung(self) -> None:
        """Sleep until something may be there."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            loop.add_reader(self._bell.listen(), self._heard)
            self._loop = loop
        if self._disarmed_by_message():
            await asyncio.sleep(0)  # a corrupt lane aside, whoever never sleeps still lets the others run
            return
        self._waiter = Wakeup(loop)
        reap = loop.call_later(WAIT_SECONDS_MAX, self._heard)
        try:
            await self._waiter
        finally:
            reap.cancel()
            self._waiter = None

    def _heard(self) -> None:
        self._awake()
        if self._waiter is not None:
            self._waiter.now()

    def _forget(self) -> None:
        # In a forked child: the parent is still the consumer, and its loop is not ours.
        self._locks, self._loop, self._waiter = None, None, None


def _again(region: Region, name: str, producers: int, priorities: int, ring_bytes: int) -> Inbox:
    return Inbox(region, name=name, producers=producers, priorities=priorities, ring_bytes=ring_bytes)


def _kind_wanted(region: Region, doorbell: str | EventBell) -> int | None:
    """The kind that was asked for; of a new inbox also what `auto` means. None: whatever the inbox has."""
    if isinstance(doorbell, EventBell):
        return EventBell.kind
    if doorbell == "auto":
        return None
    for kind, known in _KINDS.items():
        if known == doorbell:
            if kind == SocketBell.kind and region.name is None:
                raise UsageError("a region without a name has no socket", code="inbox.bell", hint="doorbell='eventfd'")
            return kind
    raise UsageError(f"`{doorbell}` is no doorbell", code="inbox.bell", hint="auto, eventfd, socket or waiter")


def _check(what: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{what}={value!r} cannot be", code=f"inbox.{what}", hint=f"{least} to {most}")
