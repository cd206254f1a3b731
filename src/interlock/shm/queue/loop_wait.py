"""Where the task that consumes an inbox sleeps: it is resumed in the very callback in which the loop sees the bell.

A task that awaits an ordinary future is put into the loop's queue when the future is set; the loop first asks the
system for news again, and comes to the task after that. A consumer that was woken by a bell has nothing else to wait
for, and that pass is a third of its latency. For the same reason the bell is not read before the task goes on, but
as soon as it has its first batch; and between the callback and the task runs no code of ours. Whoever has slept finds
everything cold: a function of Python costs about a microsecond there. (A sleeper in C was tried, and was no quicker.)

Rule 1: one task sleeps here at a time. It obeys the protocol by which tasks know futures (`asyncio.isfuture`), but is
resumed with a future that was done before: of asyncio's own kind, whose result a task takes without asking Python.
Rule 2: it is woken from a callback of the loop, never from inside a task: two tasks cannot be on one stack.
Rule 3: a bell that rang is read once: by the task after its first batch or before it sleeps again, or, when the task
waits for something else by then, by the callback. Never after the task looked for the last time: a ring that comes
between would be lost. (`loop reads the bell after arming`, in docs/internals/shared-memory.md.)
Rule 4: no sleep is longer than WAIT_SECONDS_MAX, for what a killed producer published without ringing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

from interlock.errors import ConflictError
from interlock.shm.memory.words import WAIT_SECONDS_MAX

Resume = Callable[[Any], object]
"""Goes on with the task, by the result of the future that it is given."""


class Sleeper:
    """Awaited by the task that consumes, after it has armed the bell; `rang` says that the bell is to be hushed."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_awake",
        "_context",
        "_descriptor",
        "_leaving",
        "_loop",
        "_resume",
        "_tick",
        "_woken",
        "rang",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, awake: Callable[[], object]) -> None:
        """Listen to the descriptor of a bell in a loop. `awake` reads the bell and says that nobody sleeps."""
        self._asyncio_future_blocking = False
        self._loop, self._descriptor, self._awake = loop, descriptor, awake
        self._resume: Resume | None = None
        self._context: Context | None = None
        self._leaving = False
        self._tick: asyncio.TimerHandle | None = None
        self._woken: asyncio.Future[None] = loop.create_future()
        self._woken.set_result(None)
        self.rang = False
        loop.add_reader(descriptor, self._heard)

    def hush(self) -> None:
        """Read the bell that rang."""
        self.rang = False
        self._awake()

    def close(self) -> None:
        """Listen no more; whoever sleeps here is cancelled."""
        self.rang = False
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            self.cancel()

    def _heard(self) -> None:
        self.rang = True
        resume = self._resume
        if resume is not None:
            self._resume = None
            assert self._context is not None  # a task gives both
            self._context.run(resume, self._woken)
        if self.rang:  # the task has not come back for more: the loop must not be told of the same ring for ever
            self.hush()

    def _ticked(self) -> None:
        self._tick = None
        if self._resume is not None:
            self._heard()

    # What tasks ask of a future

    def __await__(self) -> Generator[Any, None, None]:
        if self._resume is not None or self._leaving:
            raise ConflictError(
                "another task waits for this inbox", code="inbox.consumer", hint="one at a time; the next may follow"
            )
        if self._tick is None:  # one timer for many sleeps: a quarter of a second is a bound, not a measure
            self._tick = self._loop.call_later(WAIT_SECONDS_MAX, self._ticked)
        self._asyncio_future_blocking = True
        # As a generator that yields once, but without a frame to resume.
        return iter((self,))  # type: ignore[return-value]  # any iterator will do

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def add_done_callback(self, resume: Resume, *, context: Context) -> None:
        """The task that waits."""
        self._resume, self._context = resume, context

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - what a task passes on
        """Resume the task with a CancelledError, from the loop's queue: whoever cancels may be a task itself."""
        resume, self._resume = self._resume, None
        if resume is None:
            return False
        self._leaving = True
        self._loop.call_soon(self._left, resume, context=self._context)
        return True

    def _left(self, resume: Resume) -> None:
        self._leaving = False
        resume(self)

    def result(self) -> None:
        """Raises CancelledError: a task that is resumed with this object was cancelled."""
        raise asyncio.CancelledError
