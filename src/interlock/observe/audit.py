"""The audit as one list: the entries of journals and the rows of the audit, exported together.

Rule 1: an attempt that wrote an entry is exported from the journal, any other from its row. The columns are always the
same twelve.
Rule 2: the list is in the order of time, then entity and version. It is merged from two streams that are nearly in this
order: rows that are more than `MERGE_ROWS` places late stay late.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.actor import Actor, originator_of
from interlock.model.audit import CHECKPOINT, AuditRecord, AuditRow, actor_of_event
from interlock.model.journal.cause import trace_id
from interlock.model.journal.entry import Entry
from interlock.ports.store import Store
from interlock.ports.trust.audit import AuditLog
from interlock.runtime.reading.feed import feed_of

COLUMNS = (
    "transition_id",
    "entity_id",
    "entity_kind",
    "actor_id",
    "actor_kind",
    "event",
    "state_from",
    "state_to",
    "occurred_at",
    "trace_id",
    "outcome",
    "reason",
)
"""The columns of an export, in their order."""

OUTCOMES: Mapping[str, str] = {"rejected": "rejected_invalid", "denied": "rejected_auth"}
"""Outcomes that have another name in an export."""

MERGE_ROWS = 10_000
"""Rows of each stream that wait for their place: some megabytes."""

PAGE = 1_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AuditExport(NamedTuple):
    """One row of an export. The fields are the columns; a text that is not known is empty."""

    transition_id: str
    entity_id: str
    entity_kind: str
    actor_id: str
    actor_kind: str
    event: str
    state_from: str
    state_to: str
    occurred_at: str
    trace_id: str
    outcome: str
    reason: str


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which rows are exported: from a time on, before a time, of a kind, of an entity, of an actor."""

    since_ms: int | None = None
    until_ms: int | None = None
    kind: str | None = None
    entity: str | None = None
    actor: str | None = None

    def includes(self, found: _Place) -> bool:
        """Whether a row is exported."""
        return (
            (self.since_ms is None or found.time_ms >= self.since_ms)
            and (self.until_ms is None or found.time_ms < self.until_ms)
            and (self.kind is None or found.entity.partition("/")[0] == self.kind)
            and (self.entity is None or found.entity == self.entity)
            and (self.actor is None or found.actor == self.actor)
        )


class _Place(NamedTuple):
    """A row with the place where it belongs: time, entity, and a number that orders rows of one entity and time."""

    time_ms: int
    entity: str
    number: int
    actor: str
    row: AuditExport


async def export_audit(store: Store, wanted: AuditFilter | None = None) -> AsyncIterator[AuditExport]:
    """Yield the whole audit of a tenant in order. Raises UsageError (`audit.unsupported`) if the store has none."""
    log = audit_of(store)
    chosen = wanted or AuditFilter()
    async for found in _merged(_entries(store, log.first_audit_head, chosen), _rows(log)):
        if chosen.includes(found):
            yield found.row


def audit_of(store: Store) -> AuditLog:
    """Return the audit of a store. Raises UsageError (`audit.unsupported`)."""
    if store.audit is None:
        raise UsageError("this store has no audit", code="audit.unsupported", hint="use files, SQLite or PostgreSQL")
    return store.audit


async def _merged(*streams: AsyncGenerator[_Place, None]) -> AsyncIterator[_Place]:
    """Yield the rows of two streams in order; each is nearly in order itself."""
    waiting: list[tuple[tuple[int, str, int, int], _Place, int]] = []
    counts = [0] * len(streams)
    is_open = [True] * len(streams)
    while True:
        for number, stream in enumerate(streams):
            while is_open[number] and counts[number] < MERGE_ROWS:
                try:
                    found = await anext(stream)
                except StopAsyncIteration:
                    is_open[number] = False
                    break
                heapq.heappush(waiting, ((found.time_ms, found.entity, found.number, number), found, number))
                counts[number] += 1
        if not waiting:
            return
        _, found, number = heapq.heappop(waiting)
        counts[number] -= 1
        yield found


async def _entries(store: Store, stream: str, wanted: AuditFilter) -> AsyncGenerator[_Place, None]:
    feed = feed_of(store)
    cursor = None if wanted.since_ms is None else await feed.cursor_at(wanted.since_ms)
    kinds = None if wanted.kind is None else (wanted.kind,)
    while True:
        page = await feed.feed(cursor, kinds=kinds, limit=PAGE)
        for each in page.entries:
            yield _place_of_entry(stream, each.entity, each.entry)
        if page.is_last:
            return
        cursor = page.after


async def _rows(log: AuditLog) -> AsyncGenerator[_Place, None]:
    sequence = 0
    while page := await log.audit_after(sequence, limit=PAGE):
        for record in page:
            sequence = record.sequence
            row = record.decode()
            if row.event != CHECKPOINT:
                yield _place_of_row(log.first_audit_head, record, row)


def _place_of_entry(stream: str, entity: str, entry: Entry) -> _Place:
    event = entry.event
    actor = actor_of_event(event)
    row = AuditExport(
        transition_id=transition_id(stream, entity, entry.key),
        entity_id=entity,
        entity_kind=entity.partition("/")[0],
        actor_id=actor.id,
        actor_kind=actor.kind,
        event=event.name,
        state_from=",".join(entry.before),
        state_to=",".join(entry.after),
        occurred_at=time_text(event.at_ms),
        trace_id=trace_id(entry.trace),
        outcome=OUTCOMES.get(entry.outcome, entry.outcome),
        reason=_reason(entry.reason, entry.reason_given, entry.originator or originator_of(event.principal)),
    )
    return _Place(event.at_ms, entity, entry.version, actor.id, row)


def _place_of_row(stream: str, record: AuditRecord, row: AuditRow) -> _Place:
    states = ",".join(row.state_from or ())
    note = row.note
    if row.is_summary:
        note = f"{row.count} attempts, {time_text(row.first_ms or 0)} to {time_text(row.last_ms or 0)}"
    export = AuditExport(
        transition_id=transition_id(stream, row.entity, row.key or "", record.sequence),
        entity_id=row.entity,
        entity_kind=row.kind,
        actor_id=row.actor or "",
        actor_kind=row.actor_kind or ("system" if row.actor is None else "user"),
        event=row.event,
        state_from=states,
        state_to=states if row.state_to is None else ",".join(row.state_to),
        occurred_at=time_text(row.time_ms),
        trace_id=trace_id(row.trace),
        outcome=OUTCOMES.get(row.outcome, row.outcome),
        reason=_reason(row.reason, note, row.originator),
    )
    return _Place(row.time_ms, row.entity, 2**62 + record.sequence, export.actor_id, export)


def transition_id(stream: str, entity: str, key: str, sequence: int | None = None) -> str:
    """Return the UUID (version 8) of an attempt, from the stream of its tenant, the entity and the key.

    So a duplicate has the same one. A refused attempt has the number of its row in it, too: it may be repeated.
    """
    text = "\0".join((stream, entity, key, *(() if sequence is None else (str(sequence),))))
    digest = bytearray(blake2b(text.encode(errors="replace"), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


def time_text(time_ms: int) -> str:
    """Return a time as RFC 3339 writes it, in UTC with milliseconds."""
    try:
        found = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return ""
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _reason(code: str | None, note: str | None, originator: Actor | None) -> str:
    whom = None if originator is None else f"for {originator.kind} {originator.id}"
    return ": ".join(each for each in (code, whom, note) if each)
