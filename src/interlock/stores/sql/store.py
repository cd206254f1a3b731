"""SqlStore: what a store on a SQL database can do, whichever database it is.

Rule 1: a store is bound to one tenant: no statement can be written without it.
Rule 2: ids and keys that a database cannot store as text are refused before they are sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from interlock.errors import CorruptionError, UsageError
from interlock.model.audit import AuditRecord, AuditRow, first_head
from interlock.model.encoding.codec import UNDECODABLE, decode_snapshot
from interlock.model.encoding.index_key import IndexedField
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import Lane, WorkId
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Definition, Definitions, Edition, StoredDefinition
from interlock.ports.leases import ClockStamps, Downtime, Lease, Leases
from interlock.ports.reading.field_indexes import FieldIndexes, IndexStatus
from interlock.ports.reading.projections import ProjectionStatus
from interlock.ports.reading.statistics import (
    DwellTimes,
    LastSeen,
    MinuteRates,
    ProcessStays,
    StateCount,
    Statistics,
    VisibleCounts,
    counts_of_all,
    dwell_for_others,
    dwell_of_all,
    visible_counts,
)
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    AppendResult,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityVerification,
    Itself,
    Joins,
    JournalRelease,
    Loaded,
)
from interlock.ports.store_facts import StoreFacts
from interlock.ports.trust.audit import AuditLog
from interlock.ports.trust.retention import JournalBase, Removal, Retention, Tombstone
from interlock.ports.wakeups import Wakeups
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue
from interlock.stores.sql import audit as audit_questions
from interlock.stores.sql import definitions, field_index, leases, lists, statistics, verification, work_lists
from interlock.stores.sql import retention as retention_rules
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, SqlDatabase
from interlock.stores.sql.records import read_records

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that a database cannot store: NUL and lone surrogates."""


class SqlWakeups(Wakeups, Protocol):
    """The signals of a SQL store, which end with it."""

    async def arrive(self) -> bool:
        """Whether signals arrive at all, as far as a test shows."""

    async def close(self) -> None:
        """Send what waits, and release everything."""


