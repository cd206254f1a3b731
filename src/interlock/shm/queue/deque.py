"""Work-stealing deques: one owner pushes and pops ids at one end, thieves steal at the other. Any of them may die.

Rule 1: the algorithm of Chase and Lev with a fixed capacity: a push to a full deque fails, and no buffer is replaced.
Rule 2: before an id leaves the deque it is stored in the taker's `claimed_id` word. If the taker dies then, the next
owner of its line finds the id there, or `recover` does.
Rule 3: an id leaves once. The claimed id of a dead taker may have been worked on: the process that recovers it
finds out by other means (a task's word in `task_table`, an idempotent key).
Rule 4: the C core has the same deque (native/deque.h); `PlainDeque` runs on any words and shares a region with it.

    A deque: top u64 (one line), bottom u64 (one line), then the ids. In the area of a `Deque` there is first a line for
    each taker, with its claimed id; the owner has the first one.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol, Self

from interlock.errors import ConflictError, UnavailableError, UsageError
from interlock.ports.fork import after_fork
from interlock.shm.memory.arguments import check_int
from interlock.shm.memory.process_locks import QUEUE_BYTES
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.memory.words import WORD_MAX, Words

DEQUE_HEAD = 2 * LINE
LOST = -1
CAPACITY_MAX = 1 << 24
TAKERS_MAX = 4095


class RawDeque(Protocol):
    """The operations of `native/deque.h`, for one taker."""

    def push(self, id: int, /) -> bool:
        """Add an id; False if full. Owner only."""

    def pop(self) -> int:
        """Return the newest id, or 0. Owner only."""

    def steal(self) -> int:
        """Return the oldest id, 0 if empty, LOST if another taker was faster."""

    def size(self) -> int:
        """Return the number of ids; exact only while no process changes the deque."""

    def reset(self) -> None:
        """Repair an empty deque after the death of its owner."""


def deque_bytes(capacity: int) -> int:
    """Return the bytes of a deque in a region."""
    return DEQUE_HEAD + 8 * capacity


def open_deque(region: MemoryRegion, offset: int, capacity: int, claimed_id: int) -> RawDeque:
    """Return the deque at an offset, in the region's mode. `claimed_id` is the offset of this taker's word."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.Deque(region.buffer, offset, capacity, claimed_id)
    return PlainDeque(region.words, offset, capacity, claimed_id)


def signed(word: int) -> int:
    """Return a position: an owner killed in a pop may leave bottom one below a top of 0."""
    return word - (1 << 64) if word >> 63 else word


class PlainDeque:
    """A deque on any words."""

    def __init__(self, words: Words, offset: int, capacity: int, claimed_id: int) -> None:
        self._words = words
        self._top, self._bottom, self._items = offset, offset + LINE, offset + DEQUE_HEAD
        self._capacity = capacity
        self._claimed_id = claimed_id

    def push(self, id: int, /) -> bool:
        bottom, top = signed(self._words.load(self._bottom)), signed(self._words.load(self._top))
        if bottom - top >= self._capacity:
            return False
        self._words.store(self._item(bottom), id)
        self._words.store(self._bottom, (bottom + 1) & WORD_MAX)
        return True

    def pop(self) -> int:
        words = self._words
        bottom = signed(words.load(self._bottom)) - 1
        if signed(words.load(self._top)) > bottom:
            return 0
        found = words.load(self._item(bottom))
        words.store(self._claimed_id, found)
        words.store(self._bottom, bottom & WORD_MAX)
        top = signed(words.load(self._top))
        if top < bottom:
            return found
        word = top & WORD_MAX
        won = top == bottom and words.swap(self._top, word, (top + 1) & WORD_MAX) == word
        words.store(self._bottom, (bottom + 1) & WORD_MAX)
        if won:
            return found
        words.store(self._claimed_id, 0)
        return 0

    def steal(self) -> int:
        words = self._words
        word = words.load(self._top)
        top = signed(word)
        if top >= signed(words.load(self._bottom)):
            return 0
        found = words.load(self._item(top))
        words.store(self._claimed_id, found)
        if words.swap(self._top, word, (top + 1) & WORD_MAX) == word:
            return found
        words.store(self._claimed_id, 0)
        return LOST

    def size(self) -> int:
        top = signed(self._words.load(self._top))
        return max(0, signed(self._words.load(self._bottom)) - top)

    def reset(self) -> None:
        words = self._words
        while True:  # ends: a lost swap is a thief's, and no process pushes
            word = words.load(self._top)
            if signed(word) < signed(words.load(self._bottom)):
                return
            after = (signed(word) + 1) & WORD_MAX
            if words.swap(self._top, word, after) == word:
                words.store(self._bottom, after)
                return

    def _item(self, position: int) -> int:
        return self._items + 8 * (position % self._capacity)


