"""After a wrong clock: timers, leases and retries follow the corrected clock, and times in a journal never decrease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkId
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LEASE_MS_MAX
from interlock.ports.clock import SystemClock
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.clock_repair import ClockRepair, find_future_stamped
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.stores.registry import open_store as open_store_url
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import store_or_skip

DAY = 86_400_000
YEARS = 3_650 * DAY

CHART = """
interlock: 1
kind: job
initial: idle
context: {n: {type: integer, default: 0}, seen: {type: integer, default: 0}}
states:
  idle: {on: {go: waiting, work: busy, ping: {actions: [{assign: {n: "= context.n + 1"}}]}}}
  waiting: {after: {50ms: fired}}
  fired: {on: {go: waiting, work: busy}}
  busy: {invoke: {id: x, src: do.it, retry: {max: 2, backoff: 1ms}, onDone: done, onError: lost}}
  done: {}
  lost: {}
"""


class ShiftedClock(SystemClock):
    """A clock that is ahead by a given time."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        """Return the shifted time."""
        return super().now_ms() + self.ahead_ms


def chart(attempts: list[int] | None = None) -> interlock.BoundChart:
    """Return a chart whose handler records the number of each attempt."""
    found = interlock.loads(CHART)

    @found.handler("do.it")
    async def do_it(attempt: Attempt) -> None:
        if attempts is not None:
            attempts.append(attempt.number)

    return found


async def reached(jobs: Runtime, state: str, entity: str = "job/1") -> None:
    """Wait until the entity is in a state."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for entry in jobs.watch(entity, poll_ms=20):
            if entry.after == (state,):
                return


async def put_off(jobs: Runtime) -> None:
    """Wait until the only timer was moved, and its row is put off until it is due."""
    work = jobs.store.work
    assert work is not None

    async def is_put_off() -> bool:
        rows = (await work.list_work(WorkQuery(lane="timer"))).rows  # none while a folder changes its owner
        (timer,) = (await jobs.state("job/1")).timers
        is_moved = timer.due_ms < SystemClock().now_ms() + DAY
        return is_moved and [(None, timer.due_ms)] == [(each.owner, each.next_ms) for each in rows]

    await eventually(is_put_off)


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that keeps work."""
    if request.param == "postgres":
        return store_or_skip()
    return {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/o.db", "file": f"file://{tmp_path}/o"}[request.param]


@pytest.fixture(params=["sqlite", "file", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty durable store."""
    if request.param == "postgres":
        return store_or_skip()
    return {"sqlite": f"sqlite:///{tmp_path}/o.db", "file": f"file://{tmp_path}/o"}[request.param]


# Entities


async def test_one_event_from_the_future_stops_neither_timers_nor_work(url: str) -> None:
    clock = ShiftedClock()
    async with interlock.open(url, charts=[chart()], clock=clock) as jobs:
        await jobs.create("job/1")
        clock.ahead_ms = YEARS
        await jobs.send("job/1", "ping")
        clock.ahead_ms = 0
        await jobs.send("job/1", "go")
        await reached(jobs, "fired")
        await jobs.send("job/1", "work")
        await reached(jobs, "done")
        entries, proof = await jobs.journal("job/1"), await jobs.verify("job/1")
        (row,) = (await jobs.list(interlock.EntityQuery(kind="job"))).rows

    now_ms = clock.now_ms()
    times = [each.event.time_ms for each in entries]
    assert sorted(times) == times, "the time of an entity never goes back"
    assert now_ms + YEARS // 2 < times[-1]
    assert all(each.event.at_ms <= now_ms for each in entries[2:])
    assert (True, None) == (proof.replayed, proof.problem)
    assert (True, True) == (row.entered_ms <= now_ms, row.changed_ms > now_ms), "lists show when it was entered"


