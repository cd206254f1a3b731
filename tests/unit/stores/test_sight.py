"""What pages about many entities are served from: populations, rates, dwell times, refusals."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.model.event import Event
from interlock.ports.reading.statistics import COUNT_MAX, DAY_MS, DWELL_BOUNDS_MS, DwellTimes, MinuteRates
from interlock.runtime.runtime import Runtime
from interlock.stores import memory
from interlock.stores.sqlite import store as sqlite
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer
from interlock.testing.clock import VirtualClock
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from interlock.trust.audit_chain import verify_chain
from tests.support.eventually import eventually

CHART = """
interlock: 1
kind: lamp
revision: 1.0.0
initial: off
states:
  off: {on: {flip: on}}
  on:
    initial: dim
    on: {flip: off}
    states:
      dim: {on: {turn: bright}}
      bright: {}
"""

START_MS = 20_000 * DAY_MS
PATIENCE = 2_000
"""Looks, a hundredth of a second apart: what is summed is written after a second."""


@asynccontextmanager
async def lamps(url: str, clock: VirtualClock) -> AsyncIterator[Runtime]:
    """A runtime for lamps on a store."""
    async with interlock.open(url, charts=[interlock.loads(CHART)], clock=clock, work=False) as runtime:
        yield runtime


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/lamps.db"


async def seen(store: Any) -> dict[str, Any]:
    """Returns all statistics of lamps, once the store has written its sums."""

    async def written() -> tuple[MinuteRates, ...] | None:
        minutes = await store.minute_rates("lamp", since_ms=0)
        return minutes if sum(each.steps for each in minutes) >= 6 else None

    minutes = await eventually(written)
    dwell = await store.dwell_times("lamp", since_ms=0)  # only now: both are written in one go, between any two reads
    counts = {(each.state, each.entities) for each in await store.count_states("lamp")}
    return {"counts": counts, "dwell": {each.state: each.stays for each in dwell}, "minutes": minutes}


async def play(runtime: Runtime, clock: VirtualClock) -> None:
    """Two lamps: one is on for two minutes, the other without end."""
    for name in ("a", "b"):
        await runtime.create(f"lamp/{name}")
        clock.time_ms += 5_000
        await runtime.send(f"lamp/{name}", "flip")
    clock.time_ms += 120_000
    await runtime.send("lamp/a", "turn")
    await runtime.send("lamp/a", "flip")


async def be_refused(runtime: Runtime, entity: str, who: str) -> None:
    """Send an event that the chart does not know: the caller gets an error, and the audit a refusal."""
    with pytest.raises(interlock.UsageError) as refused:
        await runtime.send(entity, "nothing", principal={"id": who})
    assert "event.unknown" == refused.value.code


async def test_a_store_tells_who_is_where_and_how_long_they_stayed(url: str) -> None:
    """Compounds count too; a stay is counted when it ends, in the bucket of its length."""
    clock = VirtualClock(START_MS)
    async with lamps(url, clock) as runtime:
        await play(runtime, clock)
        told = await seen(runtime.store)
        assert runtime.store.statistics is not None

    stays = {
        state: [at for at, count in enumerate(buckets) for _ in range(count)]
        for state, buckets in told["dwell"].items()
    }
    assert {("off", 1), ("on", 1), ("on.dim", 1)} == told["counts"]
    assert {"off": [3, 3], "on": [6], "on.dim": [6], "on.bright": [0]} == stays
    assert 6 == sum(each.steps for each in told["minutes"])
    assert [each.minute_ms for each in told["minutes"]] == sorted(each.minute_ms for each in told["minutes"])


async def test_both_stores_tell_the_same(tmp_path: Path) -> None:
    """Memory is the reference."""
    found = []
    for url in ("memory:", f"sqlite:///{tmp_path}/lamps.db"):
        clock = VirtualClock(START_MS)
        async with lamps(url, clock) as runtime:
            await play(runtime, clock)
            found.append(await seen(runtime.store))

    assert found[0] == found[1]


@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_a_stay_ends_when_its_entity_is_cancelled_and_not_later(tmp_path: Path, place: str) -> None:
    """It lasted until then, however long ago that is, and whatever the entity still hears."""
    store: Any = memory.MemoryStore() if place == "memory" else sqlite.open_store(f"sqlite:///{tmp_path}/parcels.db")
    sample = SampleEntity("parcel/1", time_ms=START_MS)
    await append_all(store, sample.create(), sample.step("shipped", key="s", after_ms=5_000))
    await append_all(store, sample.cancel(key="off", after_ms=500))
    if place == "sqlite":
        await store.close()
        store = sqlite.open_store(f"sqlite:///{tmp_path}/parcels.db")
    found = {each.state: each.stays for each in await store.dwell_times("parcel", since_ms=0)}
    await store.close()

    assert {"packed": 3, "moving": 2, "moving.road": 2} == {state: stays.index(1) for state, stays in found.items()}
    assert {1} == {sum(stays) for stays in found.values()}


async def test_what_was_summed_is_written_when_the_store_closes(tmp_path: Path) -> None:
    """A short visit counts as well."""
    url = f"sqlite:///{tmp_path}/lamps.db"
    clock = VirtualClock(START_MS)
    async with lamps(url, clock) as runtime:
        await play(runtime, clock)
    async with lamps(url, clock) as runtime:
        told = await seen(runtime.store)

    assert 6 == sum(each.steps for each in told["minutes"])


async def test_who_is_somewhere_too_long_is_counted_up_to_a_bound(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older than a time, in that state; beyond the bound it is one more, and no walk."""
    clock = VirtualClock(START_MS)
    async with lamps(url, clock) as runtime:
        await play(runtime, clock)
        store: Any = runtime.store
        before = await store.count_overdue("lamp", "on", before_ms=START_MS)
        after = await store.count_overdue("lamp", "on", before_ms=clock.time_ms)
        elsewhere = await store.count_overdue("lamp", "nowhere", before_ms=clock.time_ms)
        monkeypatch.setattr("interlock.stores.memory.COUNT_MAX", 0)
        monkeypatch.setattr("interlock.stores.sql.statistics.COUNT_MAX", 0)
        await runtime.send("lamp/a", "flip")
        bounded = await store.count_overdue("lamp", "on", before_ms=clock.time_ms + 1)

    assert (0, 1, 0, 1) == (before, after, elsewhere, bounded)
    assert COUNT_MAX == 10_000


