"""One entity as a file: export from one store, import into another, replay, verify, and continue, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.charts import BoundChart, loads
from interlock.effects.handlers import Attempt
from interlock.model.encoding.codec import encode
from interlock.ports.clock import SystemClock
from interlock.ports.store import Store
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry, child_entity
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.bundle import BundleImport, BundleReader, BundleSummary, export_bundle, import_bundle
from interlock.runtime.runtime import Runtime
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import store_or_skip

TRIP = """
interlock: 1
kind: trip
context: {km: {type: integer, default: 0}}
initial: planned
states:
  planned:
    after: {30d: forgotten}
    invoke: {id: booking, type: chart, src: booking, onDone: booked}
    on: {far: {actions: [{assign: {km: "= context.km + 10"}}]}, dropped: dropped}
  booked: {expect: {within: forever}}
  forgotten: {expect: {within: forever}}
  dropped: {type: final}
"""

BOOKING = """
interlock: 1
kind: booking
initial: asking
states:
  asking:
    expect: {within: 1h}
    invoke: {id: ask, src: hotel.ask, retry: {max: 9, backoff: 1h}, onDone: free}
    on: {free: free}
  free: {type: final}
"""

STORES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/copy.db", "file://{}/copy", "postgresql:"],
    ids=["memory", "sqlite", "files", "postgresql"],
)
KEY = "trip/1/1/1"
CHILD = child_entity("booking", "booking", KEY)


def charts() -> list[BoundChart]:
    """Both charts, with a hotel that never answers."""
    trip, booking = loads(TRIP), loads(BOOKING)

    @booking.handler("hotel.ask")
    async def ask(attempt: Attempt) -> None:
        raise interlock.UnavailableError("closed", code="hotel.closed")

    return [trip, booking]


def revisions(store: Store, *bound: BoundChart) -> Revisions:
    """The revisions of a store, as a process with these charts sees them."""
    return Revisions(ChartRegistry(each.kernel for each in bound), store, SystemClock())


async def exported(store: Store, entity: str = "trip/1", **options: Any) -> tuple[list[bytes], BundleSummary]:
    """The lines of a bundle."""
    lines: list[bytes] = []
    summary = await export_bundle(store, entity, revisions(store, *charts()), lines.append, now_ms=1, **options)
    return lines, summary


async def travelled(runtime: Runtime) -> None:
    """A trip that waits for its booking, which waits for the hotel."""
    await runtime.create("trip/1")
    await runtime.send("trip/1", "far")

    async def asking() -> bool:
        try:
            return (await runtime.state(CHILD)).version == 1
        except interlock.NotFoundError:
            return False

    await eventually(asking)


@STORES
async def test_an_entity_and_its_child_go_on_in_another_store(address: str, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with interlock.open("memory:", charts=charts()) as source:
            await travelled(source)
            lines, summary = await exported(source.store)
            expected = {each: await source.journal(each) for each in ("trip/1", CHILD)}
            snapshots = {each: await source.state(each) for each in ("trip/1", CHILD)}
        assert (("trip/1", CHILD), 3, 2) == (summary.entities, summary.entries, summary.definitions)

        url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
        async with interlock.open(url, charts=charts(), work=False) as copy:
            done = await import_bundle(copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1)
            again = await import_bundle(copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1)
            assert ((3, 0, 3), (0, 3, 0)) == (
                (done.entries, done.present, done.held),
                (again.entries, again.present, again.held),
            )
            copied: list[bytes] = []
            await export_bundle(copy.store, "trip/1", revisions(copy.store), copied.append, now_ms=2)
            entries_of = [[each for each in found if each.startswith(b'{"entry"')] for found in (lines, copied)]
            assert entries_of[0] == entries_of[1]  # with the definitions that the import saved
            for entity, entries in expected.items():
                assert encode(entries) == encode(await copy.journal(entity))
                assert encode(snapshots[entity]) == encode(await copy.state(entity))
                found = await copy.verify(entity)
                assert (True, None) == (found.replayed, found.problem)
            assert copy.store.work is not None
            rows = (await copy.store.work.list_work(WorkQuery())).rows
            assert {("timer", None), ("effect", None)} == {(each.work.id.lane, each.next_ms) for each in rows}
            assert 3 == len(rows)

            assert "applied" == (await copy.send("trip/1", "far")).outcome
            assert 20 == (await copy.state("trip/1")).context["km"]
            assert "applied" == (await copy.send(CHILD, "free")).outcome
            assert "done" == (await copy.state(CHILD)).ended
            assert "done" == (await copy.send("trip/1", "dropped")).snapshot.ended  # type: ignore[union-attr]  # just applied


@STORES
async def test_with_work_a_worker_goes_on(address: str, tmp_path: Path) -> None:
    """The child's call runs again, and its result reaches the parent."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with interlock.open("memory:", charts=charts()) as source:
            await travelled(source)
            lines, _ = await exported(source.store)
        url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
        bound = [loads(TRIP), loads(BOOKING)]
        asked: list[str] = []

        @bound[1].handler("hotel.ask")
        async def ask(attempt: Attempt) -> None:
            asked.append(attempt.key)

        async with interlock.open(url, charts=bound) as copy:
            done = await import_bundle(
                copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1, with_work=True
            )
            assert 0 == done.held

            async def booked() -> bool:
                return (await copy.state("trip/1")).configuration == ("booked",)

            await eventually(booked)
        assert [f"{CHILD}/1/0"] == asked


@STORES
async def test_an_import_that_was_interrupted_continues(address: str, tmp_path: Path) -> None:
    async with interlock.open("memory:", charts=charts(), work=False) as source:
        await source.create("trip/1")
        for _ in range(4):
            await source.send("trip/1", "far")
        lines, summary = await exported(source.store)
    assert (5, ("trip/1",)) == (summary.entries, summary.entities)
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    async with interlock.open(url, charts=charts(), work=False) as copy:
        await _import_until(copy.store, lines, entries=2)
        assert 2 == (await copy.state("trip/1")).version
        done = await import_bundle(copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1)

        assert (3, 2, 2) == (done.entries, done.present, done.held)
        assert 40 == (await copy.state("trip/1")).context["km"]
        assert (await copy.verify("trip/1")).problem is None


async def _import_until(store: Store, lines: list[bytes], *, entries: int) -> None:
    """Import some entries, as a process does that dies then."""
    importing = BundleImport(store, revisions(store), now_ms=1, with_work=False)
    for line in BundleReader(lambda: lines):
        if line.entry is not None and line.entry.version > entries:
            return
        await importing.apply(line)


@STORES
async def test_other_entries_of_the_same_entity_are_a_conflict(address: str, tmp_path: Path) -> None:
    async with interlock.open("memory:", charts=charts(), work=False) as source:
        await source.create("trip/1")
        await source.send("trip/1", "far")
        lines, _ = await exported(source.store)
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    async with interlock.open(url, charts=charts(), work=False) as copy:
        await copy.create("trip/1")
        before = await copy.journal("trip/1")
        with pytest.raises(interlock.ConflictError) as other:
            await import_bundle(copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1)
        await copy.send("trip/1", "far")
        await copy.send("trip/1", "far")
        with pytest.raises(interlock.ConflictError) as ahead:
            await import_bundle(copy.store, BundleReader(lambda: lines), revisions(copy.store), now_ms=1)

        assert ("bundle.exists", "bundle.exists") == (other.value.code, ahead.value.code)
        assert before == (await copy.journal("trip/1"))[:1]
