"""Threads that wait for the disk, so that an event loop need not: the way from a loop to a thread and back, kept short.

Rule 1: one call, one answer, whatever happens: an error goes to whoever asked. A caller that is gone by then is none.
Rule 2: a thread is begun when all others are busy, up to a limit; beyond that calls wait in order.
Rule 3: an idle thread is rung for by whoever takes it off the count of idle ones: a busy store rings for nobody.
Rule 4: they are daemons: a process that ends without closing its store dies in the middle of a call, as by kill -9, and
the store is made for that.

An executor of the standard library does the same with two futures and a semaphore for every call, which is a third of
what an append costs; a queue between both costs twice what a bell does (`bells`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, TypeVar

from interlock.errors import UnavailableError
from interlock.ports.threads import start_thread, thread_future
from interlock.stores.threads.wakeup import LoopEntryQueue, WakeupPipe

T = TypeVar("T")
_Task = tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class ThreadPool:
    """Some threads, begun as they are needed."""

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max = count_max
        self._name = name
        self._tasks: deque[_Task] = deque()
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._idle = 0
        self._is_closing = False
        self._guard = Lock()
        self._bell = WakeupPipe()
        self._loops = LoopEntryQueue()

    async def run(self, rule: Callable[[], T]) -> T:
        """What a function gives, called in a thread. Raises UnavailableError once closed, or without any thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = thread_future(loop)
        self._loops.listen(loop)
        with self._guard:
            if self._is_closing:
                raise UnavailableError("the store is closed", code="store.closed")
            if self._unfinished >= len(self._threads) < self._count_max:
                self._begin_one_more()
            self._unfinished += 1
            self._tasks.append((rule, loop, future))
            is_rung = self._idle > 0
            if is_rung:
                self._idle -= 1
        if is_rung:  # not under the guard, which whoever wakes asks for first
            self._bell.ring()
        return await future

    def _begin_one_more(self) -> None:
        """Raises UnavailableError when the system refuses the first thread. Without a further one, calls wait."""
        thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            start_thread(thread)  # first: a thread that the system refuses is none to be waited for
        except UnavailableError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._taken()) is not None:
            rule, loop, future = task
            answer, error = None, None
            try:
                answer = rule()
            except BaseException as caught:  # noqa: BLE001  # it is the caller's, whatever it is
                error = caught
            with self._guard:
                self._unfinished -= 1
            self._loops.call(loop, _give, future, answer, error)
            del task, rule, loop, future, answer, error  # nothing is kept alive while waiting

    def _taken(self) -> _Task | None:
        """What comes next, whenever it comes; None at the end."""
        while True:
            with self._guard:
                if self._tasks:
                    return self._tasks.popleft()
                if self._is_closing:
                    return None
                self._idle += 1
            self._bell.wait()

    def close(self) -> None:
        """Waits until everything that was asked has its answer, then ends the threads. A second call does nothing."""
        with self._guard:
            if self._is_closing:
                return
            self._is_closing = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._bell.ring()
        for thread in threads:
            thread.join()
        self._bell.close()
        self._loops.close()


def _give(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled: the caller is gone, what was done stands
        return
    if isinstance(error, StopIteration):  # which no future takes: its caller would wait for ever
        error = RuntimeError("a call of the store ended by StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)
