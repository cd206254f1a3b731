"""The virtual clock: it jumps from due time to due time, waits for a store's threads, and moves itself on request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import interlock
from interlock.model.limits import POLL_MS_MAX
from interlock.ports.clock import SystemClock, wait_to_poll
from interlock.ports.threads import thread_future
from interlock.testing import clock as clocks
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS

HOUR = 3_600_000
ORDER = interlock.loads("""
interlock: 1
kind: order
states:
  unpaid: {after: {48h: expired}}
  expired: {type: final}
""")
JUMPS_MAX = 60
"""Jumps of 48 virtual hours: one for the timer, and some for each of the idle loops, which poll ever more rarely."""


@asynccontextmanager
async def looping(work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Something runs concurrently with the test."""
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["memory:", "sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each store that needs no server."""
    places = {"sqlite": f"sqlite:///{tmp_path}/orders.db", "file": f"file:{tmp_path}/orders"}
    return str(places.get(request.param, request.param))


async def test_two_days_are_a_few_jumps(url: str) -> None:
    clock = VirtualClock()
    async with interlock.open(url, charts=[ORDER], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(48 * HOUR - 1)
        before = (await orders.state("order/1")).configuration
        await clock.advance(1)
        after = (await orders.state("order/1")).configuration

    assert (("unpaid",), ("expired",)) == (before, after)
    assert JUMPS_MAX >= clock.jumps


async def test_a_jump_is_not_downtime(url: str) -> None:
    clock = VirtualClock()
    async with interlock.open(url, charts=[ORDER], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(50 * HOUR)
        assert orders.store.leases is not None

        assert () == await orders.store.leases.downtimes(since_ms=0)


async def test_time_that_passes_without_the_clock_is_downtime() -> None:
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[ORDER], clock=clock) as orders:
        await clock.advance()
        clock.time_ms += HOUR
        await clock.advance()
        assert orders.store.leases is not None

        assert 1 == len(await orders.store.leases.downtimes(since_ms=0))


async def test_a_long_wait_for_a_reconciler_keeps_its_passes() -> None:
    clock, times = VirtualClock(0), []

    async def passes() -> None:
        while True:
            await wait_to_poll(clock, 60_000, at_most_ms=60_000)
            times.append(clock.now_ms())

    polls = 0

    async def looks() -> None:
        nonlocal polls
        while True:
            await wait_to_poll(clock, 1_000)
            polls += 1

    async with looping(passes), looping(looks):
        await clock.advance(HOUR)

    assert list(range(60_000, HOUR + 1, 60_000)) == times
    assert 20 >= polls


async def test_idle_polls_come_ever_more_rarely_and_at_the_interval_after_something_happened() -> None:
    clock, looks = VirtualClock(0), []

    async def polls() -> None:
        while True:
            await wait_to_poll(clock, 1_000)
            looks.append(clock.now_ms())

    async with looping(polls), looping(lambda: clock.sleep_ms(100_500)):
        await clock.advance(105_000)

    assert [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 100_500, 101_500, 102_500, 104_500] == looks


async def test_a_poll_with_a_due_time_ends_then() -> None:
    clock = VirtualClock(0)
    waits = [wait_to_poll(clock, 1_000, due_ms=due_ms) for due_ms in (300, 7 * HOUR)]
    ends: list[int] = []

    async def ended(wait: Awaitable[float]) -> None:
        await wait
        ends.append(clock.now_ms())

    await asyncio.gather(*(ended(each) for each in waits), clock.advance(8 * HOUR))

    assert [300, 1_000] == ends  # the second was woken to look, and has its due time from its store again


async def test_a_clock_without_knowledge_of_polls_sleeps_for_the_interval() -> None:
    clock = SystemClock()

    assert (1, 0.5, 1) == (
        await wait_to_poll(clock, 1),
        await wait_to_poll(clock, 1, due_ms=0.5),
        await wait_to_poll(clock, 1, due_ms=2, at_most_ms=50),
    )


async def test_the_clock_waits_for_the_threads_of_a_store() -> None:
    clock, gate = VirtualClock(0), threading.Event()
    loop = asyncio.get_running_loop()
    times: list[int] = []

    async def call() -> None:
        await clock.sleep_ms(10)
        answer = thread_future(loop)
        answers = partial(loop.call_soon_threadsafe, answer.set_result, None)
        threading.Thread(target=lambda: gate.wait(PATIENCE_SECONDS) and answers()).start()
        await answer
        times.append(clock.now_ms())

    loop.call_later(0.01, gate.set)  # later than the loop is idle
    async with looping(call):
        await clock.advance(1_000)

    assert [10] == times


async def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(0)
    monkeypatch.setattr(clocks, "THREAD_SECONDS_MAX", 0.01)
    await clock.advance()
    answer = thread_future(asyncio.get_running_loop())

    with pytest.raises(AssertionError, match="a store has not answered"):
        await clock.advance()
    answer.cancel()


async def test_a_task_that_never_waits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(0)
    monkeypatch.setattr(clocks, "TURNS_MAX", 10)

    loop = asyncio.get_running_loop()
    spins = True

    def spin() -> None:
        if spins:
            loop.call_soon(spin)

    spin()
    with pytest.raises(AssertionError, match="still running"):
        await clock.advance()
    spins = False


async def test_autojump_moves_the_clock_whenever_everything_waits(url: str) -> None:
    clock = VirtualClock(0, autojump=True)
    async with interlock.open(url, charts=[ORDER], clock=clock) as orders:
        await orders.create("order/1")
        async for entry in orders.watch("order/1"):
            if entry.version == 2:
                break
        found = (await orders.state("order/1")).configuration

    assert ("expired",) == found
    assert 48 * HOUR <= clock.time_ms <= 48 * HOUR + POLL_MS_MAX  # a file store lists the timer in the background


async def test_autojump_and_advance_go_together() -> None:
    clock = VirtualClock(0, autojump=True)
    async with interlock.open("memory:", charts=[ORDER], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(48 * HOUR)

        assert ("expired",) == (await orders.state("order/1")).configuration
        await clock.sleep_ms(HOUR)

    assert 49 * HOUR <= clock.time_ms


async def test_autojump_does_not_run_away_with_idle_loops() -> None:
    clock = VirtualClock(0, autojump=True)

    async def polls() -> None:
        while True:
            await wait_to_poll(clock, 1_000)

    async with looping(polls):
        await asyncio.sleep(0)
        assert clock._driver is not None
        await clock._driver

    assert 0 < clock.time_ms <= clocks.AUTOJUMP_IDLE_MS


TIMED = """
interlock: 1
kind: k
states:
  a: {invoke: {id: i, src: f, timeout: 5s, onDone: b, onError: c}}
  b: {}
  c: {}
"""


@pytest.mark.parametrize("autojump", [False, True])
async def test_time_does_not_pass_while_a_plain_handler_runs(autojump: bool) -> None:
    chart = interlock.loads(TIMED)
    gate = threading.Event()

    @chart.handler("f")
    def slow(attempt: interlock.Attempt) -> None:
        threading.Timer(0.05, gate.set).start()
        gate.wait()

    clock = VirtualClock(0, autojump=autojump)
    async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
        await runtime.create("k/1")
        await (clock.sleep_ms(HOUR) if autojump else clock.advance(HOUR))

        assert ("b",) == (await runtime.state("k/1")).configuration


async def test_a_plain_handler_that_hangs_times_out() -> None:
    chart = interlock.loads(TIMED)
    end = threading.Event()
    chart.handler("f")(lambda attempt: end.wait() and None)
    clock = VirtualClock(0, handler_seconds=0.01)
    async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
        await runtime.create("k/1")
        await clock.advance(HOUR)
        found = (await runtime.state("k/1")).configuration
        end.set()

    assert ("c",) == found
