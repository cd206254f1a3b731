"""The inbox: many producers, one consumer, priorities, the notifier, and the death of any process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.errors import ConflictError, CorruptionError, UnavailableError, UsageError
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.queue.inbox import Batch, Inbox
from interlock.shm.queue.notifier import EventNotifier
from interlock.shm.queue.priority import SKIPS_MAX
from interlock.shm.queue.ring import RING_HEAD, Producer
from tests.processes.shm.queues import (
    EVENTFD_MAX,
    fork_child,
    kill_child,
    notifications,
    raises_code,
    take_all,
    working_modes,
)
from tests.support.eventually import PATIENCE_SECONDS


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryRegion]:
    """A named region in each mode, in its own directory."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("INTERLOCK_RUNTIME_DIR", str(tmp_path))
    with MemoryRegion.create("tests", slots=4) as made:
        yield made


def test_messages_of_each_producer_stay_in_order(region: MemoryRegion) -> None:
    inbox = Inbox(region, producers=3)
    producers = [inbox.producer() for _ in range(3)]
    for number in range(4):
        for producer in producers:
            assert producer.push(bytes([producer.index, number]))

    batches = [inbox.take() for _ in range(3)]

    assert [
        Batch([bytes([index, number]) for number in range(4)], priority=0, producer=index) for index in range(3)
    ] == batches
    assert inbox.take() is None
    inbox.close()


def test_producers_take_turns(region: MemoryRegion) -> None:
    """A producer that pushes without end does not starve the others."""
    with Inbox(region, producers=3) as inbox:
        producers = [inbox.producer() for _ in range(3)]
        for _ in range(3):
            for producer in producers[:2]:
                producer.push(b"m")
        turns = []
        while (batch := inbox.take(limit=1)) is not None:
            turns.append(batch.producer)

    assert [0, 1, 0, 1, 0, 1] == turns


def test_a_push_to_a_full_ring_returns_false(region: MemoryRegion) -> None:
    """Until the consumer has received messages."""
    with Inbox(region, producers=1, ring_bytes=64) as inbox, inbox.producer() as producer:
        assert [True, True, False] == [producer.push(b"x" * 24) for _ in range(3)]
        assert [b"x" * 24] * 2 == take_all(inbox)
        assert producer.push(b"again")
        assert [b"again"] == take_all(inbox)


def test_urgent_messages_are_first_and_others_do_not_starve(quick: MemoryRegion) -> None:
    """A priority that was skipped eight times is served next."""
    with Inbox(quick, producers=1, priorities=3) as inbox, inbox.producer() as producer:
        for priority in (2, 1):
            producer.push(b"patient", priority=priority)
        served = []
        for _ in range(2 * SKIPS_MAX + 4):
            producer.push(b"urgent", priority=0)
            batch = inbox.take()
            assert batch is not None
            served.append(batch.priority)

    assert [0] * SKIPS_MAX == served[:SKIPS_MAX]
    assert {1, 2} <= set(served)
    assert 2 == len([each for each in served if each])


def test_no_priority_starves(quick: MemoryRegion) -> None:
    """With eight priorities that always have messages, each is served within a limit."""
    with Inbox(quick, producers=1, priorities=8) as inbox, inbox.producer() as producer:
        last = dict.fromkeys(range(8), 0)
        for turn in range(400):
            for priority in range(8):
                producer.push(b"m", priority=priority)
            batch = inbox.take(limit=1)
            assert batch is not None
            last[batch.priority] = turn

            assert all(turn - seen <= 8 * SKIPS_MAX for seen in last.values())


def test_a_producer_notifies_only_a_sleeping_consumer(quick: MemoryRegion) -> None:
    """It writes to an eventfd directly."""

    class FailingNotifier(EventNotifier):
        def ring(self) -> None:
            raise AssertionError("notify was called")

    inbox = Inbox(quick, producers=1)
    notifier = FailingNotifier()
    producer = inbox.producer()
    producer._notifier = notifier
    producer.push(b"1")
    assert 0 == notifications(notifier)
    assert inbox.wait(0)  # something is there: it does not lie down
    producer.push(b"2")
    assert 0 == notifications(notifier)
    take_all(inbox)
    assert not inbox.wait(0)
    producer.push(b"3")
    assert 0 == notifications(notifier)  # it checked, and is awake again
    quick.words.store(inbox._asleep, 1)
    producer.push(b"4")

    assert 1 == notifications(notifier)
    assert 1 == quick.words.load(inbox._asleep)
    inbox.close()
    notifier.close()


def test_a_push_with_a_full_notifier_succeeds(quick: MemoryRegion) -> None:
    """The consumer is notified already."""
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        notifier = inbox.notifier
        assert isinstance(notifier, EventNotifier)
        os.eventfd_write(notifier.fd, EVENTFD_MAX)
        quick.words.store(inbox._asleep, 1)

        assert producer.push(b"message")
        assert EVENTFD_MAX == notifications(notifier)
        assert [b"message"] == take_all(inbox)