async def test_a_clock_that_is_right_leaves_no_mark() -> None:
    """Journals are as they were: only an event behind its entity's time carries the clock."""
    clock = VirtualClock(DAY)
    runtime = Runtime(MemoryStore(), ChartRegistry((interlock.loads(CHART).kernel,)), clock)
    await runtime.create("job/1")
    await runtime.send("job/1", "ping")
    clock.time_ms -= 1
    await runtime.send("job/1", "ping")
    await runtime.send("job/1", "go")
    entries, snapshot = await runtime.journal("job/1"), await runtime.state("job/1")

    assert [None, None, DAY - 1, DAY - 1] == [each.event.clock_ms for each in entries]
    assert [DAY] * 4 == [each.event.time_ms for each in entries]
    assert [(DAY - 1 + 50, DAY - 1)] == [(each.due_ms, each.since_ms) for each in snapshot.timers]


# What a wrong clock left in the store


async def test_a_timer_set_by_a_wrong_clock_counts_from_when_a_worker_sees_it(kept: str) -> None:
    async with interlock.open(kept, charts=[chart()], clock=ShiftedClock(YEARS), work=False) as jobs:
        await jobs.create("job/1")
        await jobs.send("job/1", "go")
    async with interlock.open(kept, charts=[chart()]) as jobs:
        await reached(jobs, "fired")
        names = [each.event.name for each in await jobs.journal("job/1")]
        proof = await jobs.verify("job/1")

    assert ["_create", "go", "_timer.moved", "after.50ms.waiting"] == names
    assert (True, None) == (proof.replayed, proof.problem)


@pytest.mark.parametrize("kept", ["sqlite", "file"], indirect=True)
async def test_a_shifted_timer_survives_a_restart(kept: str) -> None:
    slow = interlock.loads(CHART.replace("50ms", "1h"))
    async with interlock.open(kept, charts=[slow], clock=ShiftedClock(YEARS), work=False) as jobs:
        await jobs.create("job/1")
        await jobs.send("job/1", "go")
    async with interlock.open(kept, charts=[slow]) as jobs:
        await put_off(jobs)
    async with interlock.open(kept, charts=[slow], clock=ShiftedClock(3_600_000)) as jobs:
        await reached(jobs, "fired")


async def test_work_of_an_entity_in_the_future_is_claimed(kept: str) -> None:
    attempts: list[int] = []
    async with interlock.open(kept, charts=[chart()], clock=ShiftedClock(YEARS), work=False) as jobs:
        await jobs.create("job/1")
        await jobs.send("job/1", "work")
    async with interlock.open(kept, charts=[chart(attempts)]) as jobs:
        await reached(jobs, "done")

    assert [1] == attempts


@asynccontextmanager
async def _claimed(url: str, ahead_ms: int) -> AsyncIterator[tuple[Any, Claim]]:
    """Return a store in which a worker with a clock ahead has claimed work and sent a heartbeat."""
    async with interlock.open(url, charts=[chart()], work=False) as jobs:
        await jobs.create("job/1")
        await jobs.send("job/1", "work")
    store: Any = await open_store_url(url)
    try:
        now_ms = SystemClock().now_ms() + ahead_ms
        await store.record_heartbeat(now_ms=now_ms, gap_ms=30_000)
        (claim,) = await store.claim("effect", None, owner="gone", now_ms=now_ms, until_ms=now_ms + 500, limit=1)
        yield store, claim
    finally:
        await store.close()


async def test_a_lease_from_a_wrong_clock_is_not_waited_for(kept: str) -> None:
    attempts: list[int] = []
    async with _claimed(kept, DAY):
        pass
    async with interlock.open(kept, charts=[chart(attempts)], lease_ms=500) as jobs:
        await reached(jobs, "done")

    assert [2] == attempts


