"""Rings: messages from one producer to one consumer, in a region; and the producer's end of them.

Rule 1: a push never waits and never overwrites: it publishes, or returns that the ring is full.
Rule 2: the store of the tail is the only visible step of a push; a producer killed before it has published nothing.
Rule 3: the store of the head comes after the copy; a consumer killed before it leaves the messages to the next one.
Rule 4: the C core has the same ring (native/ring.h); `PlainRing` runs on any words and shares a region with it.

    A ring: tail u64 and the producer's cached head (one line), head u64 (one line), then the bytes. A message: length
    u32, zero u32, payload, padded to 8 bytes; length 0xFFFFFFFF skips the end of the bytes. A message with its header
    fills at most half of the bytes, so it fits at any position.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Protocol, Self

from interlock.errors import CorruptionError, UsageError
from interlock.ports.fork import after_fork
from interlock.shm.memory.process_locks import ByteLocks
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.memory.words import Words
from interlock.shm.queue.notifier import NO_EVENTFD, Notifier

RING_HEAD = 2 * LINE
MESSAGE_HEAD = 8
SKIP = 0xFFFFFFFF
RING_BYTES_MIN = 64

CORRUPT, TOO_LARGE = -1, -2
FULL, PUSHED, PUSHED_NOTIFY = 0, 1, 2
"""Results of a push. The last one says that the consumer sleeps and must be notified."""

Payload = bytes | bytearray | memoryview
"""The bytes of a message."""

_LENGTH = struct.Struct("<II")


class Ring(Protocol):
    """The messages of one producer to one consumer."""

    def push(self, payload: Payload, /) -> int:
        """Publish a message. Returns PUSHED, PUSHED_NOTIFY, FULL, TOO_LARGE or CORRUPT."""

    def pop_many(self, limit: int, /) -> list[bytes] | None:
        """Return up to `limit` messages, oldest first; None if the ring is corrupt."""

    def has_messages(self) -> bool:
        """Return whether a message is published and not yet received."""


def ring_area_bytes(ring_bytes: int) -> int:
    """Return the bytes of a ring in a region, with its head."""
    return RING_HEAD + ring_bytes


def payload_bytes_max(ring_bytes: int) -> int:
    """Return the size of the largest message of a ring."""
    return ring_bytes // 2 - MESSAGE_HEAD


def open_ring(region: MemoryRegion, offset: int, ring_bytes: int, asleep: int) -> Ring:
    """Return the ring at an offset, in the region's mode. `asleep` is the offset of its consumer's word."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.Ring(region.buffer, offset, ring_bytes, asleep)
    return PlainRing(region.words, memoryview(region.buffer), offset, ring_bytes, asleep)


class PlainRing:
    """A ring on any words. Every operation on a word is ordered, and therefore also the bytes between them."""

    def __init__(self, words: Words, memory: memoryview, offset: int, ring_bytes: int, asleep: int) -> None:
        self._words = words
        self._ring = memory[offset + RING_HEAD : offset + RING_HEAD + ring_bytes]
        self._bytes = ring_bytes
        self._tail, self._head = offset, offset + LINE
        self._asleep = asleep

    def push(self, payload: Payload, /) -> int:
        with memoryview(payload) as view, view.cast("B") as data:
            size, ring = data.nbytes, self._bytes
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
            self._ring[at + MESSAGE_HEAD : at + MESSAGE_HEAD + size] = data
        self._words.store(self._tail, tail + skip + need)  # P3
        return PUSHED_NOTIFY if self._words.load(self._asleep) else PUSHED

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

    def has_messages(self) -> bool:
        return self._words.load(self._tail) != self._words.load(self._head)

    def _next(self, head: int, tail: int) -> tuple[int, bytes] | None:
        """Return the position after the message at `head`, and the message; None if the bytes are not a message."""
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
    """One producer of an inbox. Threads may share it; a forked child must not use it."""

    def __init__(
        self, index: int, rings: dict[int, Ring], notifier: Notifier, locks: ByteLocks, *, needs_mutex: bool
    ) -> None:
        self.index = index
        self._notifier = notifier
        self._locks = locks
        self._mutex = threading.Lock() if needs_mutex else None
        self._push = {priority: ring.push for priority, ring in rings.items()}
        self._pid = os.getpid()
        after_fork(self, Producer._reset_after_fork)

    def push(self, payload: Payload, *, priority: int = 0) -> bool:
        """Publish a message and wake the consumer if it sleeps. False if the ring is full. Never waits.

        Raises UsageError for a message above half of the ring, an unknown priority, a closed producer, or a producer of
        the parent process.
        """
        try:
            push = self._push[priority]
        except KeyError:
            raise self._refusal(priority) from None
        if self._mutex is None:
            result = push(payload)
        else:
            with self._mutex:
                result = push(payload)
        if result == PUSHED:
            return True
        if result == PUSHED_NOTIFY:
            eventfd = self._notifier.eventfd
            if eventfd == NO_EVENTFD:
                self._notifier.notify()
                return True
            try:  # the same as `notify`, without a Python call on the path from a message to its consumer
                os.eventfd_write(eventfd, 1)
            except OSError:
                self._notifier.notify()  # which knows what is an error
            return True
        if result == FULL:
            return False
        if result == CORRUPT:
            raise CorruptionError(
                f"the ring of producer {self.index} has invalid positions",
                code="lane.corrupt",
                hint="other code writes to the region; create it again",
            )
        raise UsageError(
            f"{memoryview(payload).nbytes} bytes are too large for this inbox",
            code="inbox.message_bytes",
            hint="at most half of `ring_bytes`; put large data into a store and send its name",
        )

    def close(self) -> None:
        """Release the rings. Messages that were pushed stay."""
        self._push = {}
        self._locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _refusal(self, priority: int) -> UsageError:
        if self._pid != os.getpid():
            return UsageError(
                "this producer belongs to the parent process",
                code="producer.forked",
                hint="a child needs its own: inbox.producer()",
            )
        if not self._push:
            return UsageError("the producer is closed", code="producer.closed", hint="call inbox.producer() again")
        return UsageError(
            f"priority {priority} is out of range", code="inbox.priority", hint=f"0 to {len(self._push) - 1}"
        )

    def _reset_after_fork(self) -> None:
        self._push = {}
