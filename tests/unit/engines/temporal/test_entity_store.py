"""The store of one entity inside a workflow: it remembers keys, and is handed from one history to the next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from interlock.engines.temporal.entity_store import EntityStore
from interlock.engines.temporal.host import LocalDefinitions
from interlock.engines.temporal.wire import Carried
from interlock.errors import ArchivedError, CorruptionError
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.model.limits import ENGINE_CARRIED_BYTES_MAX, ENGINE_KEYS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended, Conflict, Duplicate, KeyExpired, Loaded

ENTITY = "order/1"


def store_with(entries: int = 0, *, data: Any = None, mirrored: bool = False) -> EntityStore:
    """A store with so many entries."""
    store = EntityStore(LocalDefinitions(), lambda _: None, mirrored=mirrored)
    return filled(store, entries, data=data)


def filled(store: EntityStore, entries: int, *, data: Any = None) -> EntityStore:
    """The store with more entries."""
    import asyncio

    for _ in range(entries):
        asyncio.run(appended(store, data=data))
    return store


async def appended(store: EntityStore, *, key: str | None = None, data: Any = None, **options: Any) -> Any:
    """The result of one more append."""
    version = store.version + 1
    event = Event("_create" if version == 1 else "go", data, time_ms=version * 10)
    snapshot = Snapshot("order", ENTITY, version, "r", ("a",), {})
    entry = Entry(version, event, "applied", (), ("a",), "r", key or f"k-{version}")
    return await store.append(Append("order", ENTITY, version - 1, entry, snapshot, ("a",), **options))


async def test_a_key_counts_once_and_a_version_is_written_once() -> None:
    store = store_with()
    assert isinstance(await appended(store, key="a"), Appended)
    snapshot = Snapshot("order", ENTITY, 3, "r", ("a",), {})
    entry = Entry(3, Event("go"), "applied", (), ("a",), "r", "b")

    assert await appended(store, key="a") == Duplicate(1)
    assert await store.append(Append("order", ENTITY, 2, entry, snapshot)) == Conflict(1)
    assert await store.load(ENTITY, key="a") == Duplicate(1)
    assert isinstance(await store.load(ENTITY), Loaded)
    assert await store.load("order/2") is None


async def test_an_event_that_is_older_than_a_forgotten_key_is_refused() -> None:
    store = store_with()
    for _ in range(ENGINE_KEYS_MAX + 1):
        await appended(store)

    assert await appended(store, sent_ms=10) == KeyExpired(ENGINE_KEYS_MAX + 1, 10)
    assert isinstance(await appended(store, sent_ms=11), Appended)
    assert isinstance(await store.load(ENTITY, key="k-1"), Loaded)
    assert await store.load(ENTITY, key="k-3") == Duplicate(3)


async def test_the_next_history_has_the_entity_its_keys_and_its_work() -> None:
    """Also through the JSON of a workflow's arguments."""
    store = store_with()
    work = Work(WorkId("effect", 1, 0), "charge", {"input": 1}, 10)
    store.call = "call-1"
    await appended(store, work=WorkDelta((work,)))
    await appended(store)
    (claim,) = store.table.claim("effect", None, owner="w", now_ms=20, until_ms=2**62, limit=5)
    later = EntityStore(LocalDefinitions(), lambda _: None, mirrored=False)
    later.restore(msgspec.json.decode(encode(store.carried()), type=Carried))

    assert later.view("k-2") == store.view("k-2")
    assert [each.line for each in await later.read(ENTITY)] == [each.line for each in await store.read(ENTITY)]
    assert (later.call_of(1), later.call_of(2), later.call_of(9)) == ("call-1", "call-1", None)
    (again,) = later.table.claim("effect", None, owner="w", now_ms=20, until_ms=2**62, limit=5)
    assert again == replace(claim, attempt=2)
    assert later.has_work()
    assert isinstance(await appended(later), Appended)
    assert [each.version for each in await later.read(ENTITY, after=1)] == [2, 3]


async def test_only_the_newest_entries_are_carried_unless_the_mirror_lacks_them() -> None:
    big = {"text": "x" * (ENGINE_CARRIED_BYTES_MAX // 3)}
    kept, mirrored = store_with(), store_with(mirrored=True)
    for _ in range(5):
        await appended(kept, data=big)
        await appended(mirrored, data=big)
    later = EntityStore(LocalDefinitions(), lambda _: None, mirrored=False)
    later.restore(kept.carried())

    assert [each.version for each in await later.read(ENTITY, after=3)] == [4, 5]
    with pytest.raises(ArchivedError):
        await later.read(ENTITY)
    assert len(mirrored.carried().lines) == 5
    previous, lines = mirrored.mirror_lines()
    assert (len(lines), previous) == (5, mirrored.carried().base)


def test_a_changed_line_is_not_taken_over() -> None:
    carried = store_with(2).carried()
    changed = replace(carried, lines=(carried.lines[0].replace("applied", "ignored"), carried.lines[1]))

    with pytest.raises(CorruptionError):
        EntityStore(LocalDefinitions(), lambda _: None, mirrored=False).restore(changed)
