"""Each entry records the hash of its snapshot: a replay that gives another one is reported on every store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import CorruptionError, UnavailableError
from interlock.model.encoding.codec import encode, snapshot_digest
from interlock.model.journal.entry import Entry
from interlock.ports.store import Append, AppendResult, Loaded, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

METER = """
interlock: 1
kind: meter
revision: 1.0.0
context: {n: {type: integer, default: 0}}
initial: on
states: {on: {expect: {within: forever}}}
on: {read: {actions: [{assign: count}]}, reset: {actions: [{assign: {n: 0}}]}}
"""
ADDRESSES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/x.db", "file://{}/x", "postgresql:"],
    ids=["memory", "sqlite", "file", "postgresql"],
)


def meter(step: int = 1) -> BoundChart:
    """Return the chart with an assign function that adds `step`: another one is a changed function."""
    chart = interlock.loads(METER)

    @chart.assign("count")
    def count(context: dict[str, Any], event: interlock.Event) -> dict[str, Any]:
        return {"n": context["n"] + step}

    return chart


@asynccontextmanager
async def opened(url: str, chart: BoundChart) -> AsyncGenerator[Runtime, None]:
    """Return a runtime without a worker."""
    async with interlock.open(url, charts=[chart], work=False) as found:
        yield found


def url_of(address: str, folder: Path) -> str:
    """The address of an empty store."""
    return store_or_skip() if address == "postgresql:" else address.format(folder)


def registry(chart: BoundChart) -> ChartRegistry:
    """The charts of a process that has this one."""
    return ChartRegistry([chart.kernel])


def revisions(chart: BoundChart) -> Revisions:
    """The revisions of a process that has this chart, with an empty store."""
    return Revisions(registry(chart), MemoryStore(), StillClock())


@ADDRESSES
async def test_each_entry_has_the_hash_of_the_stored_snapshot(address: str, tmp_path: Path) -> None:
    async with opened(url_of(address, tmp_path), meter()) as runtime:
        created = await runtime.create("meter/1", {"n": 2**70})
        read = await runtime.send("meter/1", "read")
        entries = await runtime.journal("meter/1")
        found = await runtime.store.load("meter/1")
        verified = await runtime.verify("meter/1")

    assert [snapshot_digest(encode(each.snapshot)) for each in (created, read)] == [each.digest for each in entries]
    assert isinstance(found, Loaded)
    assert (True, None) == (verified.replayed, verified.problem)


@ADDRESSES
async def test_a_changed_function_is_reported_at_the_first_entry_it_changes(address: str, tmp_path: Path) -> None:
    async with opened(url_of(address, tmp_path), meter()) as runtime:
        await runtime.create("meter/1")
        for event in ("reset", "read", "read"):
            await runtime.send("meter/1", event)
        changed = Runtime(runtime.store, registry(meter(2)), runtime.clock)
        problem = (await changed.verify("meter/1")).problem
        before = await changed.state("meter/1", at=2)
        with pytest.raises(CorruptionError) as raised:
            await changed.state("meter/1", at=3)

    assert problem is not None
    assert ("snapshot.digest", 3, True) == (problem.code, problem.version, problem.is_corruption)
    assert ({"n": 0}, "snapshot.digest") == (before.context, raised.value.code)
    assert raised.value.hint is not None
    assert "function" in raised.value.hint


async def test_a_lost_state_file_and_an_impure_function_stop_the_entity(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/x"
    async with opened(url, meter()) as runtime:
        await runtime.create("meter/1")
        for _ in range(7):
            await runtime.send("meter/1", "read")
    _lose_snapshots(tmp_path)
    async with opened(url, meter(2)) as changed:
        with pytest.raises(CorruptionError) as sent:
            await changed.send("meter/1", "read")
        with pytest.raises(CorruptionError) as shown:
            await changed.state("meter/1")
    async with opened(url, meter()) as right:
        after = await right.send("meter/1", "read")

    assert {"snapshot.digest"} == {sent.value.code, shown.value.code}
    assert after.snapshot is not None
    assert (9, {"n": 8}) == (after.version, after.snapshot.context)


def _lose_snapshots(folder: Path) -> None:
    for each in folder.rglob("state.json"):
        each.unlink()


async def test_a_wrong_row_is_reported_with_the_fields_that_differ(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with opened(url, meter()) as runtime:
        await runtime.create("meter/1")
        await runtime.send("meter/1", "read")
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        (body,) = database.execute("SELECT snapshot FROM entity").fetchone()
        text = body if isinstance(body, bytes) else body.encode()
        database.execute("UPDATE entity SET snapshot = ?", (text.replace(b'"n":1', b'"n":7'),))
    async with opened(url, meter()) as runtime:
        problem = (await runtime.verify("meter/1")).problem

    assert problem is not None
    assert problem.is_corruption
    assert "`context` of the stored snapshot differs" in problem.message


@pytest.mark.parametrize("body", [b"", b"{}"], ids=["empty", "without fields"])
@pytest.mark.parametrize("step", [1, 2], ids=["same function", "changed function"])
async def test_a_deleted_snapshot_in_a_database_is_reported(tmp_path: Path, body: bytes, step: int) -> None:
    """The row cannot be NULL. Nothing replaces it in silence, neither by a step nor by a refold."""
    url = f"sqlite:///{tmp_path}/x.db"
    async with opened(url, meter()) as runtime:
        await runtime.create("meter/1")
        await runtime.send("meter/1", "read")
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("UPDATE entity SET snapshot = NULL")
        database.execute("UPDATE entity SET snapshot = ?", (body,))
    async with opened(url, meter(step)) as runtime:
        with pytest.raises(CorruptionError):
            await runtime.send("meter/1", "read")
        problem = (await runtime.verify("meter/1")).problem
        report = await runtime.refold("meter", reason="a test")

    assert problem is not None
    assert problem.is_corruption
    assert (0, 1) == (report.entities, len(report.gaps))


async def test_a_lost_state_file_is_replayed_by_its_own_chart_and_a_refold_says_what_differs(tmp_path: Path) -> None:
    """Deleting a snapshot does not activate a corrected chart: only a refold does, and it leaves an entry."""
    text = METER.replace("[{assign: count}]", '[{assign: {n: "= context.n + 1"}}]')
    old, fixed = interlock.loads(text), interlock.loads(text.replace("n + 1", "n + 2"))
    url = f"file://{tmp_path}/x"
    async with opened(url, old) as runtime:
        await runtime.create("meter/1")
        await runtime.send("meter/1", "read")
    _lose_snapshots(tmp_path)
    async with opened(url, fixed) as runtime:
        before = await runtime.state("meter/1")
        report = await runtime.refold("meter", reason="twice as much")
        after = await runtime.state("meter/1")
        entries = await runtime.journal("meter/1")

    assert ({"n": 1}, {"n": 2}, 1) == (before.context, after.context, report.corrected)
    assert ("refold", "twice as much") == (entries[-1].reason, entries[-1].reason_given)


class _Earlier:
    """A store as an earlier release writes it: entries have no hash."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, append: Append) -> AppendResult:
        """Append without the hash."""
        return await self._store.append(msgspec.structs.replace(append, entry=_without_hash(append.entry)))


