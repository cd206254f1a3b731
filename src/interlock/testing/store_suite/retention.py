"""Cases of the store suite for a store that removes entities and journals (`ports.retention.Retention`)."""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from msgspec.structs import replace

from interlock.errors import CompactedError
from interlock.model.journal.record import decode_record
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.store import Append, Appended, Conflict, Duplicate, EntityQuery, Loaded, Pruned, Store
from interlock.ports.trust.retention import JournalBase, Removal, Retention, Tombstone
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import (
    PAGES_MAX,
    StoreSubject,
    append_all,
    expect,
    expect_error,
    journal,
    list_all,
    snapshot,
)

MANY = 1_000_000
"""More rows than any case writes: one call removes everything."""


async def a_pruned_entity_is_gone_and_leaves_its_tombstone(subject: StoreSubject) -> None:
    """It is not loaded, read, listed or counted; the tombstone describes it."""
    async with subject.opened() as store:
        await append_all(store, *_ended("parcel/1"), *_ended("parcel/2"), *_living("parcel/3"))
        tombstone = await _tombstone(store, "parcel/1", archive="file:///archive")
        removal = await _retention(store).prune(tombstone, rows=MANY)
        expect((True, None, 3), (removal.is_done, removal.blocked, removal.version))
        expect(None, await store.load("parcel/1"))
        expect((), await store.read("parcel/1"))
        expect(["parcel/2", "parcel/3"], await _names(store))
        expect(["parcel/2"], await _names(store, state="delivered"))
        expect(tombstone, await _retention(store).tombstone("parcel/1"))
        expect(None, await _retention(store).tombstone("parcel/2"))
        expect((tombstone,), await _retention(store).tombstones(after=None, limit=10))
        expect((), await _retention(store).unfinished(limit=10))
        await _check_rest(store, delivered=1, packed=1)


async def a_pruned_id_is_never_used_again(subject: StoreSubject) -> None:
    """Creations are answered by `Pruned`, alone and among others; a late step of the old life is not written."""
    ended, again = SampleEntity("parcel/1"), SampleEntity("parcel/1", time_ms=9_000)
    first = (ended.create(), ended.step("shipped", key="s"), ended.step("delivered", key="d"))
    late = SampleEntity("parcel/1")
    late_steps = [late.create(), late.step("shipped", key="s"), late.step("delivered", key="late")]
    async with subject.opened() as store:
        await append_all(store, *first, *_living("parcel/2"))
        await _prune(store, "parcel/1")
        expect(Pruned(3), await store.append(again.create("other")))
        expect(Pruned(3), await store.append(again.create("born")))
        answer = await store.append(late_steps[-1])
        expect(True, isinstance(answer, Conflict | Pruned), f"a late step: {answer}")
        others = [SampleEntity(f"parcel/{each}") for each in range(10, 20)]
        answers = await asyncio.gather(store.append(again.create()), *(store.append(each.create()) for each in others))
        expect([Pruned, *[Appended] * 10], [type(each) for each in answers])
        expect(None, await store.load("parcel/1"))
        await _check_rest(store, packed=11)


async def what_is_still_needed_is_not_pruned(subject: StoreSubject) -> None:
    """An entity that is alive, unknown, at another record, or has work stays whole."""
    other = SampleEntity("parcel/2")
    steps = (other.create(), other.step("shipped", key="s"), other.step("delivered", key="d"))
    async with subject.opened() as store:
        await append_all(store, *_living("parcel/1"), *steps[:2], _with_work(steps[2]), *_living("parcel/3"))
        retention = _retention(store)
        alive = await _tombstone(store, "parcel/1")
        expect("alive", (await retention.prune(alive, rows=MANY)).blocked)
        unknown = Tombstone("parcel/9", 3, alive.head, 5_000)
        expect("changed", (await retention.prune(unknown, rows=MANY)).blocked)
        if store.work is not None:
            busy = await _tombstone(store, "parcel/2")
            expect("work", (await retention.prune(busy, rows=MANY)).blocked)
            expect(True, await store.work.delete_work("parcel/2", WorkId("effect", 3, 0)))
        record = await _tombstone(store, "parcel/2")
        wrong = Tombstone("parcel/2", record.version, "0" * 32, 5_000)
        expect("changed", (await retention.prune(wrong, rows=MANY)).blocked)
        older = Tombstone("parcel/2", record.version - 1, record.head, 5_000)
        expect("changed", (await retention.prune(older, rows=MANY)).blocked)
        for entity, entries in (("parcel/1", 1), ("parcel/2", 3)):
            expect(entries, len(await journal(store, entity)))
            expect(None, await retention.tombstone(entity))
        expect(None, (await retention.prune(record, rows=MANY)).blocked)
        await _check_rest(store, packed=2)


