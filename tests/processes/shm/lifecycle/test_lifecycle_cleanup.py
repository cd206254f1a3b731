"""The end of a lifecycle: one cleanup, in one live process, outside of the event loop. In every mode."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError, UsageError
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import AtomicWord, Words
from tests.processes.shm.processes import Child, Line, Work
from tests.support.eventually import PATIENCE_SECONDS

Start = Callable[[Work], Child]


def test_the_cleanup_runs_in_one_process_of_many(child: Start, shared: MemoryRegion) -> None:
    """Once, in the process that the report names."""
    runs = shared.word("runs")

    def work(line: Line) -> None:
        life = Lifecycle(shared, cleanup=lambda: runs.add(1))
        permit = life.enter()
        line.send("inside")
        line.recv()
        line.send((life.exit(permit), life.slot))
        assert life.wait_closed(timeout=PATIENCE_SECONDS)

    life = Lifecycle(shared, cleanup=lambda: runs.add(1))
    life.start()
    started = [child(work) for _ in range(3)]
    for each in started:
        each.receive()
    drain = life.drain(timeout=PATIENCE_SECONDS)
    for each in started:
        each.send()
    closers = [slot for closed, slot in (each.receive() for each in started) if closed]
    report = drain.wait()

    assert report.closed
    assert 1 == runs.load()
    assert report.closed_by is not None
    assert closers in ([], [report.closed_by.slot])  # none, when a waiter was quicker than the last exit
    assert [0, 0, 0] == [each.wait() for each in started]


def test_a_closer_killed_in_its_cleanup_is_replaced(child: Start, shared: MemoryRegion) -> None:
    """A live process runs the cleanup again; it never runs twice at the same time."""
    runs = shared.word("runs")

    def work(line: Line) -> None:
        def stuck() -> None:
            runs.add(1)
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=stuck)
        life.start()
        life.drain()

    started = child(work)
    assert "cleaning" == started.receive()
    life = Lifecycle(shared, cleanup=lambda: runs.add(10))
    assert not life.wait_closed(timeout=0.01)
    assert Phase.CLOSING is life.phase
    assert 1 == runs.load()
    started.kill(reap=False)

    assert life.wait_closed(timeout=PATIENCE_SECONDS)
    assert 11 == runs.load()


def test_a_new_process_in_the_slot_of_a_dead_closer_is_not_the_closer(child: Start, shared: MemoryRegion) -> None:
    """The closer has a generation; otherwise the phase would stay CLOSING."""

    def work(line: Line) -> None:
        def stuck() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=stuck)
        assert 0 == life.slot
        life.start()
        life.drain()

    started = child(work)
    started.receive()
    watcher = Lifecycle(shared)
    started.kill()
    assert Phase.CLOSING is watcher.phase
    joined = Lifecycle(shared, cleanup=lambda: None)

    assert 0 == joined.slot
    assert Phase.CLOSED is joined.phase


def test_a_live_closer_is_not_replaced(child: Start, shared: MemoryRegion) -> None:
    """However long its cleanup takes."""

    def work(line: Line) -> None:
        def slow() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=slow)
        life.start()
        life.drain()

    started = child(work)
    started.receive()
    runs: list[int] = []
    life = Lifecycle(shared, cleanup=lambda: runs.append(1))
    report = life.drain(timeout=0.02).wait()

    assert (False, Phase.CLOSING, False) == (report.closed, report.phase, report.waits_for_cleanup)
    started.send()
    assert life.wait_closed(timeout=PATIENCE_SECONDS)
    assert [] == runs


def test_a_region_without_a_cleanup_stays_draining(shared: MemoryRegion) -> None:
    """The report says why; a process that joins with a cleanup closes it."""
    shared.require_cleanup()
    life = Lifecycle(shared)
    life.start()
    report = life.drain(timeout=0.01).wait()

    assert (False, Phase.DRAINING, True) == (report.closed, report.phase, report.waits_for_cleanup)
    runs: list[int] = []
    cleaner = Lifecycle(shared, cleanup=lambda: runs.append(1))
    assert [1] == runs
    assert Phase.CLOSED is cleaner.phase


def test_joining_with_a_cleanup_makes_it_required(shared: MemoryRegion) -> None:
    """The exit of a process without one leaves the closing to the others."""
    runs: list[int] = []
    cleaner = Lifecycle(shared, cleanup=lambda: runs.append(1))
    other = Lifecycle(shared)
    other.start()
    permit = other.enter()
    cleaner.drain(timeout=0)

    assert shared.requires_cleanup
    assert not other.exit(permit)
    assert [] == runs
    assert cleaner.wait_closed(timeout=PATIENCE_SECONDS)
    assert [1] == runs


class CountedWakes:
    """Words that count wakes."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._words, name)

    def wake(self, half: int) -> None:
        """Count, and wake."""
        self.count += 1
        self._words.wake(half)


