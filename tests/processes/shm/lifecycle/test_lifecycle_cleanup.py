"""The closing of a lifecycle: one cleanup, in one living process, beside the event loop. In every mode."""

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
    """Exactly once when nobody is killed, in the process that the report names."""
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
        each.heard()
    drain = life.drain(timeout=PATIENCE_SECONDS)
    for each in started:
        each.tell()
    closers = [slot for closed, slot in (each.heard() for each in started) if closed]
    report = drain.wait()

    assert report.closed
    assert 1 == runs.load()
    assert report.closed_by is not None
    assert closers in ([], [report.closed_by.slot])  # none, when a waiter was quicker than the last exit
    assert [0, 0, 0] == [each.ended() for each in started]


def test_a_closer_killed_in_its_cleanup_is_replaced(child: Start, shared: MemoryRegion) -> None:
    """The cleanup runs again, from its beginning, in a process that lives; never in two at a time."""
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
    assert "cleaning" == started.heard()
    life = Lifecycle(shared, cleanup=lambda: runs.add(10))
    assert not life.wait_closed(timeout=0.01)
    assert Phase.CLOSING is life.phase
    assert 1 == runs.load()
    started.kill(reap=False)

    assert life.wait_closed(timeout=PATIENCE_SECONDS)
    assert 11 == runs.load()


def test_a_newcomer_in_the_slot_of_a_dead_closer_is_not_taken_for_it(child: Start, shared: MemoryRegion) -> None:
    """The closer is named by slot and generation; otherwise the region would be CLOSING for ever."""

    def work(line: Line) -> None:
        def stuck() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=stuck)
        assert 0 == life.slot
        life.start()
        life.drain()

    started = child(work)
    started.heard()
    watcher = Lifecycle(shared)
    started.kill()
    assert Phase.CLOSING is watcher.phase
    newcomer = Lifecycle(shared, cleanup=lambda: None)

    assert 0 == newcomer.slot
    assert Phase.CLOSED is newcomer.phase


def test_a_live_closer_is_left_alone(child: Start, shared: MemoryRegion) -> None:
    """However long its cleanup takes; waiters report, and newcomers wait."""

    def work(line: Line) -> None:
        def slow() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=slow)
        life.start()
        life.drain()

    started = child(work)
    started.heard()
    runs: list[int] = []
    life = Lifecycle(shared, cleanup=lambda: runs.append(1))
    report = life.drain(timeout=0.02).wait()

    assert (False, Phase.CLOSING, False) == (report.closed, report.phase, report.waits_for_cleanup)
    started.tell()
    assert life.wait_closed(timeout=PATIENCE_SECONDS)
    assert [] == runs


def test_without_anybody_who_can_clean_up_nothing_closes(shared: MemoryRegion) -> None:
    """The region stays draining, the report says why, and a process with a cleanup closes it by joining."""
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
    """Whoever brings one counts on it; the exit of another process leaves the closing to it."""
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


class Wakes:
    """Words that count how often somebody is woken."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._words, name)

    def wake(self, half: int) -> None:
        """Counts, and wakes."""
        self.count += 1
        self._words.wake(half)


def test_a_waiter_that_cannot_close_wakes_nobody(shared: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two waiters without a cleanup would wake each other for ever; whoever drains or leaves wakes those with one."""
    shared.require_cleanup()
    life = Lifecycle(shared)
    life.start()
    life.drain(timeout=0)
    wakes = Wakes(shared.words)
    monkeypatch.setattr(life, "_words", wakes)

    assert not life.wait_closed(timeout=0.01)
    assert 0 == wakes.count
    assert not life.try_close()
    assert 1 == wakes.count


def test_a_dead_closer_is_not_replaced_by_one_without_a_cleanup(child: Start, shared: MemoryRegion) -> None:
    """What the closer left undone would stay undone; the report says what is missing."""

    def work(line: Line) -> None:
        def stuck() -> None:
            line.send("cleaning")
            line.recv()

        life = Lifecycle(shared, cleanup=stuck)
        life.start()
        life.drain()

    started = child(work)
    started.heard()
    life = Lifecycle(shared)
    started.kill()
    report = life.drain(timeout=0.01).wait()

    assert (False, Phase.CLOSING, True) == (report.closed, report.phase, report.waits_for_cleanup)
    runs: list[int] = []
    assert Phase.CLOSED is Lifecycle(shared, cleanup=lambda: runs.append(1)).phase
    assert [1] == runs


def test_an_exception_of_the_cleanup_is_kept_for_the_report(shared: MemoryRegion) -> None:
    """The region closes all the same: CLOSING must not last for ever."""

    def failing() -> None:
        raise ConnectionError("the pool is gone")

    life = Lifecycle(shared, cleanup=failing)
    life.start()
    report = life.drain(timeout=PATIENCE_SECONDS).wait()

    assert report.closed
    assert isinstance(report.cleanup_error, ConnectionError)


def test_an_interrupted_cleanup_closes_and_goes_on(shared: MemoryRegion) -> None:
    """Ctrl-C in a cleanup reaches the caller; the others do not wait for ever."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    life = Lifecycle(shared, cleanup=interrupted)
    life.start()
    with pytest.raises(KeyboardInterrupt):
        life.drain(timeout=1)

    assert Phase.CLOSED is life.phase


async def test_in_an_event_loop_the_cleanup_runs_beside_it(shared: MemoryRegion) -> None:
    """The loop goes on while the cleanup takes its time, whoever begins it: a drain or an exit."""
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
    """`async with` ends when the cleanup has, and the loop was free meanwhile."""
    where: list[int] = []
    life = Lifecycle(shared, cleanup=lambda: where.append(threading.get_ident()))
    life.start()
    async with life.enter():
        life.drain(timeout=0)

    assert Phase.CLOSED is life.phase
    assert 1 == len(where)
    assert threading.get_ident() not in where


def test_an_exit_while_the_loop_is_being_closed_cleans_up_itself(shared: MemoryRegion) -> None:
    """The loop takes no more work by then; the cleanup is not lost with it."""
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


async def test_what_goes_wrong_in_a_scan_beside_the_loop_is_raised(
    shared: MemoryRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`async with` tells it to whoever left last."""
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


def test_nobody_leaves_during_his_own_cleanup(shared: MemoryRegion) -> None:
    """Another process would take over, and run a second cleanup beside the first."""
    codes: list[str] = []

    def leaving() -> None:
        with pytest.raises(UsageError) as caught:
            life.leave()
        codes.append(caught.value.code)

    life = Lifecycle(shared, cleanup=leaving)
    life.start()

    assert life.drain(timeout=PATIENCE_SECONDS).wait().cleanup_error is None
    assert ["lifecycle.closing"] == codes


def test_nobody_is_inside_when_the_cleanup_runs(child: Start, mode: str) -> None:
    """Processes enter and leave as fast as they can; each says so in a word, and the cleanup reads it."""
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
                each.heard()
            report = life.drain(timeout=PATIENCE_SECONDS).wait()

            assert report.closed
            assert [0] == seen
            assert [0, 0, 0] == [each.ended() for each in started]
