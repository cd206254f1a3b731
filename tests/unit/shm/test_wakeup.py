"""A future that resumes its task in the callback that sets it."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from interlock.shm.wakeup import Wakeup


async def test_the_task_goes_on_before_now_returns() -> None:
    """No pass of the loop lies between the callback and the task."""
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    heard: list[str] = []

    async def sleeper() -> None:
        await wakeup
        heard.append("task")

    def callback() -> None:
        wakeup.now()
        heard.append("callback")

    task = loop.create_task(sleeper())
    loop.call_soon(callback)
    await task

    assert ["task", "callback"] == heard


async def test_a_wakeup_that_came_first_does_not_suspend() -> None:
    """Set before it is awaited, it is there at once; twice counts once."""
    wakeup = Wakeup(asyncio.get_running_loop())
    wakeup.now()
    wakeup.now()

    await wakeup


async def test_the_task_runs_in_its_own_context() -> None:
    """What the callback sets in its context stays there."""
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)
    name = contextvars.ContextVar("name", default="task")

    async def sleeper() -> str:
        await wakeup
        return name.get()

    task = loop.create_task(sleeper())
    await asyncio.sleep(0)
    other = contextvars.copy_context()
    other.run(name.set, "callback")
    loop.call_soon(wakeup.now, context=other)

    assert "task" == await task


async def test_a_cancelled_task_ends() -> None:
    """The task hears; a ring after that does nothing."""
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)

    async def sleeper() -> None:
        await wakeup

    task = loop.create_task(sleeper())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wakeup.now()

    assert task.cancelled()
    assert not wakeup.cancel()


async def test_a_wakeup_cancelled_before_it_is_awaited_raises() -> None:
    """Whoever closes an inbox ends the task that waits for it, or is about to."""
    wakeup = Wakeup(asyncio.get_running_loop())

    assert wakeup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wakeup


async def test_an_exception_of_the_task_stays_in_the_task() -> None:
    """The callback, and with it the loop, goes on."""
    loop = asyncio.get_running_loop()
    wakeup = Wakeup(loop)

    async def sleeper() -> None:
        await wakeup
        raise LookupError("lost")

    task = loop.create_task(sleeper())
    await asyncio.sleep(0)
    ended = loop.create_future()

    def callback() -> None:
        wakeup.now()
        ended.set_result(None)

    loop.call_soon(callback)
    await ended

    with pytest.raises(LookupError):
        await task


async def test_it_is_a_future_to_asyncio() -> None:
    """By the protocol that asyncio documents for objects that are not its own."""
    assert asyncio.isfuture(Wakeup(asyncio.get_running_loop()))
