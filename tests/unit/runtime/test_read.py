"""Reading entities: now, at a version, at a time, as lists, as a watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import CorruptionError, NotFoundError, UsageError
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.ports.store import PAGE_MAX, Append, EntityQuery, Loaded
from interlock.runtime.history.replay import EPOCH, replay
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import DOOR, Patient, StillClock, runtime


async def _life(doors: Runtime, clock: StillClock) -> None:
    """A door opened at 2,000 and closed at 3,000."""
    await doors.create("door/1")
    for time_ms, event in ((2_000, "opened"), (3_000, "closed")):
        clock.time_ms = time_ms
        await doors.send("door/1", event)


def _time(time_ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat()


async def test_a_state_of_the_past_is_replayed() -> None:
    """At a version, or at a time: the last entry not after it."""
    clock = StillClock()
    doors = runtime(clock=clock)
    await _life(doors, clock)

    assert ("closed",) == (await doors.state("door/1")).configuration
    assert ("open",) == (await doors.state("door/1", at=2)).configuration
    assert [1, 1, 2, 2, 3] == [
        (await doors.state("door/1", at=_time(each))).version for each in (1_000, 1_999, 2_000, 2_999, 9_999)
    ]


@pytest.mark.parametrize("when", [4, 0, -1, 2**70, "1970-01-01T00:00:00.999Z"])
async def test_a_version_or_time_before_the_creation_is_not_found(when: int | str) -> None:
    clock = StillClock()
    doors = runtime(clock=clock)
    await _life(doors, clock)
    with pytest.raises(NotFoundError) as raised:
        await doors.state("door/1", at=when)

    assert "entity.not_then" == raised.value.code


async def test_a_journal_is_read_in_order_by_pages() -> None:
    """Entries after a version, as many as asked for."""
    clock = StillClock()
    doors = runtime(clock=clock)
    await _life(doors, clock)

    assert ["_create", "opened", "closed"] == [each.event.name for each in await doors.journal("door/1")]
    assert [2] == [each.version for each in await doors.journal("door/1", after=1, limit=1)]


async def test_a_journal_is_returned_whole_however_many_pages_it_has() -> None:
    doors = runtime()
    await doors.create("door/1")
    for number in range(PAGE_MAX + 4):
        await doors.send("door/1", "noted", {"text": str(number)})
    whole, part = await doors.journal("door/1"), await doors.journal("door/1", after=2, limit=PAGE_MAX + 1)

    assert [*range(1, PAGE_MAX + 6)] == [each.version for each in whole]
    assert [*range(3, PAGE_MAX + 4)] == [each.version for each in part]
    assert whole[:100] == await doors.journal("door/1", limit=100)
    assert whole == await doors.journal("door/1", limit=10**30)


async def test_a_journal_that_ends_with_its_page_is_whole() -> None:
    """The page after the last full one is empty, and that is the end."""
    doors = runtime()
    await doors.create("door/1")
    for _ in range(PAGE_MAX - 1):
        await doors.send("door/1", "noted", {"text": ""})

    assert PAGE_MAX == len(await doors.journal("door/1"))
    assert () == await doors.journal("door/1", after=PAGE_MAX)


@pytest.mark.parametrize("limit", [0, -1, True, 2.0, "5"])
async def test_a_journal_of_no_entries_cannot_be_asked_for(limit: Any) -> None:
    """An empty answer would look like an entity without entries, which there is not."""
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError) as raised:
        await doors.journal("door/1", limit=limit)

    assert "limit.range" == raised.value.code


@pytest.mark.parametrize("after", [-1, True, 1.0, "1", None, 2**62 + 1])
async def test_only_versions_are_accepted_as_after(after: Any) -> None:
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(UsageError) as read:
        await doors.journal("door/1", after=after)
    with pytest.raises(UsageError) as watched:
        await anext(doors.watch("door/1", after=after))

    assert ["after.range"] * 2 == [read.value.code, watched.value.code]


async def test_the_journal_of_an_unknown_entity_is_not_found() -> None:
    doors = runtime()
    await doors.create("door/1")
    with pytest.raises(NotFoundError) as read:
        await doors.journal("door/2")
    with pytest.raises(NotFoundError) as watched:
        await anext(doors.watch("door/2"))
    with pytest.raises(NotFoundError) as asked:
        await doors.state("door/2")

    assert str(asked.value) == str(read.value) == str(watched.value)
    assert ["entity.unknown"] * 3 == [each.value.code for each in (asked, read, watched)]


@pytest.mark.parametrize("limit", [0, -5, True, 2.0, "5", None])
async def test_a_list_of_no_rows_cannot_be_asked_for(limit: Any) -> None:
    """An empty page would look like no entities; no store is asked."""
    with pytest.raises(UsageError) as raised:
        EntityQuery(kind="door", limit=limit)
    with pytest.raises(UsageError):
        replace(EntityQuery(kind="door"), limit=limit)

    assert "limit.range" == raised.value.code


async def test_list_refuses_anything_but_a_query() -> None:
    with pytest.raises(UsageError) as raised:
        await runtime().list("door")  # type: ignore[arg-type]  # the slip in question

    assert ("query.malformed", 'write interlock.EntityQuery(kind="order")') == (raised.value.code, raised.value.hint)


async def test_entities_are_listed_by_state() -> None:
    """The driver hands the question to its store."""
    doors = runtime()
    for name in "ab":
        await doors.create(f"door/{name}")
    await doors.send("door/a", "opened")
    page = await doors.list(EntityQuery(kind="door", state="open"))

    assert ["door/a"] == [each.entity for each in page.rows]


async def test_can_returns_the_verdict_of_each_guard() -> None:
    doors = runtime()
    await doors.create("door/1")
    locked = [each for each in await doors.can("door/1") if each.event == "locked"]

    assert [False] == [each.accepted for each in locked]


@pytest.mark.parametrize("call", ["state", "journal", "can"])
async def test_a_malformed_id_is_the_readers_mistake(call: str) -> None:
    """UsageError, whatever is asked."""
    with pytest.raises(UsageError):
        await getattr(runtime(), call)("door")


async def test_a_watch_yields_entries_of_this_process_immediately() -> None:
    doors = runtime(clock=Patient())
    await doors.create("door/1")
    watching = doors.watch("door/1")
    first = await anext(watching)
    later = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    await doors.send("door/1", "opened")

    assert ("_create", "opened") == (first.event.name, (await later).event.name)
    await watching.aclose()


async def test_a_watch_yields_entries_of_other_processes_after_a_poll() -> None:
    store, clock = MemoryStore(), Patient()
    mine, theirs = runtime(store=store, clock=clock), runtime(store=store)
    await mine.create("door/1")
    watching = mine.watch("door/1", after=1, poll_ms=70)
    later = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    await theirs.send("door/1", "opened")
    await clock.waiting.wait()
    clock.tick.set()

    assert "opened" == (await later).event.name
    assert [70] == clock.waits
    await watching.aclose()


async def test_a_cancelled_watch_leaves_no_task_behind() -> None:
    clock = Patient()
    doors = runtime(clock=clock)
    await doors.create("door/1")
    watching = doors.watch("door/1", after=1)
    waiting = asyncio.ensure_future(anext(watching))
    await clock.waiting.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)

    assert {asyncio.current_task()} == asyncio.all_tasks()


async def test_a_watch_ends_when_the_runtime_closes() -> None:
    doors = runtime(clock=Patient())
    await doors.create("door/1")
    heard = [await anext(watching := doors.watch("door/1"))]
    rest = asyncio.ensure_future(_all(watching))
    await asyncio.sleep(0)
    await doors.close()

    assert [] == await rest
    assert 1 == len(heard)


async def _all(watching: AsyncGenerator[Entry, None]) -> list[Entry]:
    return [each async for each in watching]


class _JournalOnly(MemoryStore):
    """Loads nothing but records, as a store without a snapshot would."""

    async def load(self, entity: str, *, key: str | None = None) -> object:  # type: ignore[override]  # narrowed below
        found = await super().load(entity, key=key)
        if not isinstance(found, Loaded):
            return found
        return Loaded(found.version, found.time_ms, None, await self.read(entity))


async def test_a_store_may_load_records_without_a_snapshot() -> None:
    store, clock = _JournalOnly(), StillClock()
    doors = runtime(store=store, clock=clock)
    await _life(doors, clock)
    other = runtime(store=store)

    assert await doors.state("door/1", at=3) == await other.state("door/1")
    assert 4 == (await other.send("door/1", "opened")).version


class _Empty(MemoryStore):
    """Says that an entity is there, and has nothing of it."""

    async def load(self, entity: str, *, key: str | None = None) -> Loaded:
        return Loaded(1, 0, None)


async def test_an_entity_without_snapshot_and_records_is_not_found() -> None:
    """There is nothing to step on."""
    with pytest.raises(NotFoundError):
        await runtime(store=_Empty()).state("door/1")


async def test_a_diverging_journal_is_corruption() -> None:
    doors = runtime(DOOR)
    await doors.create("door/1")
    await doors.send("door/1", "opened")
    entries = [each.entry for each in await doors.store.read("door/1")]
    lying = Entry(2, Event("noted", {"text": "x"}), "applied", ("closed",), ("open",), entries[0].revision, "k")
    with pytest.raises(CorruptionError) as raised:
        await replay(doors.revisions, "door/1", None, [entries[0], lying])

    assert "journal.divergence" == raised.value.code


async def test_a_journal_that_does_not_start_with_the_creation_is_corruption() -> None:
    doors = runtime(DOOR)
    await doors.create("door/1")
    await doors.send("door/1", "opened")
    entries = [each.entry for each in await doors.store.read("door/1")]
    with pytest.raises(CorruptionError) as raised:
        await replay(doors.revisions, "door/1", None, entries[1:])

    assert "journal.beginning" == raised.value.code
    assert await replay(doors.revisions, "door/1", None, []) is None


async def test_the_append_of_a_step_has_states_and_tags_for_lists() -> None:
    kept: list[Append] = []

    class Spy(MemoryStore):
        async def append(self, append: Append) -> object:  # type: ignore[override]  # hands on what the store says
            kept.append(append)
            return await super().append(append)

    doors = runtime(DOOR, store=Spy())
    await doors.create("door/1")

    assert [(("closed",), ("shut",), 0)] == [(each.states, each.tags, each.expected) for each in kept]
