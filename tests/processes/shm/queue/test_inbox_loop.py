"""An inbox that an event loop consumes: the notifier, the budget, cancelling and closing."""

from __future__ import annotations

import asyncio
import functools
import itertools
import struct
import threading

import pytest

from interlock.errors import ConflictError, CorruptionError
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue import inbox as inbox_module
from interlock.shm.queue import loop_wait
from interlock.shm.queue.inbox import Inbox
from interlock.shm.queue.notifier import EventNotifier, SocketNotifier, WaiterNotifier
from tests.processes.shm.queues import fork_child, kill_child, notifications, raises_code, take_all, until, until_asleep
from tests.support.eventually import PATIENCE_SECONDS


@pytest.mark.parametrize("kind", ["socket", "waiter", "eventfd"])
def test_the_event_loop_is_woken_by_another_thread_and_process(quick: MemoryRegion, kind: str) -> None:
    """By every kind of notifier; no notification is lost."""
    inbox = Inbox(quick, producers=2, notifier=kind)  # type: ignore[arg-type]  # parametrised
    kinds = {"socket": SocketNotifier, "waiter": WaiterNotifier, "eventfd": EventNotifier}
    assert isinstance(inbox.notifier, kinds[kind])
    count = 300

    def produce() -> None:
        with inbox.producer() as producer:
            for number in range(count):
                message = struct.pack("<I", number)
                until(functools.partial(producer.push, message))

    async def consume() -> list[int]:
        found: list[int] = []
        async for batch in inbox.batches():
            found += [struct.unpack("<I", message)[0] for message in batch]
            if len(found) == 2 * count:
                break
        return found

    child = fork_child(produce)
    thread = threading.Thread(target=produce)
    thread.start()
    found = asyncio.run(asyncio.wait_for(consume(), PATIENCE_SECONDS))
    thread.join()
    kill_child(child)
    inbox.close()

    assert sorted([*range(count), *range(count)]) == sorted(found)


async def test_a_busy_inbox_does_not_starve_the_loop(quick: MemoryRegion) -> None:
    """Other tasks run when the budget is used up."""
    with Inbox(quick, producers=1, ring_bytes=1 << 20) as inbox, inbox.producer() as producer:
        while producer.push(b"m" * 16):
            pass
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        seen = 0
        async for batch in inbox.batches(budget_us=1, limit=8):
            seen += 1
            assert 8 == len(batch) or not inbox.take()
            if seen == 200:
                break
        other.cancel()

    assert turns > 100


async def test_a_message_without_a_notification_is_found(quick: MemoryRegion) -> None:
    """Of a producer that was killed after it published: the consumer checks four times a second."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:

        class Mute(EventNotifier):
            def ring(self) -> None:
                pass

        producer._notifier = Mute()
        stream = inbox.batches()
        next_batch = asyncio.ensure_future(anext(stream))
        await until_asleep(inbox)
        producer.push(b"unrung")

        assert [b"unrung"] == (await asyncio.wait_for(next_batch, PATIENCE_SECONDS)).messages


async def test_serve_runs_a_task_per_message(quick: MemoryRegion) -> None:
    """Up to the limit; an exception of one ends all."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        running = most = 0

        async def handler(message: bytes) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            if message == b"bad":
                raise LookupError("bad")

        for _ in range(50):
            producer.push(b"good")
        producer.push(b"bad")

        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(inbox.serve(handler, tasks_max=3), PATIENCE_SECONDS)

    assert isinstance(caught.value.exceptions[0], LookupError)
    assert 3 == most


async def test_invalid_budgets_are_refused(quick: MemoryRegion) -> None:
    with Inbox(quick) as inbox:
        for wrong in (0, -1, 1.5):
            with raises_code("inbox.budget_us"):
                await anext(inbox.batches(budget_us=wrong))  # type: ignore[arg-type]  # wrong on purpose
        with raises_code("inbox.limit"):
            await anext(inbox.batches(limit=0))
        with raises_code("inbox.tasks_max"):
            await inbox.serve(lambda _: asyncio.sleep(0), tasks_max=0)