class Deque:
    """Ids from 1 to 2**64-1 in a region: one process owns the deque, others steal from it.

    Every process creates its own `Deque` with the same numbers, then calls `owner()` or `thief()`.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     owner, thief = Deque(region, "jobs").owner(), Deque(region, "jobs").thief()
    ...     owner.push(1), owner.push(2), owner.pop(), thief.steal(), thief.steal()
    (True, True, 2, 1, None)
    """

    def __init__(self, region: MemoryRegion, name: str, *, capacity: int = 1024, takers: int = 16) -> None:
        check_int("capacity", capacity, 1, CAPACITY_MAX, code="deque.capacity")
        if capacity & (capacity - 1):
            raise UsageError(f"capacity={capacity} is not a power of two", code="deque.capacity", hint="such as 1024")
        check_int("takers", takers, 2, TAKERS_MAX, code="deque.takers")
        self._region, self._name = region, name
        self._capacity, self._takers = capacity, takers
        self._offset = region.area(f"deque.{name}", takers * LINE + deque_bytes(capacity))

    def __len__(self) -> int:
        """Return the number of ids; exact only while no process changes the deque."""
        return open_deque(self._region, self._offset + self._takers * LINE, self._capacity, self._offset).size()

    def owner(self) -> DequeOwner:
        """Become the owner, which pushes and pops. Raises ConflictError while another process is the owner."""
        owner = DequeOwner(self._region, self._offset, self._capacity, self._takers)
        if not owner.claim(0):
            owner.close()
            raise ConflictError(
                f"deque `{self._name}` already has an owner",
                code="deque.owner",
                hint="use thief(), or wait until the owner ends",
            )
        return owner

    def thief(self) -> DequeThief:
        """Become a thief. Raises UnavailableError if there are `takers` takers already."""
        thief = DequeThief(self._region, self._offset, self._capacity, self._takers)
        for index in range(1, self._takers):
            if thief.claim(index):
                return thief
        thief.close()
        raise UnavailableError(
            f"deque `{self._name}` already has {self._takers} takers",
            code="deque.takers",
            hint="close one, or create the deque with more",
        )


class DequeThief:
    """A taker of a deque. Its last id stays claimed until `done` or until it takes the next one."""

    def __init__(self, region: MemoryRegion, offset: int, capacity: int, takers: int) -> None:
        self._words, self._locks = region.words, region.locks()
        self._offset, self._takers = offset, takers
        self._line = -1
        self._mutex = threading.Lock()
        self._region, self._capacity = region, capacity
        self._raw: RawDeque | None = None
        self.recovered_id: int | None = None
        """The claimed id of the previous taker on this line, which died: perhaps worked on, perhaps not."""
        self._pid = os.getpid()
        after_fork(self, DequeThief._reset_after_fork)

    def claim(self, index: int) -> bool:
        """Claim the line of a taker. False if a live process has it."""
        return self._locks.claim(self._lock_byte(index)) and self._open(index)

    def _open(self, index: int) -> bool:
        self._line = self._offset + index * LINE
        self._raw = open_deque(self._region, self._offset + self._takers * LINE, self._capacity, self._line)
        self.recovered_id = self._words.load(self._line) or None
        return True

    def steal(self) -> int | None:
        """Return the oldest id, or None if the deque is empty or another taker was faster."""
        with self._mutex:
            self.recovered_id = None
            found = self._require_open().steal()
        return found if found > 0 else None

    def done(self) -> None:
        """Report that the work of the claimed id is done, so it is not recovered."""
        with self._mutex:
            self._require_open()
            self.recovered_id = None
            self._words.store(self._line, 0)

    def recover(self) -> int | None:
        """Claim the id of a taker that died. None if there is none. This taker must not have a claimed id."""
        with self._mutex:
            self._require_open()
            if self._words.load(self._line):
                raise UsageError("this taker has a claimed id", code="deque.hand", hint="call done() first")
            for index in range(self._takers):
                line = self._offset + index * LINE
                if line == self._line or not self._words.load(line) or not self._locks.claim(self._lock_byte(index)):
                    continue
                try:
                    found = self._words.load(line)
                    self._words.store(self._line, found)  # if this process dies here, the id is claimed twice
                    self._words.store(line, 0)
                finally:
                    self._locks.release(self._lock_byte(index))
                if found:
                    return found
        return None

    def close(self) -> None:
        """Stop being a taker."""
        self._raw = None
        self._locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _lock_byte(self, index: int) -> int:
        return QUEUE_BYTES + self._offset + index * LINE

    def _require_open(self) -> RawDeque:
        if self._raw is None:
            forked = self._pid != os.getpid()
            raise UsageError(
                "this taker belongs to the parent process" if forked else "this taker is closed",
                code="deque.forked" if forked else "deque.closed",
                hint="call owner() or thief() in this process",
            )
        return self._raw

    def _reset_after_fork(self) -> None:
        self._raw, self._mutex = None, threading.Lock()


class DequeOwner(DequeThief):
    """The owner of a deque: it pushes and pops, and may steal as well."""

    def claim(self, index: int) -> bool:
        """Claim the owner's line, and repair what an interrupted pop of the previous owner left."""
        if not self._locks.claim_with_retry(self._lock_byte(index)):  # a thief may be recovering the claimed id
            return False
        self._open(index)
        self._require_open().reset()
        return True

    def push(self, id: int) -> bool:
        """Add an id. False if the deque is full."""
        check_int("id", id, 1, WORD_MAX, code="deque.id")
        with self._mutex:
            return self._require_open().push(id)

    def pop(self) -> int | None:
        """Return the newest id, or None."""
        with self._mutex:
            self.recovered_id = None
            return self._require_open().pop() or None
