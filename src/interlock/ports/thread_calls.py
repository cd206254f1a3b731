"""Calls that the threads of a store carry out for an event loop, counted on request.

A test clock must not jump while a store still writes: the loop looks idle, but an answer is on its way. Counting costs
a dictionary lookup per call, and only in a process that has a test clock.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

_counted: WeakKeyDictionary[AbstractEventLoop, WeakSet[Future[Any]]] = WeakKeyDictionary()


def pending_thread_calls(loop: AbstractEventLoop) -> WeakSet[Future[Any]]:
    """Return the calls from this loop that a thread has not answered yet. Counting starts with the first request."""
    return _counted.setdefault(loop, WeakSet())


def thread_future(loop: AbstractEventLoop) -> Future[Any]:
    """Return a new future of this loop that a thread will resolve."""
    future: Future[Any] = loop.create_future()
    if _counted and (pending := _counted.get(loop)) is not None:
        pending.add(future)  # weakly: a call that was refused before it reached its thread is never answered
        future.add_done_callback(pending.discard)
    return future
