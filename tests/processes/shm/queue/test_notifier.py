"""Doorbells: a ring is heard once cleared, never waits, and needs no listener."""

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
from tests.processes.shm.queues import forked, killed
from tests.support.eventually import PATIENCE_SECONDS


def rung(bell: Notifier, timeout: float = 0.0) -> bool:
    """Whether the listener's descriptor is readable."""
    poll = select.poll()
    poll.register(bell.listen(), select.POLLIN)
    return bool(poll.poll(1000 * timeout))


@pytest.fixture(params=["eventfd", "socket", "waiter"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Notifier, Notifier]]:
    """The two ends of each kind of bell: the listener's and a ringer's."""
    with MemoryRegion.create(slots=1) as region:
        offset = region.area("rings", 64)
        listener: Notifier
        ringer: Notifier
        match request.param:
            case "eventfd":
                listener = EventNotifier()
                ringer = EventNotifier(listener.fd)
            case "socket":
                listener, ringer = SocketNotifier(tmp_path, "b"), SocketNotifier(tmp_path, "b")
            case _:
                listener, ringer = WaiterNotifier(region.words, offset), WaiterNotifier(region.words, offset)
        yield listener, ringer
        ringer.close()
        listener.close()


def test_a_ring_is_heard_until_it_is_cleared(pair: tuple[Notifier, Notifier]) -> None:
    """Readable after a ring, not before, not after clearing."""
    listener, ringer = pair
    assert not rung(listener)

    ringer.notify()

    assert rung(listener, PATIENCE_SECONDS)
    listener.clear()
    assert not rung(listener)


def test_rings_without_number_never_wait(pair: tuple[Notifier, Notifier]) -> None:
    """A full bell has been rung already; one clear takes all of it back."""
    listener, ringer = pair
    listener.listen()
    for _ in range(5_000):
        ringer.notify()
    assert rung(listener, PATIENCE_SECONDS)
    if not isinstance(listener, WaiterNotifier):  # its thread may still pass one on
        listener.clear()

        assert not rung(listener)


def test_a_ring_without_a_listener_is_no_error(pair: tuple[Notifier, Notifier]) -> None:
    """Producers may come before the consumer, and stay after it."""
    listener, ringer = pair
    ringer.notify()
    listener.listen()
    listener.close()

    ringer.notify()


def test_closing_twice_is_harmless(pair: tuple[Notifier, Notifier]) -> None:
    """Also for the end that never listened."""
    for bell in (*pair, *pair):
        bell.close()


def test_a_new_listener_replaces_one_that_was_killed(tmp_path: Path) -> None:
    """The socket of the dead stands in the way of nobody; ringers need not notice."""
    ringer = SocketNotifier(tmp_path, "b")
    reader, writer = os.pipe()

    def listening() -> SocketNotifier:
        bell = SocketNotifier(tmp_path, "b")
        bell.listen()
        os.write(writer, b"!")
        return bell

    child = forked(listening)
    os.read(reader, 1)
    killed(child)
    ringer.notify()
    listener = SocketNotifier(tmp_path, "b")
    assert not rung(listener)
    ringer.notify()

    assert rung(listener, PATIENCE_SECONDS)
    for bell in (ringer, listener):
        bell.close()
    for descriptor in (reader, writer):
        os.close(descriptor)
    assert not (tmp_path / "b").exists()


def test_a_socket_may_stand_deep_in_the_file_system(tmp_path: Path) -> None:
    """The address of a socket has room for 107 bytes; the path may be longer."""
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    listener, ringer = SocketNotifier(folder, "b"), SocketNotifier(folder, "b")
    listener.listen()

    ringer.notify()

    assert rung(listener, PATIENCE_SECONDS)
    listener.close()
    ringer.close()


def test_an_eventfd_travels_through_a_socket() -> None:
    """`send_fds` carries the bell; the received descriptor stays the receiver's own."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    listener = EventNotifier()
    socket.send_fds(left, [b"bell"], [listener.fd])
    _, descriptors, _, _ = socket.recv_fds(right, 16, 1)
    ringer = EventNotifier(descriptors[0])
    os.close(descriptors[0])

    ringer.notify()

    assert rung(listener, PATIENCE_SECONDS)
    for thing in (left, right, listener, ringer):
        thing.close()


def test_a_descriptor_that_is_no_eventfd_is_refused() -> None:
    """Ringing a file would write into it."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer, 9_999):
        with pytest.raises(UsageError) as caught:
            EventNotifier(descriptor)

        assert "bell.descriptor" == caught.value.code
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("kind", ["eventfd", "socket"])
def test_a_closed_bell_says_so(kind: str, tmp_path: Path) -> None:
    """Instead of ringing whoever got the descriptor's number next."""
    bell: Notifier = EventNotifier() if kind == "eventfd" else SocketNotifier(tmp_path, "b")
    bell.close()

    with pytest.raises(UsageError) as caught:
        bell.notify()

    assert "bell.closed" == caught.value.code
