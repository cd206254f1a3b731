"""Calls of users' functions, in the event loop or in a thread. Whatever they raise ends only their own call.

Rule 1: an exception that is not an `Exception` is a failure like any other: `SystemExit` of a library, or one made to
pass every `except`. The event loop re-raises the `SystemExit` of a task, which would end all other work, so it is
caught inside the task. Tasks that a function starts itself are its own responsibility.
Rule 2: in the event loop three exceptions keep their meaning: `KeyboardInterrupt`, by which a person ends the process;
`CancelledError`, because the caller has given up; `GeneratorExit`, when a coroutine is closed. In a thread or in
another process only the function itself can have raised one of them; there they are failures.
Rule 3: a thread cannot be stopped. When an attempt is given up its thread keeps running, and counts until it ends: with
`THREADS_MAX` running, no further one starts, and the work waits in the store.
Rule 4: threads do not keep a process alive. What a thread was doing when its process ended runs again elsewhere, under
the same key.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from interlock.effects.retry import as_handler_failure
from interlock.model.limits import THREADS_MAX
from interlock.ports.threads import count_handler, resolve, start_thread

G = TypeVar("G")
T = TypeVar("T")


async def call_in_loop(function: Callable[[G], Awaitable[T]], given: G) -> T:
    """Await a user's coroutine function. Raises what it raises, and HandlerFailed for what would end the loop.

    The coroutine is created here, not by the caller: a task that is cancelled before it starts leaves none unawaited.
    """
    try:
        return await function(given)
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise as_handler_failure(error) from error


def result_of(work: asyncio.Future[T]) -> T:
    """Return the result of a future that is done and was not cancelled. Raises as `call_in_loop` does.

    No coroutine is being closed here, so a `GeneratorExit` was raised by the function.
    """
    error = work.exception()
    if isinstance(error, GeneratorExit):
        raise as_handler_failure(error) from error
    return work.result()


def as_exception(error: BaseException) -> Exception:
    """Return an `Exception` for anything that a function raised in a thread or another process."""
    if isinstance(error, Exception):
        return error
    failed = as_handler_failure(error)
    failed.__cause__ = error
    return failed


class HandlerThreads:
    """Runs functions in threads, and counts the running ones."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._names = count()
        self._running: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def is_full(self) -> bool:
        """Whether no further thread may start."""
        return len(self._running) >= self._threads_max

    def run(self, function: Callable[[], Any]) -> tuple[asyncio.Future[Any], asyncio.Future[None]]:
        """Start a function; return its result, which may be cancelled, and its end, which may not.

        Must not be called when full. Raises UnavailableError when the system refuses the thread; then the function was
        not called.
        """
        assert not self.is_full
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value, error = _call(context, function)
            with suppress(RuntimeError):  # the loop was closed meanwhile: no caller waits
                loop.call_soon_threadsafe(_resolve, result, ended, value, error)

        start_thread(threading.Thread(target=work, name=f"interlock-handler-{next(self._names)}", daemon=True))
        count_handler(loop, ended)
        self._running.add(ended)  # it is resolved in this loop, later
        ended.add_done_callback(self._running.discard)
        return result, ended


def _call(context: contextvars.Context, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function), None
    except BaseException as error:  # noqa: BLE001 - even SystemExit must reach the waiter
        return None, as_exception(error)


def _resolve(result: asyncio.Future[Any], ended: asyncio.Future[None], value: Any, error: BaseException | None) -> None:
    ended.set_result(None)
    resolve(result, value, error)