async def rows_are_removed_in_steps_that_may_be_repeated(subject: StoreSubject) -> None:
    """Between two steps the entity is visible to `unfinished` only; its counts are removed with its last row."""
    sample = SampleEntity("parcel/1")
    steps = [sample.create(), *(sample.step("noted", key=f"n{each}") for each in range(20))]
    steps += [sample.step("shipped", key="s"), sample.step("delivered", key="d")]
    last = steps[-1]
    late = Append(last.kind, last.entity, 23, replace(last.entry, version=24, key="late"), last.snapshot, last.states)
    async with subject.opened() as store:
        await append_all(store, *steps, *_living("parcel/2"))
        retention, tombstone = _retention(store), await _tombstone(store, "parcel/1")
        removal = await retention.prune(tombstone, rows=4)
        for number in range(PAGES_MAX):
            if removal.is_done:
                break
            expect(("parcel/1",), await retention.unfinished(limit=10))
            expect(None, await store.load("parcel/1"))
            expect((), await store.read("parcel/1"))
            expect(["parcel/2"], await _names(store))
            expect(Pruned(23), await store.append(SampleEntity("parcel/1", time_ms=9_000).create("other")))
            expect(True, isinstance(await store.append(late), Conflict | Pruned))
            again = retention.prune(tombstone, rows=4) if number % 2 else retention.remove_rest("parcel/1", rows=4)
            removal = await again
        expect(True, removal.is_done)
        expect((), await retention.unfinished(limit=10))
        expect(True, (await retention.remove_rest("parcel/1", rows=4)).is_done)
        await _check_rest(store, packed=1)


async def one_of_several_prunes_of_an_entity_counts(subject: StoreSubject) -> None:
    """Handles that prune the same entities at the same time remove each once: the counts stay right."""
    names = [f"parcel/{each}" for each in range(1, 9)]
    async with subject.opened() as store, subject.opened() as second:
        await append_all(store, *(step for each in names for step in _ended(each)), *_living("parcel/9"))
        tombstones = [await _tombstone(store, each) for each in names]
        await asyncio.gather(
            *(_retention(handle).prune(each, rows=MANY) for each in tombstones for handle in (store, second))
        )
        for each in names:
            expect(None, await second.load(each))
            expect(Pruned(3), await second.append(SampleEntity(each, time_ms=9_000).create("other")))
        await _check_rest(store, packed=1)


async def a_compacted_journal_begins_at_its_base(subject: StoreSubject) -> None:
    """Entries before the base are removed, later ones are linked to it, and the entity continues."""
    sample = SampleEntity("parcel/1")
    steps = [sample.create(), *(sample.step("noted", key=f"n{each}") for each in range(11))]
    async with subject.opened() as store:
        await append_all(store, *steps, *_living("parcel/2"))
        before = await journal(store, "parcel/1")
        base = await _base(store, "parcel/1", 8, steps[7])
        removal = await _compact(store, base, rows=MANY)
        expect((True, None), (removal.is_done, removal.blocked))
        kept = removal.version
        expect(True, 0 < kept <= 8, f"compacted up to {kept}")
        found = await _retention(store).journal_base("parcel/1")
        assert found is not None
        expect((kept, before[kept - 1].head, steps[kept - 1].snapshot), (found.version, found.head, found.snapshot))
        for after in range(kept):
            await expect_error(CompactedError, store.read("parcel/1", after=after), f"read after {after}")
        expect(before[kept:], await store.read("parcel/1", after=kept))
        expect(before[kept + 1 :], await store.read("parcel/1", after=kept + 1))
        await append_all(store, sample.step("shipped", key="s"))
        expect(13, (await snapshot(store, "parcel/1")).version)
        (last,) = await store.read("parcel/1", after=12)
        expect(last, decode_record(last.line, previous=before[-1].head, version=13))
        again = replace(late := sample.step("noted", key="late"), entry=replace(late.entry, key="n3"))
        expect(Duplicate(5), await store.append(again), "the key of a removed entry")
        await _check_rest(store, packed=1, moving=1, **{"moving.road": 1})