class SqlStore:
    """Journals in a SQL database. Safe for many callers, event loops, threads and processes."""

    work = Itself[WorkQueue]()
    leases = Itself[Leases]()
    clock_stamps = Itself[ClockStamps]()
    statistics = Itself[Statistics]()
    audit = Itself[AuditLog]()
    journal_release = Itself[JournalRelease]()
    retention = Itself[Retention]()
    field_indexes = Itself[FieldIndexes]()
    verification = Itself[EntityVerification]()
    definitions = Itself[Definitions]()
    facts = Itself[StoreFacts]()
    journal_archive = None
    joins: Joins | None = None
    engine = None

    def __init__(self, database: SqlDatabase, wakeups: SqlWakeups) -> None:
        self.database = database
        self.wakeups = wakeups
        self._sql = database.statements
        self._tenant = database.tenant

    async def append(self, append: Append) -> AppendResult:
        """Commit one step, if the entity is still at the expected version and the key is new."""
        check_text(append.entity)
        check_text(append.entry.key, "key")
        return await self.database.append(append)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; None when it does not exist. With `key`: `Duplicate` when that key was used before."""
        check_text(entity)
        check_text(key or "", "key")
        found = await self.database.find_entity(entity, key)
        if found is None:
            return None
        version, changed_ms, body, key_version = found
        if version < 0:  # it is being removed
            return None
        return Duplicate(key_version) if key_version is not None else decode_loaded(entity, version, changed_ms, body)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Return the verified records after a version, in order.

        Raises CorruptionError at the first bad link, ArchivedError when they were released to an archive.
        """
        check_text(entity)
        return await self.database.read(lambda: read_records(self._sql, self._tenant, entity, after, limit))

    async def find(self, query: EntityQuery) -> EntityPage:
        """Return entities by kind, state, age and tag, oldest in their state first, page by page."""
        if not (query.where or query.context):
            return await self.database.read(lambda: lists.find_entities(self._sql, self._tenant, query))

        def find() -> Questions[EntityPage]:
            search = field_index.find_by_fields if query.where else lists.find_entities
            found = yield from search(self._sql, self._tenant, query)
            if query.context:
                found = yield from field_index.add_contexts(self._sql, self._tenant, query.kind, found)
            return found

        is_one_question = not query.context and len(query.where or ()) == 1
        return await (self.database.read(find) if is_one_question else self.database.read_snapshot(find))

    async def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have entities, sorted."""
        return await self.database.read(lambda: lists.list_kinds(self._sql, self._tenant))

    async def entity_names(self) -> None:
        """Return None: lists are made of rows, and leave out no entity."""

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """Return how derived rows differ from journals: those of one entity, or those of the database as a whole."""
        if entity is None:
            return await self.database.read_snapshot(lambda: verification.database_differences(self._sql, self._tenant))
        check_text(entity)
        return await self.database.read_snapshot(
            lambda: verification.entity_differences(self._sql, self._tenant, entity)
        )

    async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """Delete the records of an ended entity that is still at this version; False when it is not.

        The entity and its keys stay. Reading the records names the archive.
        """
        check_text(entity)
        check_text(archive, "archive")
        name = (self._tenant, *split_entity(entity))
        return await self.database.change(lambda: self._sql.release_journal(name, version, archive))

    async def close(self) -> None:
        """Finish appends that are in progress, then release everything; later calls raise UnavailableError."""
        await self.wakeups.close()  # it releases claims of dead workers
        await self.database.close()

    # Retention

    async def prune(self, tombstone: Tombstone, *, rows: int) -> Removal:
        """Write the tombstone if the entity may go, and remove rows."""
        check_text(tombstone.entity)
        check_text(tombstone.archive or "", "archive")
        return await self.database.change_whole(
            lambda: retention_rules.prune(self._sql, self._tenant, tombstone, max(1, rows))
        )

    async def compact(self, base: JournalBase, *, newest: Snapshot, rows: int) -> Removal:  # noqa: ARG002 - its row has it
        """Write the base if the journal has its record, and remove records."""
        check_text(base.entity)
        return await self.database.change_whole(
            lambda: retention_rules.compact(self._sql, self._tenant, base, max(1, rows))
        )

    async def remove_rest(self, entity: str, *, rows: int) -> Removal:
        """Go on with what `prune` or `compact` began."""
        check_text(entity)
        return await self.database.change_whole(
            lambda: retention_rules.remove_rest(self._sql, self._tenant, entity, max(1, rows))
        )

    async def unfinished(self, *, limit: int) -> tuple[str, ...]:
        """Return entities of which rows are left."""
        return await self.database.read(lambda: retention_rules.unfinished(self._sql, self._tenant, limit))

    async def tip(self, entity: str) -> tuple[int, str]:
        """Return the last version of an entity and the hash of that record."""
        check_text(entity)
        return await self.database.read(lambda: retention_rules.find_tip(self._sql, self._tenant, entity))

    async def tombstone(self, entity: str) -> Tombstone | None:
        """Return the tombstone of a pruned entity."""
        check_text(entity)
        return await self.database.read(lambda: retention_rules.find_tombstone(self._sql, self._tenant, entity))

    async def tombstones(self, *, after: str | None, limit: int) -> tuple[Tombstone, ...]:
        """Return the tombstones after an entity, by kind and id."""
        check_text(after or "")
        return await self.database.read(lambda: retention_rules.list_tombstones(self._sql, self._tenant, after, limit))

    async def journal_base(self, entity: str) -> JournalBase | None:
        """Return where a compacted journal starts."""
        check_text(entity)
        return await self.database.read(lambda: retention_rules.find_base(self._sql, self._tenant, entity))

    async def reclaim(self, *, pages: int) -> int:
        """Return free space to the file system, in one bounded step."""
        return await self.database.change_whole(lambda: self._sql.reclaim(max(1, pages)))

    # Indexes on fields

    async def declare_indexes(self, fields: tuple[IndexedField, ...]) -> None:
        """Create the indexes that are missing. Every step that starts afterwards keeps them, in every process."""
        for each in fields:
            check_text(each.field, "field")
        if fields and await self.database.read(lambda: field_index.undeclared(self._sql, self._tenant, fields)):
            await self.database.change_whole(lambda: field_index.declare_indexes(self._sql, self._tenant, fields))

    async def indexes(self) -> tuple[IndexStatus, ...]:
        """Return all indexes, by kind and field."""
        return await self.database.read(lambda: field_index.list_indexes(self._sql, self._tenant))

    async def build_index(self, kind: str, field: str, *, limit: int) -> IndexStatus | None:
        """Add the next entities, at most `limit`; return the index afterwards, or None when it does not exist."""
        check_text(kind, "kind")
        check_text(field, "field")
        return await self.database.change_whole(
            lambda: field_index.build_part(self._sql, self._tenant, kind, field, limit)
        )

    async def drop_index(self, kind: str, field: str, *, limit: int) -> IndexStatus | None:
        """Stop keeping an index, and delete at most `limit` of its rows; return it until it is removed, then None."""
        check_text(kind, "kind")
        check_text(field, "field")
        status = await self.database.read(lambda: field_index.find_index(self._sql, self._tenant, kind, field))
        if status is not None and status.state != "dropping":
            await self.database.change_whole(lambda: field_index.stop_keeping(self._sql, self._tenant, kind, field))
        return await self.database.change_whole(
            lambda: field_index.drop_part(self._sql, self._tenant, kind, field, limit)
        )

    # Projections

    async def projections_of(self) -> tuple[ProjectionStatus, ...]:
        """Return all projections, by name."""

        def ask() -> Questions[tuple[ProjectionStatus, ...]]:
            rows = yield Ask(self._sql.projections, (self._tenant,))
            return tuple(
                ProjectionStatus(name, cursor, entries, failures, error, bool(stopped))
                for name, cursor, entries, failures, error, stopped in rows
            )

        return await self.database.read(ask)

    async def record_projection_failure(self, name: str, *, cursor: str | None, error: str, stopped: bool) -> None:
        """Count a failure of a projection at this cursor."""

        def record() -> Questions[None]:
            yield Ask(self._sql.record_failure, (self._tenant, name, cursor, error, int(stopped)))

        await self.database.change_once(record)

    # Audit

    @property
    def first_audit_head(self) -> str:
        """The head before the first row of the tenant."""
        return first_head(self._tenant)

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Append rows to the audit of the tenant; on return they are durable."""
        await self.database.append_audit(rows)

    async def audit_before(
        self, sequence: int | None, *, actor: str | None = None, limit: int = 50
    ) -> tuple[AuditRecord, ...]:
        """Return rows of the audit before a number, newest first."""
        return await self.database.read(
            lambda: audit_questions.audit_before(self._sql, self._tenant, sequence, actor, limit)
        )

    async def audit_after(self, sequence: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:
        """Return rows of the audit after a number, in order."""
        return await self.database.read(lambda: audit_questions.audit_after(self._sql, self._tenant, sequence, limit))

    async def former_audit_after(self, former: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:
        """Return rows of earlier releases, of all tenants, in their order."""
        return await self.database.read(lambda: audit_questions.former_audit_after(self._sql, former, limit))

    # Statistics

    async def count_states(self, kind: str) -> tuple[StateCount, ...]:
        """Return how many entities are in each state, by revision."""
        return counts_of_all(await self._counts(kind))

    async def visible_counts(self, kind: str) -> VisibleCounts:
        """Return the population of every state by revision, as it is and as others see it."""
        return visible_counts(await self._counts(kind))

    async def _counts(self, kind: str) -> tuple[StateCount, ...]:
        return await self.database.read(lambda: statistics.count_states(self._sql, self._tenant, kind))

    async def dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Return dwell times of stays that ended since a day, by state."""
        return dwell_of_all(await self._dwell(kind, since_ms))

    async def visible_dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Return dwell times as others see them, by state."""
        return dwell_for_others(await self._dwell(kind, since_ms))

    async def _dwell(self, kind: str, since_ms: int) -> tuple[DwellTimes, ...]:
        return await self.database.read(lambda: statistics.dwell_times(self._sql, self._tenant, kind, since_ms))

    async def process_stays(self) -> tuple[ProcessStays, ...]:
        """Return the stays that ended by steps of this process since the store was opened."""
        return self.database.stays.stays()

    async def minute_rates(self, kind: str, *, since_ms: int) -> tuple[MinuteRates, ...]:
        """Return the counters of each minute since a time, in order."""
        return await self.database.read(lambda: statistics.minute_rates(self._sql, self._tenant, kind, since_ms))

    async def count_overdue(self, kind: str, state: str, *, before_ms: int) -> int:
        """Return how many entities entered a state before a time; `COUNT_MAX` + 1 means that there are more."""
        return await self.database.read(
            lambda: statistics.count_overdue(self._sql, self._tenant, kind, state, before_ms)
        )

    async def count_work(self, lane: Lane) -> int:
        """Return how much work of a lane is in line; `COUNT_MAX` + 1 means that there is more."""
        return await self.database.read(lambda: statistics.count_work(self._sql, self._tenant, lane))

    async def last_seen(self, kind: str) -> tuple[LastSeen, ...]:
        """Return what was seen of a kind."""
        return await self.database.read(lambda: statistics.last_seen(self._sql, self._tenant, kind))

    # Work: created and finished in `append`; here it is claimed, held and released.

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first. Nothing is written when there is none."""
        return await self.database.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend the leases of claims; None for each that is no longer valid."""
        return await self.database.change_work(lambda: self.database.work.renew(claims, until_ms=until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims. False: no longer valid, or already released on a connection that was lost afterwards."""
        return await self.database.change_work(lambda: self.database.work.settle(settled, now_ms=now_ms))

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """Store a note with the work of a claim; False when the claim is no longer valid."""
        return await self.database.change(lambda: work_lists.annotate_work(self._sql, self._tenant, claim, error))

    async def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """Return when the next work is due or its lease expires, by the caller's clock; None when there is none."""
        return await self.database.read(lambda: self.database.work.next_due_ms(lane, names))

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Return work by kind, lane, name and entity, page by page."""
        return await self.database.read(lambda: work_lists.list_work(self._sql, self._tenant, query))

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """Requeue a dead letter from its first attempt; False when there is none."""
        check_text(entity)
        return await self._operate(
            audit, lambda: work_lists.requeue_dead_work(self._sql, self._tenant, entity, work_id, now_ms)
        )

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """Requeue work that is not dead; False when it has changed since."""

        def requeue() -> Questions[bool]:
            return (yield from self.database.work.settle((settled,), now_ms=now_ms))[0]

        return await self._operate(audit, requeue)

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work; False when there is none."""
        check_text(entity)
        return await self._operate(audit, lambda: self.database.work.delete(entity, work_id))

    async def _operate(self, audit: AuditRow | None, operation: Callable[[], Questions[bool]]) -> bool:
        """Run an operation of an operator, and record who it was, in one transaction."""

        def operate() -> Questions[bool]:
            is_done = yield from operation()
            if is_done and audit is not None:
                yield from audit_questions.append_audit(self._sql, self._tenant, (audit,))
            return is_done

        return await self.database.change_once(operate)

    # Definitions

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names. Nothing is written when they are saved already."""
        check_text(definition.kind, "kind")
        check_text(definition.label or "", "label")
        found = await self.database.read(lambda: definitions.find_saved(self._sql, self._tenant, definition))
        if found is not None:
            return found
        return await self.database.change_once(
            lambda: definitions.save_definition(self._sql, self._tenant, definition, now_ms)
        )

    async def read_facts(self) -> dict[str, str]:
        """Return all facts."""

        def read() -> Questions[dict[str, str]]:
            return dict((yield Ask(self._sql.facts, (self._tenant,))))

        return await self.database.read(read)

    async def save_fact(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set or remove a fact."""
        check_text(name, "name")
        check_text(value or "", "fact")

        def save() -> Questions[None]:
            if value is None:
                yield Ask(self._sql.delete_fact, (self._tenant, name))
            else:
                yield Ask(self._sql.save_fact, (self._tenant, name, value))
            if audit is not None:
                yield from audit_questions.append_audit(self._sql, self._tenant, (audit,))

        await (self.database.change(save) if audit is None else self.database.change_once(save))

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions of a kind that a name means, in their order."""
        check_text(kind, "kind")
        check_text(name, "revision")
        return await self.database.read(lambda: definitions.read_definitions(self._sql, self._tenant, kind, name))

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all, sorted by kind and sequence."""
        check_text(kind or "", "kind")
        return await self.database.read(lambda: definitions.list_editions(self._sql, self._tenant, kind))

    # Leases

    async def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire or extend a lease; None while another owner holds it."""
        check_text(name, "name")
        check_text(owner, "owner")
        return await self.database.change(
            lambda: leases.acquire_lease(self._sql, self._tenant, name, owner=owner, now_ms=now_ms, until_ms=until_ms)
        )

    async def release_lease(self, lease: Lease) -> bool:
        """Release a lease; False when it was no longer held."""
        return await self.database.change(lambda: leases.release_lease(self._sql, self._tenant, lease))

    async def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record that a worker is alive; return the downtime that ends with this, if any."""
        return await self.database.change(
            lambda: leases.heartbeat(self._sql, self._tenant, now_ms=now_ms, gap_ms=gap_ms)
        )

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """Return the downtimes that ended after a time, in order."""
        return await self.database.read(lambda: leases.list_downtimes(self._sql, self._tenant, since_ms=since_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Delete heartbeats, downtimes and statistics with a time in the future."""
        await self.database.change(lambda: leases.correct_clock(self._sql, self._tenant, now_ms=now_ms))

    async def entities_stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Return entities with an entry later than a time, sorted."""
        return await self.database.read(lambda: leases.stamped_after(self._sql, self._tenant, time_ms, limit))


def decode_loaded(entity: str, version: int, changed_ms: int, body: bytes) -> Loaded:
    """Return the row of an entity as a value. Raises CorruptionError when it cannot be decoded."""
    try:
        snapshot = decode_snapshot(body)
    except UNDECODABLE as error:
        raise CorruptionError(f"cannot decode the snapshot of `{entity}`: {error}", code="entity.row") from error
    if snapshot.version != version or snapshot.entity != entity:
        message = f"the row of `{entity}` at version {version} has a snapshot of version {snapshot.version}"
        raise CorruptionError(message, code="snapshot.version")
    return Loaded(version, changed_ms, snapshot)


def check_text(text: str, what: str = "entity id") -> None:
    """Raises UsageError (`text.malformed`) for text that a database cannot store."""
    if not (text.isascii() and text.isprintable()) and UNSTORABLE.search(text):  # the search costs more
        raise UsageError(f"the {what} contains NUL or a lone surrogate: {text[:80]!r}", code="text.malformed")