def test_a_waiter_that_cannot_close_wakes_no_other_waiter(
    shared: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two waiters without a cleanup would wake each other without end."""
    shared.require_cleanup()
    life = Lifecycle(shared)
    life.start()
    life.drain(timeout=0)
    wakes = CountedWakes(shared.words)
    monkeypatch.setattr(life, "_words", wakes)

    assert not life.wait_closed(timeout=0.01)
    assert 0 == wakes.count
    assert not life.try_close()
    assert 1 == wakes.count


def test_a_process_without_a_cleanup_does_not_replace_a_dead_closer(child: Start, shared: MemoryRegion) -> None:
    """The report says what is missing."""

    def work(line: Line) -> None:
        def stuck() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=stuck)
        life.start()
        life.drain()

    started = child(work)
    started.receive()
    life = Lifecycle(shared)
    started.kill()
    report = life.drain(timeout=0.01).wait()

    assert (False, Phase.CLOSING, True) == (report.closed, report.phase, report.waits_for_cleanup)
    runs: list[int] = []
    assert Phase.CLOSED is Lifecycle(shared, cleanup=lambda: runs.append(1)).phase
    assert [1] == runs


def test_an_exception_of_the_cleanup_is_kept_for_the_report(shared: MemoryRegion) -> None:
    """The region closes: the phase must not stay CLOSING."""

    def failing() -> None:
        raise ConnectionError("the pool is closed")

    life = Lifecycle(shared, cleanup=failing)
    life.start()
    report = life.drain(timeout=PATIENCE_SECONDS).wait()

    assert report.closed
    assert isinstance(report.cleanup_error, ConnectionError)


def test_an_interrupted_cleanup_closes_and_raises(shared: MemoryRegion) -> None:

    def interrupted() -> None:
        raise KeyboardInterrupt

    life = Lifecycle(shared, cleanup=interrupted)
    life.start()
    with pytest.raises(KeyboardInterrupt):
        life.drain(timeout=1)

    assert Phase.CLOSED is life.phase


async def test_in_an_event_loop_the_cleanup_runs_in_a_thread(shared: MemoryRegion) -> None:
    """After a drain and after an exit."""
    release = threading.Event()
    where: list[int] = []

    def slow() -> None:
        where.append(threading.get_ident())
        assert release.wait(PATIENCE_SECONDS)

    life = Lifecycle(shared, cleanup=slow)
    life.start()
    drain = asyncio.ensure_future(life.drain(timeout=PATIENCE_SECONDS))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not drain.done()
    release.set()
    report = await drain

    assert report.closed
    assert [threading.get_ident()] != where


async def test_the_last_exit_in_a_coroutine_waits_for_its_cleanup(shared: MemoryRegion) -> None:
    """`async with` ends after the cleanup, without blocking the loop."""
    where: list[int] = []
    life = Lifecycle(shared, cleanup=lambda: where.append(threading.get_ident()))
    life.start()
    async with life.enter():
        life.drain(timeout=0)

    assert Phase.CLOSED is life.phase
    assert 1 == len(where)
    assert threading.get_ident() not in where


def test_an_exit_while_the_loop_closes_runs_the_cleanup_directly(shared: MemoryRegion) -> None:
    """The loop accepts no work by then."""
    runs: list[int] = []
    life = Lifecycle(shared, cleanup=lambda: runs.append(1))
    life.start()

    async def last() -> None:
        permit = life.enter()
        life.drain(timeout=0)
        await asyncio.get_running_loop().shutdown_default_executor()
        life.exit(permit)

    asyncio.run(last())

    assert [1] == runs
    assert Phase.CLOSED is life.phase


async def test_an_error_of_a_background_scan_is_raised(shared: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the `async with` of the last exit."""
    life = Lifecycle(shared, cleanup=lambda: None)
    life.start()

    def broken(slot: int) -> bool:
        raise UnavailableError("the lock is held")

    permit = life.enter()
    life.drain(timeout=0)
    other = Lifecycle(shared)
    shared.words.store(shared.slot_line(other.slot), 1)
    monkeypatch.setattr(life, "_is_alive", broken)

    with pytest.raises(UnavailableError):
        async with permit:
            pass


def test_a_process_cannot_leave_during_its_cleanup(shared: MemoryRegion) -> None:
    """Another process would take over and run a second one."""
    codes: list[str] = []

    def leaving() -> None:
        with pytest.raises(UsageError) as caught:
            life.leave()
        codes.append(caught.value.code)

    life = Lifecycle(shared, cleanup=leaving)
    life.start()

    assert life.drain(timeout=PATIENCE_SECONDS).wait().cleanup_error is None
    assert ["lifecycle.closing"] == codes


def test_no_process_is_inside_when_the_cleanup_runs(child: Start, mode: str) -> None:
    """Each process records in a word that it is inside, and the cleanup reads it."""
    for _ in range(4):
        with MemoryRegion.create(slots=8) as region:
            inside_now = region.word("inside")
            seen: list[int] = []
            life = Lifecycle(region, cleanup=lambda word=inside_now, seen=seen: seen.append(word.load()))  # type: ignore[misc]  # bound now
            life.start()

            def work(line: Line, region: MemoryRegion = region, word: AtomicWord = inside_now) -> None:
                there = Lifecycle(region)
                line.send("ready")
                while (permit := there.try_enter()) is not None:
                    word.add(1)
                    word.add(-1)
                    there.exit(permit)

            started = [child(work) for _ in range(3)]
            for each in started:
                each.receive()
            report = life.drain(timeout=PATIENCE_SECONDS).wait()

            assert report.closed
            assert [0] == seen
            assert [0, 0, 0] == [each.wait() for each in started]
