"""Waiting until something is closed, in a thread or in an event loop, and the report of a drain.

Rule 1: one load feeds both the test and the value that the sleep expects: no wake-up is lost between the two.
Rule 2: every round is bounded and every waiter tends: whoever was killed before it could wake us is noticed.
Rule 3: an event loop never sleeps on a futex. A thread does and signals it; the deaths of known owners come to the
loop by their pidfds, and only make that thread look at once.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from interlock.errors import UsageError
from interlock.ports.threads import start_thread
from interlock.shm.memory.permits import Phase
from interlock.shm.memory.process_locks import open_pidfd
from interlock.shm.memory.words import WAIT_SECONDS_MAX, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A process as its slot tells it. The pid is for people: in another namespace it means nothing."""

    slot: int
    generation: int
    pid: int
    permits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseReport:
    """How a drain ended.

    `closed_by` ran the cleanup (None for a gate, and after an abort). `reclaimed` died inside; their permits are void.
    `still_inside` are alive and hold permits; `permits` counts all of them. `cleanup_error` is what the cleanup raised
    in this process. `waits_for_cleanup`: nobody is inside, but no process with a cleanup is there to close.
    """

    closed: bool
    phase: Phase
    closed_by: Participant | None = None
    reclaimed: tuple[Participant, ...] = ()
    still_inside: tuple[Participant, ...] = ()
    permits: int = 0
    cleanup_error: Exception | None = None
    waits_for_cleanup: bool = False


class Drain:
    """A drain under way: `await` it in an event loop, or `wait()` for it in a thread; both give the report.

    `began` tells whether it was this call that moved RUNNING on. Refusing new work has begun in either case.
    """

    def __init__(self, waiting: DrainWait, report: Callable[[], CloseReport], *, began: bool, timeout: float) -> None:
        self.began = began
        self._waiting = waiting
        self._report = report
        self._timeout = timeout

    def wait(self) -> CloseReport:
        """Block this thread until closed, or until the time is over."""
        if self._waiting.phase() != Phase.INIT:
            self._waiting.in_thread(self._timeout)
        return self._report()

    def __await__(self) -> Generator[Any, None, CloseReport]:
        return self._awaited().__await__()

    async def _awaited(self) -> CloseReport:
        if self._waiting.phase() != Phase.INIT:  # nothing was started, so nothing will close
            await self._waiting.in_loop(self._timeout)
        return self._report()


class DrainWait:
    """Waiting for the end on one state word.

    `tend` is what every waiter does in each round, `owners` are processes to watch, `ended` tells the last phases.
    """

    def __init__(
        self,
        words: Words,
        word: int,
        *,
        tend: Callable[[], object],
        owners: Callable[[], Iterable[int]],
        ended: Callable[[int], bool] = lambda phase: phase == Phase.CLOSED,
    ) -> None:
        self._words = words
        self._word = word
        self._ended = ended
        self._tend = tend
        self._owners = owners

    def phase(self) -> int:
        """The high half of the word now."""
        return self._words.load(self._word) >> 32

    def in_thread(self, timeout: float | None) -> bool:
        """Block until closed (True), or until the time is over (False). Raises UsageError in an event loop."""
        if running_loop() is not None:
            raise UsageError(
                "this would block the event loop", code="wait.in_loop", hint="await closed(), or await drain()"
            )
        return self._rounds(checked_timeout(timeout), lambda: False)

    async def in_loop(self, seconds: float | None) -> bool:
        """The same for an event loop, which goes on meanwhile."""
        timeout = checked_timeout(seconds)
        if self._ended(self.phase()):
            return True
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        stopped = threading.Event()
        watching = threading.Thread(
            target=self._watch, args=(timeout, stopped, loop, answer), name="interlock-closed", daemon=True
        )
        start_thread(watching)
        try:
            deaths = _Deaths(loop, self._owners, self._wake)
            try:
                return await answer
            finally:
                deaths.close()
        finally:
            stopped.set()
            self._wake()

    def _watch(
        self,
        timeout: float | None,
        stopped: threading.Event,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[bool],
    ) -> None:
        try:
            closed = self._rounds(timeout, stopped.is_set)
        except Exception as error:  # noqa: BLE001  # told to the loop, which raises it where it is awaited
            _tell(loop, answer, error)
        else:
            _tell(loop, answer, closed)

    def _rounds(self, timeout: float | None, stopped: Callable[[], bool]) -> bool:
        end = math.inf if timeout is None else monotonic() + timeout
        while True:  # as long as the caller asked for, or until it is closed
            seen = self._words.load(self._word) >> 32  # W1
            if self._ended(seen):
                return True
            self._tend()  # W2
            left = end - monotonic()
            if left <= 0 or stopped():
                return self._ended(self.phase())
            self._words.wait(self._word + 4, seen, min(left, WAIT_SECONDS_MAX))  # W3

    def _wake(self) -> None:
        self._words.wake(self._word + 4)


class _Deaths:
    """Tells, in an event loop, when a process among some owners ends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owners: Callable[[], Iterable[int]], tell: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._owners = owners
        self._tell = tell
        self._watched: dict[int, int] = {}
        self._look()

    def close(self) -> None:
        self._timer.cancel()
        for owner in list(self._watched):
            self._forget(owner)

    def _look(self) -> None:
        # Owners come and go: every round of the waiting thread has its look here.
        self._timer = self._loop.call_later(WAIT_SECONDS_MAX, self._look)
        owners = set(self._owners())
        for owner in self._watched.keys() - owners:
            self._forget(owner)
        for owner in owners - self._watched.keys():
            descriptor = open_pidfd(owner)
            if descriptor is not None:
                self._watched[owner] = descriptor
                self._loop.add_reader(descriptor, self._ended, owner)

    def _ended(self, owner: int) -> None:
        self._forget(owner)
        self._tell()

    def _forget(self, owner: int) -> None:
        descriptor = self._watched.pop(owner)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def checked_timeout(timeout: float | None) -> float | None:
    """The timeout, if it is a time."""
    if timeout is not None and not 0 <= timeout < math.inf:
        raise UsageError(f"timeout={timeout} is no time", code="wait.timeout", hint="seconds, 0 or more")
    return timeout


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[bool], told: object) -> None:
    def settle() -> None:
        if answer.done():  # whoever waited was cancelled
            return
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(bool(told))

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(settle)
