"""Threads that wait for the disk, so that an event loop need not: the way from a loop to a thread and back, kept short.

Rule 1: one call, one answer, whatever happens: an error goes to whoever asked. A caller that is gone by then is none.
Rule 2: a thread is begun when all others are busy, up to a limit; beyond that calls wait in order.
Rule 3: they are daemons: a process that ends without closing its store dies in the middle of a call, as by kill -9, and
the store is made for that.

An executor of the standard library does the same with two futures and a semaphore for every call, which is a third of
what an append costs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Task = tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class Threads:
    """Some threads, begun as they are needed."""

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max = count_max
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._guard = Lock()

    async def run(self, rule: Callable[[], T]) -> T:
        """What a function gives, called in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._guard:
            if self._unfinished >= len(self._threads) < self._count_max:
                self._begin()
            self._unfinished += 1
        self._tasks.put((rule, loop, future))
        return await future

    def _begin(self) -> None:
        thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()  # first: a thread that the system refuses is none to be waited for
        self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            rule, loop, future = task
            answer, error = None, None
            try:
                answer = rule()
            except BaseException as caught:  # noqa: BLE001  # it is the caller's, whatever it is
                error = caught
            with self._guard:
                self._unfinished -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed, and whoever asked is gone with it
                loop.call_soon_threadsafe(_give, future, answer, error)
            del task, rule, future, answer, error  # nothing is kept alive while waiting

    def close(self) -> None:
        """Waits until everything that was asked has its answer, then ends the threads."""
        with self._guard:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join()


def _give(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled: the caller is gone, what was done stands
        return
    if isinstance(error, StopIteration):  # which no future takes: its caller would wait for ever
        error = RuntimeError("a call of the store ended by StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)
