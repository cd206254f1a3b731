"""Entities that ended without a final state are counted separately."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.observe.notebook import show
from interlock.ports.store import EntityQuery, EntityRow
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually
from tests.unit.web.consoles import KEY, Client, open_console

HOUR_MS = 3_600_000
PATIENCE = 2_000
"""Polls, 5 ms apart, until a worker has finished."""

VISIT = """
interlock: 1
kind: visit
initial: planned
states:
  planned: {invoke: {id: stay, type: chart, src: stay}, on: {dropped: over}}
  over: {type: final}
"""
STAY = """
interlock: 1
kind: stay
initial: open
states:
  open:
    tags: [guest]
    initial: booked
    on: {left: gone}
    states: {booked: {expect: {within: 1h}}}
  gone: {type: final}
"""


@asynccontextmanager
async def visits(url: str) -> AsyncIterator[Client]:
    """Three visits, each with a stay: one was dropped, so its stay is cancelled; one stay is over; one goes on."""
    clock = VirtualClock(1_000_000_000_000)
    charts = (interlock.loads(VISIT), interlock.loads(STAY))
    async with open_console(url, charts=charts, clock=clock, work=True) as client:
        runtime = client.runtime
        for number in range(3):
            await runtime.create(f"visit/{number}")
        await stays(client, clock, 3, [None])
        await runtime.send("visit/0", "dropped")
        rows = await stays(client, clock, 3, [None, "cancelled"])
        await runtime.send(next(each.entity for each in rows if each.ended is None), "left")
        clock.time_ms += 2 * HOUR_MS
        yield client


async def stays(client: Client, clock: VirtualClock, count: int, ends: list[str | None]) -> tuple[EntityRow, ...]:
    """Return the stays once there is this number of them and they ended in these ways."""

    async def found() -> Any:
        await clock.advance(10)
        rows = (await client.runtime.store.find(EntityQuery(kind="stay"))).rows
        return rows if (count, set(ends)) == (len(rows), {each.ended for each in rows}) else None

    rows: tuple[EntityRow, ...] = await eventually(found, f"{count} stays that ended as {ends}")
    return rows


async def asked(client: Client, path: str) -> Any:
    """Return the response to a request with a key: a session ends before a stay does."""
    return (await client.get(path, headers={"Authorization": f"Bearer {KEY}"})).json()


@pytest.fixture(params=["memory", "sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty store, with or without counters."""
    places = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/x.db", "file": f"file:{tmp_path}/x"}
    return places[request.param]


def populated(states: list[dict[str, Any]]) -> dict[str, tuple[str, int]]:
    """Return type and population of the states that have one."""
    return {each["id"]: (each["type"], each["entities"]) for each in states if each["entities"]}


async def test_cancelled_entities_are_counted_separately(url: str) -> None:
    async with visits(url) as client:
        view = (await asked(client, "kinds/stay"))["kind"]

    assert (3, [3]) == (view["entities"], [each["entities"] for each in view["revisions"]])
    assert {
        "open": ("compound", 1),
        "open.booked": ("atomic", 1),
        "gone": ("final", 1),
        ":cancelled": ("ended", 1),
    } == populated(view["states"])


async def test_cancelled_entity_is_never_stuck() -> None:
    async with visits("memory:") as client:
        view = (await asked(client, "kinds/stay"))["kind"]
        late = (await asked(client, "kinds/stay/entities?state=open.booked&older=1h"))["rows"]
        off = (await asked(client, "kinds/stay/entities?state=%3Acancelled"))["rows"]

    assert (1, [None], ["cancelled"]) == (view["stuck"], [e["ended"] for e in late], [e["ended"] for e in off])


async def test_kind_with_only_cancelled_entities_has_entities() -> None:
    clock = VirtualClock(1_000_000_000_000)
    charts = (interlock.loads(VISIT), interlock.loads(STAY))
    async with open_console(charts=charts, clock=clock, work=True) as client:
        await client.runtime.create("visit/0")
        await stays(client, clock, 1, [None])
        await client.runtime.send("visit/0", "dropped")
        await stays(client, clock, 1, ["cancelled"])
        view = (await asked(client, "kinds/stay"))["kind"]
        shown: Any = await show(client.runtime, "stay")

    assert (1, {":cancelled": ("ended", 1)}) == (view["entities"], populated(view["states"]))
    assert (1, (":cancelled", 1)) == (shown.entities, shown.states[-1])


async def test_notebook_lists_cancelled_entities_after_the_states(url: str) -> None:
    async with visits(url) as client:
        shown: Any = await show(client.runtime, "stay")

    assert 3 == shown.entities
    assert {"open.booked": 1, "gone": 1, ":cancelled": 1} == {
        name: count for name, count in shown.states if count and name != "open"
    }
