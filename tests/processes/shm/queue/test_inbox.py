"""The inbox: many producers, one consumer, priorities, the bell, the event loop, and all who may die."""

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
from tests.processes.shm.queues import EVENTFD_MAX, forked, killed, refused, rings, taken, working_modes
from tests.support.eventually import PATIENCE_SECONDS


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryRegion]:
    """A region with a name, in each mode that works here, in a directory of its own."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("INTERLOCK_RUNTIME_DIR", str(tmp_path))
    with MemoryRegion.create("tests", slots=4) as made:
        yield made


def test_each_producer_is_in_order_and_all_are_heard(region: MemoryRegion) -> None:
    """Messages of one producer stay in order; producers take turns."""
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
    """Nobody who pushes without end keeps the consumer for himself."""
    with Inbox(region, producers=3) as inbox:
        producers = [inbox.producer() for _ in range(3)]
        for _ in range(3):
            for producer in producers[:2]:
                producer.push(b"m")
        turns = []
        while (batch := inbox.take(limit=1)) is not None:
            turns.append(batch.producer)

    assert [0, 1, 0, 1, 0, 1] == turns


def test_a_full_lane_says_so_until_the_consumer_has_taken(region: MemoryRegion) -> None:
    """`push` gives False and keeps nothing; the consumer makes room."""
    with Inbox(region, producers=1, ring_bytes=64) as inbox, inbox.producer() as producer:
        assert [True, True, False] == [producer.push(b"x" * 24) for _ in range(3)]
        assert [b"x" * 24] * 2 == taken(inbox)
        assert producer.push(b"again")
        assert [b"again"] == taken(inbox)


def test_urgent_messages_go_first_and_the_others_are_not_forgotten(quick: MemoryRegion) -> None:
    """Priority 0 is served first; a level that was passed over eight times is served next."""
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


def test_no_level_waits_for_ever(quick: MemoryRegion) -> None:
    """With eight levels that never run dry, each is served again within a bound."""
    with Inbox(quick, producers=1, priorities=8) as inbox, inbox.producer() as producer:
        last = dict.fromkeys(range(8), 0)
        for turn in range(400):
            for priority in range(8):
                producer.push(b"m", priority=priority)
            batch = inbox.take(limit=1)
            assert batch is not None
            last[batch.priority] = turn

            assert all(turn - seen <= 8 * SKIPS_MAX for seen in last.values())


def test_a_producer_rings_only_who_sleeps(quick: MemoryRegion) -> None:
    """While the consumer is awake nobody pays for a bell; and an eventfd is rung without asking the bell."""

    class Unasked(EventNotifier):
        def ring(self) -> None:
            raise AssertionError("it has been rung")

    inbox = Inbox(quick, producers=1)
    bell = Unasked()
    producer = inbox.producer()
    producer._notifier = bell
    producer.push(b"1")
    assert 0 == rings(bell)
    assert inbox.wait(0)  # something is there: it does not lie down
    producer.push(b"2")
    assert 0 == rings(bell)
    taken(inbox)
    assert not inbox.wait(0)
    producer.push(b"3")
    assert 0 == rings(bell)  # it looked, and is up again
    quick.words.store(inbox._asleep, 1)
    producer.push(b"4")

    assert 1 == rings(bell)
    assert 1 == quick.words.load(inbox._asleep)
    inbox.close()
    bell.close()


def test_a_push_with_a_full_bell_is_a_push(quick: MemoryRegion) -> None:
    """It has been rung already; nobody waits for room in it."""
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        bell = inbox.notifier
        assert isinstance(bell, EventNotifier)
        os.eventfd_write(bell.fd, EVENTFD_MAX)
        quick.words.store(inbox._asleep, 1)

        assert producer.push(b"heard")
        assert EVENTFD_MAX == rings(bell)
        assert [b"heard"] == taken(inbox)


def test_a_push_after_the_bell_was_closed_touches_no_other_file(quick: MemoryRegion, tmp_path: Path) -> None:
    """The number of its descriptor may be another file's by then; the push says that the bell is closed."""
    with Inbox(quick, producers=1, notifier="eventfd") as inbox, inbox.producer() as producer:
        bell = inbox.notifier
        assert isinstance(bell, EventNotifier)
        number = bell.fd
        quick.words.store(inbox._asleep, 1)
        bell.close()
        other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
        os.dup2(other, number)
        with refused("bell.closed"):
            producer.push(b"published")

        assert b"" == (tmp_path / "other").read_bytes()
        for descriptor in {other, number}:
            os.close(descriptor)


