"""Cases of the store suite for a store with a feed (`ports.journal_feed`): nothing missed, an order that stays.

Rule: a case compares the order of one entity's entries, not that of different entities, which a store may choose.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.errors import UsageError
from interlock.model.entity_id import kind_of
from interlock.ports.reading.journal_feed import FeedEntry, JournalFeed
from interlock.ports.store import Store
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, expect_error

WRITERS = 4
ENTRIES_EACH = 25
PAGES_MAX = 10_000
"""Pages of a feed before it counts as endless."""

Names = list[tuple[str, int]]


def _feed_of(store: Store) -> JournalFeed:
    if store.journal_feed is None:
        raise AssertionError(f"a {type(store).__name__} has no feed")
    return store.journal_feed


@asynccontextmanager
async def _opened(subject: StoreSubject) -> AsyncIterator[tuple[Store, JournalFeed]]:
    async with subject.opened() as store:
        yield store, _feed_of(store)


async def read_all(
    feed: JournalFeed, after: str | None = None, *, kinds: tuple[str, ...] | None = None, limit: int = 7
) -> tuple[list[FeedEntry], str | None]:
    """Return the entries after a cursor, read page by page, and the cursor after the last page."""
    found: list[FeedEntry] = []
    for _ in range(PAGES_MAX):
        page = await feed.feed(after, kinds=kinds, limit=limit)
        expect(True, len(page.entries) <= limit, f"{len(page.entries)} entries in a page of {limit}")
        found += page.entries
        after = page.after
        if page.is_last:
            return found, after
    raise AssertionError("the feed does not end")


def _names(found: list[FeedEntry]) -> Names:
    return [(each.entity, each.entry.version) for each in found]


def check_complete(found: Names, wanted: dict[str, int]) -> None:
    """Raise AssertionError unless each entity has exactly its versions, in their order."""
    for entity, version in wanted.items():
        expect([*range(1, version + 1)], [each for name, each in found if name == entity], f"versions of {entity}")
    expect(sum(wanted.values()), len(found), "the number of entries")


async def _fill(store: Store) -> dict[str, int]:
    """Write entries of three entities of two kinds in turn, then of one alone; return how many each has.

    A store may keep the entries of one entity that follow each other together, and a page may end between them.
    """
    samples = [SampleEntity(each) for each in ("parcel/1", "parcel/2", "letter/1")]
    await append_all(store, *(each.create() for each in samples))
    for number in range(5):
        await append_all(store, *(each.step(key=f"k{number}") for each in samples[: 2 + number % 2]))
    alone = SampleEntity("letter/2", time_ms=1_000_000)
    await append_all(store, alone.create(), *(alone.step(key=f"k{number}") for number in range(4)))
    samples.append(alone)
    return {each.entity: each.snapshot.version for each in samples if each.snapshot is not None}


async def a_feed_has_every_entry_once(subject: StoreSubject) -> None:
    """All entries of all entities, those of one entity in the order of their versions, with their content."""
    async with _opened(subject) as (store, feed):
        expect([], (await read_all(feed))[0], "the feed of an empty store")
        wanted = await _fill(store)
        found, _ = await read_all(feed)
        check_complete(_names(found), wanted)
        expect(len(found), len({each.cursor for each in found}), "the number of cursors")
        for each in found:
            (record,) = await store.read(each.entity, after=each.entry.version - 1, limit=1)
            expect(record.entry, each.entry, f"entry {each.entry.version} of {each.entity}")


async def a_feed_continues_after_any_entry(subject: StoreSubject) -> None:
    """From the cursor of each entry the rest follows, also with pages of one entry."""
    async with _opened(subject) as (store, feed):
        await _fill(store)
        found, _ = await read_all(feed)
        for limit, (number, each) in itertools.product((1, 100), enumerate(found, start=1)):
            rest, _ = await read_all(feed, each.cursor, limit=limit)
            expect(_names(found[number:]), _names(rest), f"the entries after entry {number}")


async def a_feed_continues_after_its_end(subject: StoreSubject) -> None:
    """The cursor of the last page leads to later entries only, each time."""
    async with _opened(subject) as (store, feed):
        sample, after = SampleEntity("parcel/1"), None
        await append_all(store, sample.create())
        for version in range(1, 6):
            found, after = await read_all(feed, after)
            expect([("parcel/1", version)], _names(found))
            expect([], (await read_all(feed, after))[0], "the entries after the last one")
            await append_all(store, sample.step(key=f"k{version}"))


async def a_feed_passes_over_other_kinds(subject: StoreSubject) -> None:
    """With kinds only their entries come, and the cursor passes the others."""
    async with _opened(subject) as (store, feed):
        await _fill(store)
        everything = _names((await read_all(feed))[0])
        for kinds in (("letter",), ("parcel",), ("letter", "parcel"), ("nothing",), ()):
            found, after = await read_all(feed, kinds=kinds, limit=2)
            wanted = [each for each in everything if kind_of(each[0]) in kinds]
            check_complete(_names(found), dict(Counter(entity for entity, _ in wanted)))
            expect([], (await read_all(feed, after, kinds=kinds))[0], "the entries after the last page")


async def a_feed_can_start_at_a_time(subject: StoreSubject) -> None:
    """After the cursor of a time come all entries from that time on, perhaps with earlier ones."""
    async with _opened(subject) as (store, feed):
        expect([], (await read_all(feed, await feed.cursor_at(0)))[0], "an empty store")
        early, late = SampleEntity("parcel/1", time_ms=1_000_000), SampleEntity("parcel/2", time_ms=2_000_000)
        await append_all(store, early.create(), early.step(key="a"), early.step(key="b"))
        await append_all(store, late.create(), late.step(key="a"))
        times = {("parcel/1", 1): 1_000_000, ("parcel/1", 2): 1_000_010, ("parcel/1", 3): 1_000_020}
        times |= {("parcel/2", 1): 2_000_000, ("parcel/2", 2): 2_000_010}
        for time_ms in (0, 1_000_010, 1_000_020, 2_000_000, 2_000_010):
            found, _ = await read_all(feed, await feed.cursor_at(time_ms))
            wanted = {each for each, at_ms in times.items() if at_ms >= time_ms}
            expect(True, wanted <= set(_names(found)), f"entries from {time_ms} on: {_names(found)}")


async def a_cursor_of_another_store_is_refused(subject: StoreSubject) -> None:
    """Text that is not a cursor of this store is a mistake of the program."""
    async with _opened(subject) as (store, feed):
        await append_all(store, SampleEntity("parcel/1").create())
        for after in ("", "x", "5", "other.1", "other-1.1", "é.1"):
            await expect_error(UsageError, feed.feed(after, limit=5), f"the cursor `{after}`")


async def a_feed_misses_nothing_while_others_write(subject: StoreSubject) -> None:
    """A reader that continues page by page during concurrent appends gets each entry once, in its entity's order."""
    async with _opened(subject) as (store, feed):
        samples = [SampleEntity(f"parcel/{each}") for each in range(WRITERS)]
        writing = asyncio.ensure_future(asyncio.gather(*(_write(store, each) for each in samples)))
        found: list[FeedEntry] = []
        after: str | None = None
        while not writing.done():
            page = await feed.feed(after, limit=5)
            found += page.entries
            after = page.after
            await asyncio.sleep(0)
        await writing
        rest, _ = await read_all(feed, after)
        check_complete(_names(found + rest), {each.entity: ENTRIES_EACH for each in samples})


