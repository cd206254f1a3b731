"""Faulty queues, each with one broken rule, which the storms must find. They patch the fallbacks, which are Python."""

from __future__ import annotations

import struct
from collections.abc import Callable

from interlock.shm.memory.words import WORD_MAX
from interlock.shm.pool.task_table import PlainTaskTable
from interlock.shm.queue.deque import LOST, PlainDeque, signed
from interlock.shm.queue.ring import FULL, MESSAGE_HEAD, PUSHED, PlainRing


def _delay() -> None:
    """Extend the time in which a kill does harm, so that a short storm hits it."""
    sum(range(3_000))


def early_tail() -> None:
    """A push that publishes before it writes: after a kill in between, the consumer reads invalid bytes."""

    def push(self: PlainRing, payload: bytes, /) -> int:
        tail, head = self._words.load(self._tail), self._words.load(self._head)
        at, need = tail % self._bytes, MESSAGE_HEAD + (len(payload) + 7) // 8 * 8
        skip = self._bytes - at if need > self._bytes - at else 0
        if tail + skip + need - head > self._bytes:
            return FULL
        if skip:
            struct.pack_into("<II", self._ring, at, 0xFFFFFFFF, 0)
            at = 0
        struct.pack_into("<II", self._ring, at, len(payload), 0)
        self._words.store(self._tail, tail + skip + need)
        _delay()
        self._ring[at + MESSAGE_HEAD : at + MESSAGE_HEAD + len(payload)] = payload
        return PUSHED

    PlainRing.push = push  # type: ignore[method-assign,assignment]  # a mutant


def unrecorded_steal() -> None:
    """A theft that does not record its id: a thief killed before its work loses the id."""

    def steal(self: PlainDeque) -> int:
        word = self._words.load(self._top)
        top = signed(word)
        if top >= signed(self._words.load(self._bottom)):
            return 0
        found = self._words.load(self._item(top))
        if self._words.swap(self._top, word, (top + 1) & WORD_MAX) != word:
            return LOST
        _delay()
        return found

    PlainDeque.steal = steal  # type: ignore[method-assign]  # a mutant


def unrecovered_claims() -> None:
    """A recovery that ignores the claimed tasks of a dead member: those tasks never finish."""

    def recover_claimed(self: PlainTaskTable, cell: int, index: int, word: int) -> int:
        return 0

    PlainTaskTable._recover_claimed = recover_claimed  # type: ignore[method-assign]  # a mutant


MUTANTS: dict[str, tuple[str, Callable[[], None]]] = {
    "early_tail": ("rings", early_tail),
    "unrecorded_steal": ("deque", unrecorded_steal),
    "unrecovered_claims": ("task_table", unrecovered_claims),
}
"""The storm that must find each mutant, and the function that breaks the rule."""
