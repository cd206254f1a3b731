"""Work-stealing deques: one owner pushes and pops ids at one end, anybody steals at the other, anybody may be killed.

Rule 1: the algorithm of Chase and Lev with a fixed capacity: a full deque answers, and no buffer is ever exchanged.
Rule 2: before an id leaves the deque it stands in the taker's hand; a taker that dies there is found by whoever
takes its place next, or by `recover`.
Rule 3: an id leaves once. What a dead taker held may have been worked on: whoever recovers it finds out by other
means (a task's word in `slab`, an idempotent key).
Rule 4: the C core has the same deque (native/deque.h); `PlainDeque` runs on any words and shares a region with it.

    A deque: top u64 (one line), bottom u64 (one line), then the ids. In an area of its own a line for each taker
    comes first, with its hand; the owner has the first one.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol, Self

from interlock.errors import ConflictError, UnavailableError, UsageError
from interlock.ports.fork import after_fork
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import WORD_MAX, Words
from interlock.shm.queue.ring import LINE, QUEUE_BYTES

DEQUE_HEAD = 2 * LINE
LOST = -1
CAPACITY_MAX = 1 << 24
TAKERS_MAX = 4095


class RawDeque(Protocol):
    """The operations of `native/deque.h`, for one taker's hand."""

    def push(self, id: int, /) -> bool:
        """Owner: add an id; False when full."""

    def pop(self) -> int:
        """Owner: the newest id, or 0."""

    def steal(self) -> int:
        """Anybody: the oldest id, 0 when empty, LOST when another was quicker."""

    def size(self) -> int:
        """How many ids seem to be there."""

    def reset(self) -> None:
        """After the owner's death: sound again, if nothing is listed."""


def deque_bytes(capacity: int) -> int:
    """What a deque takes in a region."""
    return DEQUE_HEAD + 8 * capacity


def open_deque(region: MemoryRegion, offset: int, capacity: int, hand: int) -> RawDeque:
    """The deque at an offset, as fast as the region's mode allows. `hand` is the word of this taker."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.Deque(region.buffer, offset, capacity, hand)
    return PlainDeque(region.words, offset, capacity, hand)


def signed(word: int) -> int:
    """A position: an owner killed in a pop may leave bottom one below a top of 0."""
    return word - (1 << 64) if word >> 63 else word


class PlainDeque:
    """A deque on any words."""

    def __init__(self, words: Words, offset: int, capacity: int, hand: int) -> None:
        self._words = words
        self._top, self._bottom, self._items = offset, offset + LINE, offset + DEQUE_HEAD
        self._capacity = capacity
        self._hand = hand

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
        words.store(self._hand, found)
        words.store(self._bottom, bottom & WORD_MAX)
        top = signed(words.load(self._top))
        if top < bottom:
            return found
        word = top & WORD_MAX
        won = top == bottom and words.swap(self._top, word, (top + 1) & WORD_MAX) == word
        words.store(self._bottom, (bottom + 1) & WORD_MAX)
        if won:
            return found
        words.store(self._hand, 0)
        return 0

    def steal(self) -> int:
        words = self._words
        word = words.load(self._top)
        top = signed(word)
        if top >= signed(words.load(self._bottom)):
            return 0
        found = words.load(self._item(top))
        words.store(self._hand, found)
        if words.swap(self._top, word, (top + 1) & WORD_MAX) == word:
            return found
        words.store(self._hand, 0)
        return LOST

    def size(self) -> int:
        top = signed(self._words.load(self._top))
        return max(0, signed(self._words.load(self._bottom)) - top)

    def reset(self) -> None:
        words = self._words
        while True:  # ends: a lost swap is a thief's, and nobody pushes
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

    Every process makes its own `Deque` with the same numbers, then `owner()` or `thief()`.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     owner, thief = Deque(region, "jobs").owner(), Deque(region, "jobs").thief()
    ...     owner.push(1), owner.push(2), owner.pop(), thief.steal(), thief.steal()
    (True, True, 2, 1, None)
    """

    def __init__(self, region: MemoryRegion, name: str, *, capacity: int = 1024, takers: int = 16) -> None:
        if type(capacity) is not int or not 1 <= capacity <= CAPACITY_MAX or capacity & (capacity - 1):
            raise UsageError(
                f"capacity={capacity!r} cannot be", code="deque.capacity", hint=f"a power of two up to {CAPACITY_MAX}"
            )
        if type(takers) is not int or not 2 <= takers <= TAKERS_MAX:
            raise UsageError(f"takers={takers!r} cannot be", code="deque.takers", hint=f"2 to {TAKERS_MAX}")
        self._region, self._name = region, name
        self._capacity, self._takers = capacity, takers
        self._offset = region.area(f"deque.{name}", takers * LINE + deque_bytes(capacity))

    def __len__(self) -> int:
        """How many ids seem to be there; exact only while nobody moves."""
        return open_deque(self._region, self._offset + self._takers * LINE, self._capacity, self._offset).size()

    def owner(self) -> Owner:
        """The one end that pushes and pops. Raises ConflictError while another has it."""
        end = Owner(self._region, self._offset, self._capacity, self._takers)
        if not end.claim(0):
            end.close()
            raise ConflictError(
                f"deque `{self._name}` has an owner", code="deque.owner", hint="be a thief, or wait until it ends"
            )
        return end

    def thief(self) -> Taker:
        """An end that steals. Raises UnavailableError when all places are taken."""
        end = Taker(self._region, self._offset, self._capacity, self._takers)
        for place in range(1, self._takers):
            if end.claim(place):
                return end
        end.close()
        raise UnavailableError(
            f"all {self._takers} places of deque `{self._name}` are taken",
            code="deque.takers",
            hint="close one, or make the deque with more",
        )


