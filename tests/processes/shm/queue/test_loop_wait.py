"""Where a consumer sleeps: its task goes on in the callback that hears the bell, and the bell is read once, in time."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Iterator

import pytest

from interlock.errors import ConflictError
from interlock.shm.queue import loop_wait
from interlock.shm.queue.loop_wait import LoopWait
from tests.support.eventually import PATIENCE_SECONDS


class FakeNotifier:
    """A bell that notes when it is read."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.heard: list[str] = []

    def notify(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self.fd, 1)

    def read(self) -> None:
        """What an inbox does when it is awake."""
        os.eventfd_read(self.fd)
        self.heard.append("read")

    def sleeper(self) -> LoopWait:
        """Where a task of the running loop sleeps."""
        return LoopWait(asyncio.get_running_loop(), self.fd, self.read)


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNotifier]:
    """A bell, and sleeps that only it can end."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    made = FakeNotifier()
    yield made
    os.close(made.fd)


async def passes(count: int) -> None:
    """So many passes of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_task_goes_on_before_anything_else(bell: FakeNotifier) -> None:
    """No pass of the loop, and no reading of the bell, lies between the callback and the task."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper
        bell.heard.append("task")
        asyncio.get_running_loop().call_soon(bell.heard.append, "next pass")
        await asyncio.sleep(0)

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["task", "read", "next pass"] == bell.heard
    sleeper.close()


async def test_a_bell_that_the_task_read_is_not_read_again(bell: FakeNotifier) -> None:
    """The task reads it and sleeps again, all in one callback: a ring that came since then is still there."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper
        sleeper.clear()
        bell.heard.append("armed")
        bell.notify()  # what a producer does that saw us asleep
        await sleeper
        bell.heard.append("rung")
        sleeper.clear()

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["read", "armed", "rung", "read"] == bell.heard
    sleeper.close()


async def test_a_ring_that_wakes_nobody_is_heard_once(bell: FakeNotifier) -> None:
    """The loop is told of what is readable again and again; a consumer that is busy elsewhere must not cost that."""
    sleeper = bell.sleeper()
    bell.notify()
    await passes(50)

    assert ["read"] == bell.heard
    assert not sleeper.notified
    sleeper.close()


async def test_the_task_runs_in_its_own_context(bell: FakeNotifier) -> None:
    """What stands in the context of whoever listened first is not what the task sees."""
    name = contextvars.ContextVar("name", default="task")
    other = contextvars.copy_context()
    other.run(name.set, "listener")
    sleeper = other.run(bell.sleeper)

    async def sleeps() -> str:
        await sleeper
        return name.get()

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()

    assert "task" == await asyncio.wait_for(task, PATIENCE_SECONDS)
    sleeper.close()