async def test_refusals_come_back_newest_first(url: str) -> None:
    """By principal, too; and from a number on."""
    clock = VirtualClock(START_MS)
    async with lamps(url, clock) as runtime:
        for who in ("eve", "bob", "eve"):
            await runtime.create(f"lamp/{who}", key=f"k{who}")
            await be_refused(runtime, f"lamp/{who}", who)
        log = runtime.store.audit
        assert log is not None
        found = await log.audit_before(None)
        mine = await log.audit_before(None, actor="eve")
        older = await log.audit_before(3, limit=1)
        proof = await verify_chain(log)

    assert [3, 2, 1] == [each.sequence for each in found]
    assert [3, 1] == [each.sequence for each in mine]
    assert [("bob", "rejected")] == [(each.actor, each.decode().outcome) for each in older]
    assert (3, None) == (proof.linked, proof.broken)


@pytest.mark.parametrize(
    ("damage", "linked", "broken"),
    [
        ("UPDATE audit SET body = CAST(replace(body, 'eve', 'bob') AS BLOB) WHERE sequence = 2", 2, 2),
        ("UPDATE audit SET actor = 'bob' WHERE sequence = 2", 2, 2),
        ("UPDATE audit SET time_ms = time_ms + 1 WHERE sequence = 3", 2, 3),
        ("UPDATE audit SET former = 1 WHERE sequence = 1", 2, 1),
        ("DELETE FROM audit WHERE sequence = 2", 1, 2),
        ("UPDATE audit SET head = 'x' WHERE sequence = 3", 2, 3),
        ("DELETE FROM audit WHERE sequence = 1", 1, 1),
    ],
)
async def test_a_refusal_that_was_changed_or_taken_out_is_named(
    tmp_path: Path, damage: str, linked: int, broken: int
) -> None:
    """The first bad number, and how many rows hold: those after it, too, except the next one after a gap."""
    url = f"sqlite:///{tmp_path}/lamps.db"
    async with lamps(url, VirtualClock(START_MS)) as runtime:
        await runtime.create("lamp/a")
        for _ in range(3):
            await be_refused(runtime, "lamp/a", "eve")
    hand = sqlite3.connect(tmp_path / "lamps.db")
    for trigger in ("audit_no_update", "audit_no_delete"):
        hand.execute(f"DROP TRIGGER {trigger}")
    hand.execute(damage)
    hand.commit()
    hand.close()
    async with lamps(url, VirtualClock(START_MS)) as runtime:
        assert runtime.store.audit is not None
        proof = await verify_chain(runtime.store.audit)

    assert (linked, broken) == (proof.linked, proof.broken)


