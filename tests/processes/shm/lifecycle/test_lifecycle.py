"""Lifecycles when processes die: killed inside, stopped, forked, replaced. In every mode."""

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.shm.lifecycle.drain import Participant, _ExitWatcher
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase, PlainPermitCounter
from interlock.shm.memory.region import STATE, MemoryRegion
from interlock.shm.memory.words import Words
from tests.processes.shm.processes import Child, Line, Work
from tests.processes.shm.queues import until
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]


def enter_and_wait(region: MemoryRegion) -> Work:
    """Join, enter, report it, and exit when asked."""

    def work(line: Line) -> None:
        life = Lifecycle(region)
        permit = life.enter()
        line.send((life.slot, life.generation, os.getpid()))
        line.recv()
        line.send(life.exit(permit))

    return work


def asleep_on_a_shared_futex() -> bool:
    """Return whether the waiting thread of an event loop sleeps on the shared futex, which only a wake ends."""
    for thread in threading.enumerate():
        if thread.name == "interlock-closed":
            call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
            return len(call) > 2 and call[2] == "0x0"
    return False


@pytest.mark.parametrize("reap", [True, False])
def test_a_process_killed_inside_does_not_block_the_drain(child: Start, shared: MemoryRegion, reap: bool) -> None:
    """Its count is ignored, also while it is a zombie, and the report names it."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    slot, generation, pid = started.receive()
    started.kill(reap=reap)
    report = life.drain(timeout=PATIENCE_SECONDS).wait()

    assert report.closed
    assert (Participant(slot=slot, generation=generation, pid=pid, permits=1),) == report.reclaimed
    assert () == report.still_inside
    assert report.closed_by is not None
    assert (life.slot, os.getpid()) == (report.closed_by.slot, report.closed_by.pid)


def test_a_death_during_the_drain_is_noticed(child: Start, shared: MemoryRegion) -> None:
    """The waiter notices it."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    started.receive()
    drain = life.drain(timeout=PATIENCE_SECONDS)
    assert not life.wait_closed(timeout=0.01)
    started.kill(reap=False)

    assert drain.wait().closed


async def test_an_event_loop_notices_a_death_by_its_pidfd(child: Start, shared: MemoryRegion) -> None:
    ended = asyncio.Event()
    Lifecycle(shared).start()
    started = child(enter_and_wait(shared))
    slot, *_ = started.receive()
    owner = shared.words.load(shared.slot_line(slot) + 16)
    deaths = _ExitWatcher(asyncio.get_running_loop(), lambda: [owner], ended.set)
    try:
        assert started.pid == owner >> 32
        assert not ended.is_set()
        started.kill(reap=False)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
    finally:
        deaths.close()


async def test_a_drain_in_an_event_loop_survives_a_death(child: Start, shared: MemoryRegion) -> None:
    """The waiting thread sleeps when it happens, and finds it in its next round."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    started.receive()
    waiting = asyncio.ensure_future(life.drain(timeout=PATIENCE_SECONDS))
    await asyncio.sleep(0)  # the task and its thread start
    await asyncio.to_thread(until, asleep_on_a_shared_futex, "the sleep of the waiting thread")
    started.kill(reap=False)

    assert (await waiting).closed


def test_a_stopped_process_is_alive_and_the_report_names_it(child: Start, shared: MemoryRegion) -> None:
    """The drain ends at its timeout."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    slot, generation, pid = started.receive()
    started.stop()
    report = life.drain(timeout=0.05).wait()

    assert (False, Phase.DRAINING) == (report.closed, report.phase)
    assert (Participant(slot=slot, generation=generation, pid=pid, permits=1),) == report.still_inside
    assert () == report.reclaimed
    started.resume()
    started.send()
    assert started.receive()
    assert life.wait_closed(timeout=PATIENCE_SECONDS)


def test_a_slot_of_a_dead_process_is_reused_with_count_zero(child: Start, shared: MemoryRegion) -> None:
    """With a new generation."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    slot, generation, _ = started.receive()
    started.kill()
    joined = Lifecycle(shared)

    assert (slot, generation + 1, 0) == (joined.slot, joined.generation, joined.permits)
    life.drain(timeout=0)
    assert Phase.CLOSED is life.phase


def test_a_process_that_joins_on_a_dead_slot_scans(child: Start, shared: MemoryRegion) -> None:
    """An earlier scan may have stopped because it saw the new process alive."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    slot, *_ = started.receive()
    assert life.drain(timeout=0).started
    started.kill()
    joined = Lifecycle(shared)

    assert slot == joined.slot
    assert Phase.CLOSED is joined.phase


