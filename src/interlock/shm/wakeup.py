"""A future that resumes its task in the very callback that sets it, and not a pass of the event loop later.

A task that awaits an ordinary future is put into the loop's queue when the future is set; the loop first asks the
system for news again, and comes to the task after that. A consumer that was woken by a doorbell has nothing else to
wait for, and that pass is a third of its latency.

Rule 1: one task awaits it, once. It obeys the protocol by which tasks know futures (`asyncio.isfuture`).
Rule 2: `now` is called from a callback of the loop, never from inside a task: two tasks cannot be on one stack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Wakeup:
    """Awaited by a task that sleeps; `now` resumes it at once."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_done", "_loop", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._done = False
        self._cancelled = False
        self._resume: Callable[[Wakeup], object] | None = None
        self._context: Context | None = None

    def now(self) -> None:
        """Resume whoever waits, before this returns; at most once."""
        if self._done:
            return
        self._done = True
        if self._resume is not None:
            assert self._context is not None  # a task gives both
            self._context.run(self._resume, self)

    # What tasks ask of a future

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def add_done_callback(self, resume: Callable[[Wakeup], object], *, context: Context) -> None:
        """The task that waits."""
        self._resume, self._context = resume, context

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - what a task passes on
        """Resume the task with a CancelledError, from the loop's queue: whoever cancels may be a task itself."""
        if self._done:
            return False
        self._done = self._cancelled = True
        if self._resume is not None:
            self._loop.call_soon(self._resume, self, context=self._context)
        return True

    def result(self) -> None:
        """Nothing; raises CancelledError when it was cancelled."""
        if self._cancelled:
            raise asyncio.CancelledError
