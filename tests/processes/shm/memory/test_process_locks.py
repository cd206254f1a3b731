"""Which process is alive: the kernel's answer for killed, stopped, forked and unreaped processes."""

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.shm.memory.process_locks import ByteLocks, open_pidfd, owner_word, start_time
from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.processes.shm.queues import until

Start = Callable[[Work], Child]


def test_a_byte_has_one_holder() -> None:
    """Two descriptions of one process exclude each other, as two processes do."""
    with MemoryRegion.create() as region:
        one, two = region.locks(), region.locks()

        assert one.claim(3)
        assert not two.claim(3)
        assert two.is_held(3)
        assert two.claim(4)
        one.release(3)
        assert not two.is_held(3)
        one.close()
        assert two.claim(3)


def test_a_process_must_not_query_its_own_byte() -> None:
    """The query would answer `free`."""
    with MemoryRegion.create() as region:
        locks = region.locks()
        assert locks.claim(0)
        with pytest.raises(AssertionError):
            locks.is_held(0)


def test_a_query_does_not_look_like_a_lock() -> None:
    """A test that locks would look like an owner to the next process that asks."""
    with MemoryRegion.create() as region:
        one, two, three = region.locks(), region.locks(), region.locks()
        for _ in range(3):
            assert not one.is_held(0)
            assert not two.is_held(0)

        assert three.claim(0)


@pytest.mark.parametrize("reap", [True, False])
def test_a_killed_process_holds_no_lock(child: Start, reap: bool) -> None:
    """Also while it is a zombie."""
    with MemoryRegion.create() as region:

        def work(line: Line) -> None:
            locks = region.locks()
            line.send(locks.claim(1))
            line.recv()

        locks = region.locks()
        started = child(work)
        assert started.receive()
        assert locks.is_held(1)
        started.kill(reap=reap)

        assert not locks.is_held(1)


def test_a_stopped_process_is_alive(child: Start) -> None:
    """It may continue at any time."""
    with MemoryRegion.create() as region:

        def holding(line: Line) -> None:
            keep = region.locks()
            line.send(keep.claim(1))
            line.recv()

        locks = region.locks()
        started = child(holding)
        assert started.receive()
        started.stop()

        assert locks.is_held(1)
        started.resume()
        started.kill()
        assert not locks.is_held(1)


def test_a_forked_child_does_not_keep_its_parent_alive(child: Start) -> None:
    """The child inherits the descriptor, and closes it immediately."""
    with MemoryRegion.create() as region:

        def wait_for_message(line: Line) -> None:
            line.send("running")
            line.recv()

        def work(line: Line) -> None:
            locks = region.locks()
            locks.claim(1)
            grandchild = Child(wait_for_message)
            grandchild.receive()  # it runs, so its hooks after the fork have closed what it inherited
            line.send(grandchild.pid)
            line.recv()

        locks = region.locks()
        started = child(work)
        grandchild = started.receive()
        assert locks.is_held(1)
        started.kill()
        try:
            os.kill(grandchild, 0)

            assert not locks.is_held(1)
        finally:
            os.kill(grandchild, 9)


def test_a_forked_child_cannot_use_inherited_locks(child: Start) -> None:
    """A lock through the parent's description would exclude no process."""
    with MemoryRegion.create() as region:
        locks = region.locks()
        assert locks.claim(0)

        def work(line: Line) -> None:
            assert not locks.open
            for call in (locks.claim, locks.is_held, locks.release):
                with pytest.raises(UsageError) as caught:
                    call(0)
                assert "shm.locks_closed" == caught.value.code
            own = region.locks()
            assert own.is_held(0)
            assert not own.claim(0)

        assert 0 == child(work).wait()
        assert locks.open


def test_exec_releases_the_locks(child: Start) -> None:
    """The descriptor is closed on exec."""
    with MemoryRegion.create() as region:

        def work(line: Line) -> None:
            keep = region.locks()
            line.send(keep.claim(1))
            line.recv()
            os.execv("/bin/sleep", ["sleep", "30"])

        locks = region.locks()
        started = child(work)
        assert started.receive()
        started.send()
        until(lambda: not locks.is_held(1), "the end of the lock")

        os.kill(started.pid, 0)


CLONE_NEWPID = 0x20000000


@pytest.mark.skipif(os.geteuid() != 0, reason="NEEDS ROOT: only root makes a pid namespace")
def test_a_process_in_another_pid_namespace_is_seen(child: Start) -> None:
    """Its pid has no meaning here; its lock has."""
    with MemoryRegion.create() as region:

        def work(line: Line) -> None:
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID) != 0:
                line.send("refused")
                return

            def inner(inner_line: Line) -> None:
                locks = region.locks()
                inner_line.send((os.getpid(), locks.claim(1)))
                inner_line.recv()

            grandchild = Child(inner)
            line.send(grandchild.receive())
            line.recv()
            grandchild.kill()
            line.send("killed")

        locks = region.locks()
        started = child(work)
        answer = started.receive()
        if answer == "refused":
            pytest.skip("THIS KERNEL refuses new pid namespaces")

        assert (1, True) == answer
        assert locks.is_held(1)
        started.send()
        assert "killed" == started.receive()
        assert not locks.is_held(1)


def test_a_system_without_ofd_locks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    with MemoryRegion.create() as region, pytest.raises(UnavailableError) as caught:
        ByteLocks(f"/proc/self/fd/{region.fd}")

    assert "shm.no_ofd_locks" == caught.value.code


def test_a_process_is_identified_by_pid_and_start_time() -> None:
    """The start time distinguishes processes that have the same pid one after the other."""
    assert start_time(os.getpid()) > 0
    assert 0 == start_time(2**30)
    assert os.getpid() == owner_word() >> 32


def test_a_pidfd_reports_the_end_of_the_intended_process(child: Start) -> None:
    """Not the end of a later process with the same pid."""
    started = child(lambda line: line.recv())
    owner = started.pid << 32 | start_time(started.pid) & 0xFFFFFFFF
    descriptor = open_pidfd(owner)

    assert descriptor is not None
    os.close(descriptor)
    assert open_pidfd(owner ^ 1) is None
    assert open_pidfd(0) is None
    assert open_pidfd(2**30 << 32) is None


def test_a_byte_that_is_locked_for_a_moment_is_claimed_by_retry() -> None:
    """A byte that stays locked is not."""
    with MemoryRegion.create(slots=2) as region:
        holder, other = region.locks(), region.locks()
        assert holder.claim(5)
        timer = threading.Timer(0.02, holder.release, (5,))
        timer.start()

        assert other.claim_with_retry(5)
        timer.join()
        assert not holder.claim_with_retry(5)
        holder.close()
        other.close()
