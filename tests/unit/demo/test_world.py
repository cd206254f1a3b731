"""The demo on a virtual clock: minutes pass in a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.demo.charts import DEFINITIONS, load_charts, prepare_folder
from interlock.demo.services import REFUSAL_RATES, SEED, Services
from interlock.demo.traffic import INITIAL_ENTITIES, Traffic
from interlock.demo.world import WorldCounts, count_world
from interlock.errors import RejectedError, UnavailableError
from interlock.ports.store import EntityQuery
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock

MINUTE_MS = 60_000


@asynccontextmanager
async def world(
    folder: Path, rate: float = 3.0, seed: int = SEED
) -> AsyncIterator[tuple[Runtime, Traffic, VirtualClock]]:
    """Charts, services and users on a store in memory; the traffic has not started."""
    clock = VirtualClock(1_700_000_000_000)
    prepare_folder(folder)
    services = Services(clock, seed)
    async with interlock.open("memory:", charts=load_charts(folder, services), clock=clock, work=True) as runtime:
        runtime.drain_ms = 0  # the virtual clock does not advance at the end
        yield runtime, Traffic(runtime, services, rate), clock


async def run_traffic(runtime: Runtime, traffic: Traffic, clock: VirtualClock, ms: int) -> None:
    """Let people come for so long."""
    coming = asyncio.ensure_future(traffic.run())
    await clock.advance(ms)
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)


async def configurations(runtime: Runtime) -> Counter[tuple[str, ...]]:
    """How many entities are where."""
    found: Counter[tuple[str, ...]] = Counter()
    for kind in runtime.charts.kinds():
        cursor = None
        while True:
            page = await runtime.list(EntityQuery(kind=kind, after=cursor, limit=500))
            found.update(each.configuration for each in page.rows)
            cursor = page.after
            if cursor is None:
                break
    return found


@pytest.mark.slow
async def test_two_minutes_of_the_demo_show_every_promised_outcome(tmp_path: Path) -> None:
    async with world(tmp_path) as (runtime, traffic, clock):
        await run_traffic(runtime, traffic, clock, 2 * MINUTE_MS)
        found, where = await count_world(runtime), await configurations(runtime)

    assert {"applied", "duplicate", "ignored", "denied"} <= set(traffic.sent)
    assert 0 == traffic.sent["missed"]
    assert found.entities == where.total()
    assert found.compensated > 10
    assert found.dead_letters > 0
    assert where["delivered",] > found.entities // 4
    assert min(where[state,] for state in ("refunded", "charge_declined", "expired", "cancelled", "live", "gone")) > 0


async def test_ten_seconds_of_the_demo_show_a_failure(tmp_path: Path) -> None:
    async with world(tmp_path) as (runtime, traffic, clock):
        await run_traffic(runtime, traffic, clock, 10_000)
        found, where = await count_world(runtime), await configurations(runtime)

    assert found.entities > INITIAL_ENTITIES
    assert min(found.compensated, found.dead_letters) > 0
    assert {"refund_failed", "charge_unresolved"} <= {state for (state, *_) in where}
    assert {"applied", "denied", "duplicate", "ignored"} == set(traffic.sent)


@pytest.mark.slow
async def test_entities_that_wait_for_support_are_helped_eventually(tmp_path: Path) -> None:
    async with world(tmp_path) as (runtime, traffic, clock):
        await run_traffic(runtime, traffic, clock, MINUTE_MS)
        for _ in range(600):
            await traffic.run_round(clock.now_ms())
            await clock.advance(1_000)
            if (await count_world(runtime)).active == 0:
                break
        found = await count_world(runtime)
        where = await configurations(runtime)

    assert WorldCounts(found.entities, 0, found.compensated, found.dead_letters) == found, where


async def test_a_second_start_resumes_and_creates_nothing_twice(tmp_path: Path) -> None:
    async with world(tmp_path) as (runtime, traffic, clock):
        await run_traffic(runtime, traffic, clock, 10_000)
        first = await count_world(runtime)
        again = Traffic(runtime, Services(clock, 1), 3.0)
        await again.create_next(1)
        same = await count_world(runtime)
        await run_traffic(runtime, again, clock, 10_000)
        second = await count_world(runtime)

    assert first.entities == same.entities
    assert {"duplicate"} == {outcome for outcome in again.sent if outcome == "duplicate"}
    assert 0 < second.entities - first.entities < INITIAL_ENTITIES + 60  # no second crowd
    assert 0 == again.sent["rejected"]


async def test_the_rate_is_constant_and_a_pause_gives_no_backlog(tmp_path: Path) -> None:
    async with world(tmp_path, rate=2.0) as (runtime, traffic, clock):
        await run_traffic(runtime, traffic, clock, 1_000)
        before = await runtime.store.kinds(), (await count_world(runtime)).entities
        coming = asyncio.ensure_future(traffic.run())
        await clock.settle()
        clock.time_ms += 3_600_000
        await clock.advance(1_000)
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        after = await count_world(runtime)

    assert after.entities - before[1] < 30


def test_one_seed_is_one_world() -> None:
    one, same, other = (Services(VirtualClock(), seed) for seed in (1, 1, 2))

    assert one.chance("refused", "charge", "order/1") == same.chance("refused", "charge", "order/1")
    assert one.chance("refused", "charge", "order/1") != other.chance("refused", "charge", "order/1")
    assert all(0 <= one.chance(number) < 1 for number in range(1_000))


async def test_a_service_acts_once_per_key() -> None:
    answers: list[list[str]] = []
    for _ in range(2):
        clock = VirtualClock()
        services, reported = Services(clock, 7), list[str]()
        for number in range(60):
            asking = asyncio.ensure_future(services.do("parcel", f"order/{number}/3/0", f"order/{number}", 1))
            await clock.advance(1_000)
            try:
                reported.append(await asking)
            except (RejectedError, UnavailableError) as error:
                reported.append(error.code)
        answers.append(reported)

    assert answers[0] == answers[1]
    assert {"parcel.refused", "service.unreachable"} < set(answers[0])
    assert len(set(answers[0])) > 30


def test_every_action_of_the_handlers_can_fail(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    charts = load_charts(tmp_path, Services(VirtualClock(), 1))

    assert {"charge", "parcel", "receipt", "route", "content"} < set(REFUSAL_RATES)
    assert [] == [
        (each.chart.kind, name) for each in charts for name in each.chart.handlers if name not in each.handlers
    ]


def test_the_folder_is_a_project_of_its_own(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    for name in DEFINITIONS:
        (tmp_path / name).write_text("nonsense", encoding="utf-8")
    address = prepare_folder(tmp_path)
    project = (tmp_path / "interlock.toml").read_text(encoding="utf-8")

    assert f"sqlite:///{tmp_path}/demo.db" == address
    assert ["order", "vm", "network", "storage"] == [interlock.load(tmp_path / name).chart.kind for name in DEFINITIONS]
    assert [] == [name for name in DEFINITIONS if f'"{name}"' not in project]
