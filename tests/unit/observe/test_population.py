"""Populations, rates and stuck entities: the numbers that `top`, the console and the demo show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.commands.entities.top import overview_lines
from interlock.observe.population import overview, recent_rate
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
