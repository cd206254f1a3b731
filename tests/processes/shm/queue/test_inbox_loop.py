"""An inbox that an event loop consumes: the bell, the budget, cancelling and closing."""

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
from tests.processes.shm.queues import asleep, forked, killed, refused, rings, taken, until
from tests.support.eventually import PATIENCE_SECONDS


@pytest.mark.parametrize("doorbell", ["socket", "waiter", "eventfd"])
def test_the_event_loop_is_woken_by_another_thread_and_process(quick: MemoryRegion, doorbell: str) -> None:
    """Every kind of bell reaches a loop that sleeps; nothing is lost between looking and sleeping."""
    inbox = Inbox(quick, producers=2, notifier=doorbell)  # type: ignore[arg-type]  # parametrised
    kinds = {"socket": SocketNotifier, "waiter": WaiterNotifier, "eventfd": EventNotifier}
    assert isinstance(inbox.notifier, kinds[doorbell])
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

    child = forked(produce)
    thread = threading.Thread(target=produce)
    thread.start()
    found = asyncio.run(asyncio.wait_for(consume(), PATIENCE_SECONDS))
    thread.join()
    killed(child)
    inbox.close()

    assert sorted([*range(count), *range(count)]) == sorted(found)


async def test_a_busy_inbox_leaves_the_loop_its_turn(quick: MemoryRegion) -> None:
    """When the budget is spent the other tasks run, however much waits."""
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


async def test_a_published_message_without_a_ring_is_found_soon(quick: MemoryRegion) -> None:
    """A producer killed between publishing and ringing silences nobody: the consumer looks four times a second."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:

        class Mute(EventNotifier):
            def ring(self) -> None:
                pass

        producer._notifier = Mute()
        stream = inbox.batches()
        next_batch = asyncio.ensure_future(anext(stream))
        await asleep(inbox)
        producer.push(b"unrung")

        assert [b"unrung"] == (await asyncio.wait_for(next_batch, PATIENCE_SECONDS)).messages


async def test_serve_runs_a_task_per_message_and_holds_it(quick: MemoryRegion) -> None:
    """Tasks run beside each other, up to the limit; the error of one ends the serving."""
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


async def test_wrong_budgets_are_refused(quick: MemoryRegion) -> None:
    """Before anything is taken."""
    with Inbox(quick) as inbox:
        for wrong in (0, -1, 1.5):
            with refused("inbox.budget_us"):
                await anext(inbox.batches(budget_us=wrong))  # type: ignore[arg-type]  # wrong on purpose
        with refused("inbox.limit"):
            await anext(inbox.batches(limit=0))
        with refused("inbox.tasks_max"):
            await inbox.serve(lambda _: asyncio.sleep(0), tasks_max=0)


async def test_closing_ends_who_waits(quick: MemoryRegion) -> None:
    """A consumer that sleeps when the inbox is closed does not sleep for ever."""
    inbox = Inbox(quick)
    waiting = asyncio.ensure_future(anext(inbox.batches()))
    await asleep(inbox)
    inbox.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_wake_up_costs_one_ring_and_one_reading(quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the consumer comes back for more each time; and while it is busy elsewhere nobody rings or reads."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        bell, found = inbox.notifier, list[int]()
        assert isinstance(bell, EventNotifier)
        stream = inbox.batches()
        inbox.take()  # becomes the consumer, which reads the bell once
        monkeypatch.setattr(bell, "clear", lambda: found.append(rings(bell)))
        for number in range(20):
            next_batch = asyncio.ensure_future(anext(stream))
            await asleep(inbox)
            producer.push(bytes([number]))
            assert [bytes([number])] == (await asyncio.wait_for(next_batch, PATIENCE_SECONDS)).messages
        assert 0 == quick.words.load(inbox._asleep)
        producer.push(b"unheard")
        for _ in range(20):
            await asyncio.sleep(0)

        assert [1] * 20 == found
        assert 0 == rings(bell)
        assert [b"unheard"] == (await anext(stream)).messages


async def test_a_task_cancelled_at_the_turn_of_others_has_taken_nothing(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the budget is spent it lets the others run with empty hands."""
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

        assert [b"second"] == taken(inbox)


