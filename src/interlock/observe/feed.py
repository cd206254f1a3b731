"""The entries of all entities from a time on, as they are written.

Rule 1: reading needs no bus and no chart, and writes nothing.
Rule 2: a store that keeps the order of its entries (`ports.journal_feed`) is followed as `Runtime.feed` does: no entry
is missed.
Rule 3: on other stores the entities that entered a state are followed. An entry without a change of state appears
together with the next one that has one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery, Store
from interlock.runtime.reading.feed import POLL_MS, EntryWaiter, follow_feed
from interlock.stores.cursor import encode_cursor

OVERLAP_MS = 5_000
"""How much of the time before the last read is read again: an entry written late may have an earlier time."""

ENTRIES_PER_ENTITY_MAX = 200
"""Entries of one entity in one read; its journal has all of them."""

ENTITIES_REMEMBERED_MAX = 100_000
"""Entities whose last version is remembered while following."""


async def feed(
    store: Store, clock: Clock, *, kind: str | None, since_ms: int, follow: bool
) -> AsyncGenerator[FeedEntry, None]:
    """Yield entries from a time on; with `follow` without end, as they are written."""
    ordered = store.journal_feed
    if ordered is not None:
        after, kinds = await ordered.cursor_at(since_ms), None if kind is None else (kind,)
        async with AsyncExitStack() as stack:
            waiter = EntryWaiter(store, clock, asyncio.Event()) if follow else None
            if waiter is not None:
                await stack.enter_async_context(waiter)
            async for entry in follow_feed(ordered, after=after, kinds=kinds, waiter=waiter):
                if entry.entry.event.time_ms >= since_ms:
                    yield entry
        return
    async for each in _by_state(store, clock, kind, since_ms):
        if each is not None:
            yield each
        elif follow:
            await wait_to_poll(clock, POLL_MS)
        else:
            return


async def _by_state(
    store: Store, clock: Clock, kind: str | None, since_ms: int
) -> AsyncGenerator[FeedEntry | None, None]:
    """Yield entries of entities that entered a state, and None when there is no more. The caller ends the loop."""
    versions: OrderedDict[str, int] = OrderedDict()
    from_ms = since_ms
    while True:
        read_ms = clock.now_ms()
        found: list[FeedEntry] = []
        for each in (kind,) if kind is not None else await store.kinds():
            found += await _new_entries(store, each, from_ms, since_ms, versions)
        for one in sorted(found, key=lambda each: (each.entry.event.time_ms, each.entity, each.entry.version)):
            yield one
        while len(versions) > ENTITIES_REMEMBERED_MAX:
            versions.popitem(last=False)
        from_ms = max(since_ms, read_ms - OVERLAP_MS)
        yield None


async def _new_entries(
    store: Store, kind: str, from_ms: int, since_ms: int, versions: OrderedDict[str, int]
) -> list[FeedEntry]:
    """The new entries of entities of a kind that entered a state since a time; `versions` is updated."""
    query = EntityQuery(kind=kind, after=encode_cursor(from_ms, ""), limit=PAGE_MAX)
    found: list[FeedEntry] = []
    async for page in pages(store.find, query):
        for row in page.rows:
            last = versions.get(row.entity)
            if last == row.version:
                continue
            after = max(0, row.version - ENTRIES_PER_ENTITY_MAX) if last is None else last
            for record in await store.read(row.entity, after=after):
                if record.entry.event.time_ms >= since_ms:
                    found.append(FeedEntry(row.entity, record.entry))
                versions[row.entity] = record.version
    return found
