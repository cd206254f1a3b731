"""Waiting until something is closed, in a thread or in an event loop, and the report of a drain.

Rule 1: one load is used both for the test and as the value that the sleep expects, so no wake-up is lost between them.
Rule 2: every round is bounded, and in every round a waiter tries to close: a process that was killed before it could
wake the waiters is noticed.
Rule 3: an event loop never sleeps on a futex. A thread does, and signals the loop. The loop watches the pidfds of known
owners; the end of one only makes that thread check immediately.
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
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.process_locks import open_pidfd
from interlock.shm.memory.words import WAIT_SECONDS_MAX, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A process as its slot records it. The pid is for reports: in another pid namespace it has no meaning."""

    slot: int
    generation: int
    pid: int
    permits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseReport:
    """The result of a drain.

    `closed_by` ran the cleanup (None for a gate, and after an abort). `reclaimed` died inside; their permits are
    ignored. `still_inside` are alive and hold permits; `permits` is their total. `cleanup_error` is the exception of
    the cleanup in this process. `waits_for_cleanup`: no permits are in use, but no process with a cleanup can close.
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
    """A drain in progress: `await` it in an event loop, or call `wait()` in a thread. Both return the report.

    `started` says whether this call started the drain. New work is refused in either case.
    """

    def __init__(self, wait: DrainWait, report: Callable[[], CloseReport], *, started: bool, timeout: float) -> None:
        self.started = started
        self._wait = wait
        self._report = report
        self._timeout = timeout

    def wait(self) -> CloseReport:
        """Block this thread until closed, or until the timeout expires."""
        if self._wait.phase() != Phase.INIT:
            self._wait.in_thread(self._timeout)
        return self._report()

    def __await__(self) -> Generator[Any, None, CloseReport]:
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> CloseReport:
        if self._wait.phase() != Phase.INIT:  # a lifecycle that was never started never closes
            await self._wait.in_loop(self._timeout)
        return self._report()


class DrainWait:
    """A wait for the last phase of one state word.

    A waiter calls `try_close` in each round. `owners` returns the processes to watch, `is_last` recognizes the last
    phases.
    """

    def __init__(
        self,
        words: Words,
        word: int,
        *,
        try_close: Callable[[], object] = lambda: None,
        owners: Callable[[], Iterable[int]] = tuple,
        is_last: Callable[[int], bool] = lambda phase: phase == Phase.CLOSED,
    ) -> None:
        self._words = words
        self._word = word
        self._is_last = is_last
        self._try_close = try_close
        self._owners = owners

    def phase(self) -> int:
        """Return the current high half of the word."""
        return self._words.load(self._word) >> 32

    def in_thread(self, timeout: float | None) -> bool:
        """Block until closed (True), or until the timeout expires (False). Raises UsageError in an event loop."""
        if running_loop() is not None:
            raise UsageError(
                "this would block the event loop", code="wait.in_loop", hint="await closed(), or await drain()"
            )
        return self._wait(check_timeout(timeout), lambda: False)

    async def in_loop(self, seconds: float | None) -> bool:
        """Do the same without blocking the event loop."""
        timeout = check_timeout(seconds)
        if self._is_last(self.phase()):
            return True
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bool] = loop.create_future()
        stopped = threading.Event()
        thread = threading.Thread(
            target=self._wait_for_loop, args=(timeout, stopped, loop, result), name="interlock-closed", daemon=True
        )
        start_thread(thread)
        try:
            watcher = _ExitWatcher(loop, self._owners, self._wake)
            try:
                return await result
            finally:
                watcher.close()
        finally:
            stopped.set()
            self._wake()

    def _wait_for_loop(
        self,
        timeout: float | None,
        stopped: threading.Event,
        loop: asyncio.AbstractEventLoop,
        result: asyncio.Future[bool],
    ) -> None:
        try:
            closed = self._wait(timeout, stopped.is_set)
        except Exception as error:  # noqa: BLE001  # raised in the loop, where it is awaited
            _resolve(loop, result, error)
        else:
            _resolve(loop, result, closed)

    def _wait(self, timeout: float | None, stopped: Callable[[], bool]) -> bool:
        end = math.inf if timeout is None else monotonic() + timeout
        while True:  # until the timeout of the caller expires, or until it is closed
            seen = self._words.load(self._word) >> 32  # W1
            if self._is_last(seen):
                return True
            self._try_close()  # W2
            left = end - monotonic()
            if left <= 0 or stopped():
                return self._is_last(self.phase())
            self._words.wait(self._word + 4, seen, min(left, WAIT_SECONDS_MAX))  # W3

    def _wake(self) -> None:
        self._words.wake(self._word + 4)


class _ExitWatcher:
    """Calls a function in an event loop when one of some processes ends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owners: Callable[[], Iterable[int]], on_exit: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._owners = owners
        self._on_exit = on_exit
        self._pidfds: dict[int, int] = {}
        self._update()

    def close(self) -> None:
        self._timer.cancel()
        for owner in list(self._pidfds):
            self._unwatch(owner)

    def _update(self) -> None:
        # Owners join and leave, so the list is updated as often as the waiting thread checks.
        self._timer = self._loop.call_later(WAIT_SECONDS_MAX, self._update)
        owners = set(self._owners())
        for owner in self._pidfds.keys() - owners:
            self._unwatch(owner)
        for owner in owners - self._pidfds.keys():
            descriptor = open_pidfd(owner)
            if descriptor is not None:
                self._pidfds[owner] = descriptor
                self._loop.add_reader(descriptor, self._process_ended, owner)

    def _process_ended(self, owner: int) -> None:
        self._unwatch(owner)
        self._on_exit()

    def _unwatch(self, owner: int) -> None:
        descriptor = self._pidfds.pop(owner)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_timeout(timeout: float | None) -> float | None:
    """Return the timeout. Raises UsageError unless it is None or a number of seconds."""
    if timeout is not None and not 0 <= timeout < math.inf:
        raise UsageError(f"invalid timeout: {timeout}", code="wait.timeout", hint="seconds, 0 or more")
    return timeout


def _resolve(loop: asyncio.AbstractEventLoop, result: asyncio.Future[bool], outcome: object) -> None:
    def set_outcome() -> None:
        if result.done():  # the waiting task was cancelled
            return
        if isinstance(outcome, Exception):
            result.set_exception(outcome)
        else:
            result.set_result(bool(outcome))

    with suppress(RuntimeError):  # the loop is closed, so there is no waiting task
        loop.call_soon_threadsafe(set_outcome)