class Taker:
    """One place at a deque, with a hand that holds the last id taken until `done` or the next one."""

    def __init__(self, region: MemoryRegion, offset: int, capacity: int, takers: int) -> None:
        self._words, self._locks = region.words, region.locks()
        self._offset, self._takers = offset, takers
        self._place = -1
        self._mutex = threading.Lock()
        self._region, self._capacity = region, capacity
        self._raw: RawDeque | None = None
        self.found: int | None = None
        """What the one before on this place held when it died: perhaps worked on, perhaps not."""
        self._pid = os.getpid()
        after_fork(self, Taker._forget)

    def claim(self, place: int) -> bool:
        """Take a place that nobody alive has."""
        return self._locks.claim(self._byte(place)) and self._sit(place)

    def _sit(self, place: int) -> bool:
        self._place = place
        self._raw = open_deque(
            self._region, self._offset + self._takers * LINE, self._capacity, self._offset + place * LINE
        )
        self.found = self._words.load(self._offset + place * LINE) or None
        return True

    def steal(self) -> int | None:
        """The oldest id, or None when there is none or another was quicker."""
        with self._mutex:
            self.found = None
            found = self._opened().steal()
        return found if found > 0 else None

    def done(self) -> None:
        """The id in hand has been dealt with: nobody needs to recover it."""
        with self._mutex:
            self._opened()
            self.found = None
            self._words.store(self._offset + self._place * LINE, 0)

    def recover(self) -> int | None:
        """What a dead taker held, now in this hand; None when no taker died with something. Call with an empty hand."""
        with self._mutex:
            self._opened()
            mine = self._offset + self._place * LINE
            if self._words.load(mine):
                raise UsageError("the hand is full", code="deque.hand", hint="call done() first")
            for place in range(self._takers):
                line = self._offset + place * LINE
                if place == self._place or not self._words.load(line) or not self._locks.claim(self._byte(place)):
                    continue
                try:
                    held = self._words.load(line)
                    self._words.store(mine, held)  # in two hands rather than in none, if we die here
                    self._words.store(line, 0)
                finally:
                    self._locks.release(self._byte(place))
                if held:
                    return held
        return None

    def close(self) -> None:
        """Give the place back."""
        self._raw = None
        self._locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _byte(self, place: int) -> int:
        return QUEUE_BYTES + self._offset + place * LINE

    def _opened(self) -> RawDeque:
        if self._raw is None:
            forked = self._pid != os.getpid()
            raise UsageError(
                "this place belongs to the process that forked" if forked else "this place was given back",
                code="deque.forked" if forked else "deque.closed",
                hint="take a place of your own",
            )
        return self._raw

    def _forget(self) -> None:
        self._raw, self._mutex = None, threading.Lock()


class Owner(Taker):
    """The end of a deque that pushes and pops, and may steal as well."""

    def claim(self, place: int) -> bool:
        """Take the owner's place, and mend what a pop of the one before left half done."""
        if not self._locks.claim_soon(self._byte(place)):  # a thief may be clearing up after the one before
            return False
        self._sit(place)
        self._opened().reset()
        return True

    def push(self, id: int) -> bool:
        """Add an id; False when the deque is full."""
        if type(id) is not int or not 1 <= id <= WORD_MAX:
            raise UsageError(f"{id!r} is no id", code="deque.id", hint="1 to 2**64-1")
        with self._mutex:
            return self._opened().push(id)

    def pop(self) -> int | None:
        """The newest id, or None."""
        with self._mutex:
            self.found = None
            return self._opened().pop() or None
