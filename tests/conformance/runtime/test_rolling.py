"""Two runtimes with different newest charts on one store: single moments of a rolling deployment, by name.

The whole deployment, with processes that are killed, is `tests/crash/rolling`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import MOVED
from interlock.operate.jobs.job import Bulk
from interlock.operate.jobs.runner import JobRunner
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.delivery import EntityDelivery
from tests.conformance.runtime.test_upgrades import NEW, OLD, SAFE, STORES, moves
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

pytestmark = pytest.mark.conformance

Process = Callable[..., Runtime]


class Scene:
    """One store, its clock, and processes on it."""

    def __init__(self, runtime: Runtime, clock: StillClock) -> None:
        self.store = runtime.store
        self.clock = clock

    def process(self, *texts: str) -> Runtime:
        """Return the runtime of another process with these charts."""
        return Runtime(self.store, ChartRegistry(interlock.loads(each).kernel for each in texts), self.clock)


@pytest.fixture(params=STORES)
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A store of each kind."""
    address = STORES[request.param]
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    clock = StillClock()
    async with AsyncExitStack() as stack:
        charts = [interlock.loads(OLD)]
        first = await stack.enter_async_context(interlock.open(url, charts=charts, clock=clock, work=False))
        yield Scene(first, clock)


# Trap 6: a worker claims a timer, the policy moves the entity, the worker fires what it claimed


async def test_a_timer_that_was_claimed_before_the_move_does_not_fire_early(scene: Scene) -> None:
    await scene.process(OLD).create("ticket/1")
    newer = scene.process(SAFE)
    scene.clock.time_ms += 2_500
    fired = await EntityDelivery(newer).fire_timers("ticket/1")
    assert scene.store.work is not None
    page = await scene.store.work.list_work(WorkQuery(entity="ticket/1"))
    (timer,) = (await newer.state("ticket/1")).timers

    assert (frozenset(), [2]) == (fired.fired, await moves(newer))
    assert [(timer.version, timer.ordinal, 5_000)] == [
        (each.work.id.version, each.work.id.ordinal, each.work.due_ms) for each in page.rows
    ]


# Trap 7: `expected`, and a move that comes between


class _Interrupted(StillClock):
    """A clock during whose first wait something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: list[Callable[[], object]] = []

    async def sleep_ms(self, ms: float) -> None:
        """Let it happen once."""
        while self.happens:
            result = self.happens.pop()()
            if asyncio.iscoroutine(result):
                await result
        await super().sleep_ms(ms)


async def test_a_bulk_sends_to_an_entity_that_was_only_moved_meanwhile(scene: Scene) -> None:
    older = scene.process(OLD)
    for number in (1, 2, 3):
        await older.create(f"ticket/{number}")
        scene.clock.time_ms += 1
    clock, newer = _Interrupted(), scene.process(SAFE)
    clock.time_ms = scene.clock.time_ms + 1_000
    bulk_runtime = Runtime(scene.store, older.charts, clock)
    jobs = JobRunner(bulk_runtime, durable=False)
    listed = (await scene.store.find(EntityQuery(kind="ticket"))).rows

    async def meanwhile() -> None:
        assert await newer.mover.upgrade(listed[1].entity)
        await older.send(listed[2].entity, "lowered")

    clock.happens.append(meanwhile)
    query = EntityQuery(kind="ticket", state="open")
    bulk = Bulk(query, "lowered", None, {"id": "ada", "roles": []}, encode({}), dry_run=False, per_second=1_000)
    job = await jobs.start_bulk("ada", bulk, reason="sale")
    await jobs._runs[job.id].task  # type: ignore[misc]  # it was started

    assert {"applied": 2, "skipped": 1} == job.outcomes
    assert [MOVED, "lowered"] == [each.event.name for each in (await newer.journal(listed[1].entity))[1:]]


# Trap 22: the definition is written before the entry


async def test_no_entry_is_written_while_its_definition_cannot_be_saved(scene: Scene) -> None:
    await scene.process(OLD).create("ticket/1")
    newer, older = scene.process(SAFE), scene.process(OLD)
    failing = UnavailableError("the disk is gone", code="store.io")
    definitions = type(scene.store.definitions)
    with patch.object(definitions, "save_definition", side_effect=failing):
        for call in (newer.create("ticket/2"), newer.send("ticket/1", "lowered")):
            with pytest.raises(UnavailableError):
                await call

    assert 1 == (await older.state("ticket/1")).version
    assert [] == [each.entity for each in (await scene.store.find(EntityQuery(kind="ticket", prefix="2"))).rows]
    assert "applied" == (await newer.send("ticket/1", "lowered")).outcome


async def test_a_definition_without_an_entry_is_harmless(scene: Scene) -> None:
    """The process ended between its two writes."""
    older = scene.process(OLD)
    await older.create("ticket/1")
    await scene.process(SAFE).revisions.register_kind("ticket")
    sent = await older.send("ticket/1", "lowered")
    await older.create("ticket/2")

    assert ("applied", []) == (sent.outcome, await moves(older))
    assert [None, None] == [each.problem async for each in older.verify_all()]


# Trap 32: two hosts register different successors at the same time

OTHER = SAFE.replace("4s: expired", "6s: expired")  # with the label of SAFE: neither is the lower one (decision 0107)


async def test_of_two_successors_that_arrive_together_one_is_the_later(scene: Scene) -> None:
    older, one, other = scene.process(OLD), scene.process(SAFE), scene.process(OTHER)
    await older.create("ticket/1")
    await asyncio.gather(one.create("ticket/one"), other.create("ticket/other"))
    for turn in range(3):
        for entity in ("ticket/1", "ticket/one", "ticket/other"):
            await asyncio.gather(*(each.send(entity, "lowered", key=f"{turn}-{id(each)}") for each in (one, other)))
    assert scene.store.definitions is not None
    editions = await scene.store.definitions.list_definitions("ticket")
    order = {each.revision: each.sequence for each in editions}
    last = max(order, key=lambda each: order[each])
    states = [await one.state(entity) for entity in ("ticket/1", "ticket/one", "ticket/other")]

    assert [1, 2, 3] == sorted(order.values())
    assert {last} == {each.revision for each in states}
    for entity in ("ticket/1", "ticket/one", "ticket/other"):
        revisions = [order[each.revision] for each in await one.journal(entity)]
        assert revisions == sorted(revisions)
        assert (await one.verify(entity)).problem is None


async def test_a_pinned_successor_leaves_entities_where_they_are(scene: Scene) -> None:
    older, newer = scene.process(OLD), scene.process(NEW)
    await older.create("ticket/1")
    await newer.create("ticket/2")
    for turn in range(3):
        for each in (older, newer):
            for entity in ("ticket/1", "ticket/2"):
                assert "applied" == (await each.send(entity, "lowered", key=f"{turn}-{id(each)}")).outcome

    assert [[], []] == [await moves(older, "ticket/1"), await moves(older, "ticket/2")]
