"""What happens on a store, as it happens: the entries of all entities, from a time on.

Rule 1: looking needs no bus and no chart, and writes nothing.
Rule 2: a store that numbers its entries (`ports.feed`) is read by number: nothing is missed, nothing shown twice.
Rule 3: of another store the entities are watched that entered a state since: an entry that moves nowhere shows with
the next one that does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.journal_feed import FeedEntry, JournalFeed
from interlock.ports.store import PAGE_MAX, EntityQuery, Store
from interlock.stores.cursor import encode_cursor

OVERLAP_MS = 5_000
"""How far back a look begins before the last: what was kept late may carry an earlier time."""

ENTRIES_BACK_MAX = 200
"""Entries of one entity that a look shows at most; its journal has them all."""

SEEN_MAX = 100_000
"""Entities whose last version is remembered while following."""


async def tail(
    store: Store, clock: Clock, *, kind: str | None, since_ms: int, follow: bool, poll_ms: int = 500
) -> AsyncGenerator[FeedEntry, None]:
    """Entries from a time on; with `follow` without end, as they are kept."""
    found = _by_number(store, since_ms) if isinstance(store, JournalFeed) else _by_moves(store, clock, kind, since_ms)
    async for each in found:
        if each is None:
            if not follow:
                return
            await wait_to_poll(clock, poll_ms)
        elif kind is None or each.entity.startswith(f"{kind}/"):
            yield each


async def _by_number(store: JournalFeed, since_ms: int) -> AsyncGenerator[FeedEntry | None, None]:
    """What was kept, then None whenever nothing is left. An endless loop by intent."""
    after = await store.place_at(since_ms)
    while True:
        page = await store.feed(after, limit=PAGE_MAX)
        for each in page.told:
            if each.entry.event.time_ms >= since_ms:
                yield each
        if page.after == after:
            yield None
        after = page.after


async def _by_moves(
    store: Store, clock: Clock, kind: str | None, since_ms: int
) -> AsyncGenerator[FeedEntry | None, None]:
    """What entities did that moved, then None whenever nothing is left. An endless loop by intent."""
    seen: OrderedDict[str, int] = OrderedDict()
    from_ms = since_ms
    while True:
        looked_ms = clock.now_ms()
        told: list[FeedEntry] = []
        for each in (kind,) if kind is not None else await store.kinds():
            told += await _moved(store, each, from_ms, since_ms, seen)
        for one in sorted(told, key=lambda each: (each.entry.event.time_ms, each.entity, each.entry.version)):
            yield one
        while len(seen) > SEEN_MAX:
            seen.popitem(last=False)
        from_ms = max(since_ms, looked_ms - OVERLAP_MS)
        yield None


async def _moved(store: Store, kind: str, from_ms: int, since_ms: int, seen: OrderedDict[str, int]) -> list[FeedEntry]:
    """The entries not seen yet of entities of a kind that entered a state since."""
    query = EntityQuery(kind=kind, after=encode_cursor(from_ms, ""), limit=PAGE_MAX)
    told: list[FeedEntry] = []
    while True:
        page = await store.find(query)
        for row in page.rows:
            last = seen.get(row.entity)
            if last == row.version:
                continue
            after = max(0, row.version - ENTRIES_BACK_MAX) if last is None else last
            for record in await store.read(row.entity, after=after):
                if record.entry.event.time_ms >= since_ms:
                    told.append(FeedEntry(row.entity, record.entry))
                seen[row.entity] = record.version
        if page.after is None:
            return told
        query = replace(query, after=page.after)