async def _write(store: Store, sample: SampleEntity) -> None:
    await append_all(store, sample.create())
    for number in range(ENTRIES_EACH - 1):
        await append_all(store, sample.step(key=f"k{number}"))


async def a_cursor_outlives_a_release(subject: StoreSubject) -> None:
    """Journals that went to an archive leave the feed; a reader behind or after them misses no other entry."""
    async with _opened(subject) as (store, feed):
        if store.journal_release is None:
            raise AssertionError(f"a {type(store).__name__} cannot release journals")
        stays, ends = SampleEntity("parcel/1"), SampleEntity("parcel/2")
        await append_all(store, stays.create(), ends.create(), stays.step(key="a"))
        await append_all(store, ends.step("shipped", key="a"), ends.step("delivered", key="b"))
        everything, after = await read_all(feed)
        expect(True, await store.journal_release.release_journal("parcel/2", version=3, archive="file:///x"), "release")
        expect([], (await read_all(feed, after))[0], "the entries after the last one")
        expect([("parcel/1", 1), ("parcel/1", 2)], _names((await read_all(feed))[0]), "what stays")
        await append_all(store, stays.step(key="b"))
        expect([("parcel/1", 3)], _names((await read_all(feed, after))[0]), "the next entry")
        for number, each in enumerate(everything, start=1):
            wanted = [name for name in _names(everything[number:]) if name[0] == "parcel/1"]
            expect([*wanted, ("parcel/1", 3)], _names((await read_all(feed, each.cursor))[0]), f"after entry {number}")