async def test_closing_in_the_middle_ends_the_stream(quick: MemoryRegion) -> None:
    """Nothing more is taken: the next consumer finds it."""
    inbox = Inbox(quick, producers=1)
    with inbox.producer() as producer:
        waiting = asyncio.ensure_future(_heard_until_closed(inbox))
        await asleep(inbox)
        producer.push(b"last")
        producer.push(b"for the next")

        assert [b"last"] == await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    with Inbox(quick, producers=1) as heir:
        assert [b"for the next"] == taken(heir)


async def test_a_stream_that_has_ended_stays_ended(quick: MemoryRegion) -> None:
    """Also when the inbox has a consumer again: that one has a stream of its own."""
    inbox = Inbox(quick, producers=1, notifier="waiter")
    with inbox.producer() as producer:
        producer.push(b"first")
        stream = inbox.batches()
        assert [b"first"] == (await anext(stream)).messages
        inbox.close()
        producer.push(b"second")
        assert await anext(stream, None) is None
        assert [b"second"] == taken(inbox)
        producer.push(b"third")

        assert await anext(stream, None) is None
        assert [b"third"] == taken(inbox)
    inbox.close()


async def test_a_cancelled_task_leaves_the_stream_to_the_next(quick: MemoryRegion) -> None:
    """Nothing is lost with it, and who waits after it is woken."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        stream = inbox.batches()
        cut_off = asyncio.ensure_future(anext(stream))
        await asleep(inbox)
        cut_off.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut_off
        quick.words.store(inbox._asleep, 0)  # or the next would be taken for asleep before it is
        waiting = asyncio.ensure_future(anext(stream))
        await asleep(inbox)
        producer.push(b"heard")

        assert [b"heard"] == (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages


async def test_a_damaged_lane_does_not_end_the_stream(quick: MemoryRegion) -> None:
    """It is told of once; the other lanes go on."""
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
    """The second is refused; the first is still heard."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        first = asyncio.ensure_future(anext(inbox.batches()))
        await asleep(inbox)
        with refused("inbox.consumer", ConflictError):
            await asyncio.wait_for(anext(inbox.batches()), PATIENCE_SECONDS)
        producer.push(b"heard")

        assert [b"heard"] == (await asyncio.wait_for(first, PATIENCE_SECONDS)).messages


def test_an_inbox_is_consumed_by_one_loop_after_another(quick: MemoryRegion) -> None:
    """The second loop hears the bell as the first did."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:

        async def heard(message: bytes) -> list[bytes]:
            waiting = asyncio.ensure_future(anext(inbox.batches()))
            await asleep(inbox)
            producer.push(message)
            return (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages

        assert [[b"one"], [b"two"]] == [asyncio.run(heard(message)) for message in (b"one", b"two")]


async def test_from_the_second_batch_on_nobody_need_ring(quick: MemoryRegion) -> None:
    """The first is given as soon as the bell is heard; then producers are told, though the task has not paused."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        seen: list[int] = []

        async def consume() -> None:
            async for _ in inbox.batches(limit=1):
                seen.append(quick.words.load(inbox._asleep))
                if len(seen) == 3:
                    return

        task = asyncio.ensure_future(consume())
        await asleep(inbox)
        for message in (b"1", b"2", b"3"):
            producer.push(message)
        await asyncio.wait_for(task, PATIENCE_SECONDS)

        assert [1, 0, 0] == seen


async def test_a_ring_for_nothing_leaves_the_consumer_asleep_and_heard(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bell is read before the consumer arms it again, never after: or the next message would not be rung for."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        waiting = asyncio.ensure_future(anext(inbox.batches()))
        await asleep(inbox)
        inbox.notifier.notify()
        for _ in range(20):
            await asyncio.sleep(0)
        assert 1 == quick.words.load(inbox._asleep)
        producer.push(b"heard")

        assert [b"heard"] == (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).messages


async def test_a_message_that_came_before_the_consumer_lay_down_is_seen(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer saw nobody asleep and did not ring: the consumer looks again once it has said that it sleeps."""
    monkeypatch.setattr(loop_wait, "WAIT_SECONDS_MAX", 3_600.0)
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        assert inbox.take() is None
        lanes = inbox._rings
        assert lanes is not None
        take = lanes.take

        def taken_too_early(limit: int) -> object:
            found = take(limit)
            if found is None:
                producer.push(b"between")
            return found

        monkeypatch.setattr(lanes, "take", taken_too_early)

        assert [b"between"] == (await asyncio.wait_for(anext(inbox.batches()), PATIENCE_SECONDS)).messages
