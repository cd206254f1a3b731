"""How the task that consumes an inbox waits: it is resumed in the callback in which the loop sees the notification.

A task that awaits an ordinary future is put into the loop's queue when the future is done; the loop first polls the
system again, and then runs the task. A consumer that was notified has nothing else to wait for, and that extra pass is
a third of its latency. For the same reason the notifier is not cleared before the task continues, but as soon as it has
its first batch, and no Python code runs between the callback and the task: after a sleep the caches are cold, and a
Python function costs about a microsecond there. (An implementation in C was tried, and was not faster.)

Rule 1: one task waits here at a time. The object follows the protocol by which tasks recognize futures
(`asyncio.isfuture`), but resumes the task with a future that was already done: one of asyncio's own type, whose result
a task reads without calling Python.
Rule 2: the task is resumed from a callback of the loop, never from inside a task: a task cannot run inside another.
Rule 3: a notification is cleared once: by the task after its first batch or before it waits again, or, if the task
awaits something else by then, by the callback. Never after the task's last check: a notification in between would be
lost (`loop clears the notifier after arming`, in docs/internals/shared-memory.md).
Rule 4: no wait is longer than WAIT_SECONDS_MAX, because a producer may be killed after it published and before it
notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

from interlock.errors import ConflictError
from interlock.shm.memory.words import WAIT_SECONDS_MAX

Resume = Callable[[Any], object]
"""Continues the task with the result of the given future."""


class LoopWait:
    """Awaited by the consuming task after it has armed the notifier. If `notified` is True, call `clear`."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_cancelling",
        "_context",
        "_descriptor",
        "_done",
        "_loop",
        "_on_clear",
        "_resume",
        "_timer",
        "notified",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, on_clear: Callable[[], object]) -> None:
        """Listen to the descriptor of a notifier. `on_clear` clears it and stores that the consumer is awake."""
        self._asyncio_future_blocking = False
        self._loop, self._descriptor, self._on_clear = loop, descriptor, on_clear
        self._resume: Resume | None = None
        self._context: Context | None = None
        self._cancelling = False
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = loop.create_future()
        self._done.set_result(None)
        self.notified = False
        loop.add_reader(descriptor, self._on_readable)

    def clear(self) -> None:
        """Clear the notifier."""
        self.notified = False
        self._on_clear()

    def close(self) -> None:
        """Stop listening, and cancel a task that waits here."""
        self.notified = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            self.cancel()

    def _on_readable(self) -> None:
        self.notified = True
        resume = self._resume
        if resume is not None:
            self._resume = None
            assert self._context is not None  # a task passes both
            self._context.run(resume, self._done)
        if self.notified:  # the task did not ask for more: the loop must not report the same notification again
            self.clear()

    def _on_timer(self) -> None:
        self._timer = None
        if self._resume is not None:
            self._on_readable()

    # The protocol of a future

    def __await__(self) -> Generator[Any, None, None]:
        if self._resume is not None or self._cancelling:
            raise ConflictError(
                "another task waits for this inbox", code="inbox.consumer", hint="use one consuming task at a time"
            )
        if self._timer is None:  # one timer for many waits: a quarter of a second is a limit, not a measure
            self._timer = self._loop.call_later(WAIT_SECONDS_MAX, self._on_timer)
        self._asyncio_future_blocking = True
        # Like a generator that yields once, but without a frame to resume.
        return iter((self,))  # type: ignore[return-value]  # any iterator is accepted

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task."""
        return self._loop

    def add_done_callback(self, resume: Resume, *, context: Context) -> None:
        """Register the waiting task."""
        self._resume, self._context = resume, context

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - passed by a task
        """Resume the task with a CancelledError, from the loop's queue, because the caller may be a task itself."""
        resume, self._resume = self._resume, None
        if resume is None:
            return False
        self._cancelling = True
        self._loop.call_soon(self._resume_cancelled, resume, context=self._context)
        return True

    def _resume_cancelled(self, resume: Resume) -> None:
        self._cancelling = False
        resume(self)

    def result(self) -> None:
        """Raise CancelledError: a task that is resumed with this object was cancelled."""
        raise asyncio.CancelledError