async def a_cursor_outlives_its_handle(subject: StoreSubject) -> None:
    """After the store was closed and opened again, each cursor leads to the same entries, and later ones follow."""
    async with _opened(subject) as (store, feed):
        wanted = await _fill(store)
        found, after = await read_all(feed)
    async with _opened(subject) as (store, feed):
        expect([], (await read_all(feed, after))[0], "the entries after the last one")
        for number, each in enumerate(found, start=1):
            rest, _ = await read_all(feed, each.cursor)
            expect(_names(found[number:]), _names(rest), f"the entries after entry {number}")
        more = SampleEntity("parcel/3")
        await append_all(store, more.create())
        expect([("parcel/3", 1)], _names((await read_all(feed, after))[0]), "the entries of the other handle")
        check_complete(_names((await read_all(feed))[0]), {**wanted, "parcel/3": 1})


async def a_cursor_is_valid_in_every_handle(subject: StoreSubject) -> None:
    """Two handles read in turn while both write; each gets everything, and continues from a cursor of the other."""
    async with _opened(subject) as (first, feed), _opened(subject) as (second, other):
        one, two = SampleEntity("parcel/1"), SampleEntity("parcel/2")
        await append_all(first, one.create())
        await append_all(second, two.create())
        cursors: list[str | None] = [None, None]
        found: list[list[FeedEntry]] = [[], []]
        for number in range(12):
            await append_all(first, one.step(key=f"k{number}"))
            await append_all(second, two.step(key=f"k{number}"))
            for place in (number % 2, 1 - number % 2)[: 1 + number % 3]:
                more, cursors[place] = await read_all((feed, other)[place], cursors[place])
                found[place] += more
        for place, reader in enumerate((feed, other)):
            found[place] += (await read_all(reader, cursors[place]))[0]
            check_complete(_names(found[place]), {"parcel/1": 13, "parcel/2": 13})
        for number, each in enumerate(found[0], start=1):
            crossed, _ = await read_all(other, each.cursor)
            expect(
                sorted(_names(found[0][number:])), sorted(_names(crossed)), f"after entry {number} of the other handle"
            )


async def a_feed_misses_nothing_while_another_handle_writes(subject: StoreSubject) -> None:
    """As within one handle; the reader's handle learns of the entries through the store only."""
    async with subject.opened() as store, _opened(subject) as (_, feed):
        samples = [SampleEntity(f"parcel/{each}") for each in range(WRITERS)]
        writing = asyncio.ensure_future(asyncio.gather(*(_write(store, each) for each in samples)))
        found: list[FeedEntry] = []
        after: str | None = None
        while not writing.done():
            page = await feed.feed(after, limit=5)
            found += page.entries
            after = page.after
            await asyncio.sleep(0)
        await writing
        rest, _ = await read_all(feed, after)
        check_complete(_names(found + rest), {each.entity: ENTRIES_EACH for each in samples})


CASES = (
    a_feed_has_every_entry_once,
    a_feed_continues_after_any_entry,
    a_feed_continues_after_its_end,
    a_feed_passes_over_other_kinds,
    a_feed_can_start_at_a_time,
    a_cursor_of_another_store_is_refused,
    a_feed_misses_nothing_while_others_write,
    a_cursor_outlives_a_release,
)
DURABLE = (a_cursor_outlives_its_handle,)
SHARED = (a_cursor_is_valid_in_every_handle, a_feed_misses_nothing_while_another_handle_writes)
