"""Cases of the store suite: pages of a journal, and lists by state, age, tag, revision and id."""

from __future__ import annotations

from typing import Any

from interlock.errors import UsageError
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery, EntityRow, Store
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, expect_error, list_all

STATES = ("packed", "moving", "moving.road", "moving.sea", "delivered")
WAYS = (
    (),
    ("shipped",),
    ("shipped", "boarded"),
    ("shipped", "boarded", "landed"),
    ("shipped", "delivered"),
    ("noted",),
)
"""How far the sample entities go, in turn."""


async def a_journal_is_read_by_pages(subject: StoreSubject) -> None:
    """`after` and `limit` cut pages that join; beyond the end there is nothing."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(9)))
        expect([3, 4, 5], [each.version for each in await store.read("parcel/1", after=2, limit=3)])
        expect([10], [each.version for each in await store.read("parcel/1", after=9, limit=PAGE_MAX)])
        expect(10, len(await store.read("parcel/1", limit=PAGE_MAX * 2)))
        expect((), await store.read("parcel/1", after=10))
        expect((), await store.read("parcel/1", after=1_000))


async def a_row_has_the_state_and_its_entry_time(subject: StoreSubject) -> None:
    """Version, revision, configuration, and the times of creation, of entering its state and of the last change."""
    sample = SampleEntity("parcel/1", time_ms=100)
    async with subject.opened() as store:
        await append_all(store, sample.create(), sample.step("shipped", key="a"), sample.step("noted", key="b"))
        page = await store.find(EntityQuery(kind="parcel"))
        row = EntityRow("parcel/1", 3, sample.kernel.chart.revision, ("moving.road",), 100, 110, 120)
        expect(EntityPage((row,)), page)
        await append_all(store, sample.step("delivered", key="c"))
        page = await store.find(EntityQuery(kind="parcel"))
        expect(("done", ("delivered",), 130), (page.rows[0].ended, page.rows[0].configuration, page.rows[0].entered_ms))


async def a_list_by_state_is_oldest_first(subject: StoreSubject) -> None:
    """The order is by the time of entering the state, compound states too; entities that left it are not listed."""
    first, second, third = (
        SampleEntity("parcel/c", time_ms=300),
        SampleEntity("parcel/b", time_ms=200),
        SampleEntity("parcel/a", time_ms=100),
    )
    async with subject.opened() as store:
        await append_all(store, first.create(), second.create(), third.create())
        await append_all(store, third.step("shipped", key="s", after_ms=900))  # moving since 1,000
        await append_all(store, second.step("shipped", key="s", after_ms=300))  # moving since 500
        await append_all(store, second.step("boarded", key="b", after_ms=5_000))  # at sea since 5,500, moving since 500
        expect(["parcel/c"], await _names(store, state="packed"))
        expect(["parcel/b", "parcel/a"], await _names(store, state="moving"))
        expect(["parcel/b"], await _names(store, state="moving.sea"))
        expect(["parcel/c", "parcel/a", "parcel/b"], await _names(store))
        expect([], await _names(store, state="delivered"))
        expect([], await _names(store, state="nowhere"))
        expect([], await _names(store, kind="letter"))


async def a_list_by_age_ends_before_its_bound(subject: StoreSubject) -> None:
    """`entered_before_ms` takes what is older, and not what is exactly as old."""
    async with subject.opened() as store:
        for age in (100, 200, 300):
            await append_all(store, SampleEntity(f"parcel/{age}", time_ms=age).create())
        expect(["parcel/100"], await _names(store, entered_before_ms=200))
        expect(["parcel/100", "parcel/200"], await _names(store, state="packed", entered_before_ms=201))
        expect([], await _names(store, entered_before_ms=0))


async def equal_ages_are_in_the_order_of_ids(subject: StoreSubject) -> None:
    """Entities of the same moment are listed by code point, and no page loses or repeats one of them."""
    names = [f"parcel/{each}" for each in ("Z", "a", "a!", "aa", "b", "é", "日", "😀")]
    async with subject.opened() as store:
        for name in reversed(names):
            await append_all(store, SampleEntity(name, time_ms=100).create())
        for limit in (1, 2, 3, 8, 50):
            rows = await list_all(store, EntityQuery(kind="parcel", limit=limit))
            expect(names, [each.entity for each in rows], f"pages of {limit}")


async def filters_combine(subject: StoreSubject) -> None:
    """State, age, tag, revision and prefix together give what each gives alone, in the same order."""
    async with subject.opened() as store:
        samples = await _create_entities(store, 48)
        for query in _queries(samples):
            expected = sorted(
                (place, sample.entity) for sample in samples if (place := _place(sample, query)) is not None
            )
            for limit in (5, 50):
                paged = EntityQuery(
                    **{name: getattr(query, name) for name in query.__struct_fields__} | {"limit": limit}
                )
                rows = await list_all(store, paged)
                expect([entity for _, entity in expected], [each.entity for each in rows], str(paged))


async def a_list_by_prefix_is_in_the_order_of_ids(subject: StoreSubject) -> None:
    """A list by prefix is in the order of ids, whatever the time in a state."""
    names = [f"parcel/2024-{each}" for each in ("1", "10", "11", "2", "9")]
    async with subject.opened() as store:
        for age, name in enumerate((*reversed(names), "parcel/2023-1", "parcel/2025-1")):
            await append_all(store, SampleEntity(name, time_ms=100 + age).create())
        for limit in (1, 2, 50):
            expect(names, await _names(store, prefix="2024-", limit=limit), f"pages of {limit}")
            expect(names[:3], await _names(store, prefix="2024-1", state="packed", limit=limit))


async def a_walk_by_id_meets_each_entity_once(subject: StoreSubject) -> None:
    """A list by id is in the order of ids, also while its entities are stepped."""
    names = [f"parcel/{each}" for each in ("1", "10", "11", "2", "9")]
    async with subject.opened() as store:
        samples = [SampleEntity(name, time_ms=100 + age) for age, name in enumerate(reversed(names))]
        for sample in samples:
            await append_all(store, sample.create())
        query, seen = EntityQuery(kind="parcel", by_id=True, limit=2), list[str]()
        while True:  # ends with the last page
            page = await store.find(query)
            seen += [each.entity for each in page.rows]
            for number, sample in enumerate(samples):
                await append_all(store, sample.step("noted", key=f"{len(seen)}-{number}"))
            if page.after is None:
                break
            query = EntityQuery(kind="parcel", by_id=True, limit=2, after=page.after)
        expect(names, seen)
        await append_all(store, samples[0].step("shipped", key="ship"))
        expect([samples[0].entity], await _names(store, by_id=True, state="moving"))
        expect(names[:4], await _names(store, by_id=True, tag="inside"))


async def kinds_do_not_mix(subject: StoreSubject) -> None:
    """A list is of one kind, not of kinds whose name starts with it; a prefix is not a pattern."""
    async with subject.opened() as store:
        for name in ("parcel/1", "parcel/1_", "parcel/1%", "parcels/1", "parcel/12"):
            await append_all(store, SampleEntity(name, time_ms=100).create())
        expect(["parcel/1", "parcel/1%", "parcel/12", "parcel/1_"], await _names(store, prefix="1"))
        expect(["parcel/1_"], await _names(store, prefix="1_"))
        expect(["parcel/1%"], await _names(store, prefix="1%"))
        expect(4, len(await _names(store, prefix="")))
        expect(["parcels/1"], await _names(store, kind="parcels"))
        expect([], await _names(store, prefix="2"))


async def a_cursor_stays_valid(subject: StoreSubject) -> None:
    """An entity that changes its state between two pages does not shift the others."""
    samples = [SampleEntity(f"parcel/{each}", time_ms=100 + each) for each in range(6)]
    async with subject.opened() as store:
        for sample in samples:
            await append_all(store, sample.create())
        first = await store.find(EntityQuery(kind="parcel", state="packed", limit=2))
        await append_all(store, samples[0].step("shipped", key="s"), samples[3].step("shipped", key="s"))
        second = await store.find(EntityQuery(kind="parcel", state="packed", limit=2, after=first.after))
        expect(["parcel/0", "parcel/1"], [each.entity for each in first.rows])
        expect(["parcel/2", "parcel/4"], [each.entity for each in second.rows])


async def a_malformed_cursor_is_refused(subject: StoreSubject) -> None:
    """An invalid cursor is a UsageError."""
    async with subject.opened() as store:
        await append_all(store, SampleEntity("parcel/1").create())
        for text in ("x", "é", "bnVsbA", "W10", "====", "WyJhIiwxXQ", "\0"):
            await expect_error(UsageError, store.find(EntityQuery(kind="parcel", after=text)), f"cursor {text!r}")


async def _names(store: Store, **filters: Any) -> list[str]:
    return [each.entity for each in await list_all(store, EntityQuery(**{"kind": "parcel"} | filters))]


async def _create_entities(store: Store, count: int) -> list[SampleEntity]:
    """Entities that went different ways, at times that repeat, on two revisions."""
    samples = []
    for number in range(count):
        revision = "1.0.0" if number % 3 else "2.0.0"
        sample = SampleEntity(f"parcel/{number % 4}-{number}", revision=revision, time_ms=1_000 + 10 * (number % 7))
        await append_all(store, sample.create())
        for position, event in enumerate(WAYS[number % len(WAYS)]):
            await append_all(store, sample.step(event, key=f"k{position}"))
        samples.append(sample)
    return samples


def _queries(samples: list[SampleEntity]) -> list[EntityQuery]:
    revisions = [None, samples[0].kernel.chart.revision]
    return [
        EntityQuery(kind="parcel", state=state, tag=tag, revision=revision, prefix=prefix, entered_before_ms=before)
        for state in (None, *STATES[:3])
        for tag in (None, "outside")
        for revision in revisions
        for prefix in (None, "2-")
        for before in (None, 1_045)
    ]


def _place(sample: SampleEntity, query: EntityQuery) -> int | None:
    """The position of an entity in the order of a query; None if it is not in the list."""
    now = sample.snapshot
    if now is None:
        return None
    active = sample.kernel.active(now)
    if query.state is not None and query.state not in {each.id for each in active}:
        return None
    if query.tag is not None and query.tag not in {tag for each in active for tag in each.tags}:
        return None
    if query.revision not in (None, now.revision) or not sample.entity.startswith(f"parcel/{query.prefix or ''}"):
        return None
    entered = sample.entered_ms(query.state)
    if query.entered_before_ms is not None and entered >= query.entered_before_ms:
        return None
    return 0 if query.prefix else entered


CASES = (
    a_journal_is_read_by_pages,
    a_row_has_the_state_and_its_entry_time,
    a_list_by_state_is_oldest_first,
    a_list_by_age_ends_before_its_bound,
    equal_ages_are_in_the_order_of_ids,
    filters_combine,
    a_list_by_prefix_is_in_the_order_of_ids,
    a_walk_by_id_meets_each_entity_once,
    kinds_do_not_mix,
    a_cursor_stays_valid,
    a_malformed_cursor_is_refused,
)
