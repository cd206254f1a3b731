"""Lanes: rings of messages from one producer to one consumer, in a region; and the producer's end of them.

Rule 1: a push never waits and never overwrites: it publishes, or answers that the lane is full.
Rule 2: the store of the tail is the only visible act of a push; a producer killed before it has said nothing.
Rule 3: the store of the head comes after the copy; a consumer killed before it leaves the messages to the next.
Rule 4: the C core has the same lane (native/lanes.h); `PlainRing` runs on any words and shares a region with it.

    A lane: tail u64 and the producer's cached head (one line), head u64 (one line), then the ring. A message: length
    u32, zero u32, payload, padded to 8 bytes; length 0xFFFFFFFF passes over the rest of the ring. A message with its
    header fills at most half of the ring, so it fits wherever the ring stands.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Protocol, Self

from interlock.errors import CorruptionError, UsageError
from interlock.ports.fork import after_fork
from interlock.shm.memory.process_locks import ByteLocks
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import Words
from interlock.shm.queue.notifier import NO_EVENTFD, Notifier

LINE = 64
LANE_HEAD = 2 * LINE
MESSAGE_HEAD = 8
SKIP = 0xFFFFFFFF
RING_BYTES_MIN = 64

CORRUPT, TOO_LARGE = -1, -2
FULL, PUSHED, PUSHED_RING = 0, 1, 2
"""What a push answers; the last one says that the consumer sleeps and wants to be rung."""

QUEUE_BYTES = 1 << 41
"""Lock bytes of queues stand here, each by the offset of its line: beyond any region and any slot."""

Payload = bytes | bytearray | memoryview
"""The bytes of a message."""

_LENGTH = struct.Struct("<II")


class Ring(Protocol):
    """One producer's ring of messages to one consumer."""

    def push(self, payload: Payload, /) -> int:
        """Publish a message; PUSHED, PUSHED_RING, FULL, TOO_LARGE or CORRUPT."""

    def pop_many(self, limit: int, /) -> list[bytes] | None:
        """Up to `limit` messages, oldest first; None when the lane is corrupt."""

    def waiting(self) -> bool:
        """Whether a message is published and not yet taken."""


def ring_bytes(ring_bytes: int) -> int:
    """What a lane takes in a region."""
    return LANE_HEAD + ring_bytes


def payload_bytes_max(ring_bytes: int) -> int:
    """The largest message of a ring."""
    return ring_bytes // 2 - MESSAGE_HEAD