def test_a_slot_has_one_owner(shared: MemoryRegion) -> None:
    """A slot is free again after its owner has left."""
    lives = [Lifecycle(shared) for _ in range(4)]
    with pytest.raises(UnavailableError) as caught:
        Lifecycle(shared)
    lives[2].leave()

    assert "lifecycle.slots" == caught.value.code
    assert [0, 1, 2, 3] == [life.slot for life in lives]
    assert (2, 2) == ((again := Lifecycle(shared)).slot, again.generation)


def test_a_process_with_permits_cannot_leave(shared: MemoryRegion) -> None:
    """It would look dead, and the region would close."""
    with Lifecycle(shared) as life:
        life.start()
        permit = life.enter()
        with pytest.raises(UsageError) as caught:
            life.leave()
        assert "lifecycle.inside" == caught.value.code
        life.exit(permit)
    life.leave()

    calls: list[Callable[[], object]] = [
        life.start,
        life.abort,
        life.drain,
        life.wait_closed,
        life.try_close,
        life.enter,
    ]
    for call in (*calls, life.enter_unchecked, life.exit_unchecked, life.participants):
        with pytest.raises(UsageError) as left:
            call()
        assert "lifecycle.left" == left.value.code


def test_closing_the_region_keeps_the_slot(shared: MemoryRegion) -> None:
    """The lifecycle owns the slot, not the region object."""
    region = MemoryRegion.from_fd(shared.fd)
    life = Lifecycle(region)
    life.start()
    permit = life.enter()
    region.close()
    other = Lifecycle(shared)
    report = other.drain(timeout=0.01).wait()

    assert [life.slot] == [each.slot for each in report.still_inside]
    assert life.exit(permit)