def test_a_push_after_the_notifier_was_closed_is_refused(quick: MemoryRegion, tmp_path: Path) -> None:
    """Another file may have the number of its descriptor by then."""
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        notifier = inbox.notifier
        assert isinstance(notifier, EventNotifier)
        number = notifier.fd
        quick.words.store(inbox._asleep, 1)
        notifier.close()
        other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
        os.dup2(other, number)
        with raises_code("bell.closed"):
            producer.push(b"published")

        assert b"" == (tmp_path / "other").read_bytes()
        for descriptor in {other, number}:
            os.close(descriptor)


def test_the_ring_of_a_killed_producer_continues_at_its_tail(region: MemoryRegion) -> None:
    """Published messages stay, unpublished ones do not exist."""
    inbox = Inbox(region, producers=1)
    reader, writer = os.pipe()

    def produce() -> Producer:
        producer = inbox.producer()
        producer.push(b"last words")
        os.write(writer, b"!")
        return producer

    child = fork_child(produce)
    os.read(reader, 1)
    with pytest.raises(UnavailableError):
        inbox.producer()
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # a zombie: dead, and not yet waited for
    heir = inbox.producer()
    os.waitpid(child, 0)
    heir.push(b"the next")

    assert [b"last words", b"the next"] == take_all(inbox)
    inbox.close()
    os.close(reader)
    os.close(writer)


