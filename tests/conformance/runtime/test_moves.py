"""An entity that moves to another revision: its entry, its work, its replay, and who wins, on every store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import CorruptionError, NotFoundError
from interlock.evolve.move import move_key, repeat_move
from interlock.model.journal.entry import MOVED, Entry
from interlock.ports.clock import Clock, SystemClock
from interlock.ports.store import Duplicate, EntityQuery
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.entities.move_request import MoveRequest, MoveResult
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.testing.clock import VirtualClock
from tests.conformance.runtime.test_duplicate_keys import ADDRESSES
from tests.support.eventually import eventually
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

OLD = """
interlock: 1
kind: offer
revision: 1.0.0
context: {price: {type: integer, default: 10}}
initial: draft
states:
  draft: {on: {sent: open}}
  open:
    after: {2s: expired}
    on: {paid: closing, lowered: {actions: [{assign: {price: "= context.price - 1"}}]}}
  closing: {invoke: {id: charge, src: card.charge, onDone: closed, onError: open}}
  expired: {on: {revived: open}}
  closed: {type: final}
"""
NEW = (
    OLD.replace("revision: 1.0.0", "revision: 1.1.0")
    .replace("{price: {", "{note: {type: string, default: \"= 'for ' + entity.id\"}, price: {")
    .replace("2s: expired", "4s: expired")
    .replace("draft: {on", "draft: {after: {1m: expired}, on")
)
ELSE = (
    NEW.replace("1.1.0", "1.2.0")
    .replace("  draft: {after: {1m: expired}, on: {sent: open}}\n", "")
    .replace("initial: draft", "initial: open")
)

LOCAL = pytest.mark.parametrize(
    "address", ["memory:", "sqlite:///{}/x.db", "file://{}/x"], ids=["memory", "sqlite", "file"]
)
"""Stores whose due times use the clock of the runtime."""


async def charge(attempt: interlock.Attempt) -> str:
    """The handler of both revisions."""
    return attempt.key


def offer(text: str) -> BoundChart:
    """Return a revision of the offer."""
    chart = interlock.loads(text)
    chart.handler("card.charge")(charge)
    return chart


@asynccontextmanager
async def offers(address: str, folder: Path, clock: Clock | None = None) -> AsyncGenerator[Runtime, None]:
    """Return a runtime with both revisions."""
    url = store_or_skip() if address == "postgresql:" else address.format(folder)
    charts = [offer(OLD), offer(NEW)]
    async with interlock.open(url, charts=charts, clock=clock or VirtualClock(1_000), work=False) as found:
        yield found


async def begin(runtime: Runtime, *events: str) -> None:
    """Create an offer on the old revision and send it events."""
    await runtime.sender.create("offer/1", offer(OLD).kernel, {})
    for event in events:
        await runtime.send("offer/1", event)


def request(before: str = OLD, after: str = NEW, **fields: Any) -> MoveRequest:
    """Return the request to move entities of one revision to another."""
    return MoveRequest(offer(after).carrier(offer(before)), **fields)


async def moved(runtime: Runtime, **fields: Any) -> MoveResult:
    """Move the offer, which must be possible."""
    result = await runtime.mover.move("offer/1", request(**fields))
    assert "moved" == result.outcome, result.reasons
    return result


async def rows(runtime: Runtime) -> list[tuple[str, str, int]]:
    """The work of the offer: lane, name and version."""
    assert runtime.store.work is not None
    page = await runtime.store.work.list_work(WorkQuery(entity="offer/1"))
    return sorted((each.work.id.lane, each.work.name, each.work.id.version) for each in page.rows)


async def timers(runtime: Runtime) -> list[tuple[str, int, int]]:
    """The timers of the offer: name, version and due time."""
    return [(each.name, each.version, each.due_ms) for each in (await runtime.state("offer/1")).timers]


@ADDRESSES
async def test_a_move_is_one_entry_with_its_result(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path) as runtime:
        await begin(runtime, "sent")
        result = await moved(runtime, plan="p1", principal={"id": "ops"})
        entry = (await runtime.journal("offer/1"))[-1]
        state = await runtime.state("offer/1")
        listed = await runtime.list(EntityQuery(kind="offer", state="open"))
        verified = await runtime.verify("offer/1")

    assert (MOVED, "platform", "applied", "upgrade") == (
        entry.event.name,
        entry.event.type,
        entry.outcome,
        entry.reason,
    )
    assert move_key("p1", 2) == entry.key
    assert ({"note": "for offer/1", "price": 10}, 3, 3) == (state.context, state.version, state.moved)
    assert state == result.snapshot
    assert {"price"}.isdisjoint(entry.event.data["context"]["set"])
    assert [("offer/1", 3, state.revision)] == [(each.entity, each.version, each.revision) for each in listed.rows]
    assert (3, True, None) == (verified.entries, verified.replayed, verified.problem)


@ADDRESSES
async def test_a_changed_delay_replaces_the_row_of_the_timer(address: str, tmp_path: Path) -> None:
    clock = StillClock()
    async with offers(address, tmp_path, clock) as runtime:
        await begin(runtime, "sent")
        before = await timers(runtime)
        clock.time_ms += 500
        await moved(runtime)
        after = await timers(runtime)
        listed = await rows(runtime)

    assert [("after.2s.open", 2, 3_000)] == before
    assert [("after.4s.open", 3, 5_000)] == after
    assert [("timer", "after.4s.open", 3)] == listed


@LOCAL
async def test_a_moved_timer_fires_at_its_new_deadline(address: str, tmp_path: Path) -> None:
    clock = VirtualClock(1_000)
    async with offers(address, tmp_path, clock) as runtime:
        await begin(runtime, "sent")
        await clock.advance(500)
        await moved(runtime)
        worker = Worker(runtime, {})
        await worker.start()
        await clock.advance(3_000)  # past the deadline of the old timer
        waiting = (await runtime.state("offer/1")).configuration
        await clock.advance(2_000)
        expired = (await runtime.state("offer/1")).configuration
        await worker.stop()
        verified = await runtime.verify("offer/1")

    assert (("open",), ("expired",), None) == (waiting, expired, verified.problem)


@ADDRESSES
async def test_a_new_timer_counts_from_the_time_of_entry(address: str, tmp_path: Path) -> None:
    clock = StillClock()
    async with offers(address, tmp_path, clock) as runtime:
        await begin(runtime)
        clock.time_ms += 45_000
        await moved(runtime)
        work = await timers(runtime)

    assert [("after.1m.draft", 2, 61_000)] == work


@ADDRESSES
async def test_a_running_invoke_continues_over_the_move(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path, SystemClock()) as runtime:
        await begin(runtime, "sent", "paid")
        before = await rows(runtime)
        result = await moved(runtime)
        after = await rows(runtime)
        worker = Worker(runtime, {"card.charge": charge})
        await worker.start()

        async def is_closed() -> bool:
            return (await runtime.state("offer/1")).configuration == ("closed",)

        await eventually(is_closed)
        state = await runtime.state("offer/1")
        await worker.stop()
        verified = await runtime.verify("offer/1")

    assert before == after
    assert ((), "done", 4, 5, None) == (result.dropped, state.ended, state.moved, state.version, verified.problem)


@ADDRESSES
async def test_time_travel_shows_each_revision_and_replay_needs_no_mapping(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path) as runtime:
        await begin(runtime, "sent", "lowered")
        await moved(runtime)
        await runtime.send("offer/1", "lowered")
        states = [await runtime.state("offer/1", at=version) for version in range(1, 6)]
        entries = await runtime.journal("offer/1")

    assert [offer(each).chart.revision for each in (OLD, OLD, OLD, NEW, NEW)] == [each.revision for each in states]
    assert [10, 10, 9, 9, 8] == [each.context["price"] for each in states]
    assert [0, 0, 0, 4, 4] == [each.moved for each in states]
    replayed = repeat_move("offer/1", states[2], entries[3])
    assert states[3] == replayed.snapshot


async def test_a_lost_snapshot_is_rebuilt_over_a_move(tmp_path: Path) -> None:
    async with offers("file://{}/x", tmp_path) as runtime:
        await begin(runtime, "sent")
        await moved(runtime)
        before = await runtime.state("offer/1")
    _lose_snapshots(tmp_path)
    async with offers("file://{}/x", tmp_path) as runtime:
        after = await runtime.state("offer/1")
        sent = await runtime.send("offer/1", "paid", key="pay")

    assert before == after
    assert ("applied", 4) == (sent.outcome, sent.version)


def _lose_snapshots(folder: Path) -> None:
    for each in folder.rglob("state.json"):
        each.unlink()


@ADDRESSES
async def test_an_entity_that_cannot_be_carried_stays_and_the_reasons_are_given(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path) as runtime:
        await begin(runtime)
        result = await runtime.mover.move("offer/1", request(after=ELSE))
        await runtime.send("offer/1", "sent")
        entries = await runtime.journal("offer/1")

    assert "stays" == result.outcome
    assert any("state.removed" in each for each in result.reasons)
    assert [1, 2] == [each.version for each in entries]


@ADDRESSES
async def test_a_move_does_nothing_on_another_revision(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path) as runtime:
        await begin(runtime)
        await moved(runtime)
        again = await runtime.mover.move("offer/1", request())
        with pytest.raises(NotFoundError):
            await runtime.mover.move("offer/2", request())

    assert ("elsewhere", 2) == (again.outcome, again.snapshot.version)


@ADDRESSES
async def test_a_move_that_loses_the_swap_is_decided_again(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path, StillClock()) as runtime:
        await begin(runtime, "sent")
        other = Runtime(runtime.store, runtime.charts, runtime.clock)
        await other.state("offer/1")  # cached, and stale after the next line
        await runtime.send("offer/1", "lowered")
        result = await other.mover.move("offer/1", request())
        paid = await runtime.send("offer/1", "paid")  # its own cache is stale now
        key = await runtime.store.load("offer/1", key=move_key(result.snapshot.revision, 3))
        verified = await runtime.verify("offer/1")

    assert ("moved", 4, 9) == (result.outcome, result.snapshot.version, result.snapshot.context["price"])
    assert ("applied", 5) == (paid.outcome, paid.version)
    assert Duplicate(4) == key
    assert verified.problem is None


@ADDRESSES
async def test_a_migration_does_not_fill_the_cache(address: str, tmp_path: Path) -> None:
    async with offers(address, tmp_path) as runtime:
        await begin(runtime)
        await moved(runtime, is_cached=False)
        cached = "offer/1" in runtime.entities.snapshots
        after = await runtime.send("offer/1", "sent")

    assert (False, "applied", 3) == (cached, after.outcome, after.version)


@pytest.mark.parametrize(
    "change",
    [{"from": "9.9.9+000000000000"}, {"to": "9.9.9+000000000000"}, {"timers": [{"name": 7}]}, {"context": 3}],
    ids=["from", "to", "timers", "context"],
)
async def test_a_move_that_cannot_follow_its_snapshot_is_damage(change: dict[str, Any], tmp_path: Path) -> None:
    async with offers("memory:", tmp_path) as runtime:
        await begin(runtime, "sent")
        before = await runtime.state("offer/1")
        await moved(runtime)
        entry = (await runtime.journal("offer/1"))[-1]
    event = msgspec.structs.replace(entry.event, data={**entry.event.data, **change})
    with pytest.raises(CorruptionError) as raised:
        repeat_move("offer/1", before, msgspec.structs.replace(entry, event=event))

    assert "journal.move" == raised.value.code


async def test_a_forged_patch_is_found_by_verify_and_by_replay(tmp_path: Path) -> None:
    async with offers("memory:", tmp_path) as runtime:
        await begin(runtime, "sent")
        await moved(runtime)
        entry = (await runtime.journal("offer/1"))[-1]
        patch = {**entry.event.data, "context": {"set": {"price": 1, "note": "x"}, "unset": []}}
        forged = msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, data=patch))
        _forge(runtime, forged)
        problem = (await runtime.verify("offer/1")).problem

    assert problem is not None
    assert ("snapshot.digest", 3, True) == (problem.code, problem.version, problem.is_corruption)


def _forge(runtime: Runtime, entry: Entry) -> None:
    """Exchange an entry behind the back of a memory store."""
    records = runtime.store._entities["offer/1"].records  # type: ignore[attr-defined]  # the store is a MemoryStore
    records[entry.version - 1] = msgspec.structs.replace(records[entry.version - 1], entry=entry)


@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/x.db"], ids=["memory", "sqlite"])
async def test_a_move_that_changes_no_state_sends_no_message(address: str, tmp_path: Path) -> None:
    renamed = OLD.replace("revision: 1.0.0", "revision: 2.0.0").replace("initial: draft", "initial: plan")
    renamed = renamed.replace("  draft: ", "  plan: ").replace("kind: offer\n", "kind: offer\nrenamed: {draft: plan}\n")
    async with offers(address, tmp_path) as made:
        runtime = Runtime(
            made.store, ChartRegistry(offer(each).kernel for each in (OLD, NEW, renamed)), made.clock, messages=True
        )
        await begin(runtime)
        created = await rows(runtime)
        await moved(runtime)
        quiet = await rows(runtime)
        await runtime.mover.move("offer/1", request(NEW, renamed))
        loud = await rows(runtime)

    assert 1 == sum(lane == "message" for lane, *_ in created)
    assert 1 == sum(lane == "message" for lane, *_ in quiet)
    assert 2 == sum(lane == "message" for lane, *_ in loud)
