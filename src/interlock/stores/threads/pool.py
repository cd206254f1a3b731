"""Threads for blocking calls, so that an event loop need not wait for the disk. The way to a thread and back is short.

Rule 1: every call gets one answer, whatever happens: an error goes to its caller. An answer to a caller that was
cancelled is dropped.
Rule 2: a thread is started when all others are busy, up to a limit; beyond that calls wait in order.
Rule 3: the caller that takes a thread off the count of idle ones wakes it: a busy store wakes no thread.
Rule 4: the threads are daemons: a process that ends without closing its store dies in the middle of a call, as by
kill -9, and the store is made for that.

An executor of the standard library does the same with two futures and a semaphore for every call, which is a third of
the cost of an append; a queue costs twice as much as a pipe (`wakeup`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, TypeVar

from interlock.errors import UnavailableError
from interlock.ports.threads import resolve, start_thread, thread_future
from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe

T = TypeVar("T")
_Task = tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class ThreadPool:
    """Threads that are started as they are needed."""

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max = count_max
        self._name = name
        self._tasks: deque[_Task] = deque()
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._idle = 0
        self._is_closing = False
        self._guard = Lock()
        self._wakeup = WakeupPipe()
        self._loops = LoopEntryQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a function called in a thread. Raises UnavailableError if closed or without a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = thread_future(loop)
        self._loops.listen(loop)
        with self._guard:
            if self._is_closing:
                raise UnavailableError("the store is closed", code="store.closed")
            if self._unfinished >= len(self._threads) < self._count_max:
                self._start_thread()
            self._unfinished += 1
            self._tasks.append((function, loop, future))
            must_wake = self._idle > 0
            if must_wake:
                self._idle -= 1
        if must_wake:  # not under the guard, which the thread takes first
            self._wakeup.wake()
        return await future

    def _start_thread(self) -> None:
        """Start one more thread, if the system allows it. Raises UnavailableError if it refuses and there is none."""
        thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            start_thread(thread)  # before it is counted: the system may refuse it
        except UnavailableError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._take()) is not None:
            function, loop, future = task
            answer, error = None, None
            try:
                answer = function()
            except BaseException as caught:  # noqa: BLE001 - every error goes to the caller
                error = caught
            with self._guard:
                self._unfinished -= 1
            self._loops.call(loop, resolve, future, answer, error)
            del task, function, loop, future, answer, error  # keep nothing alive while waiting

    def _take(self) -> _Task | None:
        """Wait for the next call; None when the pool closes."""
        while True:
            with self._guard:
                if self._tasks:
                    return self._tasks.popleft()
                if self._is_closing:
                    return None
                self._idle += 1
            self._wakeup.wait()

    def close(self) -> None:
        """Wait until every call has its answer, then end the threads. A second call does nothing."""
        with self._guard:
            if self._is_closing:
                return
            self._is_closing = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._wakeup.wake()
        for thread in threads:
            thread.join()
        self._wakeup.close()
        self._loops.close()
