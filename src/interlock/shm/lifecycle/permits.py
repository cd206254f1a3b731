"""Enter and exit: the permit counter of a gate or of a slot, its permits, and the errors of a refused call.

Rule 1: a permit is valid for one exit, through its own counter, in the process that got it.
Rule 2: an exit without an enter changes nothing and raises; the count never goes below zero, not even temporarily.
Rule 3: if an exit, or an enter that was refused after it had counted, leaves something to close, its caller closes.
The C core has the same counter (native/_core.c, core.h); `PlainPermitCounter` runs on any words. The numbers of steps
(E1, X2, ...) are those of docs/internals/shared-memory.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, NoReturn, Protocol, Self

from interlock.errors import InternalError, RejectedError, UnavailableError, UsageError
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import Words

COUNT_MAX = 0xFFFFFFFE
"""Permits of one gate or one slot at the same time: the low half of a word."""

IN_WORD = -1
"""As the offset of a count: the count is the low half of the state word."""


class Phase(IntEnum):
    """The phase of a lifecycle. It only moves forward; a gate skips CLOSING."""

    INIT = 0
    RUNNING = 1
    DRAINING = 2
    CLOSING = 3
    CLOSED = 4


# Reasons to refuse: the numbers are those of native/core.h and native/_core.c.
REFUSED, FULL, NOT_INSIDE, USED, FORKED, FOREIGN, LEFT = 0, 2, 5, 10, 11, 12, 13
NO_PROCESS = -1


class Permit(Protocol):
    """Returned by `enter`. `with permit:` and `async with permit:` exit at the end of the block."""

    @property
    def epoch(self) -> int:
        """The region's epoch."""

    @property
    def slot(self) -> int:
        """The slot of the process that entered; 0 for a gate."""

    @property
    def generation(self) -> int:
        """The generation of the owner of that slot; 0 for a gate."""

    @property
    def pid(self) -> int:
        """The process that entered."""

    @property
    def used(self) -> bool:
        """Whether its exit has happened."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...

    def __aexit__(self, *exception: object) -> Coroutine[Any, Any, None]: ...


class PermitCounter(Protocol):
    """Enter and exit of one participant, in the C core or in Python (`PlainPermitCounter`)."""

    def try_enter(self) -> Permit | None:
        """Return a permit while running, else None."""

    def enter(self) -> Permit:
        """Return a permit while running; raise otherwise."""

    def exit(self, permit: Permit, /) -> bool:
        """Return a permit. True if this call closed."""

    def enter_unchecked(self) -> bool:
        """Enter without a permit. True if the caller is inside."""

    def exit_unchecked(self) -> bool:
        """Exit without a permit. True if this call closed."""

    def close(self) -> None:
        """Refuse all later calls, because the owner has left."""

    def start(self, phase: int, /) -> bool:
        """Move INIT to a phase. True if this call did."""

    def drain(self) -> int:
        """Return the phase to which this call moved RUNNING; INIT if it was not running."""


OnLastExit = Callable[[], bool]
"""Called if an exit, or a refused enter, may have been the last one. Returns whether the call closed."""

Refuse = Callable[[int], object]
"""Called with the reason of a refusal. Raises."""

AsyncExit = Callable[[Permit, bool], Coroutine[Any, Any, Any]]
"""Returns the coroutines of `async with permit`: of its start (False) and of its end (True)."""


async def async_exit(permit: Permit, leaving: bool) -> Permit | None:  # noqa: FBT001  # called by position, also from C
    """Start or end the block of `async with permit`, for permits whose exit never blocks."""
    if not leaving:
        return permit
    permit.__exit__()
    return None


def open_permit_counter(
    region: MemoryRegion,
    *,
    word: int,
    count: int = IN_WORD,
    identity: tuple[int, int, int],
    refuse: Refuse,
    on_last_exit: OnLastExit,
    async_exit: AsyncExit = async_exit,
) -> PermitCounter:
    """Return the counter in the word of a gate, or of a state word and the count of a slot, in the region's mode."""
    if region.mode == "native":
        from interlock.shm import _core

        return _core.PermitCounter(region.buffer, word, count, identity, refuse, on_last_exit, async_exit)
    return PlainPermitCounter(region.words, word, count, identity, refuse, on_last_exit, async_exit)


