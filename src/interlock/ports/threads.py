"""Starting threads, when the system may refuse: a limit of the user, of the container, or of memory.

Rule 1: a thread that the system refuses is an UnavailableError, `process.threads`. Nothing was begun.
Rule 2: `in_thread` uses a thread of its own. An executor puts a call into its queue before it starts a thread for it;
when that fails, the caller has an error and the call may still run later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

from interlock.errors import UnavailableError
from interlock.ports.thread_calls import thread_future

THREADS = "process.threads"
"""The code of an error: the system started no further thread."""

T = TypeVar("T")


def start_thread(thread: Thread) -> None:
    """Start a thread. Raises UnavailableError (`process.threads`) when the system refuses it."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        if thread.ident is not None:  # started before: a mistake of the caller, not the system's answer
            raise
        message = f"the system refused to start the thread `{thread.name}`: {error}"
        hint = "raise the limit on processes (ulimit -u, pids.max of the container), or use fewer threads; then retry"
        raise UnavailableError(message, code=THREADS, hint=hint) from error


async def in_thread(function: Callable[[], T], *, name: str = "interlock-call") -> T:
    """What a function returns, called in a new thread, which has ended then. Raises what it raises.

    Cancelling this does not stop the function. Raises UnavailableError (`process.threads`) when the system refuses a
    thread; then the function was not called.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = thread_future(loop)
    context = copy_context()

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as caught:  # noqa: BLE001 - it is the caller's, whatever it is
            error = caught
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(_resolve, answer, result, error)

    thread = Thread(target=work, name=name, daemon=True)
    start_thread(thread)
    try:
        return await answer
    finally:
        if answer.done() and not answer.cancelled():
            thread.join()  # it has answered, and has nothing left to do


async def in_thread_or_here(function: Callable[[], None], *, name: str = "interlock-close") -> None:
    """Call a function in a new thread, or here when none can be started: too many run, or Python is about to exit.

    For the end of things, which must come, even if an event loop has to wait for it.
    """
    is_begun = False

    def work() -> None:
        nonlocal is_begun
        is_begun = True
        function()

    try:
        await in_thread(work, name=name)
    except UnavailableError as error:
        if is_begun or error.code != THREADS:
            raise
        function()


def _resolve(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():  # cancelled
        return
    if isinstance(error, StopIteration):  # which no future takes
        error = RuntimeError("a call in a thread ended by StopIteration")
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