def test_a_stopped_producer_keeps_its_ring(quick: MemoryRegion) -> None:
    """A stopped process is alive."""
    inbox = Inbox(quick, producers=1)
    reader, writer = os.pipe()

    def produce() -> Producer:
        producer = inbox.producer()
        os.write(writer, b"!")
        return producer

    child = fork_child(produce)
    os.read(reader, 1)
    os.kill(child, signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    try:
        with pytest.raises(UnavailableError):
            inbox.producer()
    finally:
        kill_child(child)
        os.close(reader)
        os.close(writer)
    inbox.producer().close()
    inbox.close()


def test_a_new_consumer_is_awake(quick: MemoryRegion) -> None:
    """Its predecessor died asleep."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        quick.words.store(inbox._asleep, 1)
        producer.push(b"first")

        assert [b"first"] == take_all(inbox)
        assert 0 == quick.words.load(inbox._asleep)


def test_a_wait_with_messages_does_not_use_the_notifier(quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleep would cost the producer a notification."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        assert inbox.take() is None
        calls: list[str] = []
        monkeypatch.setattr(inbox.notifier, "notify", lambda: calls.append("notify"))
        monkeypatch.setattr(inbox.notifier, "clear", lambda: calls.append("clear"))
        producer.push(b"there")

        assert inbox.wait(PATIENCE_SECONDS)
        assert [] == calls
        assert [b"there"] == take_all(inbox)


def test_a_new_consumer_continues_after_the_killed_one(quick: MemoryRegion) -> None:
    mine = Inbox(quick, producers=1)
    reader, writer = os.pipe()

    def consume() -> Inbox:
        theirs = Inbox(quick, producers=1)
        batch = theirs.take(limit=1)
        assert batch is not None
        theirs.wait(0)
        quick.words.store(theirs._asleep, 1)  # dies asleep
        os.write(writer, batch.messages[0])
        return theirs

    with mine.producer() as producer:
        producer.push(b"first")
        producer.push(b"second")
        child = fork_child(consume)
        assert b"first" == os.read(reader, 16)
        with pytest.raises(ConflictError):
            mine.take()
        kill_child(child)
        producer.push(b"third")

        assert [b"second", b"third"] == take_all(mine)
    mine.close()
    os.close(reader)
    os.close(writer)


def test_a_forked_child_cannot_use_its_parents_producer(region: MemoryRegion) -> None:
    """Two writers would corrupt a ring."""
    inbox = Inbox(region, producers=2)
    producer = inbox.producer()
    reader, writer = os.pipe()

    def produce() -> None:
        try:
            producer.push(b"torn")
        except UsageError as error:
            os.write(writer, error.code.encode())
        with inbox.producer() as own:
            own.push(b"whole")
            os.write(writer, b" pushed")

    child = fork_child(produce)
    output = b""
    while b"pushed" not in output:
        output += os.read(reader, 100)
    kill_child(child)

    assert b"producer.forked pushed" == output
    assert producer.push(b"mine")
    assert {b"whole", b"mine"} == set(take_all(inbox))
    inbox.close()
    os.close(reader)
    os.close(writer)


def _push_from_spawned(inbox: Inbox) -> None:
    with inbox.producer() as producer:
        producer.push(b"from afar")


def test_an_inbox_of_a_named_region_can_be_pickled(quick: MemoryRegion) -> None:
    inbox = Inbox(quick, producers=2, priorities=2, ring_bytes=1024)
    process = multiprocessing.get_context("spawn").Process(target=_push_from_spawned, args=(inbox,))
    process.start()
    process.join(PATIENCE_SECONDS)

    assert 0 == process.exitcode
    assert [b"from afar"] == take_all(inbox)
    inbox.close()


def test_an_inbox_of_a_region_without_a_name_cannot_be_pickled() -> None:
    with MemoryRegion.create() as region, Inbox(region) as inbox, pytest.raises(UsageError):
        pickle.dumps(inbox)


def test_a_region_without_a_name_needs_the_eventfd_too() -> None:
    """A process that attaches needs the descriptor of the notifier."""
    with MemoryRegion.create() as region, Inbox(region) as inbox, MemoryRegion.from_fd(region.fd) as other:
        with raises_code("inbox.bell_missing"):
            Inbox(other)
        notifier = inbox.notifier
        assert isinstance(notifier, EventNotifier)
        with Inbox(other, notifier=EventNotifier(notifier.fd)) as theirs, theirs.producer() as producer:
            assert not inbox.wait(0)
            region.words.store(inbox._asleep, 1)
            producer.push(b"ring")

            assert inbox.wait(PATIENCE_SECONDS)
            assert [b"ring"] == take_all(inbox)


def test_threads_share_a_producer(region: MemoryRegion) -> None:
    inbox = Inbox(region, producers=1, ring_bytes=1 << 16)
    producer = inbox.producer()
    threads = [
        threading.Thread(target=lambda mark=mark: [producer.push(bytes([mark]) * mark) for _ in range(50)])
        for mark in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = take_all(inbox)

    assert 200 == len(found)
    assert all(message == bytes([message[0]]) * message[0] for message in found)
    inbox.close()


def test_a_corrupt_ring_is_reported_once_and_then_ignored(region: MemoryRegion) -> None:
    """The other producers continue."""
    inbox = Inbox(region, producers=2)
    broken, sound = inbox.producer(), inbox.producer()
    broken.push(b"invalid")
    sound.push(b"truth")
    struct.pack_into("<I", region.buffer, inbox._ring_offset(0, 0) + RING_HEAD, 0x7FFFFFFF)

    with raises_code("lane.corrupt", CorruptionError):
        take_all(inbox)

    assert [b"truth"] == take_all(inbox)
    sound.push(b"more truth")
    assert [b"more truth"] == take_all(inbox)
    assert not inbox.wait(0)
    inbox.close()


def test_a_corrupt_position_is_reported_to_the_producer(region: MemoryRegion) -> None:
    inbox = Inbox(region, producers=1)
    producer = inbox.producer()
    region.words.store(inbox._ring_offset(0, 0) + LINE, 1 << 40)  # a head far beyond the tail
    region.words.store(inbox._ring_offset(0, 0) + 8, 1 << 40)

    with raises_code("lane.corrupt", CorruptionError):
        producer.push(b"x")
    inbox.close()


def test_wrong_calls_are_refused(quick: MemoryRegion) -> None:
    """Each with its own code."""
    with Inbox(quick, producers=2, priorities=2, ring_bytes=256) as inbox:
        producer = inbox.producer()
        wrong: dict[str, Callable[[], object]] = {
            "inbox.producers": lambda: Inbox(quick, name="a", producers=0),
            "inbox.priorities": lambda: Inbox(quick, name="a", priorities=9),
            "inbox.ring": lambda: Inbox(quick, name="a", ring_bytes=100),
            "inbox.ring_bytes": lambda: Inbox(quick, name="a", ring_bytes=8),
            "inbox.bell": lambda: Inbox(quick, name="a", notifier="gong"),  # type: ignore[arg-type]  # wrong on purpose
            "region.area_size": lambda: Inbox(quick, producers=3, priorities=2, ring_bytes=256),
            "inbox.shape": lambda: Inbox(quick, producers=1, priorities=4, ring_bytes=256),
            "inbox.message_bytes": lambda: producer.push(b"x" * (inbox.message_bytes_max + 1)),
            "inbox.priority": lambda: producer.push(b"x", priority=2),
            "region.area_name": lambda: Inbox(quick, name="n" * 50),
        }
        for code, call in wrong.items():
            with raises_code(code):
                call()
        with raises_code("inbox.priority"):
            producer.push(b"x", priority=-1)
        with raises_code("inbox.bell"):
            Inbox(quick, producers=2, priorities=2, ring_bytes=256, notifier="waiter")
        with pytest.raises(TypeError):
            producer.push("text")  # type: ignore[arg-type]  # wrong on purpose
        producer.close()
        with raises_code("producer.closed"):
            producer.push(b"x")
        assert inbox.take() is None
    inbox.close()
