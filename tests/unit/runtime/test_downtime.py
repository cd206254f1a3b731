"""Timers after downtime: each is shifted by its policy, in an entry, once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.model.limits import ALIVE_MS, DOWNTIME_MS_MIN
from interlock.ports.leases import Downtime
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.delivery import EntityDelivery
from interlock.runtime.worker.downtime import DowntimeMonitor
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.clock import VirtualClock

MINUTE = 60_000
HOUR = 60 * MINUTE

OVEN = """
interlock: 1
kind: oven
initial: baking
states:
  baking: {after: {10m: {target: done, onRestore: POLICY}}, on: {stirred: baking_on}}
  baking_on: {after: {10m: {target: done, onRestore: POLICY}}}
  done: {}
"""


def oven(store: MemoryStore | SqliteStore, clock: VirtualClock, policy: str) -> Runtime:
    """A runtime for ovens whose timers have this policy."""
    return Runtime(store, ChartRegistry((interlock.loads(OVEN.replace("POLICY", policy)).kernel,)), clock)


@asynccontextmanager
async def working(runtime: Runtime, clock: VirtualClock) -> AsyncIterator[None]:
    """A worker, for as long as this lasts; then it ends without notice."""
    worker = Worker(runtime, {})
    await worker.start()
    await clock.settle()
    yield
    await worker.stop()


async def states(runtime: Runtime) -> tuple[str, ...]:
    """Where the oven is."""
    return (await runtime.state("oven/1")).configuration


async def moves(runtime: Runtime) -> list[int]:
    """When its timer was due each time that it was moved."""
    entries = await runtime.journal("oven/1")
    return [each.event.data["due_ms"] for each in entries if each.event.name == "_timer.moved"]


@pytest.mark.parametrize(
    ("policy", "left_ms", "moved"), [("deadline", 0, 0), ("remaining", 8 * MINUTE, 1), ("restart", 10 * MINUTE, 1)]
)
async def test_each_policy_after_an_hour_without_a_worker(policy: str, left_ms: int, moved: int) -> None:
    """Two minutes of ten had passed when the last worker went."""
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, policy)
    async with working(runtime, clock):
        await runtime.create("oven/1")
        await clock.advance(2 * MINUTE)
    await clock.advance(HOUR)
    async with working(runtime, clock):
        if left_ms:
            await clock.advance(left_ms - 1)
            assert ("baking",) == await states(runtime)
        await clock.advance(1)

        assert ("done",) == await states(runtime)
        assert moved == len(await moves(runtime))
        assert None is (await runtime.verify("oven/1")).problem


@pytest.mark.parametrize("policy", ["remaining", "restart"])
async def test_a_quick_restart_is_not_a_downtime(policy: str) -> None:
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, policy)
    async with working(runtime, clock):
        await runtime.create("oven/1")
        await clock.advance(2 * MINUTE)
    await clock.advance(DOWNTIME_MS_MIN - ALIVE_MS)
    async with working(runtime, clock):
        await clock.advance(8 * MINUTE - DOWNTIME_MS_MIN + ALIVE_MS)

        assert (("done",), []) == (await states(runtime), await moves(runtime))


async def test_every_downtime_moves_it_once() -> None:
    """Two of them, an hour each, and a minute of work between."""
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, "remaining")
    async with working(runtime, clock):
        await runtime.create("oven/1")
    for _ in range(2):
        await clock.advance(HOUR)
        async with working(runtime, clock):
            await clock.advance(MINUTE)
    async with working(runtime, clock):
        await clock.advance(8 * MINUTE - 1)
        assert ("baking",) == await states(runtime)
        await clock.advance(1)

        assert ("done",) == await states(runtime)
        born = (await runtime.journal("oven/1"))[0].event.time_ms
        assert [born + HOUR + 10 * MINUTE, born + 2 * HOUR + 10 * MINUTE][-1] == (await moves(runtime))[-1]
        assert 2 >= len(await moves(runtime))


async def test_a_timer_set_after_the_downtime_is_not_shifted() -> None:
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, "remaining")
    async with working(runtime, clock):
        await runtime.create("oven/1")
    await clock.advance(5 * MINUTE)
    async with working(runtime, clock):
        await runtime.send("oven/1", "stirred")
        await clock.advance(10 * MINUTE)

        assert (("done",), []) == (await states(runtime), await moves(runtime))


async def test_two_workers_shift_a_timer_once() -> None:
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, "restart")
    async with working(runtime, clock):
        await runtime.create("oven/1")
    await clock.advance(HOUR)
    other = oven(runtime.store, clock, "restart")  # type: ignore[arg-type]  # the same memory
    async with working(runtime, clock), working(other, clock):
        await clock.advance(10 * MINUTE)

        assert ("done",) == await states(runtime)
        assert 1 == len(await moves(runtime))


async def test_a_suspended_process_counts_as_downtime() -> None:
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, "remaining")
    async with working(runtime, clock):
        await runtime.create("oven/1")
        await clock.advance(2 * MINUTE)
        clock.time_ms += HOUR  # asleep: no wait ended meanwhile
        await clock.advance(8 * MINUTE - 2 * ALIVE_MS)
        assert ("baking",) == await states(runtime)
        await clock.advance(2 * ALIVE_MS)

        assert ("done",) == await states(runtime)


@pytest.mark.parametrize("policy", ["deadline", "remaining", "restart"])
async def test_a_clock_that_goes_back_a_little_is_harmless(policy: str) -> None:
    clock = VirtualClock(10 * HOUR)
    runtime = oven(MemoryStore(), clock, policy)
    async with working(runtime, clock):
        await runtime.create("oven/1")
        await clock.advance(MINUTE)
    clock.time_ms -= MINUTE // 2
    async with working(runtime, clock):
        await clock.advance(9 * MINUTE)
        assert ("baking",) == await states(runtime)
        await clock.advance(MINUTE // 2)

        assert (("done",), []) == (await states(runtime), await moves(runtime))


@pytest.mark.parametrize("policy", ["deadline", "remaining", "restart"])
async def test_a_timer_that_was_set_by_a_clock_an_hour_ahead_counts_from_when_it_is_right(policy: str) -> None:
    """It is moved once, by an entry, and fires ten minutes later: not in an hour and ten minutes."""
    clock = VirtualClock(10 * HOUR)
    runtime = oven(MemoryStore(), clock, policy)
    async with working(runtime, clock):
        await runtime.create("oven/1")
        await clock.advance(MINUTE)
    clock.time_ms -= HOUR
    right_ms = clock.time_ms
    async with working(runtime, clock):
        await clock.advance(10 * MINUTE - 1)
        assert ("baking",) == await states(runtime)
        await clock.advance(1)

        assert (("done",), [right_ms + 10 * MINUTE]) == (await states(runtime), await moves(runtime))
        assert (await runtime.verify("oven/1")).replayed


async def test_without_a_downtime_monitor_timers_keep_their_deadline() -> None:
    clock = VirtualClock()
    runtime = oven(MemoryStore(), clock, "remaining")
    await runtime.create("oven/1")
    await clock.advance(HOUR)
    await EntityDelivery(runtime).fire_timers("oven/1")

    assert ("done",) == await states(runtime)


@pytest.mark.parametrize("policy", ["remaining", "restart"])
async def test_firing_again_after_a_shift_shifts_nothing(policy: str, tmp_path: Path) -> None:
    clock = VirtualClock()
    store = SqliteStore(tmp_path / "ovens.db")
    runtime = oven(store, clock, policy)
    await store.record_heartbeat(now_ms=clock.now_ms(), gap_ms=DOWNTIME_MS_MIN)
    await runtime.create("oven/1")
    clock.time_ms += HOUR
    drivers = [EntityDelivery(runtime, DowntimeMonitor(store, clock)) for _ in range(3)]
    found = [await each.fire_timers("oven/1") for each in drivers]

    assert [frozenset()] * 3 == [each.fired for each in found]
    assert [clock.now_ms() + 10 * MINUTE] * 3 == [due for each in found for due in each.waiting.values()]
    assert 1 == len(await moves(runtime))
    for _ in range(20):  # alive all the while
        clock.time_ms += MINUTE // 2
        await store.record_heartbeat(now_ms=clock.now_ms(), gap_ms=DOWNTIME_MS_MIN)
    assert 1 == len((await drivers[0].fire_timers("oven/1")).fired)
    assert None is (await runtime.verify("oven/1")).problem
    await runtime.close()


async def test_a_heartbeat_that_cannot_be_written_does_not_stop_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(MemoryStore):
        """Keeps work, and no signs of life."""

        async def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
            raise UnavailableError("no", code="store.busy")

    clock = VirtualClock()
    runtime = oven(Deaf(), clock, "remaining")
    with caplog.at_level(logging.WARNING):
        async with working(runtime, clock):
            await runtime.create("oven/1")
            await clock.advance(11 * MINUTE)

            assert ("baking",) == await states(runtime)
    assert "the heartbeat of the worker cannot be written" in caplog.text


async def test_downtime_is_logged_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    store = MemoryStore()
    began = clock.now_ms()
    await DowntimeMonitor(store, clock).downtimes(since_ms=0)
    clock.time_ms += HOUR
    with caplog.at_level(logging.WARNING):
        await DowntimeMonitor(store, clock).downtimes(since_ms=0)
    (record,) = caplog.records

    assert "no worker was running for a while" == record.getMessage()
    assert (began, began + HOUR) == (record.__dict__["began_ms"], record.__dict__["ended_ms"])