def test_the_place_of_a_killed_producer_is_taken_over_where_it_stopped(region: MemoryRegion) -> None:
    """What it published stays, what it had not published never was; the next owner goes on behind it."""
    inbox = Inbox(region, producers=1)
    reader, writer = os.pipe()

    def produce() -> Producer:
        producer = inbox.producer()
        producer.push(b"last words")
        os.write(writer, b"!")
        return producer

    child = forked(produce)
    os.read(reader, 1)
    with pytest.raises(UnavailableError):
        inbox.producer()
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # a zombie: dead, and not yet waited for
    heir = inbox.producer()
    os.waitpid(child, 0)
    heir.push(b"the next")

    assert [b"last words", b"the next"] == taken(inbox)
    inbox.close()
    os.close(reader)
    os.close(writer)


def test_a_stopped_producer_keeps_its_place(quick: MemoryRegion) -> None:
    """Time proves nothing: a stopped process is alive, and nobody writes into its lane."""
    inbox = Inbox(quick, producers=1)
    reader, writer = os.pipe()

    def produce() -> Producer:
        producer = inbox.producer()
        os.write(writer, b"!")
        return producer

    child = forked(produce)
    os.read(reader, 1)
    os.kill(child, signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    try:
        with pytest.raises(UnavailableError):
            inbox.producer()
    finally:
        killed(child)
        os.close(reader)
        os.close(writer)
    inbox.producer().close()
    inbox.close()


def test_a_new_consumer_is_not_taken_for_asleep(quick: MemoryRegion) -> None:
    """Its predecessor died asleep; from the first batch on, producers need not ring."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        quick.words.store(inbox._asleep, 1)
        producer.push(b"first")

        assert [b"first"] == taken(inbox)
        assert 0 == quick.words.load(inbox._asleep)


def test_a_wait_that_finds_something_leaves_the_bell_alone(
    quick: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody lies down for a message that is there: lying down costs the producer a ring."""
    with Inbox(quick, producers=1) as inbox, inbox.producer() as producer:
        assert inbox.take() is None
        calls: list[str] = []
        monkeypatch.setattr(inbox.notifier, "notify", lambda: calls.append("notify"))
        monkeypatch.setattr(inbox.notifier, "clear", lambda: calls.append("clear"))
        producer.push(b"there")

        assert inbox.wait(PATIENCE_SECONDS)
        assert [] == calls
        assert [b"there"] == taken(inbox)


def test_a_new_consumer_continues_where_the_killed_one_was(quick: MemoryRegion) -> None:
    """One consumer at a time; after its death the next takes what was not taken, and is heard."""
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
        child = forked(consume)
        assert b"first" == os.read(reader, 16)
        with pytest.raises(ConflictError):
            mine.take()
        killed(child)
        producer.push(b"third")

        assert [b"second", b"third"] == taken(mine)
    mine.close()
    os.close(reader)
    os.close(writer)


def test_a_forked_child_cannot_push_through_its_parents_place(region: MemoryRegion) -> None:
    """Two writers on one lane would tear it; the child is told to take a place of its own."""
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

    child = forked(produce)
    told = b""
    while b"pushed" not in told:
        told += os.read(reader, 100)
    killed(child)

    assert b"producer.forked pushed" == told
    assert producer.push(b"mine")
    assert {b"whole", b"mine"} == set(taken(inbox))
    inbox.close()
    os.close(reader)
    os.close(writer)


def _push_from_spawned(inbox: Inbox) -> None:
    with inbox.producer() as producer:
        producer.push(b"from afar")


def test_an_inbox_of_a_named_region_goes_to_a_spawned_process(quick: MemoryRegion) -> None:
    """It pickles as its name and numbers, and is attached to on the other side."""
    inbox = Inbox(quick, producers=2, priorities=2, ring_bytes=1024)
    process = multiprocessing.get_context("spawn").Process(target=_push_from_spawned, args=(inbox,))
    process.start()
    process.join(PATIENCE_SECONDS)

    assert 0 == process.exitcode
    assert [b"from afar"] == taken(inbox)
    inbox.close()


def test_an_inbox_of_a_region_without_a_name_does_not_pickle() -> None:
    """Nobody could attach to it by name."""
    with MemoryRegion.create() as region, Inbox(region) as inbox, pytest.raises(UsageError):
        pickle.dumps(inbox)


def test_an_eventfd_comes_with_its_descriptor() -> None:
    """Whoever attaches to an inbox of a region without a name needs the bell as well."""
    with MemoryRegion.create() as region, Inbox(region) as inbox, MemoryRegion.from_fd(region.fd) as other:
        with refused("inbox.bell_missing"):
            Inbox(other)
        bell = inbox.notifier
        assert isinstance(bell, EventNotifier)
        with Inbox(other, notifier=EventNotifier(bell.fd)) as theirs, theirs.producer() as producer:
            assert not inbox.wait(0)
            region.words.store(inbox._asleep, 1)
            producer.push(b"ring")

            assert inbox.wait(PATIENCE_SECONDS)
            assert [b"ring"] == taken(inbox)


def test_threads_share_a_producer(region: MemoryRegion) -> None:
    """Pushes of several threads of one process never mix."""
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
    found = taken(inbox)

    assert 200 == len(found)
    assert all(message == bytes([message[0]]) * message[0] for message in found)
    inbox.close()


def test_a_damaged_lane_is_told_once_and_left_alone(region: MemoryRegion) -> None:
    """The other producers go on."""
    inbox = Inbox(region, producers=2)
    broken, sound = inbox.producer(), inbox.producer()
    broken.push(b"lies")
    sound.push(b"truth")
    struct.pack_into("<I", region.buffer, inbox._ring_offset(0, 0) + RING_HEAD, 0x7FFFFFFF)

    with refused("lane.corrupt", CorruptionError):
        taken(inbox)

    assert [b"truth"] == taken(inbox)
    sound.push(b"more truth")
    assert [b"more truth"] == taken(inbox)
    assert not inbox.wait(0)
    inbox.close()


def test_a_damaged_position_is_told_to_the_producer(region: MemoryRegion) -> None:
    """It stops rather than write where it must not."""
    inbox = Inbox(region, producers=1)
    producer = inbox.producer()
    region.words.store(inbox._ring_offset(0, 0) + LINE, 1 << 40)  # a head far beyond the tail
    region.words.store(inbox._ring_offset(0, 0) + 8, 1 << 40)

    with refused("lane.corrupt", CorruptionError):
        producer.push(b"x")
    inbox.close()


def test_wrong_calls_say_what_is_right(quick: MemoryRegion) -> None:
    """Numbers, sizes, priorities, closed and foreign things: each with its own code."""
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
            with refused(code):
                call()
        with refused("inbox.priority"):
            producer.push(b"x", priority=-1)
        with refused("inbox.bell"):
            Inbox(quick, producers=2, priorities=2, ring_bytes=256, notifier="waiter")
        with pytest.raises(TypeError):
            producer.push("text")  # type: ignore[arg-type]  # wrong on purpose
        producer.close()
        with refused("producer.closed"):
            producer.push(b"x")
        assert inbox.take() is None
    inbox.close()