def _without_hash(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, digest=None)


@ADDRESSES
async def test_entries_of_an_earlier_release_are_valid_and_new_ones_are_checked(address: str, tmp_path: Path) -> None:
    async with opened(url_of(address, tmp_path), meter()) as runtime:
        store = runtime.store
        earlier = Runtime(cast(Store, _Earlier(store)), registry(meter()), runtime.clock)
        await earlier.create("meter/1")
        await earlier.send("meter/1", "read")
        old = await runtime.journal("meter/1")
        unchecked = await Runtime(store, registry(meter(2)), runtime.clock).verify("meter/1")
        await runtime.send("meter/1", "read")
        verified = await runtime.verify("meter/1")
        checked = await Runtime(store, registry(meter(2)), runtime.clock).verify("meter/1")

    assert [None, None] == [each.digest for each in old]
    assert (3, True, None) == (verified.entries, verified.replayed, verified.problem)
    assert unchecked.problem is None or "stored snapshot" in unchecked.problem.message
    assert checked.problem is not None
    assert ("snapshot.digest", 3) == (checked.problem.code, checked.problem.version)


async def test_only_the_last_hash_is_compared_when_an_entity_is_loaded() -> None:
    chart = meter()
    entries: list[Entry] = []
    snapshot = None
    for version, name in enumerate(("_create", "read", "read"), start=1):
        event = interlock.Event(name, {"context": {}} if snapshot is None else None, time_ms=version)
        step = chart.start(entity="meter/1") if snapshot is None else chart.step(snapshot, event)
        snapshot = step.snapshot
        digest = snapshot_digest(encode(snapshot))
        entries.append(Entry(version, event, "applied", (), ("on",), snapshot.revision, f"k{version}", digest=digest))
    wrong = msgspec.structs.replace(entries[1], digest="0" * 16)
    unhashed = _without_hash(entries[2])

    assert snapshot == await replay(revisions(chart), "meter/1", None, [entries[0], wrong, entries[2]])
    with pytest.raises(CorruptionError) as raised:
        await replay(revisions(chart), "meter/1", None, [entries[0], wrong, unhashed])
    assert "snapshot.digest" == raised.value.code


async def test_a_compatible_chart_that_gives_another_snapshot_proves_nothing() -> None:
    chart = meter()
    step = chart.start(entity="meter/1")
    event = interlock.Event("_create", {"context": {}})
    labelled = next(each for each in chart.chart.other_names if "+" in each)  # `compatible` compares the label
    before = msgspec.structs.replace(step.snapshot, revision=labelled)
    entry = Entry(1, event, "applied", (), ("on",), labelled, "k", digest=snapshot_digest(encode(before)))
    text = METER.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1 <2"')
    text = text.replace("read: {actions: [{assign: count}]}, ", "")
    same = interlock.loads(text)
    more = interlock.loads(text.replace("context: {", "context: {m: {type: integer, default: 0}, "))

    assert before == await replay(revisions(same), "meter/1", None, [entry])
    with pytest.raises(UnavailableError) as raised:
        await replay(revisions(more), "meter/1", None, [entry])
    assert "revision.unknown" == raised.value.code
