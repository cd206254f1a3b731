"""Threads that an event loop starts and waits for.

Rule 1: when the system refuses a thread (a limit of the user, of the container, or of memory), the caller gets an
UnavailableError, `process.threads`, and nothing was started.
Rule 2: `in_thread` uses a new thread. An executor queues a call before it starts a thread for it; when the start fails,
the caller gets an error and the call may still run later.
Rule 3: futures that a thread resolves are counted on request. A test clock must not jump while a store still writes:
the loop looks idle, but a result is on its way. Counting costs a dictionary lookup per call, and only in a process that
has a test clock.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from interlock.errors import UnavailableError

THREADS = "process.threads"
"""The code of the error: the system did not start another thread."""

T = TypeVar("T")

_counted: WeakKeyDictionary[AbstractEventLoop, WeakSet[Future[Any]]] = WeakKeyDictionary()

_handlers: WeakKeyDictionary[AbstractEventLoop, WeakSet[Future[Any]]] = WeakKeyDictionary()


def pending_thread_calls(loop: AbstractEventLoop) -> WeakSet[Future[Any]]:
    """Return the calls from this loop that a thread has not answered yet. Counting starts with the first request."""
    return _counted.setdefault(loop, WeakSet())


def handler_calls(loop: AbstractEventLoop) -> WeakSet[Future[Any]]:
    """Return the handlers that run in threads for this loop. Counting starts with the first request."""
    return _handlers.setdefault(loop, WeakSet())


def count_handler(loop: AbstractEventLoop, ended: Future[Any]) -> None:
    """Count a handler in a thread until its future is done, if a test clock asked for those of this loop."""
    if _handlers and (running := _handlers.get(loop)) is not None:
        running.add(ended)
        ended.add_done_callback(running.discard)


def thread_future(loop: AbstractEventLoop) -> Future[Any]:
    """Return a new future of this loop that a thread will resolve."""
    future: Future[Any] = loop.create_future()
    if _counted and (pending := _counted.get(loop)) is not None:
        pending.add(future)  # weakly: a call that was refused before it reached its thread is never answered
        future.add_done_callback(pending.discard)
    return future


def start_thread(thread: Thread) -> None:
    """Start a thread. Raises UnavailableError (`process.threads`) when the system refuses it."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        if thread.ident is not None:  # started before: a mistake of the caller, not of the system
            raise
        message = f"the system refused to start the thread `{thread.name}`: {error}"
        hint = "raise the limit on processes (ulimit -u, pids.max of the container), or use fewer threads; then retry"
        raise UnavailableError(message, code=THREADS, hint=hint) from error


async def in_thread(function: Callable[[], T], *, name: str = "interlock-call") -> T:
    """Call a function in a new thread and return its result; the thread has ended by then. Raises what it raises.

    Cancelling this does not stop the function. Raises UnavailableError (`process.threads`) when the system refuses a
    thread; then the function was not called.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = thread_future(loop)
    context = copy_context()

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as caught:  # noqa: BLE001 - every exception belongs to the caller
            error = caught
        with suppress(RuntimeError):  # the loop was closed meanwhile: no caller waits
            loop.call_soon_threadsafe(resolve, result, value, error)

    thread = Thread(target=run, name=name, daemon=True)
    start_thread(thread)
    try:
        return await result
    finally:
        if result.done() and not result.cancelled():
            thread.join()  # it has answered, and has nothing left to do


async def in_thread_or_here(function: Callable[[], None], *, name: str = "interlock-close") -> None:
    """Call a function in a new thread, or here when none can be started: too many run, or Python is about to exit.

    For closing resources, which must happen even if the event loop has to wait for it.
    """
    is_started = False

    def run() -> None:
        nonlocal is_started
        is_started = True
        function()

    try:
        await in_thread(run, name=name)
    except UnavailableError as error:
        if is_started or error.code != THREADS:
            raise
        function()


def resolve(future: Future[Any], value: Any, error: BaseException | None) -> None:
    """Set the result or the error of a call in a thread, unless its caller was cancelled. Called in the loop."""
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future does not accept it: the caller would wait forever
        failure = RuntimeError("a call in a thread raised StopIteration")
        failure.__cause__ = error
        error = failure
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
