"""The wait of a consuming task: it continues in the callback of the notifier, which is cleared once, in time."""

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
    """A notifier that records when it is cleared."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.events: list[str] = []

    def notify(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Clear the notifier, as an inbox does."""
        os.eventfd_read(self.fd)
        self.events.append("clear")

    def wait(self) -> LoopWait:
        """Return a wait of the running loop."""
        return LoopWait(asyncio.get_running_loop(), self.fd, self.clear)


@pytest.fixture
def notifier(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNotifier]:
    """A notifier, and waits that only it can end."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    made = FakeNotifier()
    yield made
    os.close(made.fd)


async def passes(count: int) -> None:
    """Run so many passes of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_task_continues_inside_the_callback(notifier: FakeNotifier) -> None:
    """Without another pass of the loop and before the notifier is cleared."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait
        notifier.events.append("task")
        asyncio.get_running_loop().call_soon(notifier.events.append, "next pass")
        await asyncio.sleep(0)

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["task", "clear", "next pass"] == notifier.events
    wait.close()


async def test_a_notifier_that_the_task_cleared_is_not_cleared_again(notifier: FakeNotifier) -> None:
    """A later notification would be lost."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait
        wait.clear()
        notifier.events.append("armed")
        notifier.notify()  # what a producer does that saw us asleep
        await wait
        notifier.events.append("notified")
        wait.clear()

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["clear", "armed", "notified", "clear"] == notifier.events
    wait.close()


async def test_a_notification_without_a_waiting_task_is_cleared(notifier: FakeNotifier) -> None:
    """Otherwise the loop would report it again and again."""
    wait = notifier.wait()
    notifier.notify()
    await passes(50)

    assert ["clear"] == notifier.events
    assert not wait.notified
    wait.close()


async def test_the_task_runs_in_its_own_context(notifier: FakeNotifier) -> None:
    name = contextvars.ContextVar("name", default="task")
    other = contextvars.copy_context()
    other.run(name.set, "listener")
    wait = other.run(notifier.wait)

    async def wait_once() -> str:
        await wait
        return name.get()

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()

    assert "task" == await asyncio.wait_for(task, PATIENCE_SECONDS)
    wait.close()


async def test_after_a_cancelled_task_another_one_can_wait(notifier: FakeNotifier) -> None:
    wait = notifier.wait()

    async def wait_once() -> str:
        await wait
        return "notified"

    first = asyncio.ensure_future(wait_once())
    await passes(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()

    assert "notified" == await asyncio.wait_for(second, PATIENCE_SECONDS)
    assert not wait.cancel()
    wait.close()


async def test_a_second_waiting_task_is_refused(notifier: FakeNotifier) -> None:
    """Also while a cancelled one has not ended."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait

    first = asyncio.ensure_future(wait_once())
    await passes(1)
    with pytest.raises(ConflictError) as caught:
        await wait_once()
    assert "inbox.consumer" == caught.value.code
    first.cancel()
    with pytest.raises(ConflictError):
        await wait_once()
    with pytest.raises(asyncio.CancelledError):
        await first
    third = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()

    await asyncio.wait_for(third, PATIENCE_SECONDS)
    wait.close()


async def test_a_second_cancel_has_no_effect(notifier: FakeNotifier) -> None:
    wait = notifier.wait()

    async def wait_once() -> str:
        await wait
        return "notified"

    first = asyncio.ensure_future(wait_once())
    await passes(1)
    assert wait.cancel()
    assert not wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()

    assert "notified" == await asyncio.wait_for(second, PATIENCE_SECONDS)
    wait.close()


async def test_a_coroutine_that_never_waited_does_not_block_others(notifier: FakeNotifier) -> None:
    wait = notifier.wait()

    async def wait_once() -> str:
        await wait
        return "notified"

    dropped = wait_once()
    dropped.send(None)
    dropped.close()
    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()

    assert "notified" == await asyncio.wait_for(task, PATIENCE_SECONDS)
    wait.close()


async def test_a_notification_does_not_resume_a_cancelled_task(notifier: FakeNotifier) -> None:
    """The notifier is cleared."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await passes(5)

    assert ["clear"] == notifier.events
    wait.close()


async def test_an_exception_of_the_task_stays_in_the_task(notifier: FakeNotifier) -> None:
    """The loop continues, and the notifier is cleared."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait
        raise LookupError("lost")

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()
    with pytest.raises(LookupError):
        await asyncio.wait_for(task, PATIENCE_SECONDS)

    assert ["clear"] == notifier.events
    wait.close()


async def test_many_waits_use_one_timer(notifier: FakeNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    later, set_timers = loop.call_later, []

    def call_later(*arguments: object) -> asyncio.TimerHandle:
        set_timers.append(arguments)
        return later(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(loop, "call_later", call_later)
    wait = notifier.wait()

    async def wait_once() -> None:
        for _ in range(10):
            notifier.notify()
            await wait
            wait.clear()

    await wait_once()

    assert 1 == len(set_timers)
    wait.close()


async def test_a_wait_without_a_notification_ends_at_its_limit(
    notifier: FakeNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed producer may have published."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 0.001)
    wait = LoopWait(asyncio.get_running_loop(), notifier.fd, lambda: notifier.events.append("clear"))

    async def wait_once() -> None:
        for _ in range(3):
            await wait
            wait.clear()

    await asyncio.wait_for(wait_once(), PATIENCE_SECONDS)

    assert ["clear"] * 3 == notifier.events
    wait.close()


async def test_closing_cancels_the_waiting_task(notifier: FakeNotifier) -> None:
    """A second close has no effect."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    wait.close()
    wait.close()
    notifier.notify()
    with pytest.raises(asyncio.CancelledError):
        await task
    await passes(5)

    assert [] == notifier.events


async def test_a_task_that_closes_when_resumed_does_not_clear_the_notifier(notifier: FakeNotifier) -> None:
    """Another file may have its descriptor by then."""
    wait = notifier.wait()

    async def wait_once() -> None:
        await wait
        wait.close()

    task = asyncio.ensure_future(wait_once())
    await passes(1)
    notifier.notify()
    await asyncio.wait_for(task, PATIENCE_SECONDS)
    await passes(5)

    assert [] == notifier.events


def test_closing_after_the_loop_has_no_effect(notifier: FakeNotifier) -> None:
    loop = asyncio.new_event_loop()

    async def sleeping() -> tuple[LoopWait, asyncio.Task[None]]:
        wait = notifier.wait()

        async def wait_once() -> None:
            await wait

        task = asyncio.ensure_future(wait_once())
        await passes(1)
        return wait, task

    wait, task = loop.run_until_complete(sleeping())
    loop.close()
    wait.close()

    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is left behind on purpose


async def test_asyncio_accepts_it_as_a_future(notifier: FakeNotifier) -> None:
    wait = notifier.wait()

    assert asyncio.isfuture(wait)
    wait.close()
