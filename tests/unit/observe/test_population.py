"""Populations, rates and stuck entities: the numbers that `top`, the console and the demo show."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.commands.entities.top import overview_lines, rate_text
from interlock.observe.population import dwell_quantiles, overview, recent_rate
from interlock.observe.stuck import stuck_entities
from interlock.ports.reading.statistics import MinuteRates
from interlock.ports.store import EntityQuery
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually

HOUR_MS = 3_600_000


def test_the_rate_is_that_of_the_last_minute() -> None:
    minutes = (MinuteRates(0, 10_000, 0, 0), MinuteRates(60_000, 600, 0, 0), MinuteRates(120_000, 300, 100, 0))

    assert (10.0, 1 / 7) == recent_rate(minutes, 150_000)
    assert (0.0, 0.0) == recent_rate((), 150_000)


STAY = "interlock: 1\nkind: stay\ninitial: booked\nstates: {booked: {expect: {within: 1h}}}\n"
VISIT = """
interlock: 1
kind: visit
initial: planned
states:
  planned: {invoke: {id: stay, type: chart, src: stay}, on: {dropped: over}}
  over: {type: final}
"""


async def visited(visits: Any, clock: VirtualClock) -> None:
    """Create two visits with a stay each; the first is dropped, so its stay is cancelled. The other is stuck."""
    for number in (1, 2):
        await visits.create(f"visit/{number}")
        await stays(visits, clock, [None] if number == 1 else ["cancelled", None])
        if number == 1:
            await visits.send("visit/1", "dropped")
            await stays(visits, clock, ["cancelled"])
    clock.time_ms += 2 * HOUR_MS


async def stays(visits: Any, clock: VirtualClock, ends: list[str | None]) -> None:
    """Wait until the stays ended in these ways."""

    async def is_so() -> bool:
        await clock.advance(10)
        rows = (await visits.store.find(EntityQuery(kind="stay"))).rows
        return sorted(map(str, ends)) == sorted(str(each.ended) for each in rows)

    await eventually(is_so, f"stays that ended as {ends}")


@pytest.mark.parametrize("url", ["memory:", "sqlite:///stays.db", "file:./stays"])
async def test_a_cancelled_entity_does_not_hide_a_stuck_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clock, charts = VirtualClock(), [interlock.loads(VISIT), interlock.loads(STAY)]
    async with interlock.open(url, charts=charts, clock=clock) as visits:
        await visited(visits, clock)
        ends = {each.entity: each.ended for each in (await visits.store.find(EntityQuery(kind="stay"))).rows}
        late = await stuck_entities(visits, None, 1)

    assert {"cancelled", None} == set(ends.values())
    assert [None] == [ends[each.entity] for each in late]


async def test_cancelled_entities_count_as_ended_with_and_without_a_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clock, charts = VirtualClock(), [interlock.loads(VISIT), interlock.loads(STAY)]
    async with interlock.open("sqlite:///stays.db", charts=charts, clock=clock) as visits:
        await visited(visits, clock)
        known = await overview(visits, "stay")
        off = await visits.store.find(EntityQuery(kind="stay", state=":cancelled"))
    async with interlock.open("sqlite:///stays.db", charts=charts[:1], clock=clock, work=False) as strangers:
        unknown = await overview(strangers, "stay")
    (stay,), (strange,) = known.kinds, unknown.kinds

    assert (2, 1) == (stay.entities, stay.stuck)
    for kind in (stay, strange):
        assert {("booked", 1, False), (":cancelled", 1, True)} == {
            (each.id, each.entities, each.is_ended) for each in kind.states
        }
    last = list(overview_lines(known, 80))[-1]
    assert "  ended: :cancelled 1" == "".join(part if isinstance(part, str) else part[0] for part in last)
    assert ["cancelled"] == [each.ended for each in off.rows]


async def test_top_and_the_console_write_the_same_rate() -> None:
    """`rate` in `components.js` has the same steps: nothing below a twentieth, one digit below a hundred."""
    script = (files("interlock.web") / "static" / "components.js").read_text(encoding="utf-8")

    assert 'value >= 100 ? number(Math.round(value)) : value >= 0.05 ? value.toFixed(1) : "0"' in script
    assert ["0", "0.1", "9.9", "12.3", "100", "1,842"] == [
        rate_text(each) for each in (0.04, 0.06, 9.94, 12.34, 100.4, 1_842.4)
    ]


LEAVE = "interlock: 1\nkind: room\ninitial: booked\nstates: {booked: {on: {leave: left}}, left: {type: final}}\n"


async def test_quantiles_of_all_pages_come_from_the_same_counts() -> None:
    """Half of the stays took up to 0.4 s and half up to 1.6 s, by what the store counted."""
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[interlock.loads(LEAVE)], clock=clock, work=False) as runtime:
        for number in range(20):
            await runtime.create(f"room/{number}")
        clock.time_ms += 300
        for number in range(10):
            await cancelled(runtime, f"room/{number}")
        clock.time_ms += 1_000
        for number in range(10, 20):
            await cancelled(runtime, f"room/{number}")
        found = (await dwell_quantiles(runtime, "room"))["booked"]
        (kind,) = (await overview(runtime, "room")).kinds
        shown = next(each for each in kind.states if each.id == "booked")

    assert (400, 1_393) == (found.p50_ms, found.p95_ms)
    assert found == (shown.p50_ms, shown.p95_ms, shown.p99_ms, shown.p999_ms)


async def cancelled(runtime: Any, entity: str) -> None:
    """End an entity from outside."""
    (await runtime.send(entity, "leave")).expect()


async def test_ages_are_those_of_the_oldest_entity_of_each_active_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("memory:", "sqlite:///ages.db", "file:./ages"):
        clock = VirtualClock()
        async with interlock.open(url, charts=[interlock.loads(VISIT), interlock.loads(STAY)], clock=clock) as visits:
            await visited(visits, clock)  # of two stays one was cancelled, and the other is old
            ages = await visits.ages("visit"), await visits.ages("stay")
            with pytest.raises(interlock.NotFoundError):
                await visits.ages("unknown")

        assert ["planned"] == list(ages[0]), url
        assert ["booked"] == list(ages[1]), url
        assert all(2 * HOUR_MS <= each["planned" if n == 0 else "booked"] for n, each in enumerate(ages)), url


@pytest.mark.parametrize("url", ["memory:", "sqlite:///stays.db"])
async def test_held_entities_are_not_stuck(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one by one nor as a kind; the list and the counts agree."""
    monkeypatch.chdir(tmp_path)
    clock = VirtualClock(autojump=True)
    text = "interlock: 1\nkind: order\nstates: {open: {expect: {within: 1s}, on: {pay: paid}}, paid: {}}\n"
    counts = []
    async with interlock.open(url, charts=[interlock.loads(text)], clock=clock, work=False) as orders:

        async def note() -> None:
            (kind,) = (await overview(orders, "order")).kinds
            counts.append((kind.stuck, len(await stuck_entities(orders, "order", 10))))

        for number in range(3):
            await orders.create(f"order/{number}")
        await clock.sleep_ms(2_000)
        await note()
        await orders.hold("order/1", reason="case 118")
        await note()
        await orders.hold_kind("order", reason="case 119")
        await note()

    assert [(3, 3), (2, 2), (0, 0)] == counts