async def test_a_next_try_in_the_future_is_not_waited_for(kept: str) -> None:
    attempts: list[int] = []
    async with _claimed(kept, DAY) as (store, claim):
        now_ms = SystemClock().now_ms() + DAY
        again = Settlement(
            claim, "again", now_ms + 1, {"code": "lost", "message": "", "attempts": 1, "done": "unknown"}
        )
        assert (True,) == await store.settle((again,), now_ms=now_ms)
    async with interlock.open(kept, charts=[chart(attempts)], lease_ms=500) as jobs:
        await reached(jobs, "done")

    assert [2] == attempts


async def test_a_clock_that_goes_back_while_a_worker_runs_is_noticed(url: str) -> None:
    clock = ShiftedClock()
    async with interlock.open(url, charts=[interlock.loads(CHART.replace("50ms", "2s"))], clock=clock) as jobs:
        await jobs.create("job/1")
        await jobs.create("job/2")
        clock.ahead_ms = YEARS
        await jobs.send("job/1", "go")
        clock.ahead_ms = 0
        await jobs.send("job/2", "ping")
        await reached(jobs, "fired")


# The repair itself


class Held:
    """A memory store with one piece of work leased until far in the future, and its repair."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = VirtualClock(DAY)
        self.store = store or MemoryStore()
        self.repair = ClockRepair(self.store, self.store, self.clock, lease_ms=1_000)

    async def begin(self) -> Claim:
        """Create an entity with work that a worker a day ahead has claimed."""
        runtime = Runtime(self.store, ChartRegistry((interlock.loads(CHART).kernel,)), self.clock)
        await runtime.create("job/1")
        await runtime.send("job/1", "work")
        ahead_ms = self.clock.time_ms + DAY
        (claim,) = await self.store.claim("effect", None, owner="w", now_ms=ahead_ms, until_ms=ahead_ms, limit=1)
        await self.repair.start()
        self.repair.report(None)
        await self.clock.settle()
        return claim

    async def row(self) -> Any:
        """Return the work of the first entity."""
        (row,) = (await self.store.list_work(WorkQuery(entity="job/1"))).rows
        return row


async def test_a_worker_that_is_alive_keeps_its_lease() -> None:
    scene = Held()
    claim = await scene.begin()
    await scene.clock.advance(500)
    assert (claim,) == await scene.store.renew((claim,), until_ms=scene.clock.now_ms() + 30_000)
    await scene.clock.advance(1_000)
    row = await scene.row()
    await scene.repair.stop()

    assert ("w", DAY + 30_500) == (row.owner, row.next_ms)


async def test_a_dead_worker_loses_its_lease_after_the_length_of_a_lease() -> None:
    scene = Held()
    claim = await scene.begin()
    await scene.clock.advance(999)
    assert "w" == (await scene.row()).owner
    await scene.clock.advance(1)
    row = await scene.row()
    now_ms = scene.clock.now_ms()
    (next_one,) = await scene.store.claim("effect", None, owner="v", now_ms=now_ms, until_ms=now_ms + 1, limit=1)
    late = await scene.store.settle((Settlement(claim, "dead"),), now_ms=now_ms)
    await scene.repair.stop()

    assert (None, now_ms, 2, (False,)) == (row.owner, row.next_ms, next_one.attempt, late)


class Moody(MemoryStore):
    """A store whose first call fails."""

    problems = 1

    async def list_work(self, query: WorkQuery) -> WorkPage:
        if self.problems:
            self.problems -= 1
            raise UnavailableError("away", code="store.away")
        return await super().list_work(query)


class Reluctant(MemoryStore):
    """A store that releases nothing at the first call, as if another process ran effects."""

    reluctance = 1

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        if self.reluctance:
            self.reluctance -= 1
            return (False,) * len(settled)
        return await super().settle(settled, now_ms=now_ms)


@pytest.mark.parametrize("store", [Moody, Reluctant])
async def test_a_failed_repair_is_tried_again(store: type[MemoryStore], caplog: pytest.LogCaptureFixture) -> None:
    scene = Held(store())
    await scene.store.record_heartbeat(now_ms=scene.clock.time_ms + YEARS, gap_ms=1)
    await scene.begin()
    await scene.clock.advance(100 if store is Moody else 1_000)
    assert "w" == (await scene.row()).owner
    before = await scene.store.record_heartbeat(now_ms=scene.clock.now_ms(), gap_ms=1)
    await scene.clock.advance(10_000)
    after = await scene.store.record_heartbeat(now_ms=scene.clock.now_ms(), gap_ms=DAY)
    row = await scene.row()
    await scene.repair.stop()

    assert (None, True, None) == (row.owner, before is not None and before.started_ms > before.ended_ms, after)


async def test_an_entity_is_checked_once() -> None:
    class Counting(MemoryStore):
        asked = 0

        async def list_work(self, query: WorkQuery) -> WorkPage:
            self.asked += 1
            return await super().list_work(query)

    scene = Held(Counting())
    await scene.repair.start()
    await scene.clock.settle()
    for _ in range(3):
        scene.repair.report("job/1")
        await scene.clock.settle()
    await scene.repair.stop()

    assert isinstance(scene.store, Counting)
    assert 1 == scene.store.asked


async def test_find_ahead_changes_nothing() -> None:
    scene = Held()
    claim = await scene.begin()
    await scene.repair.stop()
    store, now_ms = scene.store, scene.clock.now_ms()
    assert store.work is not None
    assert store.leases is not None
    runtime = Runtime(store, ChartRegistry((interlock.loads(CHART).kernel,)), VirtualClock(now_ms + YEARS))
    for name, event in (("2", "go"), ("3", "work")):
        await runtime.create(f"job/{name}")
        await runtime.send(f"job/{name}", event)
    for time_ms in (now_ms, now_ms + DAY):
        await store.record_heartbeat(now_ms=time_ms, gap_ms=1)
    found = await find_future_stamped(store, now_ms=now_ms)
    few = await find_future_stamped(store, now_ms=now_ms, limit=1)

    assert (("job/2", "job/3"), 1, False) == (found.entities, found.downtimes, found.is_partial)
    assert [claim.key] == [f"{each.entity}/2/0" for each in found.leases]
    assert [("job/3", WorkId("effect", 2, 0))] == [(each.entity, each.work.id) for each in found.work]
    assert ["job/2"] == [each.entity for each in found.timers]
    assert (("job/2",), True) == (few.entities, few.is_partial)
    assert "w" == (await scene.row()).owner
    assert () == (await find_future_stamped(store, now_ms=now_ms + YEARS)).entities


async def test_entities_are_walked_where_a_store_has_no_index_for_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/o"
    async with interlock.open(url, charts=[chart()], clock=ShiftedClock(YEARS), work=False) as jobs:
        await jobs.create("job/1")
    async with interlock.open(url, charts=[chart()], work=False) as jobs:
        await jobs.create("job/2")
        now_ms = SystemClock().now_ms()
        assert ("job/1",) == (await find_future_stamped(jobs.store, now_ms=now_ms)).entities


async def test_a_downtime_in_the_future_shifts_no_timer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = VirtualClock(DAY)
    store = MemoryStore()
    text = CHART.replace("{50ms: fired}", "{10m: {target: fired, onRestore: remaining}}")
    runtime = Runtime(store, ChartRegistry((interlock.loads(text).kernel,)), clock)
    worker = Worker(runtime, {})
    await worker.start()
    await runtime.create("job/1")
    await runtime.send("job/1", "go")
    await clock.advance(60_000)
    clock.time_ms += YEARS
    await store.record_heartbeat(now_ms=clock.time_ms, gap_ms=30_000)
    clock.time_ms -= YEARS
    await clock.advance(9 * 60_000)
    state = await runtime.state("job/1")
    await worker.stop()

    assert ("fired",) == state.configuration
    assert any("a clock was ahead" in each.message for each in caplog.records)


def test_the_limits_leave_room_for_each_other() -> None:
    assert CLOCK_AHEAD_MS_MAX < LEASE_MS_MAX
