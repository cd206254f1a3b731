"""Words in shared memory: the seven operations that everything here is built from, and one word for users.

Rule 1: every operation is sequentially consistent, whatever carries it out: the C core or a fallback (`locked`).
Rule 2: `swap` gives the value it saw, so that a lost swap goes on without a second load.
Rule 3: a wait is bounded, sleeps on one 32-bit half, and may end for no reason: the caller loads again.
"""

from __future__ import annotations

from time import monotonic
from typing import Protocol

from interlock.errors import UsageError

WORD_MAX = 2**64 - 1
"""The largest value of a word."""

WAIT_SECONDS_MAX = 0.25
"""One round of every wait: whoever was killed before it could wake us is noticed this late, at worst."""


class Words(Protocol):
    """Operations on the 64-bit words of one region, by their offsets in bytes."""

    def load(self, offset: int, /) -> int:
        """The word."""

    def store(self, offset: int, value: int, /) -> None:
        """Put a value into the word."""

    def swap(self, offset: int, expected: int, desired: int, /) -> int:
        """Compare and swap; gives what the word held, which is `expected` when it was swapped."""

    def add(self, offset: int, delta: int, /) -> int:
        """Add modulo 2**64; gives what the word held before."""

    def wait(self, half: int, expected: int, timeout: float, /) -> None:
        """Sleep while the 32-bit half holds `expected`, at most so many seconds and never above one."""

    def wake(self, half: int, /) -> None:
        """Wake every sleeper on a 32-bit half."""

    def occupied(self, counts: int, slots: int, start: int, /) -> int:
        """The first slot from `start` on whose count is not zero; `slots` when there is none."""


class AtomicWord:
    """One 64-bit word that threads and processes share. Made by `MemoryRegion.word(name)`.

    >>> from interlock.shm.memory.region import MemoryRegion
    >>> with MemoryRegion.create() as region:
    ...     tickets = region.word("tickets", initial=10)
    ...     tickets.add(-1), tickets.load(), tickets.swap(9, 100), tickets.load()
    (10, 9, True, 100)
    """

    __slots__ = ("_offset", "_words")

    def __init__(self, words: Words, offset: int) -> None:
        self._words = words
        self._offset = offset

    def load(self) -> int:
        """The value."""
        return self._words.load(self._offset)

    def store(self, value: int) -> None:
        """Put a value, from 0 to 2**64-1."""
        self._words.store(self._offset, _checked(value))

    def swap(self, expected: int, desired: int) -> bool:
        """Put `desired` if the word holds `expected`; True when it did."""
        return self._words.swap(self._offset, _checked(expected), _checked(desired)) == expected

    def add(self, delta: int) -> int:
        """Add modulo 2**64; gives what the word held before."""
        return self._words.add(self._offset, delta)

    def wait_change(self, seen: int, *, timeout: float) -> int:
        """Sleep until the low 32 bits differ from those of `seen`, or the time is over; gives the value then.

        Whoever changes the word calls `wake`. Blocks this thread: not for event loops.
        """
        end = monotonic() + timeout
        while (value := self.load()) & 0xFFFFFFFF == seen & 0xFFFFFFFF and (left := end - monotonic()) > 0:
            self._words.wait(self._offset, seen & 0xFFFFFFFF, min(left, WAIT_SECONDS_MAX))
        return value

    def wake(self) -> None:
        """Wake everybody in `wait_change`."""
        self._words.wake(self._offset)


def _checked(value: int) -> int:
    if not 0 <= value <= WORD_MAX:
        raise UsageError(f"{value} does not fit into a word", code="word.range", hint="0 to 2**64-1")
    return value
