"""From an event loop to a thread and back: one answer for each call, in no more threads than allowed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event, Thread, current_thread

import pytest

from interlock.errors import UnavailableError
from interlock.stores.threads.pool import ThreadPool
from tests.support.eventually import PATIENCE_SECONDS


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    """Two at most."""
    made = ThreadPool(2, "test")
    yield made
    made.close()


def threads_refused() -> None:
    """What the system says when there are too many."""
    raise RuntimeError("no more threads")


async def test_an_answer_and_an_error_go_to_whoever_asked(threads: ThreadPool) -> None:
    """The thread continues after both."""

    def fails() -> None:
        raise LookupError("not there")

    assert 5 == await threads.run(lambda: 5)
    with pytest.raises(LookupError, match="not there"):
        await threads.run(fails)
    assert (6, [7, 8, 9]) == (
        await threads.run(lambda: 6),
        await asyncio.gather(*(threads.run(lambda n=n: n) for n in (7, 8, 9))),  # type: ignore[misc]  # bound now
    )


async def test_an_error_that_no_future_takes_is_told_as_another(threads: ThreadPool) -> None:
    """The caller would wait forever."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(threads.run(lambda: next(iter(()))), PATIENCE_SECONDS)


async def test_a_thread_that_the_system_refuses_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no caller waits for it in the end; the next call may get one."""
    threads = ThreadPool(2, "test")
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", lambda self: threads_refused())
        with pytest.raises(UnavailableError) as caught:
            await threads.run(lambda: 1)

    assert ("process.threads", 2) == (caught.value.code, await threads.run(lambda: 2))
    threads.close()


async def test_calls_wait_for_a_running_thread_when_the_system_refuses_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread answers all callers, one after the other."""
    threads = ThreadPool(2, "test")
    await threads.run(lambda: 0)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", lambda self: threads_refused())
        answers = await asyncio.gather(*(threads.run(partial(int, each)) for each in range(20)))
    threads.close()

    assert list(range(20)) == answers


async def test_calls_run_side_by_side_up_to_the_limit(threads: ThreadPool) -> None:
    """A lone caller needs one thread, two at the same time need two, and the third waits its turn."""
    names = {await threads.run(lambda: current_thread().name) for _ in range(5)}
    both = Barrier(2)
    await asyncio.gather(
        threads.run(lambda: both.wait(PATIENCE_SECONDS)), threads.run(lambda: both.wait(PATIENCE_SECONDS))
    )
    more = {*await asyncio.gather(*(threads.run(lambda: current_thread().name) for _ in range(30)))}

    assert ({"test-0"}, True) == (names, more <= {"test-0", "test-1"})


async def test_a_caller_that_is_gone_harms_nobody(threads: ThreadPool) -> None:
    """What it asked for is done all the same."""
    started, go, done = Event(), Event(), Event()

    def rule() -> None:
        started.set()
        go.wait(PATIENCE_SECONDS)
        done.set()

    caller = asyncio.ensure_future(threads.run(rule))
    await threads.run(lambda: started.wait(PATIENCE_SECONDS))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go.set()

    assert await threads.run(lambda: done.wait(PATIENCE_SECONDS))
    assert 1 == await threads.run(lambda: 1)


def test_an_event_loop_that_is_gone_harms_nobody(threads: ThreadPool) -> None:
    """Another one is answered."""
    go = Event()

    async def leave() -> None:
        asked = asyncio.ensure_future(threads.run(lambda: go.wait(PATIENCE_SECONDS)))
        await asyncio.sleep(0)
        asked.cancel()

    asyncio.run(leave())
    go.set()

    assert 1 == asyncio.run(threads.run(lambda: 1))


async def test_closing_waits_for_what_was_asked() -> None:
    """Appends under way end first."""
    threads, done = ThreadPool(2, "test"), list[int]()
    go = Event()

    def rule(number: int) -> None:
        go.wait(PATIENCE_SECONDS)
        done.append(number)

    asked = [asyncio.ensure_future(threads.run(partial(rule, number))) for number in range(6)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.to_thread(threads.close)

    assert [0, 1, 2, 3, 4, 5] == sorted(done)
    await asyncio.gather(*asked)


async def test_a_call_after_the_end_is_refused(threads: ThreadPool) -> None:
    """It would wait forever; a store that closes reports it."""
    other = ThreadPool(2, "other")
    await other.run(lambda: 1)
    await asyncio.to_thread(other.close)
    with pytest.raises(UnavailableError) as raised:
        await other.run(lambda: 2)

    assert "store.closed" == raised.value.code


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
async def test_no_call_is_left_lying_while_a_thread_sleeps(threads: ThreadPool, at_once: int) -> None:
    """Whether it comes before a thread falls asleep, in that moment or after it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for begin in range(0, 600, at_once):
            asked = range(begin, begin + at_once)

            assert [*asked] == await asyncio.gather(*(threads.run(partial(int, each)) for each in asked))


async def test_nobody_is_rung_for_while_all_are_busy(threads: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting calls go to the thread that is done first; signals without a reader would fill the pipe in time."""
    rings: list[None] = []
    ring = threads._wakeup.wake

    def counted() -> None:
        rings.append(None)
        ring()

    monkeypatch.setattr(threads._wakeup, "wake", counted)
    both, go = Barrier(2), Event()
    await asyncio.gather(*(threads.run(lambda: both.wait(PATIENCE_SECONDS)) for _ in range(2)))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while threads._idle < 2:  # noqa: ASYNC110 - a thread that falls asleep has no signal
            await asyncio.sleep(0)
    busy = [asyncio.ensure_future(threads.run(lambda: go.wait(PATIENCE_SECONDS))) for _ in range(2)]
    await asyncio.sleep(0)
    before = len(rings)
    more = [asyncio.ensure_future(threads.run(lambda: None)) for _ in range(20)]
    await asyncio.sleep(0)
    meanwhile = len(rings) - before
    go.set()
    await asyncio.gather(*busy, *more)

    assert (2, 0) == (before, meanwhile)


def test_two_event_loops_share_the_threads(threads: ThreadPool) -> None:
    """Each gets the answers to its own calls."""

    async def ask(first: int) -> list[int]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await threads.run(partial(int, each)) for each in range(first, first + 300)]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda first: asyncio.run(ask(first)), (0, 1_000)))

    assert [[*range(300)], [*range(1_000, 1_300)]] == found


async def test_an_idle_thread_keeps_nothing_alive(threads: ThreadPool) -> None:
    """Neither the last question nor its answer."""

    class Value:
        pass

    value = Value()
    gone = weakref.ref(value)
    await threads.run(lambda kept=value: kept)  # type: ignore[misc]  # bound now
    del value
    await threads.run(lambda: None)
    gc.collect()

    assert None is gone()