async def a_base_moves_forward_only(subject: StoreSubject) -> None:
    """A journal is compacted again at a later record; never at an earlier, unknown or last one, nor at another head."""
    sample = SampleEntity("parcel/1")
    steps = [sample.create(), *(sample.step("noted", key=f"n{each}") for each in range(11))]
    async with subject.opened() as store:
        await append_all(store, *steps)
        retention = _retention(store)
        last = await _base(store, "parcel/1", 12, steps[11])
        expect("changed", (await _compact(store, last, rows=MANY)).blocked)
        fifth, ninth = [await _base(store, "parcel/1", each, steps[each - 1]) for each in (5, 9)]
        wrong = replace(fifth, head=ninth.head)
        expect("changed", (await _compact(store, wrong, rows=MANY)).blocked)
        expect(12, len(await journal(store, "parcel/1")))
        removal = await _compact(store, fifth, rows=2)
        for _ in range(PAGES_MAX):
            if removal.is_done:
                break
            expect(("parcel/1",), await retention.unfinished(limit=10))
            removal = await retention.remove_rest("parcel/1", rows=2)
        removal = await _compact(store, ninth, rows=MANY)
        expect(None, removal.blocked)
        expect(True, (await _compact(store, fifth, rows=MANY)).version in (0, removal.version))
        records = await store.read("parcel/1", after=removal.version)
        expect(list(range(removal.version + 1, 13)), [each.version for each in records])
        expect((), await retention.unfinished(limit=10))
        await _check_rest(store, packed=1)


async def a_compacted_entity_is_pruned_like_any_other(subject: StoreSubject) -> None:
    """Nothing of its base is left."""
    sample = SampleEntity("parcel/1")
    steps = [sample.create(), *(sample.step("noted", key=f"n{each}") for each in range(5))]
    ends = [sample.step("shipped", key="s"), sample.step("delivered", key="d")]
    async with subject.opened() as store:
        await append_all(store, *steps)
        base = await _base(store, "parcel/1", 4, steps[3])
        await _compact(store, base, rows=MANY)
        await append_all(store, *ends, *_living("parcel/2"))
        await _prune(store, "parcel/1")
        expect(None, await _retention(store).journal_base("parcel/1"))
        expect(None, await store.load("parcel/1"))
        await _check_rest(store, packed=1)


async def space_is_returned_in_steps(subject: StoreSubject) -> None:
    """`reclaim` ends, and may be called with nothing to do."""
    async with subject.opened() as store:
        await append_all(
            store, *(step for each in range(20) for step in _ended(f"parcel/{each}")), *_living("parcel/x")
        )
        for each in range(20):
            await _prune(store, f"parcel/{each}")
        for _ in range(PAGES_MAX):
            if await _retention(store).reclaim(pages=2) == 0:
                break
        expect(0, await _retention(store).reclaim(pages=2))
        await _check_rest(store, packed=1)


async def a_tombstone_survives_a_restart(subject: StoreSubject) -> None:
    """So do a base, and what is left to remove."""
    sample = SampleEntity("parcel/2")
    steps = [sample.create(), *(sample.step("noted", key=f"n{each}") for each in range(11))]
    async with subject.opened() as store:
        await append_all(store, *_ended("parcel/1"), *steps)
        tombstone = await _tombstone(store, "parcel/1")
        await _retention(store).prune(tombstone, rows=1)
        await _compact(store, await _base(store, "parcel/2", 8, steps[7]), rows=1)
    async with subject.opened() as store:
        retention = _retention(store)
        expect(tombstone, await retention.tombstone("parcel/1"))
        for each in await retention.unfinished(limit=10):
            await retention.remove_rest(each, rows=MANY)
        expect((), await retention.unfinished(limit=10))
        expect(Pruned(3), await store.append(SampleEntity("parcel/1", time_ms=9_000).create("other")))
        found = await retention.journal_base("parcel/2")
        kept = 0 if found is None else found.version
        expect(12 - kept, len(await store.read("parcel/2", after=kept)))
        expect(12, (await snapshot(store, "parcel/2")).version)
        await _check_rest(store, packed=1)


