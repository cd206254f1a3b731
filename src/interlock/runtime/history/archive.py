"""Retention: journals of ended entities go to an archive, and are released here once the archive has them.

Rule 1: nothing is released without a rule that names a kind, a state and an age, and only of entities that ended.
Rule 2: the order is prove, adopt, read back, release. Whatever dies in between leaves a journal in two places, never
in none; the same call again goes on where it stopped.
Rule 3: an entity stays where it lived: its snapshot, its keys, the hash of its last record. An id never lives twice.
Rule 4: what cannot be proven here, by its chain and by replay, or does not follow what the archive has, is not
archived, and that is said; the others are taken all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

from msgspec import Struct

from interlock.errors import ConflictError, CorruptionError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Append, EntityQuery, EntityRow, JournalArchive, JournalRelease, Store
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.replay import replay
from interlock.runtime.history.verify import verify_entity


class RetentionRule(Struct, frozen=True, kw_only=True):
    """Which entities: of a kind, ended in a state, and that longer ago than a time."""

    kind: str
    state: str
    entered_before_ms: int


class ArchivedEntity(Struct, frozen=True, omit_defaults=True):
    """What became of one entity.

    `archived` is `yes`, `before` (an earlier run did it), `would` (a dry run) or `no`; `reason` says why not.
    """

    entity: str
    archived: str
    month: str
    entries: int = 0
    reason: str | None = None


Opener = Callable[[str], Awaitable[tuple[Store, str]]]
"""Gives the store that keeps the journals of a month such as `2026-08`, and its address. It is of the tenant whose
journals are archived: a chain begins with its tenant."""


async def archive(
    store: Store, charts: ChartRegistry, rule: RetentionRule, opened: Opener, *, dry_run: bool = False
) -> AsyncIterator[ArchivedEntity]:
    """Take the journals of all entities of a rule to their months, one after the other. `opened` owns what it opens.

    Raises UsageError when this store cannot release journals, or that one cannot take them.
    """
    if not isinstance(store, JournalRelease):
        raise UsageError("this store keeps its journals: it releases none", code="archive.source")
    cursor: str | None = None
    while True:  # ends with the last page
        query = EntityQuery(
            kind=rule.kind,
            state=rule.state,
            entered_before_ms=rule.entered_before_ms,
            after=cursor,
            limit=PAGE_MAX,
        )
        page = await store.find(query)
        for row in page.rows:
            if row.ended is not None:
                yield await _archived(store, charts, row, opened, dry_run=dry_run)
        cursor = page.after
        if cursor is None:
            break


def month(time_ms: int) -> str:
    """The month of a time, as archives are sorted: `2026-08`, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m")


async def _archived(
    store: Store, charts: ChartRegistry, row: EntityRow, opened: Opener, *, dry_run: bool
) -> ArchivedEntity:
    where = month(row.changed_ms)
    proof = await verify_entity(store, charts, row.entity)
    if proof.archive is not None:
        return ArchivedEntity(row.entity, "before", where)
    if proof.problem is not None:
        return ArchivedEntity(row.entity, "no", where, proof.entries, proof.problem.message)
    if dry_run:
        return ArchivedEntity(row.entity, "would", where, proof.entries)
    target, address = await opened(where)
    try:
        head = await _adopted(store, charts, row.entity, proof.entries, target)
    except (ConflictError, CorruptionError) as error:
        return ArchivedEntity(row.entity, "no", where, proof.entries, error.message)
    if head != proof.head:
        return ArchivedEntity(row.entity, "no", where, proof.entries, "the archive's copy ends with another hash")
    assert isinstance(store, JournalRelease)
    if not await store.release(row.entity, version=proof.entries, archive=address):
        return ArchivedEntity(row.entity, "no", where, proof.entries, "it went on meanwhile")
    return ArchivedEntity(row.entity, "yes", where, proof.entries)


async def _adopted(store: Store, charts: ChartRegistry, entity: str, version: int, target: Store) -> str | None:
    """Bring the records of an entity to another store, page by page; gives the hash of the last one read back there."""
    if not isinstance(target, JournalArchive):
        raise UsageError("this store takes no journals of others", code="archive.target", hint="use file:///folder")
    after, snapshot = 0, None
    while after < version:
        records = await store.read(entity, after=after, limit=min(PAGE_MAX, version - after))
        if not records:
            return None
        snapshot = replay(charts, entity, snapshot, (each.entry for each in records))
        assert snapshot is not None
        await target.adopt(_append(charts, snapshot, records), records)
        after = records[-1].version
    last = await target.read(entity, after=version - 1, limit=1)
    return last[0].head if last else None


def _append(charts: ChartRegistry, snapshot: Snapshot, records: tuple[JournalRecord, ...]) -> Append:
    """What the last of these records leads to."""
    entry = records[-1].entry
    states = charts.of(snapshot).active(snapshot)
    tags = tuple(sorted({tag for each in states for tag in each.tags}))
    ids = tuple(each.id for each in states)
    return Append(snapshot.kind, snapshot.entity, entry.version - 1, entry, snapshot, ids, tags)
