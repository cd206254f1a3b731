"""Waiting for the first of several, and logging failures."""

from __future__ import annotations

import asyncio
import logging

import pytest

from interlock.effects.waiting import first_of, log_failure, wait_or_timeout, wait_until_empty
from interlock.errors import UnavailableError
from interlock.testing.clock import VirtualClock


async def test_the_others_are_cancelled_when_the_first_is_done() -> None:
    first, second = asyncio.ensure_future(asyncio.sleep(0)), asyncio.ensure_future(asyncio.Event().wait())
    await first_of(first, second)
    await asyncio.gather(second, return_exceptions=True)

    assert (first.cancelled(), second.cancelled()) == (False, True)


async def test_all_are_cancelled_with_the_caller() -> None:
    waits = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2)]
    caller = asyncio.ensure_future(first_of(*waits))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, *waits, return_exceptions=True)

    assert [each.cancelled() for each in (caller, *waits)] == [True, True, True]


async def test_futures_continue_after_a_timeout() -> None:
    clock, work = VirtualClock(), asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(wait_or_timeout(clock.sleep_ms(10), work))
    await clock.advance(10)
    await waiting

    assert not work.done()
    work.cancel()


async def test_a_timeout_is_cancelled_when_a_future_is_done() -> None:
    clock, work = VirtualClock(), asyncio.get_running_loop().create_future()
    work.set_result(None)
    await wait_or_timeout(clock.sleep_ms(10), work)
    await wait_or_timeout(None, work)


async def test_futures_that_become_pending_meanwhile_are_waited_for() -> None:
    clock, loop = VirtualClock(), asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    pending = {first}
    waiting = asyncio.ensure_future(wait_until_empty(clock, 100, lambda: {each for each in pending if not each.done()}))
    await asyncio.sleep(0)
    pending.add(second)
    first.set_result(None)
    await asyncio.sleep(0)
    is_done = waiting.done()
    second.set_result(None)
    await waiting

    assert not is_done


async def test_the_wait_for_pending_futures_ends_with_the_timeout() -> None:
    clock, stuck = VirtualClock(), asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_until_empty(clock, 100, lambda: {stuck}))
    await clock.advance(100)
    await waiting

    assert not stuck.done()


@pytest.mark.parametrize(
    ("error", "code", "has_traceback"),
    [(UnavailableError("full", code="store.full"), "store.full", False), (KeyError("x"), "KeyError", True)],
)
def test_only_unexpected_errors_are_logged_with_a_traceback(
    error: Exception, code: str, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="interlock.effects"):
        log_failure(logging.getLogger("interlock.effects"), "work cannot be claimed", error, lane="effect")
    (record,) = caplog.records

    assert (record.__dict__["code"], record.__dict__["lane"]) == (code, "effect")
    assert has_traceback == (record.exc_info is not None)
