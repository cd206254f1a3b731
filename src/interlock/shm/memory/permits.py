"""Coming in and going out: the door of a gate or of a slot, its permits, and what it refuses.

Rule 1: a permit is good for one exit, through its own door, in the process that got it.
Rule 2: an exit without an enter changes nothing and raises; the count never goes below zero, not even in passing.
Rule 3: what is left to close after an exit, or after an enter that was refused in passing, is done by that caller.
The C core has the same door (native/_core.c, core.h); this one runs on any words. The numbers of steps (E1, X2, ...)
are those of docs/internals/shared-memory.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, NoReturn, Protocol, Self

from interlock.errors import InternalError, RejectedError, UnavailableError, UsageError
from interlock.shm.memory.words import Words

COUNT_MAX = 0xFFFFFFFE
"""Permits at once of one gate or one slot: what fits beside the phase."""


class Phase(IntEnum):
    """Where a lifecycle is. It only moves forward; a gate passes over CLOSING."""

    INIT = 0
    RUNNING = 1
    DRAINING = 2
    CLOSING = 3
    CLOSED = 4


# Reasons to refuse: the numbers are those of native/core.h and native/_core.c.
REFUSED, FULL, NOT_INSIDE, USED, FORKED, FOREIGN, LEFT = 0, 2, 5, 10, 11, 12, 13
NOBODY = -1


class Permit(Protocol):
    """The proof of having entered. `with permit:` and `async with permit:` give it back."""

    @property
    def epoch(self) -> int:
        """The region's epoch: no permit outlives its region."""

    @property
    def slot(self) -> int:
        """The slot of the process that entered; 0 for a gate."""

    @property
    def generation(self) -> int:
        """Which owner of that slot it was; 0 for a gate."""

    @property
    def pid(self) -> int:
        """The process that entered."""

    @property
    def used(self) -> bool:
        """Whether it has been given back."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...

    def __aexit__(self, *exception: object) -> Coroutine[Any, Any, None]: ...


class PermitCounter(Protocol):
    """Enter and exit of one participant; the C core has one, `PlainPermitCounter` is the other."""

    def try_enter(self) -> Permit | None:
        """A permit while running, else None."""

    def enter(self) -> Permit:
        """A permit while running; otherwise the refusal raises."""

    def exit(self, permit: Permit, /) -> bool:
        """Give a permit back; True when this caller closed."""

    def come(self) -> bool:
        """Enter without a permit; True when inside."""

    def go(self) -> bool:
        """Leave without a permit; True when this caller closed."""

    def shut(self) -> None:
        """Refuse everybody from now on: its owner leaves."""

    def begin(self, phase: int, /) -> bool:
        """Move INIT to a phase; True when this caller did."""

    def drain(self) -> int:
        """The phase this caller moved RUNNING to; INIT when it did not."""


Pair = tuple[Callable[[], bool], Callable[[], bool]]
"""Enter and exit without permits."""

Last = Callable[[], bool]
Refuse = Callable[[int], object]
Aside = Callable[[Permit, bool], Coroutine[Any, Any, Any]]
"""Gives the coroutine of `async with`: of its begin (False), and of its end (True), outside of the event loop."""


class PlainPermit:
    """A permit of a plain door."""

    __slots__ = ("_door", "_spent", "pid")

    def __init__(self, door: PlainPermitCounter) -> None:
        self._door = door
        self._spent = threading.Lock()  # taken once and never released: one atomic act
        self.pid = os.getpid()

    epoch = property(lambda self: self._door.identity[0])
    slot = property(lambda self: self._door.identity[1])
    generation = property(lambda self: self._door.identity[2])
    used = property(lambda self: self._spent.locked())

    def spend(self) -> None:
        """X1: raise unless this is the first exit, in the process that entered."""
        if self.pid != os.getpid():
            self._door.refuse(FORKED)
        if not self._spent.acquire(blocking=False):
            self._door.refuse(USED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._door.exit(self)

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._door.aside(self, False)

    def __aexit__(self, *exception: object) -> Coroutine[Any, Any, None]:
        return self._door.aside(self, True)

    def __repr__(self) -> str:
        return f"<Permit {self._door.identity} pid={self.pid}{' used' if self.used else ''}>"


class PlainPermitCounter:
    """The door of a gate (no count beside its word) or of a slot, on any words."""

    def __init__(
        self,
        words: Words,
        word: int,
        count: int,
        identity: tuple[int, int, int],
        refuse: Refuse,
        last: Last,
        aside: Aside,
        *,
        phases: tuple[int, int, int] = (Phase.RUNNING, Phase.DRAINING, Phase.CLOSED),
    ) -> None:
        self._words, self._word, self._count = words, word, count
        self.identity, self.refuse, self.aside = identity, refuse, aside
        self._last = last
        self._running, self._draining, self._closed = phases
        self._pid = os.getpid()

    def try_enter(self) -> PlainPermit | None:
        return PlainPermit(self) if self.come() else None

    def enter(self) -> PlainPermit:
        if not self.come():
            self.refuse(REFUSED)
        return PlainPermit(self)

    def exit(self, permit: object, /) -> bool:
        if not isinstance(permit, PlainPermit) or permit._door is not self:  # noqa: SLF001  # its permit
            self.refuse(FOREIGN)
        else:
            permit.spend()
        return self._go_out()

    def come(self) -> bool:
        if self._count < 0:
            return self._come_through_gate()
        self._check_joined()
        return self._come_to_slot()

    def go(self) -> bool:
        self._check_joined()
        return self._go_out()

    def shut(self) -> None:
        self._pid = NOBODY

    def begin(self, phase: int, /) -> bool:
        return self._moved(0, phase << 32)

    def drain(self) -> int:
        if self._count >= 0:
            return self._draining if self._moved(self._running << 32, self._draining << 32) else Phase.INIT
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
        if self._count >= 0 and self._pid != os.getpid():
            self.refuse(LEFT if self._pid == NOBODY else FORKED)

    def _moved(self, expected: int, desired: int) -> bool:
        if self._words.swap(self._word, expected, desired) != expected:
            return False
        self._words.wake(self._word + 4)
        return True

    def _come_through_gate(self) -> bool:
        seen = self._words.load(self._word)
        while seen >> 32 == self._running:
            if seen & 0xFFFFFFFF >= COUNT_MAX:
                self.refuse(FULL)
            before, seen = seen, self._words.swap(self._word, seen, seen + 1)
            if seen == before:
                return True
        return False

    def _come_to_slot(self) -> bool:
        if self._words.load(self._word) >> 32 != self._running:  # E1
            return False
        if self._words.add(self._count, 1) >= COUNT_MAX:  # E2
            self._go_out()
            self.refuse(FULL)
        if self._words.load(self._word) >> 32 == self._running:  # E3
            return True
        self._go_out()
        return False

    def _go_out(self) -> bool:
        return self._go_through_gate() if self._count < 0 else self._go_from_slot()

    def _go_through_gate(self) -> bool:
        seen = self._words.load(self._word)
        while True:  # ends: each lost swap is another's won one
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
        return self._last()

    def _go_from_slot(self) -> bool:
        seen = self._words.load(self._count)
        while True:  # X2; ends: each lost swap is another's won one
            if seen == 0:
                self.refuse(NOT_INSIDE)
            before, seen = seen, self._words.swap(self._count, seen, seen - 1)
            if seen == before:
                break
        if seen == 1 and self._words.load(self._word) >> 32 == self._draining:  # X3
            return self._last()
        return False


def refuse(reason: int, *, what: str, phase: str) -> NoReturn:
    """Raise what a door refuses, in the words of the caller's next move."""
    if reason == REFUSED:
        raise RejectedError(
            f"{what} is {phase}: nobody is admitted",
            code="gate.not_running",
            hint="start it first" if phase == "init" else "turn the work away, or try_enter()",
        )
    if reason == FULL:
        raise UnavailableError(
            f"{what} counts {COUNT_MAX} permits, its maximum", code="gate.full", hint="give some back"
        )
    told = {
        NOT_INSIDE: (
            "exit.not_inside",
            f"nobody is inside {what}: an exit without an enter",
            "pair them, or use `with`",
        ),
        USED: ("permit.used", f"this permit of {what} was given back before", "a permit is good for one exit"),
        FORKED: (
            "permit.forked",
            f"this permit or place in {what} belongs to the process that forked",
            "the parent exits; a child joins with a Lifecycle of its own",
        ),
        LEFT: ("lifecycle.left", f"this process has left {what}", "join again with a new Lifecycle"),
        FOREIGN: ("permit.foreign", f"this is no permit of {what}", "exit through the object that was entered"),
    }
    if reason not in told:
        raise InternalError(f"a door refused for the unknown reason {reason}; please report it")
    code, message, hint = told[reason]
    raise UsageError(message, code=code, hint=hint)