async def test_closing_ends_a_waiting_consumer(quick: MemoryRegion) -> None:
    inbox = Inbox(quick)
    waiting = asyncio.ensure_future(anext(inbox.batches()))
    await until_asleep(inbox)
    inbox.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_wake_up_costs_one_notification_and_one_clear(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the consumer asks for more; none while it is busy."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        notifier, found = inbox.notifier, list[int]()
        assert isinstance(notifier, EventNotifier)
        stream = inbox.batches()
        inbox.take()  # becomes the consumer, which clears the notifier once
        monkeypatch.setattr(notifier, "clear", lambda: found.append(notifications(notifier)))
        for number in range(20):
            next_batch = asyncio.ensure_future(anext(stream))
            await until_asleep(inbox)
            producer.push(bytes([number]))
            assert [bytes([number])] == (await asyncio.wait_for(next_batch, PATIENCE_SECONDS)).messages
        assert 0 == quick.words.load(inbox._asleep)
        producer.push(b"unheard")
        for _ in range(20):
            await asyncio.sleep(0)

        assert [1] * 20 == found
        assert 0 == notifications(notifier)
        assert [b"unheard"] == (await anext(stream)).messages


async def test_a_task_cancelled_while_it_yields_has_received_nothing(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        for message in (b"first", b"second"):
            producer.push(message)
        stream = inbox.batches(limit=1)
        assert [b"first"] == (await anext(stream)).messages
        monkeypatch.setattr(inbox_module, "perf_counter_ns", itertools.count(1 << 62).__next__)
        cut_off = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        cut_off.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut_off

        assert [b"second"] == take_all(inbox)


async def test_closing_ends_the_iteration(quick: MemoryRegion) -> None:
    """The next consumer receives the remaining messages."""
    inbox = Inbox(quick, producers=1)
    with inbox.producer() as producer:
        waiting = asyncio.ensure_future(_heard_until_closed(inbox))
        await until_asleep(inbox)
        producer.push(b"last")
        producer.push(b"for the next")

        assert [b"last"] == await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    with Inbox(quick, producers=1) as heir:
        assert [b"for the next"] == take_all(heir)


async def test_an_iteration_that_has_ended_stays_ended(quick: MemoryRegion) -> None:
    """Also if the inbox has a consumer again."""
    inbox = Inbox(quick, producers=1, notifier="waiter")
    with inbox.producer() as producer:
        producer.push(b"first")
        stream = inbox.batches()
        assert [b"first"] == (await anext(stream)).messages
        inbox.close()
        producer.push(b"second")
        assert await anext(stream, None) is None
        assert [b"second"] == take_all(inbox)
        producer.push(b"third")

        assert await anext(stream, None) is None
        assert [b"third"] == take_all(inbox)
    inbox.close()


async def test_after_a_cancelled_task_another_one_receives(quick: MemoryRegion) -> None:
    """No message is lost."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        stream = inbox.batches()
        cut_off = asyncio.ensure_future(anext(stream))
        await until_asleep(inbox)
        cut_off.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut_off
        quick.words.store(inbox._asleep, 0)  # or the next would be taken for asleep before it is
        waiting = asyncio.ensure_future(anext(stream))
        await until_asleep(inbox)
        producer.push(b"message")

        assert [b"message"] == (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages


async def test_a_corrupt_ring_does_not_end_the_iteration(quick: MemoryRegion) -> None:
    """It is reported once."""
    with Inbox(quick, producers=2) as inbox, inbox.producer() as damaged, inbox.producer() as producer:
        damaged.push(b"damaged")
        stream = inbox.batches()
        quick.words.store(inbox._ring_offset(damaged.index, 0), 4)
        producer.push(b"sound")
        with pytest.raises(CorruptionError):
            await anext(stream)

        assert [b"sound"] == (await anext(stream)).messages


async def _heard_until_closed(inbox: Inbox) -> list[bytes]:
    found: list[bytes] = []
    async for batch in inbox.batches(limit=1):
        found += batch
        inbox.close()
    return found


async def test_two_tasks_cannot_wait_for_one_inbox(quick: MemoryRegion) -> None:
    """The first one is still notified."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        first = asyncio.ensure_future(anext(inbox.batches()))
        await until_asleep(inbox)
        with raises_code("inbox.consumer", ConflictError):
            await asyncio.wait_for(anext(inbox.batches()), PATIENCE_SECONDS)
        producer.push(b"message")

        assert [b"message"] == (await asyncio.wait_for(first, PATIENCE_SECONDS)).messages


def test_an_inbox_is_consumed_by_one_loop_after_another(quick: MemoryRegion) -> None:
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:

        async def receive(message: bytes) -> list[bytes]:
            waiting = asyncio.ensure_future(anext(inbox.batches()))
            await until_asleep(inbox)
            producer.push(message)
            return (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages

        assert [[b"one"], [b"two"]] == [asyncio.run(receive(message)) for message in (b"one", b"two")]


async def test_after_the_first_batch_producers_do_not_notify(quick: MemoryRegion) -> None:
    """Even if the task has not yielded."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        seen: list[int] = []

        async def consume() -> None:
            async for _ in inbox.batches(limit=1):
                seen.append(quick.words.load(inbox._asleep))
                if len(seen) == 3:
                    return

        task = asyncio.ensure_future(consume())
        await until_asleep(inbox)
        for message in (b"1", b"2", b"3"):
            producer.push(message)
        await asyncio.wait_for(task, PATIENCE_SECONDS)

        assert [1, 0, 0] == seen


async def test_a_notification_without_a_message_keeps_the_consumer_armed(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier is cleared before the consumer arms it again, never after."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        waiting = asyncio.ensure_future(anext(inbox.batches()))
        await until_asleep(inbox)
        inbox.notifier.notify()
        for _ in range(20):
            await asyncio.sleep(0)
        assert 1 == quick.words.load(inbox._asleep)
        producer.push(b"message")

        assert [b"message"] == (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages


async def test_a_message_published_before_the_consumer_sleeps_is_found(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer did not notify, so the consumer checks again after it has stored that it sleeps."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        assert inbox.take() is None
        rings = inbox._rings
        assert rings is not None
        take = rings.take

        def take_too_early(limit: int) -> object:
            found = take(limit)
            if found is None:
                producer.push(b"between")
            return found

        monkeypatch.setattr(rings, "take", take_too_early)

        assert [b"between"] == (await asyncio.wait_for(anext(inbox.batches()), PATIENCE_SECONDS)).messages
