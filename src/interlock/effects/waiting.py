"""Waiting in an event loop: for the first of several, or until a time is over; and logging why something failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from interlock.effects.retry import code_of
from interlock.errors import InterlockError
from interlock.ports.clock import Clock, jumping


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Wait until one of several is done, then cancel the others. All are cancelled when the caller is."""
    futures = {asyncio.ensure_future(each) for each in awaitables}
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in futures:
            each.cancel()


async def wait_or_timeout(sleep: Awaitable[object] | None, *futures: asyncio.Future[Any]) -> None:
    """Wait until one of the futures is done or the sleep has ended; the futures continue, the sleep is cancelled.

    `await wait_or_timeout(clock.sleep_ms(1_000), task)`
    """
    timer = None if sleep is None else asyncio.ensure_future(sleep)
    try:
        await asyncio.wait({*futures, *(() if timer is None else (timer,))}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if timer is not None:
            timer.cancel()


async def wait_until_empty(
    clock: Clock, timeout_ms: float, pending: Callable[[], Collection[asyncio.Future[Any]]]
) -> None:
    """Wait until no future is pending, for `timeout_ms` at most. What is pending may change meanwhile.

    A test clock moves itself while this waits: the test waits for the end, too, and cannot move it.
    """
    if not pending():
        return
    timer = asyncio.ensure_future(clock.sleep_ms(timeout_ms))
    try:
        with jumping(clock):
            while (futures := set(pending())) and not timer.done():
                await asyncio.wait({timer, *futures}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


def log_failure(log: logging.Logger, message: str, error: Exception, **fields: object) -> None:
    """Log a warning with the code of an error, and with its traceback unless it is an InterlockError."""
    traceback = None if isinstance(error, InterlockError) else error
    log.warning(message, exc_info=traceback, extra={**fields, "code": code_of(error)})