async def test_a_cancelled_task_ends_and_the_next_may_sleep(bell: FakeNotifier) -> None:
    """The bell is still heard, and wakes whoever sleeps then."""
    sleeper = bell.sleeper()

    async def sleeps() -> str:
        await sleeper
        return "rung"

    first = asyncio.ensure_future(sleeps())
    await passes(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()

    assert "rung" == await asyncio.wait_for(second, PATIENCE_SECONDS)
    assert not sleeper.cancel()
    sleeper.close()


async def test_a_task_that_sleeps_while_another_does_is_refused(bell: FakeNotifier) -> None:
    """One of them would never be woken. A task that was cancelled is in the way until it has left."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper

    first = asyncio.ensure_future(sleeps())
    await passes(1)
    with pytest.raises(ConflictError) as caught:
        await sleeps()
    assert "inbox.consumer" == caught.value.code
    first.cancel()
    with pytest.raises(ConflictError):
        await sleeps()
    with pytest.raises(asyncio.CancelledError):
        await first
    third = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()

    await asyncio.wait_for(third, PATIENCE_SECONDS)
    sleeper.close()


async def test_who_is_cancelled_twice_leaves_once(bell: FakeNotifier) -> None:
    """The second time finds nobody asleep; the place is free as soon as the task has gone."""
    sleeper = bell.sleeper()

    async def sleeps() -> str:
        await sleeper
        return "rung"

    first = asyncio.ensure_future(sleeps())
    await passes(1)
    assert sleeper.cancel()
    assert not sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()

    assert "rung" == await asyncio.wait_for(second, PATIENCE_SECONDS)
    sleeper.close()


async def test_whoever_asked_but_never_slept_is_not_in_the_way(bell: FakeNotifier) -> None:
    """A coroutine that is closed before a task has taken it on leaves nothing behind."""
    sleeper = bell.sleeper()

    async def sleeps() -> str:
        await sleeper
        return "rung"

    dropped = sleeps()
    dropped.send(None)
    dropped.close()
    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()

    assert "rung" == await asyncio.wait_for(task, PATIENCE_SECONDS)
    sleeper.close()


async def test_a_ring_on_the_way_to_who_leaves_wakes_nobody(bell: FakeNotifier) -> None:
    """The task that was cancelled ends so; the bell is read, or the loop would hear of it for ever."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await passes(5)

    assert ["read"] == bell.heard
    sleeper.close()


async def test_an_exception_of_the_task_stays_in_the_task(bell: FakeNotifier) -> None:
    """The loop goes on, and the bell is read."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper
        raise LookupError("lost")

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()
    with pytest.raises(LookupError):
        await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["read"] == bell.heard
    sleeper.close()


async def test_many_sleeps_need_one_timer(bell: FakeNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set when nobody has set it, not for each sleep."""
    loop = asyncio.get_running_loop()
    later, set_timers = loop.call_later, []

    def call_later(*arguments: object) -> asyncio.TimerHandle:
        set_timers.append(arguments)
        return later(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(loop, "call_later", call_later)
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        for _ in range(10):
            bell.notify()
            await sleeper
            sleeper.clear()

    await sleeps()

    assert 1 == len(set_timers)
    sleeper.close()


async def test_a_sleep_without_a_ring_ends_by_itself(bell: FakeNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what a killed producer published; the next sleep has its bound as well."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 0.001)
    sleeper = LoopWait(asyncio.get_running_loop(), bell.fd, lambda: bell.heard.append("looked"))

    async def sleeps() -> None:
        for _ in range(3):
            await sleeper
            sleeper.clear()

    await asyncio.wait_for(sleeps(), PATIENCE_SECONDS)

    assert ["looked"] * 3 == bell.heard
    sleeper.close()


async def test_closing_cancels_who_sleeps_and_hears_no_more(bell: FakeNotifier) -> None:
    """Twice is harmless."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    sleeper.close()
    sleeper.close()
    bell.notify()
    with pytest.raises(asyncio.CancelledError):
        await task
    await passes(5)

    assert [] == bell.heard


async def test_whoever_closes_when_woken_leaves_the_bell_alone(bell: FakeNotifier) -> None:
    """It may be closed by then, and its descriptor another's."""
    sleeper = bell.sleeper()

    async def sleeps() -> None:
        await sleeper
        sleeper.close()

    task = asyncio.ensure_future(sleeps())
    await passes(1)
    bell.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)
    await passes(5)

    assert [] == bell.heard


def test_closing_after_the_loop_is_harmless(bell: FakeNotifier) -> None:
    """An inbox may outlive the loops that consumed it, even one that was closed under a task that slept."""
    loop = asyncio.new_event_loop()

    async def sleeping() -> tuple[LoopWait, asyncio.Task[None]]:
        sleeper = bell.sleeper()

        async def sleeps() -> None:
            await sleeper

        task = asyncio.ensure_future(sleeps())
        await passes(1)
        return sleeper, task

    sleeper, task = loop.run_until_complete(sleeping())
    loop.close()
    sleeper.close()

    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is left behind on purpose


async def test_it_is_a_future_to_asyncio(bell: FakeNotifier) -> None:
    """By the protocol that asyncio documents for objects that are not its own."""
    sleeper = bell.sleeper()

    assert asyncio.isfuture(sleeper)
    sleeper.close()