async def test_old_statistics_are_forgotten(tmp_path: Path) -> None:
    """Rates after a day, dwell times after two weeks: the tables do not grow with time."""
    clock = VirtualClock(START_MS)
    async with lamps(f"sqlite:///{tmp_path}/lamps.db", clock) as runtime:
        await play(runtime, clock)
    clock.time_ms += 15 * DAY_MS
    async with lamps(f"sqlite:///{tmp_path}/lamps.db", clock) as runtime:
        await runtime.send("lamp/b", "flip")
    async with lamps(f"sqlite:///{tmp_path}/lamps.db", clock) as runtime:
        store: Any = runtime.store
        minutes = await store.minute_rates("lamp", since_ms=0)
        dwell = await store.dwell_times("lamp", since_ms=0)

    assert [1] == [each.steps for each in minutes]
    assert {"on", "on.dim"} == {each.state for each in dwell}


def test_a_tally_adds_up_and_is_empty_when_cleared() -> None:
    """Two tallies are their sum; a clock that went back makes no negative stay."""
    one, other = StatisticsBuffer(), StatisticsBuffer()
    one.count_step("lamp", [("on", 100)], [("off", 50)], Event("flip", time_ms=50))
    other.count_step("lamp", [("on", 0)], [("off", 50)], Event("flip", time_ms=50))
    other.count_conflict("lamp", 70_000)
    assert other.seen  # summed before it is added
    one.add(other)

    assert {("lamp", "on", 0, 0): 2} == one.stays
    assert {("lamp", 0): [2, 0, 0], ("lamp", 60_000): [0, 1, 0]} == one.minutes
    assert {("lamp", "state", "off", 0): [2, 50], ("lamp", "event", "flip", 0): [2, 50]} == one.seen
    one.clear()
    assert not one
    assert {} == one.seen


@pytest.mark.parametrize(
    ("stays", "part", "expected"),
    [
        ([0] * BUCKETS, 0.95, None),
        ([0, 10] + [0] * 13, 1.0, 400),
        ([95, 5] + [0] * 13, 0.95, 100),
        ([0, 100] + [0] * 13, 0.5, 200),
        ([50, 100] + [0] * 13, 2 / 3, 200),
        ([0] * 13 + [1, 0], 1.0, DWELL_BOUNDS_MS[-1]),
        ([1] + [0] * 13 + [3], 0.95, None),
        ([100] + [0] * 13 + [1], 0.5, 50),
    ],
)
def test_a_quantile_is_estimated_inside_its_bucket(stays: list[int], part: float, expected: int | None) -> None:
    """On a logarithmic scale: half of a bucket from 100 to 400 ms is 200. None beyond the last bound."""
    found = DwellTimes("on", tuple(stays)).quantile_ms(part)

    assert (found is None) == (expected is None)
    assert abs((found or 0) - (expected or 0)) <= 2


def test_the_bounds_are_four_times_apart_and_contain_the_twelve_of_the_design() -> None:
    assert [100 * 4**number for number in range(14)] == list(DWELL_BOUNDS_MS)
    assert 15 == BUCKETS
