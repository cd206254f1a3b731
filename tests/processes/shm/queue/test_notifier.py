"""Notifiers: readable until cleared, never blocking, with or without a listener."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.errors import UsageError
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.notifier import EventNotifier, Notifier, SocketNotifier, WaiterNotifier
from tests.processes.shm.queues import fork_child, kill_child
from tests.support.eventually import PATIENCE_SECONDS


def is_notified(notifier: Notifier, timeout: float = 0.0) -> bool:
    """Return whether the listener's descriptor is readable."""
    poll = select.poll()
    poll.register(notifier.listen(), select.POLLIN)
    return bool(poll.poll(1000 * timeout))


@pytest.fixture(params=["eventfd", "socket", "waiter"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Notifier, Notifier]]:
    """The listener and a producer's end of each kind of notifier."""
    with MemoryRegion.create(slots=1) as region:
        offset = region.area("rings", 64)
        listener: Notifier
        producer: Notifier
        match request.param:
            case "eventfd":
                listener = EventNotifier()
                producer = EventNotifier(listener.fd)
            case "socket":
                listener, producer = SocketNotifier(tmp_path, "b"), SocketNotifier(tmp_path, "b")
            case _:
                listener, producer = WaiterNotifier(region.words, offset), WaiterNotifier(region.words, offset)
        yield listener, producer
        producer.close()
        listener.close()


def test_a_notification_is_readable_until_it_is_cleared(pair: tuple[Notifier, Notifier]) -> None:
    listener, producer = pair
    assert not is_notified(listener)

    producer.notify()

    assert is_notified(listener, PATIENCE_SECONDS)
    listener.clear()
    assert not is_notified(listener)


def test_notifying_never_blocks(pair: tuple[Notifier, Notifier]) -> None:
    """One clear discards all notifications."""
    listener, producer = pair
    listener.listen()
    for _ in range(5_000):
        producer.notify()
    assert is_notified(listener, PATIENCE_SECONDS)
    if not isinstance(listener, WaiterNotifier):  # its thread may still pass one on
        listener.clear()

        assert not is_notified(listener)


def test_notifying_without_a_listener_is_not_an_error(pair: tuple[Notifier, Notifier]) -> None:
    listener, producer = pair
    producer.notify()
    listener.listen()
    listener.close()

    producer.notify()


def test_a_second_close_has_no_effect(pair: tuple[Notifier, Notifier]) -> None:
    """Also for an end that never listened."""
    for notifier in (*pair, *pair):
        notifier.close()


def test_a_new_listener_replaces_one_that_was_killed(tmp_path: Path) -> None:
    producer = SocketNotifier(tmp_path, "b")
    reader, writer = os.pipe()

    def listening() -> SocketNotifier:
        notifier = SocketNotifier(tmp_path, "b")
        notifier.listen()
        os.write(writer, b"!")
        return notifier

    child = fork_child(listening)
    os.read(reader, 1)
    kill_child(child)
    producer.notify()
    listener = SocketNotifier(tmp_path, "b")
    assert not is_notified(listener)
    producer.notify()

    assert is_notified(listener, PATIENCE_SECONDS)
    for notifier in (producer, listener):
        notifier.close()
    for descriptor in (reader, writer):
        os.close(descriptor)
    assert not (tmp_path / "b").exists()


def test_a_socket_may_have_a_long_path(tmp_path: Path) -> None:
    """The address of a socket is limited to 107 bytes."""
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    listener, producer = SocketNotifier(folder, "b"), SocketNotifier(folder, "b")
    listener.listen()

    producer.notify()

    assert is_notified(listener, PATIENCE_SECONDS)
    listener.close()
    producer.close()


def test_an_eventfd_can_be_sent_through_a_socket() -> None:
    """The receiver owns the received descriptor."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    listener = EventNotifier()
    socket.send_fds(left, [b"fd"], [listener.fd])
    _, descriptors, _, _ = socket.recv_fds(right, 16, 1)
    producer = EventNotifier(descriptors[0])
    os.close(descriptors[0])

    producer.notify()

    assert is_notified(listener, PATIENCE_SECONDS)
    for thing in (left, right, listener, producer):
        thing.close()


def test_a_descriptor_that_is_not_an_eventfd_is_refused() -> None:
    reader, writer = os.pipe()
    for descriptor in (reader, writer, 9_999):
        with pytest.raises(UsageError) as caught:
            EventNotifier(descriptor)

        assert "bell.descriptor" == caught.value.code
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("kind", ["eventfd", "socket"])
def test_a_closed_notifier_is_refused(kind: str, tmp_path: Path) -> None:
    """Another file may have its descriptor by then."""
    notifier: Notifier = EventNotifier() if kind == "eventfd" else SocketNotifier(tmp_path, "b")
    notifier.close()

    with pytest.raises(UsageError) as caught:
        notifier.notify()

    assert "bell.closed" == caught.value.code
