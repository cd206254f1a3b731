"""The store of one entity inside its workflow: what a store keeps, in the memory of the workflow.

Temporal repeats the Updates of a history to restore it, and `carried` hands it to the next history. So the same code of
`runtime` steps the entity as on any store.

Rule 1: nothing here waits. A caller may drive a call to its end without an event loop.
Rule 2: the newest `ENGINE_KEYS_MAX` keys are remembered. An event with an unknown key that was first sent before a key
was forgotten is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.engines.temporal.wire import Carried, CarriedWork, EntityView, KeyRecord, Page, StartedChild
from interlock.errors import ArchivedError, CorruptionError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record, encode_record
from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.limits import ENGINE_CARRIED_BYTES_MAX, ENGINE_KEYS_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Definitions
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    Itself,
    KeyExpired,
    Loaded,
    StaleAttempt,
    Store,
)
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue
from interlock.stores.listing import active_states
from interlock.stores.work_table import WorkTable

OLDER = "a run of this entity that has ended"
"""What an error names as the place of entries that the workflow no longer has."""


class EntityStore(Store):
    """One entity. `on_append` is called after each append."""

    work = Itself[WorkQueue]()
    definitions: Definitions | None = None

    def __init__(self, definitions: Definitions, on_append: Callable[[Append], None], *, mirrored: bool) -> None:
        self._mirrored = mirrored
        self.definitions = definitions
        self.table = WorkTable()
        self.children: dict[str, StartedChild] = {}
        self.unmirrored = 0
        self.call: str | None = None
        self._on_append = on_append
        self._snapshot: Snapshot | None = None
        self._entity = self._head = self._base = ""
        self._records: list[JournalRecord] = []
        self._dropped = self._size = self._changed_ms = self._created_ms = 0
        self._keys: dict[str, KeyRecord] = {}
        self._active: dict[str, int] = {}
        self._tags: tuple[str, ...] = ()
        self._forgotten_ms: int | None = None

    # The store

    async def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt | KeyExpired:
        """Write one step, if the entity is still at the expected version and its key is new."""
        entry, entity = append.entry, append.entity
        known = self._keys.get(entry.key)
        if known is not None:
            return Duplicate(known.version)
        version = self.version
        forgotten_ms = self._forgotten_ms
        if append.sent_ms is not None and forgotten_ms is not None and append.sent_ms <= forgotten_ms:
            return KeyExpired(version, forgotten_ms)
        if version != append.expected:
            return Conflict(version)
        if append.fence is not None and self.table.fence(entity, append.fence[0]) != append.fence[1]:
            return StaleAttempt(version)
        if version == 0:
            self._entity, self._head, self._created_ms = entity, chain_start(entity), entry.event.at_ms
            self._base = self._head
        record = encode_record(entry, durable=self._size, previous=self._head, entry_json=append.entry_json)
        self._records.append(record)
        self._size += len(record.line)
        self._head, self._changed_ms = record.head, entry.event.time_ms
        self._snapshot = append.snapshot
        self._active, self._tags = active_states(append, self._active)
        self._remember(entry.key, KeyRecord(entry.version, entry.event.time_ms, self.call))
        self.table.apply(entity, append.work)
        self.unmirrored += self._mirrored
        self._on_append(append)
        return Appended(entry.version, record.head)

    def _remember(self, key: str, record: KeyRecord) -> None:
        self._keys[key] = record
        if len(self._keys) > ENGINE_KEYS_MAX:
            oldest = next(iter(self._keys))
            self._forgotten_ms = max(self._forgotten_ms or 0, self._keys.pop(oldest).time_ms)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; with `key`, `Duplicate` when that key was used before."""
        if self._snapshot is None or entity != self._entity:
            return None
        if key is not None and key in self._keys:
            return Duplicate(self._keys[key].version)
        return Loaded(self._snapshot.version, self._changed_ms, self._snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Return the records after a version."""
        if entity != self._entity or limit <= 0:
            return ()
        start = max(0, after) - self._dropped
        if start < 0:
            raise ArchivedError(entity, self._dropped, OLDER)
        return tuple(self._records[start : start + min(limit, PAGE_MAX)])

    async def find(self, query: EntityQuery) -> EntityPage:
        """Raise UsageError: a workflow knows one entity."""
        raise UsageError(f"a workflow cannot list `{query.kind}`", code="engine.unsupported")

    async def kinds(self) -> tuple[str, ...]:
        """Return the kind of the entity."""
        return () if self._snapshot is None else (self._snapshot.kind,)

    async def close(self) -> None:
        """Do nothing."""

    # The work queue: the part of it that its own work asks for

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims, with the outcome of each."""
        return self.table.settle(settled, now_ms=now_ms)

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Return work by lane, name and id, page by page."""
        return self.table.list_work(query)

    async def claim(self, *_: Any, **__: Any) -> tuple[Claim, ...]:
        """Raise UsageError: the workflow claims its own work."""
        raise _only_here()

    async def renew(self, *_: Any, **__: Any) -> tuple[Claim | None, ...]:
        """Raise UsageError: the workflow holds its claims."""
        raise _only_here()

    async def next_due_ms(self, *_: Any, **__: Any) -> int | None:
        """Raise UsageError: the workflow has its own timer."""
        raise _only_here()

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """Retry dead work from its first attempt."""
        return audit is None and self.table.requeue_dead_letter(entity, work_id, now_ms=now_ms)

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """Retry work that is not dead."""
        return audit is None and self.table.settle((settled,), now_ms=now_ms)[0]

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work."""
        return audit is None and self.table.delete_work(entity, work_id)

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """Store details with the work of a claim."""
        return self.table.save_details(claim, error)

    # What the workflow asks

    @property
    def version(self) -> int:
        """The version of the entity; 0 before its creation."""
        return 0 if self._snapshot is None else self._snapshot.version

    @property
    def snapshot(self) -> Snapshot:
        """The entity now."""
        assert self._snapshot is not None
        return self._snapshot

    @property
    def active(self) -> tuple[str, ...]:
        """The states under which the entity is listed."""
        return tuple(sorted(self._active))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its states."""
        return self._tags

    def call_of(self, version: int) -> str | None:
        """Return the call that led to an entry, if its key is remembered."""
        return next((each.call for each in self._keys.values() if each.version == version), None)

    def view(self, key: str | None) -> EntityView:
        """Return the entity for a query."""
        found = None if key is None else self._keys.get(key)
        version = None if found is None else found.version
        return EntityView(self.snapshot, self._changed_ms, self._created_ms, self._active, self._tags, version)

    def page(self, after: int, limit: int) -> Page:
        """Return records for a query."""
        start = max(0, max(0, after) - self._dropped)
        found = self._records[start : start + min(limit, PAGE_MAX)]
        return Page(tuple(each.line.decode() for each in found), self._dropped, self._hash_before(start))

    def mirror_lines(self) -> tuple[str, tuple[str, ...]]:
        """Return the hash before the records that the mirror lacks, and their lines."""
        start = len(self._records) - self.unmirrored
        return self._hash_before(start), tuple(each.line.decode() for each in self._records[start:])

    def _hash_before(self, index: int) -> str:
        return self._records[index - 1].head if index else self._base

    # From one history to the next

    def carried(self) -> Carried:
        """Return the entity for the next history. Of its journal, the newest entries, and all that the mirror lacks."""
        kept, size = 0, 0
        for each in reversed(self._records):
            size += len(each.line)
            if size > ENGINE_CARRIED_BYTES_MAX and kept >= self.unmirrored:
                break
            kept += 1
        first = len(self._records) - kept
        page = self.table.list_work(WorkQuery(limit=1_000_000))
        work = []
        for row in page.rows:
            state = self.table.state(self._entity, row.work.id)
            assert state is not None
            work.append(CarriedWork(row.work, state))
        return Carried(
            self.snapshot,
            self._changed_ms,
            self._created_ms,
            self._head,
            self._size,
            self._keys,
            self._active,
            self._tags,
            self._hash_before(first),
            tuple(each.line.decode() for each in self._records[first:]),
            self._dropped + first,
            self.unmirrored,
            self._forgotten_ms,
            tuple(work),
            tuple(self.children.values()),
        )

    def restore(self, carried: Carried) -> None:
        """Take over what an earlier history carried."""
        snapshot = carried.snapshot
        self._snapshot, self._entity = snapshot, snapshot.entity
        self._changed_ms, self._created_ms = carried.changed_ms, carried.created_ms
        self._head, self._size, self._dropped = carried.head, carried.size, carried.dropped
        self._keys, self._active, self._tags = dict(carried.keys), dict(carried.active), carried.tags
        self._forgotten_ms, self.unmirrored = carried.forgotten_ms, carried.unmirrored
        self.children = {each.seed: each for each in carried.children}
        self._base = carried.base
        self._records = verified(carried.lines, previous=carried.base, version=carried.dropped + 1)
        self.table.apply(self._entity, WorkDelta(tuple(each.work for each in carried.work)))
        for each in carried.work:
            self.table.set_state(self._entity, each.work.id, each.state)

    def has_work(self) -> bool:
        """Whether work is left that is not a dead letter."""
        return any(row.dead_ms is None for row in self.table.list_work(WorkQuery(limit=1_000_000)).rows)


def verified(lines: tuple[str, ...], *, previous: str, version: int) -> list[JournalRecord]:
    """Return the records in these lines, the first of which has this version and follows this hash."""
    found: list[JournalRecord] = []
    for line in lines:
        record = decode_record(line.encode(), previous=previous, version=version)
        if isinstance(record, InvalidRecord):
            raise CorruptionError(f"entry {version} was damaged: {record.reason}", code="journal.broken")
        found.append(record)
        previous, version = record.head, version + 1
    return found


def _only_here() -> UsageError:
    return UsageError("work on Temporal is claimed by its workflow", code="engine.unsupported")