def test_a_forked_child_must_join_itself(child: Start, shared: MemoryRegion) -> None:
    """Every call of the inherited object raises."""
    life = Lifecycle(shared)
    life.start()

    def work(line: Line) -> None:
        calls: list[Callable[[], object]] = [
            life.try_enter, life.enter, life.enter_unchecked, life.exit_unchecked, life.start, life.drain,
            life.wait_closed, life.try_close,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(UsageError) as caught:
                call()
            assert "permit.forked" == caught.value.code
        life.leave()  # the parent's slot stays the parent's
        own = Lifecycle(shared)
        assert own.slot != life.slot
        with own.enter():
            line.send(own.slot)

    started = child(work)

    assert 1 == started.receive()
    assert 0 == started.wait()
    assert 0 == life.permits
    assert life.enter().slot == 0


def test_a_forked_child_does_not_keep_a_dead_parent_inside(child: Start, shared: MemoryRegion) -> None:
    """It inherits mapping and descriptors."""

    def work(line: Line) -> None:
        life = Lifecycle(shared)
        life.enter()
        grandchild = Child(lambda inner: inner.recv())
        line.send(grandchild.pid)
        line.recv()

    life = Lifecycle(shared)
    life.start()
    started = child(work)
    grandchild = started.receive()
    started.kill()
    try:
        os.kill(grandchild, 0)

        assert life.drain(timeout=PATIENCE_SECONDS).wait().closed
    finally:
        os.kill(grandchild, 9)


def test_exec_inside_a_permit_counts_as_death(child: Start, shared: MemoryRegion) -> None:

    def work(line: Line) -> None:
        Lifecycle(shared).enter()
        line.send("inside")
        line.recv()
        os.execv("/bin/sleep", ["sleep", "30"])

    life = Lifecycle(shared)
    life.start()
    started = child(work)
    started.receive()
    started.send()

    assert life.drain(timeout=PATIENCE_SECONDS).wait().closed
    os.kill(started.pid, 0)


def test_participants_are_the_live_processes(child: Start, shared: MemoryRegion) -> None:
    """With their permits."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    slot, generation, pid = started.receive()
    me = Participant(slot=life.slot, generation=life.generation, pid=os.getpid())

    assert (me, Participant(slot=slot, generation=generation, pid=pid, permits=1)) == life.participants()
    started.kill()
    assert (me,) == life.participants()


def test_a_permit_keeps_its_lifecycle_alive(shared: MemoryRegion) -> None:
    other = Lifecycle(shared)
    other.start()
    permit = Lifecycle(shared).enter()
    report = other.drain(timeout=0.01).wait()

    assert [permit.slot] == [each.slot for each in report.still_inside]
    with permit:
        pass
    assert Phase.CLOSED is other.phase


def test_the_state_word_has_the_documented_layout(shared: MemoryRegion) -> None:
    """Phase in the high half; slot and generation of the closer in the low half."""
    Lifecycle(shared).leave()
    first = Lifecycle(shared)
    second = Lifecycle(shared)
    second.start()
    assert 1 << 32 == shared.words.load(STATE)
    second.drain(timeout=0)

    assert (0, 2) == (first.slot, first.generation)
    assert 4 << 32 | 1 << 20 | 1 == shared.words.load(STATE)
    assert "CLOSED slot=1 generation=1" in repr(second)


def test_a_killed_drainer_leaves_no_waiter_waiting(child: Start, shared: MemoryRegion) -> None:
    """It set the phase and died before it scanned or woke the waiters."""

    def work(line: Line) -> None:
        Lifecycle(shared)._counter.drain()
        line.send("draining")
        line.recv()

    life = Lifecycle(shared)
    life.start()
    waiting: list[bool] = []
    thread = threading.Thread(target=lambda: waiting.append(life.wait_closed(timeout=PATIENCE_SECONDS)))
    thread.start()
    started = child(work)
    started.receive()
    started.kill(reap=False)
    thread.join()

    assert [True] == waiting


class Hooked:
    """Words that call a function after the first addition, as if another process ran in between."""

    def __init__(self, words: Words, hook: Callable[[], object]) -> None:
        self._words = words
        self._hook = hook

    def __getattr__(self, name: str) -> object:
        return getattr(self._words, name)

    def add(self, offset: int, delta: int) -> int:
        """Add, then call the function."""
        before = self._words.add(offset, delta)
        hook, self._hook = self._hook, lambda: None
        hook()
        return before


def test_a_refused_enter_scans_because_its_count_hid_zero(shared: MemoryRegion) -> None:
    life, other = Lifecycle(shared), Lifecycle(shared)
    life.start()
    drained: list[Phase] = []

    def drain() -> None:
        other.drain(timeout=0)
        drained.append(other.phase)

    counter = PlainPermitCounter(
        Hooked(shared.words, drain),  # type: ignore[arg-type]  # what it lacks is looked up in the words
        STATE,
        shared.slot_line(life.slot),
        (shared.epoch, life.slot, life.generation),
        life._refuse,
        life._try_close_without_blocking,
        life._async_exit,
    )

    assert counter.try_enter() is None
    assert [Phase.DRAINING] == drained
    assert Phase.CLOSED is life.phase
    assert 0 == life.permits


def test_a_drain_closes_after_repeated_kills(child: Start, mode: str) -> None:
    """Processes enter and exit repeatedly and are killed at any step."""
    for _ in range(3):
        with MemoryRegion.create(slots=8) as region:
            runs = region.word("runs")
            life = Lifecycle(region, cleanup=partial(runs.add, 1))
            life.start()

            def work(line: Line, region: MemoryRegion = region) -> None:
                there = Lifecycle(region)
                line.send("ready")
                while (permit := there.try_enter()) is not None:
                    there.exit(permit)
                there.wait_closed(timeout=PATIENCE_SECONDS)

            started = [child(work) for _ in range(4)]
            for each in started:
                each.receive()
            started[0].kill(reap=False)
            drain = life.drain(timeout=PATIENCE_SECONDS)
            started[1].kill(reap=False)
            report = drain.wait()

            assert report.closed
            assert 1 == runs.load()
            assert [0, 0] == [each.wait() for each in started[2:]]


def test_a_waiter_that_starts_after_the_death_does_not_wait(child: Start, shared: MemoryRegion) -> None:
    """It scans before it sleeps, even with a timeout of zero."""
    life = Lifecycle(shared)
    life.start()
    started = child(enter_and_wait(shared))
    started.receive()
    life.drain(timeout=0)
    started.kill()

    assert life.wait_closed(timeout=0)
