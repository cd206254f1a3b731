"""Words in shared memory: the seven operations that everything here uses, and one word for users.

Rule 1: every operation is sequentially consistent, in the C core and in the fallback (`fallback`).
Rule 2: `swap` returns the value that the word had, so a lost swap can be retried without a second load.
Rule 3: a wait is bounded, sleeps on one 32-bit half, and may end without a reason: the caller loads again.
"""

from __future__ import annotations

from time import monotonic
from typing import Protocol

from interlock.errors import UsageError

WORD_MAX = 2**64 - 1
"""The largest value of a word."""

WAIT_SECONDS_MAX = 0.25
"""One round of every wait: the longest delay if the process that should have woken the waiter was killed first."""


class Words(Protocol):
    """Operations on the 64-bit words of one region, by offset in bytes."""

    def load(self, offset: int, /) -> int:
        """Return the word."""

    def store(self, offset: int, value: int, /) -> None:
        """Set the word."""

    def swap(self, offset: int, expected: int, desired: int, /) -> int:
        """Compare and swap. Returns the previous value, which is `expected` if the swap succeeded."""

    def add(self, offset: int, delta: int, /) -> int:
        """Add modulo 2**64. Returns the previous value."""

    def wait(self, half: int, expected: int, timeout: float, /) -> None:
        """Sleep while the 32-bit half has the value `expected`, at most `timeout` seconds and at most one second."""

    def wake(self, half: int, /) -> None:
        """Wake every sleeper on a 32-bit half."""

    def find_occupied(self, counts: int, slots: int, start: int, /) -> int:
        """Return the first slot from `start` on whose count is not zero, or `slots` if there is none."""


class AtomicWord:
    """One 64-bit word that threads and processes share. Created by `MemoryRegion.word(name)`.

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
        """Return the value."""
        return self._words.load(self._offset)

    def store(self, value: int) -> None:
        """Set the value, from 0 to 2**64-1."""
        self._words.store(self._offset, _check_word(value))

    def swap(self, expected: int, desired: int) -> bool:
        """Set `desired` if the value is `expected`. Returns True if it was."""
        return self._words.swap(self._offset, _check_word(expected), _check_word(desired)) == expected

    def add(self, delta: int) -> int:
        """Add modulo 2**64. Returns the previous value."""
        return self._words.add(self._offset, delta)

    def wait_change(self, seen: int, *, timeout: float) -> int:
        """Sleep until the low 32 bits differ from those of `seen`, or the timeout expires. Returns the value then.

        The process that changes the word calls `wake`. Blocks this thread, so do not call it in an event loop.
        """
        end = monotonic() + timeout
        while (value := self.load()) & 0xFFFFFFFF == seen & 0xFFFFFFFF and (left := end - monotonic()) > 0:
            self._words.wait(self._offset, seen & 0xFFFFFFFF, min(left, WAIT_SECONDS_MAX))
        return value

    def wake(self) -> None:
        """Wake all callers of `wait_change`."""
        self._words.wake(self._offset)


def _check_word(value: int) -> int:
    if not 0 <= value <= WORD_MAX:
        raise UsageError(f"{value} does not fit into a word", code="word.range", hint="0 to 2**64-1")
    return value
