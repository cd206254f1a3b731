"""What is still needed, whatever its age.

Rule 1: an ended entity stays while it has a tag `legal-hold`, work that is not done (a dead letter, too), a child that
is alive, a parent that waits for it, or entries that a projection has not read.
Rule 2: of a living entity, entries stay from the first one on that its snapshot or its work names: a timer, an active
invoke, a completed step of a saga that may have to be compensated, a deferred event, an open piece of work.
Rule 3: these only ever end. What is found here cannot become needed again before it is removed; the store itself checks
once more that the entity has not changed and has no work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.errors import ArchivedError, NotFoundError
from interlock.model.held import HELD_FIELD
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import parse_work_key
from interlock.model.snapshot import Snapshot
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX
from interlock.ports.work import WorkQuery
from interlock.runtime.history.children import started_children
from interlock.runtime.runtime import Runtime

LEGAL_HOLD = "legal-hold"
"""The tag of a state whose entities retention never removes or compacts."""

UNREAD_PAGES_MAX = 1_000
"""Pages of a feed that are looked at for the next entry of a projection: most have it on the first."""

CLOCK_MARGIN_MS = 60_000
"""How far the times of entries may differ from the order in which a feed has them."""


async def oldest_unread_ms(runtime: Runtime) -> int | None:
    """Return the time of the oldest entry that a projection has not read; None if all have read everything."""
    store, found = runtime.store, []
    if store.projections is None or store.journal_feed is None:
        return None
    for projection in await store.projections.projections():
        cursor = projection.cursor
        for _ in range(UNREAD_PAGES_MAX):
            page = await store.journal_feed.feed(cursor, limit=1)
            if page.entries:
                found.append(page.entries[0].entry.event.time_ms - CLOCK_MARGIN_MS)
            if page.entries or page.is_last:
                break
            cursor = page.after
        else:
            found.append(0)
    return min(found, default=None)


async def on_hold(runtime: Runtime, snapshot: Snapshot) -> bool:
    """Whether an operator holds it, or it is, or was when it ended, in a state with the tag `legal-hold`."""
    if HELD_FIELD in snapshot.context:
        return True
    kernel = await runtime.revisions.for_reading(snapshot.kind, snapshot.revision)
    return any(LEGAL_HOLD in each.tags for each in kernel.active(snapshot))


async def why_needed(runtime: Runtime, snapshot: Snapshot) -> str | None:
    """Return why an ended entity must stay; None if nothing here needs it."""
    if await on_hold(runtime, snapshot):
        return "legal hold"
    work = runtime.store.work
    if work is not None and (await work.list_work(WorkQuery(entity=snapshot.entity, limit=1))).rows:
        return "open work"
    parent = None if snapshot.parent is None else await load_uncached(runtime, snapshot.parent.entity)
    key = None if snapshot.parent is None else snapshot.parent.key
    if parent is not None and any(each.child and each.key == key for each in parent.invokes):
        return f"parent waits: {parent.entity}"
    for child in await _children(runtime, snapshot):
        found = await load_uncached(runtime, child)
        if found is not None and found.ended is None:
            return f"child is alive: {child}"
    return None


async def load_uncached(runtime: Runtime, entity: str) -> Snapshot | None:
    """Return an entity as the store has it, without a place in the cache, which has those in use."""
    entities = runtime.entities
    is_cached = entity in entities.snapshots
    try:
        snapshot, _ = await entities.load_snapshot(entity)
    except NotFoundError:
        return None
    if not is_cached:
        entities.snapshots.pop(entity, None)
    return snapshot


async def _children(runtime: Runtime, snapshot: Snapshot) -> list[str]:
    """Return the children that the entity has started and the store has."""
    store, found = runtime.store, []
    base = None if store.retention is None else await store.retention.journal_base(snapshot.entity)
    after = 0 if base is None else base.version  # no child of an entry before it is alive: rule 2
    while records := await _read(runtime, snapshot, after):
        for record in records:
            if any(each.type == "invoke" for each in record.entry.effects):
                kernel = await runtime.revisions.for_reading(snapshot.kind, record.entry.revision)
                for effect in record.entry.effects:
                    found += await started_children(store, kernel, effect)
        after = records[-1].version
    return found


async def _read(runtime: Runtime, snapshot: Snapshot, after: int) -> tuple[JournalRecord, ...]:
    """Return the next records; none of an archived journal, if no chart of the kind starts children."""
    try:
        return await runtime.store.read(snapshot.entity, after=after, limit=PAGE_MAX)
    except ArchivedError:
        for edition in await runtime.revisions.editions(snapshot.kind):
            chart = await runtime.revisions.chart(snapshot.kind, edition.revision)
            if chart.charts or chart.inline:
                raise
        return ()


async def last_free_version(runtime: Runtime, snapshot: Snapshot) -> tuple[int, int | None]:
    """Return the last version that a compaction may remove, as far as the entity's own needs go; and up to which time.

    The time is that of the oldest deferred event, which was received before a later entry.
    """
    kernel = await runtime.revisions.for_reading(snapshot.kind, snapshot.revision)
    needed = [snapshot.version, *_named_versions(snapshot, kernel.chart.saga_fields)]
    if runtime.store.work is not None:
        async for page in pages(runtime.store.work.list_work, WorkQuery(entity=snapshot.entity, limit=PAGE_MAX)):
            needed += [row.work.id.version for row in page.rows]
    return min(needed) - 1, min((each.time_ms for each in snapshot.deferred), default=None)


def _named_versions(snapshot: Snapshot, saga_fields: frozenset[str]) -> Iterator[int]:
    yield from (each.version for each in snapshot.timers)
    yield from (_version_of(each.key) or 1 for each in snapshot.invokes)
    for field in saga_fields:
        progress = snapshot.context.get(field)
        done = progress.get("done") if isinstance(progress, dict) else None
        if isinstance(done, dict) and any(each is not None for each in done.values()):
            found = [version for text in _strings(progress) if (version := _version_of(text)) is not None]
            yield min(found, default=1)  # with the author's own key, nothing shows which entry it is of


def _version_of(key: str) -> int | None:
    try:
        return parse_work_key(key)[1]
    except ValueError:
        return None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
