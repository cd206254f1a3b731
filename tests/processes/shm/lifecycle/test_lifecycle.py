"""Lifecycles under death: killed inside, stopped, forked, replaced. In every mode."""

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


def inside(region: MemoryRegion) -> Work:
    """A child that joins, enters, says so, and leaves when it is told to."""

    def work(line: Line) -> None:
        life = Lifecycle(region)
        permit = life.enter()
        line.send((life.slot, life.generation, os.getpid()))
        line.recv()
        line.send(life.exit(permit))

    return work


def asleep_on_a_shared_futex() -> bool:
    """Whether the thread of a waiting event loop sleeps where only a wake ends it (its futex is not a private one)."""
    for thread in threading.enumerate():
        if thread.name == "interlock-closed":
            call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
            return len(call) > 2 and call[2] == "0x0"
    return False


@pytest.mark.parametrize("reap", [True, False])
def test_a_process_killed_inside_does_not_hold_the_drain(child: Start, shared: MemoryRegion, reap: bool) -> None:
    """Its count is void, reaped or not, and the report names it."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    slot, generation, pid = started.heard()
    started.kill(reap=reap)
    report = life.drain(timeout=PATIENCE_SECONDS).wait()

    assert report.closed
    assert (Participant(slot=slot, generation=generation, pid=pid, permits=1),) == report.reclaimed
    assert () == report.still_inside
    assert report.closed_by is not None
    assert (life.slot, os.getpid()) == (report.closed_by.slot, report.closed_by.pid)


def test_a_death_during_the_drain_is_noticed(child: Start, shared: MemoryRegion) -> None:
    """The waiter is the reaper: nobody else is there to notice."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    started.heard()
    drain = life.drain(timeout=PATIENCE_SECONDS)
    assert not life.wait_closed(timeout=0.01)
    started.kill(reap=False)

    assert drain.wait().closed


async def test_an_event_loop_hears_of_a_death_by_its_pidfd(child: Start, shared: MemoryRegion) -> None:
    """Nobody has to ask: the end of a known owner is an event of the loop."""
    ended = asyncio.Event()
    Lifecycle(shared).start()
    started = child(inside(shared))
    slot, *_ = started.heard()
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


async def test_a_drain_in_an_event_loop_outlives_a_death(child: Start, shared: MemoryRegion) -> None:
    """The thread of the wait is asleep when it happens; its next look finds it."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    started.heard()
    waiting = asyncio.ensure_future(life.drain(timeout=PATIENCE_SECONDS))
    await asyncio.sleep(0)  # the task begins, and with it its thread
    await asyncio.to_thread(until, asleep_on_a_shared_futex, "the sleep of the waiting thread")
    started.kill(reap=False)

    assert (await waiting).closed


def test_a_stopped_process_is_alive_and_the_report_names_it(child: Start, shared: MemoryRegion) -> None:
    """A drain is bounded by its own time, never by a guess about the other."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    slot, generation, pid = started.heard()
    started.stop()
    report = life.drain(timeout=0.05).wait()

    assert (False, Phase.DRAINING) == (report.closed, report.phase)
    assert (Participant(slot=slot, generation=generation, pid=pid, permits=1),) == report.still_inside
    assert () == report.reclaimed
    started.go_on()
    started.tell()
    assert started.heard()
    assert life.wait_closed(timeout=PATIENCE_SECONDS)


def test_whoever_takes_the_slot_of_a_dead_process_begins_at_zero(child: Start, shared: MemoryRegion) -> None:
    """With a new generation; the count that the dead one left is not its own."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    slot, generation, _ = started.heard()
    started.kill()
    newcomer = Lifecycle(shared)

    assert (slot, generation + 1, 0) == (newcomer.slot, newcomer.generation, newcomer.permits)
    life.drain(timeout=0)
    assert Phase.CLOSED is life.phase


def test_a_newcomer_on_a_dead_slot_scans_for_those_who_took_it_for_alive(child: Start, shared: MemoryRegion) -> None:
    """A scan that saw its slot counted and held stopped there; the newcomer's is then the last."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    slot, *_ = started.heard()
    assert life.drain(timeout=0).started
    started.kill()
    newcomer = Lifecycle(shared)

    assert slot == newcomer.slot
    assert Phase.CLOSED is newcomer.phase


def test_every_slot_is_taken_once(shared: MemoryRegion) -> None:
    """The fifth of four is told; a slot that was left is free again."""
    lives = [Lifecycle(shared) for _ in range(4)]
    with pytest.raises(UnavailableError) as caught:
        Lifecycle(shared)
    lives[2].leave()

    assert "lifecycle.slots" == caught.value.code
    assert [0, 1, 2, 3] == [life.slot for life in lives]
    assert (2, 2) == ((again := Lifecycle(shared)).slot, again.generation)


def test_who_is_inside_cannot_leave(shared: MemoryRegion) -> None:
    """It would be taken for dead, and the region closed around it."""
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


