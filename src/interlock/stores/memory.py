"""The memory store: the same interface, implemented with dictionaries and a lock. For tests and experiments.

It is the reference for the other stores. Nothing survives a restart.

Rule: a sender yields to the event loop now and then, as it does in any store that waits for a disk. Otherwise a loop
of sends would block all other tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ArchivedError, CompactedError, UnavailableError, UsageError
from interlock.model.audit import AuditRecord, AuditRow, build_record, first_head
from interlock.model.entity_id import kind_of
from interlock.model.journal.record import JournalRecord, chain_start, encode_record
from interlock.model.journal.work import Lane, WorkId
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Definition, Definitions, Edition, StoredDefinition
from interlock.ports.fork import after_fork, forked_error
from interlock.ports.leases import ClockStamps, Downtime, Lease, Leases
from interlock.ports.reading.journal_feed import (
    FeedEntry,
    FeedPage,
    JournalFeed,
    cursor_ahead,
    numbered_cursor,
    read_numbered_cursor,
)
from interlock.ports.reading.statistics import (
    COUNT_MAX,
    DAY_MS,
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
    Appended,
    AppendResult,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityRow,
    Itself,
    JournalRelease,
    Loaded,
    Pruned,
    StaleAttempt,
    check_plain,
)
from interlock.ports.store_facts import StoreFacts
from interlock.ports.trust.audit import AuditLog
from interlock.ports.trust.retention import JournalBase, Removal, Retention, Tombstone
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue
from interlock.stores.definition_table import DefinitionTable
from interlock.stores.lease_table import LeaseTable
from interlock.stores.listing import active_states, list_position, page_of, since_ms
from interlock.stores.memory_keys import MemoryKeys
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer
from interlock.stores.stay_tally import StayTally
from interlock.stores.work_table import WorkTable

T = TypeVar("T")

SCHEME = "memory"
"""The start of a feed cursor of this store."""

TURN_CALLS = 16
"""Calls after which other tasks of the event loop run. A switch costs a third of a send; sixteen sends take less than
a millisecond."""


def open_store(url: str) -> MemoryStore:
    """Return a new, empty store for the address `memory:`. Raises UsageError if the address has a path or options."""
    if url != "memory:":
        raise UsageError(f"`{url}` is invalid: expected `memory:`", code="url.malformed", hint="use `memory:`")
    return MemoryStore()


class _StoredEntity(Struct):
    """One entity: its snapshot, its journal, its keys, and since when it is in each of its states.

    `head` and `changed_ms` are of the last record, which may be in the `archive` with all `released` ones; without an
    archive, these were removed. `is_removed`: it has a tombstone, and records that are not removed yet.
    """

    kind: str
    snapshot: Snapshot
    records: list[JournalRecord]
    keys: dict[str, int]
    size: int
    created_ms: int
    entered_ms: dict[str, int]
    tags: tuple[str, ...]
    head: str
    changed_ms: int
    released: int = 0
    archive: str = ""
    base: JournalBase | None = None
    is_removed: bool = False


class MemoryStore:
    """Journals in dictionaries."""

    work = Itself[WorkQueue]()
    leases = Itself[Leases]()
    clock_stamps = Itself[ClockStamps]()
    statistics = Itself[Statistics]()
    audit = Itself[AuditLog]()
    journal_release = Itself[JournalRelease]()
    retention = Itself[Retention]()
    journal_feed = Itself[JournalFeed]()
    journal_archive = verification = wakeups = field_indexes = joins = projections = engine = None
    facts = Itself[StoreFacts]()
    definitions = Itself[Definitions]()
    server_clock = False

    def __init__(self) -> None:
        self._entities: dict[str, _StoredEntity] = {}
        self._feed: list[tuple[str, int]] = []
        self._tombstones: dict[str, Tombstone] = {}
        self._lock = Lock()
        self._closed = False
        self._calls = 0
        self._work = WorkTable()
        self._leases = LeaseTable()
        self._definitions = DefinitionTable()
        self.data_keys = MemoryKeys()
        self._facts: dict[str, str] = {}
        self._statistics = StatisticsBuffer()
        self._audit: list[AuditRecord] = []
        self._is_inherited = False
        after_fork(self, MemoryStore._inherit)

    async def append(self, append: Append) -> AppendResult:
        """Write one step, if the entity is still at the expected version and its key is new."""
        entry = append.entry
        await self._take_turns()
        with self._lock:
            self._check_open()
            if append.entity in self._tombstones:
                return Pruned(self._tombstones[append.entity].version)
            stored = self._entities.get(append.entity)
            if stored is not None and entry.key in stored.keys:
                return Duplicate(stored.keys[entry.key])
            version = 0 if stored is None else stored.snapshot.version
            if version != append.expected:
                self._statistics.count_conflict(append.kind, entry.event.at_ms)
                return Conflict(version)
            if append.fence is not None and self._work.fence(append.entity, append.fence[0]) != append.fence[1]:
                return StaleAttempt(version)
            previous = chain_start(append.entity) if stored is None else stored.head
            durable = 0 if stored is None else stored.size
            record = encode_record(entry, durable=durable, previous=previous, entry_json=append.entry_json)
            now = entry.event.at_ms
            if stored is None:
                stored = _StoredEntity(append.kind, append.snapshot, [], {}, 0, now, {}, (), previous, now)
                self._entities[append.entity] = stored
            stored.records.append(record)
            self._feed.append((append.entity, entry.version))
            stored.keys[entry.key] = entry.version
            stored.size += len(record.line)
            stored.head, stored.changed_ms = record.head, entry.event.time_ms
            stored.snapshot = append.snapshot
            before = stored.entered_ms
            stored.entered_ms, stored.tags = active_states(append, before)
            exited = [each for each in before.items() if stored.entered_ms.get(each[0]) != each[1]]
            entered = [each for each in stored.entered_ms.items() if before.get(each[0]) != each[1]]
            self._statistics.count_step(append.kind, exited, entered, entry.event)
            self._work.apply(append.entity, append.work)
            return Appended(entry.version, record.head)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; None when it does not exist. With `key`: `Duplicate` when that key was used before."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            stored = self._entities.get(entity)
            if stored is None or stored.is_removed:
                return None
            if key is not None and key in stored.keys:
                return Duplicate(stored.keys[key])
            return Loaded(stored.snapshot.version, stored.changed_ms, stored.snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The records after a version, in order."""
        with self._lock:
            self._check_open()
            stored = self._entities.get(entity)
            if stored is None or stored.is_removed or limit <= 0:
                return ()
            start = max(0, after) - stored.released
            if start < 0 and not stored.archive:
                raise CompactedError(entity, stored.released)
            if start < 0:
                raise ArchivedError(entity, stored.released, stored.archive)
            return tuple(stored.records[start : start + min(limit, PAGE_MAX)])

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        check_plain(query)
        with self._lock:
            self._check_open()
            entities, after = page_of(query, sorted(self._matching(query)))
            return EntityPage(tuple(map(self._row, entities)), after)

    async def kinds(self) -> tuple[str, ...]:
        """Return the kinds that have entities, sorted."""
        with self._lock:
            self._check_open()
            return tuple(sorted({stored.kind for stored in self._entities.values()}))

    def _matching(self, query: EntityQuery) -> Iterator[tuple[int, str]]:
        for entity, stored in self._entities.items():
            if stored.kind != query.kind or stored.is_removed:
                continue
            position = list_position(
                query,
                entity.removeprefix(f"{stored.kind}/"),
                revision=stored.snapshot.revision,
                entered_ms=_entered_ms(stored),
                active=stored.entered_ms,
                tags=stored.tags,
            )
            if position is not None:
                yield position, entity

    def _row(self, entity: str) -> EntityRow:
        stored = self._entities[entity]
        snapshot = stored.snapshot
        return EntityRow(
            entity,
            snapshot.version,
            snapshot.revision,
            snapshot.configuration,
            stored.created_ms,
            _entered_ms(stored),
            stored.changed_ms,
            snapshot.ended,
        )

    first_audit_head = first_head("")

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Append rows to the audit."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            self._append_audit(rows)

    def _append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        for row in rows:
            stored = self._entities.get(row.entity) if row.wants_states else None
            if stored is not None:
                row = replace(row, state_from=stored.snapshot.configuration)  # noqa: PLW2901 - the same row, completed
            head = self._audit[-1].head if self._audit else first_head("")
            self._audit.append(build_record(row, sequence=len(self._audit) + 1, previous=head))
            self._statistics.count_refusal(row)

    async def audit_before(
        self, sequence: int | None, *, actor: str | None = None, limit: int = 50
    ) -> tuple[AuditRecord, ...]:
        """Rows of the audit before a number, newest first."""
        with self._lock:
            end = len(self._audit) if sequence is None else max(0, sequence - 1)
            found = [each for each in self._audit[:end] if actor is None or each.actor == actor]
        return tuple(found[::-1][: max(1, min(limit, PAGE_MAX))])

    async def audit_after(self, sequence: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:
        """Rows of the audit after a number, in order."""
        with self._lock:
            return tuple(self._audit[sequence : sequence + max(1, min(limit, PAGE_MAX))])

    async def former_audit_after(self, former: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:  # noqa: ARG002 - there are none
        """No rows: a store in memory has no earlier release."""
        return ()

    # Statistics: computed from all entities; only rates and dwell times are recorded

    async def count_states(self, kind: str) -> tuple[StateCount, ...]:
        """The population of every state, by revision."""
        return counts_of_all(self._counts(kind))

    async def visible_counts(self, kind: str) -> VisibleCounts:
        """Return the population of every state by revision, as it is and as others see it."""
        return visible_counts(self._counts(kind))

    def _counts(self, kind: str) -> tuple[StateCount, ...]:
        found: dict[tuple[str, str], int] = {}
        with self._lock:
            self._check_open()
            for stored in self._entities.values():
                for state in stored.entered_ms if stored.kind == kind else ():
                    place = (stored.snapshot.revision, state)
                    found[place] = found.get(place, 0) + 1
        return tuple(StateCount(*place, entities) for place, entities in sorted(found.items()))

    async def dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Dwell times of stays that ended since a day, by state."""
        return dwell_of_all(self._dwell(kind, since_ms))

    async def visible_dwell_times(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Dwell times as others see them."""
        return dwell_for_others(self._dwell(kind, since_ms))

    def _dwell(self, kind: str, since_ms: int) -> tuple[DwellTimes, ...]:
        found: dict[str, list[int]] = {}
        with self._lock:
            for (own, state, day_ms, bucket), stays in self._statistics.stays.items():
                if own == kind and day_ms >= since_ms // DAY_MS * DAY_MS:
                    found.setdefault(state, [0] * BUCKETS)[bucket] += stays
        return tuple(DwellTimes(state, tuple(stays)) for state, stays in sorted(found.items()))

    async def process_stays(self) -> tuple[ProcessStays, ...]:
        """Return the stays that have ended: the store lives as long as its process."""
        tally = StayTally()
        with self._lock:
            tally.add(self._statistics)
        return tally.stays()

    async def minute_rates(self, kind: str, *, since_ms: int) -> tuple[MinuteRates, ...]:
        """Return the counts of each minute since a time."""
        with self._lock:
            minutes = sorted(self._statistics.minutes.items())
            return tuple(MinuteRates(when, *each) for (own, when), each in minutes if own == kind and when >= since_ms)

    async def count_overdue(self, kind: str, state: str, *, before_ms: int) -> int:
        """Return how many entities have been in a state since before a time."""
        with self._lock:
            found = sum(
                stored.kind == kind and state in stored.entered_ms and stored.entered_ms[state] < before_ms
                for stored in self._entities.values()
            )
        return min(found, COUNT_MAX + 1)

    async def count_work(self, lane: Lane) -> int:
        """Return how much work of a lane is in line; `COUNT_MAX` + 1 means more."""
        return min(await self._on_work(lambda work: work.count(lane)), COUNT_MAX + 1)

    async def last_seen(self, kind: str) -> tuple[LastSeen, ...]:
        """Return what was seen of a kind."""
        with self._lock:
            self._check_open()
            return self._statistics.last_seen(kind)

    async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        with self._lock:
            self._check_open()
            stored = self._entities.get(entity)
            if stored is None or stored.snapshot.version != version or stored.snapshot.ended is None:
                return False
            if stored.released != version:  # otherwise it was released before, to the place that is known
                stored.records.clear()
                stored.released, stored.archive = version, archive
            return True

    # Retention

    async def prune(self, tombstone: Tombstone, *, rows: int) -> Removal:
        """Write the tombstone if the entity may go, and remove records."""
        with self._lock:
            self._check_open()
            entity, stored = tombstone.entity, self._entities.get(tombstone.entity)
            if entity not in self._tombstones:
                if stored is None or (stored.snapshot.version, stored.head) != (tombstone.version, tombstone.head):
                    return Removal(0, is_done=True, blocked="changed")
                if stored.snapshot.ended is None:
                    return Removal(0, is_done=True, blocked="alive")
                if self._work.list_work(WorkQuery(entity=entity, limit=1)).rows:
                    return Removal(0, is_done=True, blocked="work")
                self._tombstones[entity] = tombstone
                stored.is_removed = True
            return self._remove(entity, rows)

    async def compact(self, base: JournalBase, *, newest: Snapshot, rows: int) -> Removal:  # noqa: ARG002 - at once
        """Write the base if the journal has its record and a later one, and remove records."""
        with self._lock:
            self._check_open()
            stored = self._entities.get(base.entity)
            if stored is None or stored.is_removed or not stored.released <= base.version < stored.snapshot.version:
                return Removal(0, is_done=True, blocked="changed")
            if stored.archive:
                return Removal(0, is_done=True, blocked="archived")
            count = base.version - stored.released
            if count and stored.records[count - 1].head != base.head:
                return Removal(0, is_done=True, blocked="changed")
            if count:
                del stored.records[:count]
                stored.released, stored.base = base.version, base
            return Removal(count, is_done=True, version=base.version)

    async def remove_rest(self, entity: str, *, rows: int) -> Removal:
        """Continue what `prune` has started."""
        with self._lock:
            self._check_open()
            return self._remove(entity, rows)

    def _remove(self, entity: str, rows: int) -> Removal:
        """Remove records of an entity with a tombstone, and the entity with its last one."""
        found, stored = self._tombstones.get(entity), self._entities.get(entity)
        if found is None or stored is None:
            return Removal(0, is_done=True, version=0 if found is None else found.version)
        count = min(max(1, rows), len(stored.records))
        del stored.records[:count]
        if not stored.records:
            del self._entities[entity]
        return Removal(count, not stored.records, found.version)

    async def unfinished(self, *, limit: int) -> tuple[str, ...]:
        """Return entities of which records are left."""
        with self._lock:
            return tuple(sorted(each for each, stored in self._entities.items() if stored.is_removed))[:limit]

    async def tip(self, entity: str) -> tuple[int, str]:
        """Return the last version of an entity and the hash of that record."""
        stored = self._entities.get(entity)
        return (0, "") if stored is None or stored.is_removed else (stored.snapshot.version, stored.head)

    async def tombstone(self, entity: str) -> Tombstone | None:
        """Return the tombstone of a pruned entity."""
        return self._tombstones.get(entity)

    async def tombstones(self, *, after: str | None, limit: int) -> tuple[Tombstone, ...]:
        """Return the tombstones after an id."""
        names = sorted(each for each in self._tombstones if after is None or each > after)
        return tuple(self._tombstones[each] for each in names[: max(1, limit)])

    async def journal_base(self, entity: str) -> JournalBase | None:
        """Return where a compacted journal starts."""
        stored = self._entities.get(entity)
        return None if stored is None else stored.base

    async def reclaim(self, *, pages: int) -> int:  # noqa: ARG002 - the interpreter returns memory itself
        """Do nothing."""
        return 0

    # Definitions

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names."""
        with self._lock:
            self._check_open()
            return self._definitions.save(definition, now_ms=now_ms)

    async def read_facts(self) -> dict[str, str]:
        """Return all facts."""
        with self._lock:
            return dict(self._facts)

    async def save_fact(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set or remove a fact."""
        with self._lock:
            self._append_audit(() if audit is None else (audit,))
            self._facts.pop(name, None)
            if value is not None:
                self._facts[name] = value

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions of a kind that a name means, in their order."""
        with self._lock:
            self._check_open()
            return self._definitions.read(kind, name)

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all, sorted by kind and sequence."""
        with self._lock:
            self._check_open()
            return self._definitions.list_editions(kind)

    # The feed

    async def feed(self, after: str | None, *, kinds: tuple[str, ...] | None = None, limit: int) -> FeedPage:
        """Return the entries after a cursor, in the order of their appends."""
        start = read_numbered_cursor(SCHEME, after)
        with self._lock:
            self._check_open()
            if start > len(self._feed):
                raise cursor_ahead(start, len(self._feed))
            end = min(start + limit, len(self._feed))
            entries = tuple(
                FeedEntry(entity, record.entry, numbered_cursor(SCHEME, number), record.head)
                for number, (entity, version) in enumerate(self._feed[start:end], start=start + 1)
                if (kinds is None or kind_of(entity) in kinds)
                and (record := self._record(self._entities.get(entity), version)) is not None
            )
            return FeedPage(entries, numbered_cursor(SCHEME, end), is_last=end == len(self._feed))

    async def cursor_at(self, time_ms: int) -> str:
        """Return the cursor before the entries from this time on."""
        with self._lock:
            self._check_open()
            for number, (entity, version) in enumerate(self._feed):
                record = self._record(self._entities.get(entity), version)
                if record is not None and record.entry.event.time_ms >= time_ms:
                    return numbered_cursor(SCHEME, number)
            return numbered_cursor(SCHEME, len(self._feed))

    @staticmethod
    def _record(stored: _StoredEntity | None, version: int) -> JournalRecord | None:
        """Return a record; None when it was released to an archive, or removed."""
        if stored is None or stored.is_removed or version <= stored.released:
            return None
        return stored.records[version - stored.released - 1]

    # Work

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first."""
        return await self._on_work(
            lambda work: work.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        )

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend claims."""
        return await self._on_work(lambda work: work.renew(claims, until_ms=until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims, with the outcome of each."""
        return await self._on_work(lambda work: work.settle(settled, now_ms=now_ms))

    async def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due."""
        return await self._on_work(lambda work: work.next_due_ms(lane, names))

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._on_work(lambda work: work.list_work(query))

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """Retry dead work from its first attempt."""
        return await self._acted(lambda work: work.requeue_dead_letter(entity, work_id, now_ms=now_ms), audit)

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """Retry work that is not dead."""
        return await self._acted(lambda work: work.settle((settled,), now_ms=now_ms)[0], audit)

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work."""
        return await self._acted(lambda work: work.delete_work(entity, work_id), audit)

    async def _acted(self, act: Callable[[WorkTable], bool], audit: AuditRow | None) -> bool:
        """Perform an operator's action and record who requested it, under one lock."""
        await self._take_turns()
        with self._lock:
            self._check_open()
            done = act(self._work)
            if done and audit is not None:
                self._append_audit((audit,))
            return done

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """Store details with the work of a claim."""
        return await self._on_work(lambda work: work.save_details(claim, error))

    async def _on_work(self, question: Callable[[WorkTable], T]) -> T:
        await self._take_turns()
        with self._lock:
            self._check_open()
            return question(self._work)

    # Leases

    async def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire or extend a lease; None while another owner holds it."""
        return await self._on_leases(
            lambda table: table.acquire_lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)
        )

    async def release_lease(self, lease: Lease) -> bool:
        """Release a lease immediately."""
        return await self._on_leases(lambda table: table.release_lease(lease))

    async def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record a heartbeat; return the downtime that it ends, if any."""
        return await self._on_leases(lambda table: table.record_heartbeat(now_ms=now_ms, gap_ms=gap_ms))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._on_leases(lambda table: table.downtimes(since_ms=since_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Delete heartbeats, downtimes and statistics that are stamped in the future."""
        await self._on_leases(lambda table: table.correct(now_ms=now_ms))
        with self._lock:
            self._statistics.forget_after(now_ms)

    async def entities_stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Entities with an entry that is stamped after a time."""
        with self._lock:
            self._check_open()
            return tuple(sorted(each for each, stored in self._entities.items() if stored.changed_ms > time_ms))[:limit]

    async def _on_leases(self, question: Callable[[LeaseTable], T]) -> T:
        await self._take_turns()
        with self._lock:
            self._check_open()
            return question(self._leases)

    async def close(self) -> None:
        """Refuse further calls. The content is lost."""
        self._closed = True

    async def _take_turns(self) -> None:
        self._calls += 1
        if self._calls % TURN_CALLS == 0:
            await asyncio.sleep(0)

    def _inherit(self) -> None:
        """In a forked child: mark the store as a copy. The parent would never see what is written to it."""
        self._lock, self._is_inherited = Lock(), True

    def _check_open(self) -> None:
        if self._is_inherited:
            raise forked_error("this store")
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")


def _entered_ms(life: _StoredEntity) -> int:
    """Return when the entity entered its configuration."""
    return since_ms(life.entered_ms, life.snapshot.configuration, life.created_ms)