def open_ring(region: MemoryRegion, offset: int, ring_bytes: int, asleep: int) -> Ring:
    """The lane at an offset, as fast as the region's mode allows. `asleep` is the word of its consumer."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.Lane(region.buffer, offset, ring_bytes, asleep)
    return PlainRing(region.words, memoryview(region.buffer), offset, ring_bytes, asleep)


class PlainRing:
    """A lane on any words. Every word operation is ordered, so the bytes between them are."""

    def __init__(self, words: Words, memory: memoryview, offset: int, ring_bytes: int, asleep: int) -> None:
        self._words = words
        self._ring = memory[offset + LANE_HEAD : offset + LANE_HEAD + ring_bytes]
        self._bytes = ring_bytes
        self._tail, self._head = offset, offset + LINE
        self._asleep = asleep

    def push(self, payload: Payload, /) -> int:
        with memoryview(payload) as view, view.cast("B") as given:
            size, ring = given.nbytes, self._bytes
            if size > payload_bytes_max(ring):
                return TOO_LARGE
            tail, head = self._words.load(self._tail), self._words.load(self._head)  # P1
            at, need = tail % ring, MESSAGE_HEAD + (size + 7) // 8 * 8
            skip = ring - at if need > ring - at else 0
            if not 0 <= tail - head <= ring:
                return CORRUPT
            if tail + skip + need - head > ring:
                return FULL
            if skip:  # P2
                _LENGTH.pack_into(self._ring, at, SKIP, 0)
                at = 0
            _LENGTH.pack_into(self._ring, at, size, 0)
            self._ring[at + MESSAGE_HEAD : at + MESSAGE_HEAD + size] = given
        self._words.store(self._tail, tail + skip + need)  # P3
        return PUSHED_RING if self._words.load(self._asleep) else PUSHED

    def pop_many(self, limit: int, /) -> list[bytes] | None:
        messages: list[bytes] = []
        head, tail = self._words.load(self._head), self._words.load(self._tail)
        if not 0 <= tail - head <= self._bytes or (head | tail) % 8:
            return None
        while len(messages) < limit and head != tail:
            found = self._next(head, tail)
            if found is None:
                if not messages:
                    return None
                break
            head, message = found
            messages.append(message)
        if messages:
            self._words.store(self._head, head)
        return messages

    def waiting(self) -> bool:
        return self._words.load(self._tail) != self._words.load(self._head)

    def _next(self, head: int, tail: int) -> tuple[int, bytes] | None:
        """The position after the message at `head`, and the message; None when no producer wrote this."""
        at = head % self._bytes
        size, _ = _LENGTH.unpack_from(self._ring, at)
        if size == SKIP:
            head, at = head + self._bytes - at, 0
            if head >= tail:
                return None
            size, _ = _LENGTH.unpack_from(self._ring, 0)
        need = MESSAGE_HEAD + (size + 7) // 8 * 8
        if need > self._bytes // 2 or need > tail - head or need > self._bytes - at:
            return None
        return head + need, bytes(self._ring[at + MESSAGE_HEAD : at + MESSAGE_HEAD + size])


class Producer:
    """One place of an inbox. Its threads may share it; a forked child may not use it."""

    def __init__(self, index: int, lanes: dict[int, Ring], bell: Notifier, locks: ByteLocks, *, locked: bool) -> None:
        self.index = index
        self._bell = bell
        self._locks = locks
        self._mutex = threading.Lock() if locked else None
        self._push = {level: lane.push for level, lane in lanes.items()}
        self._pid = os.getpid()
        after_fork(self, Producer._forget)

    def push(self, payload: Payload, *, priority: int = 0) -> bool:
        """Publish a message and wake the consumer if it sleeps; False when the lane is full. Never waits.

        Raises UsageError for a message above half of the ring, an unknown priority, a closed producer or one that
        belongs to the process that forked.
        """
        try:
            push = self._push[priority]
        except KeyError:
            raise self._refusal(priority) from None
        if self._mutex is None:
            answer = push(payload)
        else:
            with self._mutex:
                answer = push(payload)
        if answer == PUSHED:
            return True
        if answer == PUSHED_RING:
            eventfd = self._bell.eventfd
            if eventfd == NO_EVENTFD:
                self._bell.ring()
                return True
            try:  # as the bell does, but without a call of Python between a message and whoever sleeps
                os.eventfd_write(eventfd, 1)
            except OSError:
                self._bell.ring()  # which knows what is an error
            return True
        if answer == FULL:
            return False
        if answer == CORRUPT:
            raise CorruptionError(
                f"the lane of producer {self.index} has positions that no lane can have",
                code="lane.corrupt",
                hint="something else writes into the region; make it anew",
            )
        raise UsageError(
            f"{memoryview(payload).nbytes} bytes are too large for this inbox",
            code="inbox.message_bytes",
            hint="at most half of `ring_bytes`; put large things into a store and send their name",
        )

    def close(self) -> None:
        """Give the place back. What was pushed stays."""
        self._push = {}
        self._locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _refusal(self, priority: int) -> UsageError:
        if self._pid != os.getpid():
            return UsageError(
                "this producer belongs to the process that forked",
                code="producer.forked",
                hint="a child takes a place of its own: inbox.producer()",
            )
        if not self._push:
            return UsageError("the producer is closed", code="producer.closed", hint="take a place again")
        return UsageError(
            f"priority {priority} is not one of this inbox", code="inbox.priority", hint=f"0 to {len(self._push) - 1}"
        )

    def _forget(self) -> None:
        self._push = {}