def test_closing_the_region_keeps_those_inside_safe(shared: MemoryRegion) -> None:
    """The slot is held by the lifecycle, not by the region object."""
    region = MemoryRegion.from_fd(shared.fd)
    life = Lifecycle(region)
    life.start()
    permit = life.enter()
    region.close()
    other = Lifecycle(shared)
    report = other.drain(timeout=0.01).wait()

    assert [life.slot] == [each.slot for each in report.still_inside]
    assert life.exit(permit)


def test_a_forked_child_has_no_place_of_its_own(child: Start, shared: MemoryRegion) -> None:
    """Every call of the inherited object raises; a new one joins."""
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

    assert 1 == started.heard()
    assert 0 == started.ended()
    assert 0 == life.permits
    assert life.enter().slot == 0


def test_a_forked_child_does_not_keep_a_dead_parent_inside(child: Start, shared: MemoryRegion) -> None:
    """It inherits mapping and descriptors; the parent's permit dies with the parent."""

    def work(line: Line) -> None:
        life = Lifecycle(shared)
        life.enter()
        grandchild = Child(lambda inner: inner.recv())
        line.send(grandchild.pid)
        line.recv()

    life = Lifecycle(shared)
    life.start()
    started = child(work)
    grandchild = started.heard()
    started.kill()
    try:
        os.kill(grandchild, 0)

        assert life.drain(timeout=PATIENCE_SECONDS).wait().closed
    finally:
        os.kill(grandchild, 9)


def test_exec_inside_a_permit_is_death(child: Start, shared: MemoryRegion) -> None:
    """The program that follows knows nothing of the permit."""

    def work(line: Line) -> None:
        Lifecycle(shared).enter()
        line.send("inside")
        line.recv()
        os.execv("/bin/sleep", ["sleep", "30"])

    life = Lifecycle(shared)
    life.start()
    started = child(work)
    started.heard()
    started.tell()

    assert life.drain(timeout=PATIENCE_SECONDS).wait().closed
    os.kill(started.pid, 0)


def test_participants_are_those_alive(child: Start, shared: MemoryRegion) -> None:
    """With their permits; the dead are not among them."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    slot, generation, pid = started.heard()
    me = Participant(slot=life.slot, generation=life.generation, pid=os.getpid())

    assert (me, Participant(slot=slot, generation=generation, pid=pid, permits=1)) == life.participants()
    started.kill()
    assert (me,) == life.participants()


def test_a_permit_outlives_the_names_of_its_lifecycle(shared: MemoryRegion) -> None:
    """Whoever holds only the permit still holds the slot."""
    other = Lifecycle(shared)
    other.start()
    permit = Lifecycle(shared).enter()
    report = other.drain(timeout=0.01).wait()

    assert [permit.slot] == [each.slot for each in report.still_inside]
    with permit:
        pass
    assert Phase.CLOSED is other.phase


def test_the_state_word_is_laid_out_as_documented(shared: MemoryRegion) -> None:
    """Phase in the high half; the closer, slot and generation, in the low one."""
    Lifecycle(shared).leave()
    first = Lifecycle(shared)
    second = Lifecycle(shared)
    second.start()
    assert 1 << 32 == shared.words.load(STATE)
    second.drain(timeout=0)

    assert (0, 2) == (first.slot, first.generation)
    assert 4 << 32 | 1 << 20 | 1 == shared.words.load(STATE)
    assert "CLOSED slot=1 generation=1" in repr(second)


def test_a_killed_drainer_leaves_nobody_waiting(child: Start, shared: MemoryRegion) -> None:
    """It moved the phase and died before it could scan or wake."""

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
    started.heard()
    started.kill(reap=False)
    thread.join()

    assert [True] == waiting


class Hooked:
    """Words that call something right after the first addition, as another process would come between."""

    def __init__(self, words: Words, hook: Callable[[], object]) -> None:
        self._words = words
        self._hook = hook

    def __getattr__(self, name: str) -> object:
        return getattr(self._words, name)

    def add(self, offset: int, delta: int) -> int:
        """Adds, then lets the other in."""
        before = self._words.add(offset, delta)
        hook, self._hook = self._hook, lambda: None
        hook()
        return before


def test_an_enter_that_is_refused_in_passing_closes_what_it_hid(shared: MemoryRegion) -> None:
    """Its passing count hid zero from the drainer's scan, so it is the one that scans."""
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


def test_a_storm_of_kills_closes_every_time(child: Start, mode: str) -> None:
    """Processes enter and leave as fast as they can and are killed anywhere; the drain always ends, once."""
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
                each.heard()
            started[0].kill(reap=False)
            drain = life.drain(timeout=PATIENCE_SECONDS)
            started[1].kill(reap=False)
            report = drain.wait()

            assert report.closed
            assert 1 == runs.load()
            assert [0, 0] == [each.ended() for each in started[2:]]


def test_a_waiter_that_comes_after_the_death_does_not_wait(child: Start, shared: MemoryRegion) -> None:
    """It looks before it sleeps, even when it has no time to sleep."""
    life = Lifecycle(shared)
    life.start()
    started = child(inside(shared))
    started.heard()
    life.drain(timeout=0)
    started.kill()

    assert life.wait_closed(timeout=0)
