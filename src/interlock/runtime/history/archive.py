"""Retention: copy journals of ended entities to an archive, and release them here once the archive has them.

Rule 1: a journal is released only by a rule that names a kind, a state and an age, and only for ended entities.
Rule 2: the order is verify, copy, read back, release. A crash in between leaves a journal in two places, never in none;
the same call continues where it stopped.
Rule 3: the entity itself stays: its snapshot, its keys, the hash of its last record. An id is never used twice.
Rule 4: the archive gets the definition of every revision that a journal names, before the journal.
Rule 5: a journal that cannot be verified, by its chain and by replay, or that does not follow what the archive has, is
not archived, and the result says so. The others are archived all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

from msgspec import Struct

from interlock.errors import CompactedError, ConflictError, CorruptionError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, Append, EntityQuery, EntityRow, Store
from interlock.ports.trust.retention import JournalBase
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.runtime.history.verify import verify_entity


class RetentionRule(Struct, frozen=True, kw_only=True):
    """Which entities to archive: of a kind, ended in a state, before a time."""

    kind: str
    state: str
    entered_before_ms: int


class ArchivedEntity(Struct, frozen=True, omit_defaults=True):
    """The result for one entity.

    `archived` is `yes`, `before` (an earlier run did it), `would` (a dry run) or `no`; `reason` says why not.
    """

    entity: str
    archived: str
    month: str
    entries: int = 0
    reason: str | None = None


Opener = Callable[[str], Awaitable[tuple[Store, str]]]
"""Returns the store for the journals of a month such as `2026-08`, and its address. It must have the tenant whose
journals are archived: a chain starts with its tenant."""


async def archive(
    store: Store, revisions: Revisions, rule: RetentionRule, open_month: Opener, *, dry_run: bool = False
) -> AsyncIterator[ArchivedEntity]:
    """Archive the journals of all entities of a rule, one after the other. `open_month` owns the stores it opens.

    Raises UsageError when this store cannot release journals, or the archive cannot adopt them.
    """
    if store.journal_release is None:
        raise UsageError("this store does not support archiving", code="archive.source")
    cursor: str | None = None
    saved: dict[str, set[tuple[str, str]]] = {}
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
                definitions = saved.setdefault(month(row.changed_ms), set())
                yield await _archive(store, revisions, row, open_month, definitions, dry_run=dry_run)
        cursor = page.after
        if cursor is None:
            break


def month(time_ms: int) -> str:
    """Return the month of a time in UTC, such as `2026-08`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m")


async def _archive(
    store: Store,
    revisions: Revisions,
    row: EntityRow,
    open_month: Opener,
    saved: set[tuple[str, str]],
    *,
    dry_run: bool,
) -> ArchivedEntity:
    where = month(row.changed_ms)
    found = await verify_entity(store, revisions, row.entity)
    if found.archive is not None:
        return ArchivedEntity(row.entity, "before", where)
    if found.problem is not None:
        return ArchivedEntity(row.entity, "no", where, found.entries, found.problem.message)
    if dry_run:
        return ArchivedEntity(row.entity, "would", where, found.entries)
    target, address = await open_month(where)
    try:
        head = await copy_journal(store, revisions, row.entity, found.entries, target, saved)
    except (CompactedError, ConflictError, CorruptionError) as error:
        return ArchivedEntity(row.entity, "no", where, found.entries, error.message)
    if head != found.head:
        return ArchivedEntity(row.entity, "no", where, found.entries, "the hash of the archived copy differs")
    assert store.journal_release is not None
    if not await store.journal_release.release_journal(row.entity, version=found.entries, archive=address):
        return ArchivedEntity(row.entity, "no", where, found.entries, "it has changed meanwhile")
    return ArchivedEntity(row.entity, "yes", where, found.entries)


async def copy_journal(
    store: Store, revisions: Revisions, entity: str, version: int, target: Store, saved: set[tuple[str, str]]
) -> str | None:
    """Copy the records of an entity up to a version, page by page; return the hash of the last one, read back from
    the archive. Records that the archive has are skipped.

    `saved` are the revisions whose definitions that archive has.
    """
    if target.journal_archive is None:
        raise UsageError("this store cannot contain an archive", code="archive.target", hint="use file:///folder")
    after, snapshot, base = 0, None, await _base(store, entity)
    if base is not None:  # the archive must have what was removed here: it refuses records with a gap before them
        after, snapshot = base.version, base.snapshot
    while after < version:
        records = await store.read(entity, after=after, limit=min(PAGE_MAX, version - after))
        if not records:
            return None
        snapshot = await replay(revisions, entity, snapshot, (each.entry for each in records))
        assert snapshot is not None
        for name in dict.fromkeys(each.entry.revision for each in records):
            if target.definitions is not None and (snapshot.kind, name) not in saved:
                definition = await revisions.definition(snapshot.kind, name)
                if definition is not None:
                    await target.definitions.save_definition(definition, now_ms=records[0].entry.event.time_ms)
                saved.add((snapshot.kind, name))
        await target.journal_archive.adopt(await _append(revisions, snapshot, records), records)
        after = records[-1].version
    last = await target.read(entity, after=version - 1, limit=1)
    return last[0].head if last else None


async def _base(store: Store, entity: str) -> JournalBase | None:
    return None if store.retention is None else await store.retention.journal_base(entity)


async def _append(revisions: Revisions, snapshot: Snapshot, records: tuple[JournalRecord, ...]) -> Append:
    """Return the append of the last of these records."""
    entry = records[-1].entry
    states = (await revisions.for_reading(snapshot.kind, snapshot.revision)).active(snapshot)
    tags = tuple(sorted({tag for each in states for tag in each.tags}))
    ids = tuple(each.id for each in states)
    return Append(snapshot.kind, snapshot.entity, entry.version - 1, entry, snapshot, ids, tags)