# The questions of the cases


def _retention(store: Store) -> Retention:
    if store.retention is None:
        raise AssertionError("the store has no retention")
    return store.retention


def _living(entity: str) -> list[Append]:
    return [SampleEntity(entity).create()]


def _ended(entity: str) -> list[Append]:
    sample = SampleEntity(entity)
    return [sample.create(), sample.step("shipped", key="s"), sample.step("delivered", key="d")]


def _with_work(append: Append) -> Append:
    work = Work(WorkId("effect", append.entry.version, 0), "notify", {}, 2_000)
    return replace(append, work=WorkDelta(created=(work,)))


async def _names(store: Store, state: str | None = None) -> list[str]:
    return sorted(each.entity for each in await list_all(store, EntityQuery(kind="parcel", state=state)))


async def _tombstone(store: Store, entity: str, *, archive: str | None = None) -> Tombstone:
    found = await store.load(entity)
    assert isinstance(found, Loaded)
    (record,) = await store.read(entity, after=found.version - 1)
    return Tombstone(entity, found.version, record.head, 5_000, archive)


async def _compact(store: Store, base: JournalBase, *, rows: int = MANY) -> Removal:
    newest = await snapshot(store, base.entity)
    return await _retention(store).compact(base, newest=newest, rows=rows)


async def _prune(store: Store, entity: str) -> None:
    removal = await _retention(store).prune(await _tombstone(store, entity), rows=MANY)
    expect((True, None), (removal.is_done, removal.blocked), f"prune {entity}")


async def _base(store: Store, entity: str, version: int, append: Append) -> JournalBase:
    (record,) = await store.read(entity, after=version - 1, limit=1)
    digest = blake2b(record.head.encode(), digest_size=16).hexdigest()
    return JournalBase(entity, version, record.head, append.snapshot, digest, append.entry.event.time_ms, 1_000, 5_000)


async def _check_rest(store: Store, **states: int) -> None:
    """Counts are those of the entities that are left, and no row is orphaned."""
    if store.statistics is not None:
        found = {each.state: each.entities for each in await store.statistics.count_states("parcel")}
        expect(states, {state: count for state, count in found.items() if count}, "counts")
    if store.verification is not None:
        expect((), await store.verification.differences(), "differences of the store")
        for entity in await _names(store):
            expect((), await store.verification.differences(entity), f"differences of {entity}")


async def tombstones_are_listed_in_pages(subject: StoreSubject) -> None:
    """Each once, whatever the size of a page; an entity that was not pruned has none."""
    names = [f"parcel/{each}" for each in range(7)]
    async with subject.opened() as store:
        await append_all(store, *(each for name in names for each in _ended(name)), *_living("parcel/9"))
        for name in names[:-1]:
            await _prune(store, name)
        for limit in (1, 4, 6, 10):
            found: list[str] = []
            for _ in range(PAGES_MAX):
                after = found[-1] if found else None
                page = await _retention(store).tombstones(after=after, limit=limit)
                if not page:
                    break
                expect(True, len(page) <= limit)
                found += (each.entity for each in page)
            expect(names[:-1], sorted(found))


CASES = (
    tombstones_are_listed_in_pages,
    a_pruned_entity_is_gone_and_leaves_its_tombstone,
    a_pruned_id_is_never_used_again,
    what_is_still_needed_is_not_pruned,
    rows_are_removed_in_steps_that_may_be_repeated,
    a_compacted_journal_begins_at_its_base,
    a_base_moves_forward_only,
    a_compacted_entity_is_pruned_like_any_other,
    space_is_returned_in_steps,
)
DURABLE = (a_tombstone_survives_a_restart,)
SHARED = (one_of_several_prunes_of_an_entity_counts,)
