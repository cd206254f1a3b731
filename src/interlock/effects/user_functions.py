"""Functions of users, called so that whatever they raise is their answer and ends nothing but their own call.

Rule 1: an exception that is no `Exception` is a failure as any other: `SystemExit` of a library that gives up, or what
one made to get past every `except`. The event loop lets `SystemExit` of a task through, and with it all else that is in
hand would end; so it is caught inside of the task. What a function starts in tasks of its own is its own matter.
Rule 2: in the event loop three keep their meaning: `KeyboardInterrupt`, by which a person ends the process;
`CancelledError`, since whoever waited has given up; `GeneratorExit`, when a coroutine is closed. In a thread or a
process of its own nobody but the function itself can have raised one of them: there they are failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from interlock.effects.retry import as_handler_failure

G = TypeVar("G")
T = TypeVar("T")


async def call_in_loop(function: Callable[[G], Awaitable[T]], given: G) -> T:
    """What a coroutine of a user gives. Raises what it raises, and HandlerFailed for what would end the loop.

    The coroutine is made here, and not by the caller: a task that is cancelled before it begins leaves none unawaited.
    """
    try:
        return await function(given)
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise as_handler_failure(error) from error


def result_of(work: asyncio.Future[T]) -> T:
    """What work that has ended, and was not cancelled, came to. Raises as `call_in_loop` does.

    Here nobody closes anything: a `GeneratorExit` that work ended with is one that a function raised.
    """
    error = work.exception()
    if isinstance(error, GeneratorExit):
        raise as_handler_failure(error) from error
    return work.result()


def as_exception(error: BaseException) -> Exception:
    """What is told, from where there is nobody else to tell, of anything that a function raised."""
    if isinstance(error, Exception):
        return error
    failed = as_handler_failure(error)
    failed.__cause__ = error
    return failed