class PlainPermit:
    """A permit of a plain counter."""

    __slots__ = ("_counter", "_used", "pid")

    def __init__(self, counter: PlainPermitCounter) -> None:
        self._counter = counter
        self._used = threading.Lock()  # acquired once and never released: one atomic operation
        self.pid = os.getpid()

    epoch = property(lambda self: self._counter.identity[0])
    slot = property(lambda self: self._counter.identity[1])
    generation = property(lambda self: self._counter.identity[2])
    used = property(lambda self: self._used.locked())

    def mark_used(self) -> None:
        """X1: raise unless this is the first exit, in the process that entered."""
        if self.pid != os.getpid():
            self._counter.refuse(FORKED)
        if not self._used.acquire(blocking=False):
            self._counter.refuse(USED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._counter.exit(self)

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._counter.async_exit(self, False)

    def __aexit__(self, *exception: object) -> Coroutine[Any, Any, None]:
        return self._counter.async_exit(self, True)

    def __repr__(self) -> str:
        return f"<Permit {self._counter.identity} pid={self.pid}{' used' if self.used else ''}>"


class PlainPermitCounter:
    """The counter of a gate (its count is in the word) or of a slot, on any words."""

    def __init__(
        self,
        words: Words,
        word: int,
        count: int,
        identity: tuple[int, int, int],
        refuse: Refuse,
        on_last_exit: OnLastExit,
        async_exit: AsyncExit = async_exit,
        *,
        phases: tuple[int, int, int] = (Phase.RUNNING, Phase.DRAINING, Phase.CLOSED),
    ) -> None:
        self._words, self._word, self._count = words, word, count
        self.identity, self.refuse, self.async_exit = identity, refuse, async_exit
        self._on_last_exit = on_last_exit
        self._running, self._draining, self._closed = phases
        self._pid = os.getpid()

    def try_enter(self) -> PlainPermit | None:
        return PlainPermit(self) if self.enter_unchecked() else None

    def enter(self) -> PlainPermit:
        if not self.enter_unchecked():
            self.refuse(REFUSED)
        return PlainPermit(self)

    def exit(self, permit: object, /) -> bool:
        if not isinstance(permit, PlainPermit) or permit._counter is not self:  # noqa: SLF001  # its permit
            self.refuse(FOREIGN)
        else:
            permit.mark_used()
        return self._exit()

    def enter_unchecked(self) -> bool:
        if self._count == IN_WORD:
            return self._enter_gate()
        self._check_joined()
        return self._enter_slot()

    def exit_unchecked(self) -> bool:
        self._check_joined()
        return self._exit()

    def close(self) -> None:
        self._pid = NO_PROCESS

    def start(self, phase: int, /) -> bool:
        return self._swap_and_wake(0, phase << 32)

    def drain(self) -> int:
        if self._count != IN_WORD:
            return self._draining if self._swap_and_wake(self._running << 32, self._draining << 32) else Phase.INIT
        seen = self._words.load(self._word)
        while seen >> 32 == self._running:
            count = seen & 0xFFFFFFFF
            phase = self._draining if count else self._closed
            before, seen = seen, self._words.swap(self._word, seen, phase << 32 | count)
            if seen == before:
                self._words.wake(self._word + 4)
                return phase
        return Phase.INIT

    def _check_joined(self) -> None:
        if self._count != IN_WORD and self._pid != os.getpid():
            self.refuse(LEFT if self._pid == NO_PROCESS else FORKED)

    def _swap_and_wake(self, expected: int, desired: int) -> bool:
        if self._words.swap(self._word, expected, desired) != expected:
            return False
        self._words.wake(self._word + 4)
        return True

    def _enter_gate(self) -> bool:
        seen = self._words.load(self._word)
        while seen >> 32 == self._running:
            if seen & 0xFFFFFFFF >= COUNT_MAX:
                self.refuse(FULL)
            before, seen = seen, self._words.swap(self._word, seen, seen + 1)
            if seen == before:
                return True
        return False

    def _enter_slot(self) -> bool:
        if self._words.load(self._word) >> 32 != self._running:  # E1
            return False
        if self._words.add(self._count, 1) >= COUNT_MAX:  # E2
            self._exit()
            self.refuse(FULL)
        if self._words.load(self._word) >> 32 == self._running:  # E3
            return True
        self._exit()
        return False

    def _exit(self) -> bool:
        return self._exit_gate() if self._count == IN_WORD else self._exit_slot()

    def _exit_gate(self) -> bool:
        seen = self._words.load(self._word)
        while True:  # ends: a lost swap means that another one succeeded
            if seen & 0xFFFFFFFF == 0:
                self.refuse(NOT_INSIDE)
            after = seen - 1
            if after == self._draining << 32:
                after = self._closed << 32
            before, seen = seen, self._words.swap(self._word, seen, after)
            if seen == before:
                break
        if after >> 32 != self._closed:
            return False
        self._words.wake(self._word + 4)
        return self._on_last_exit()

    def _exit_slot(self) -> bool:
        seen = self._words.load(self._count)
        while True:  # X2; ends: a lost swap means that another one succeeded
            if seen == 0:
                self.refuse(NOT_INSIDE)
            before, seen = seen, self._words.swap(self._count, seen, seen - 1)
            if seen == before:
                break
        if seen == 1 and self._words.load(self._word) >> 32 == self._draining:  # X3
            return self._on_last_exit()
        return False


def raise_refusal(reason: int, *, what: str, phase: str) -> NoReturn:
    """Raise the error for a reason of a counter. `what` names the gate, lifecycle or chart."""
    if reason == REFUSED:
        raise RejectedError(
            f"{what} is {phase} and admits no work",
            code="gate.not_running",
            hint="start it first" if phase == "init" else "refuse the work, or use try_enter()",
        )
    if reason == FULL:
        raise UnavailableError(
            f"{what} has {COUNT_MAX} permits, the maximum", code="gate.full", hint="return some permits first"
        )
    errors = {
        NOT_INSIDE: (
            "exit.not_inside",
            f"exit without an enter: {what} has no permits in use",
            "call exit once per enter, or use `with`",
        ),
        USED: ("permit.used", f"this permit of {what} was already returned", "a permit is valid for one exit"),
        FORKED: (
            "permit.forked",
            f"this permit or slot of {what} belongs to the parent process",
            "exit in the parent; the child joins with its own Lifecycle",
        ),
        LEFT: ("lifecycle.left", f"this process has left {what}", "join again with a new Lifecycle"),
        FOREIGN: ("permit.foreign", f"not a permit of {what}", "exit through the object that was entered"),
    }
    if reason not in errors:
        raise InternalError(f"a permit counter refused for the unknown reason {reason}; please report it")
    code, message, hint = errors[reason]
    raise UsageError(message, code=code, hint=hint)
