"""The file store: journals in plain files, durable and safe between processes, with nothing to install or run.

Rule 1: the store is blocking code (`blocking_store`); each request runs in a thread, where a flush may take its time.
A lone append on a quick disk (`InlinePolicy`) runs in the event loop, where the thread would cost more.
Rule 2: many processes may open one root.
Rule 3: a forked child opens its journals again: an inherited descriptor would share its parent's lock.
Rule 4: one process at a time runs work (`work.dispatcher`).

Entities are listed by walking directories, which is right for thousands and slow for millions; a database store has an
index.

Keys are remembered for the last 10,000 entries of an entity, whatever their age: `state.json` must stay small enough
for one read. Stores promise 30 days in general; an entity with more than 10,000 entries in 30 days forgets its oldest
keys sooner here, and should be in a database store. The store knows up to when keys were forgotten: an event that was
first sent before that, under an unknown key, is refused (`KeyExpired`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from interlock.errors import UnavailableError, UsageError
from interlock.model.audit import AuditRecord, AuditRow
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import Lane, WorkId
from interlock.model.snapshot import Snapshot
from interlock.ports.definitions import Definition, Definitions, Edition, StoredDefinition
from interlock.ports.fork import after_fork
from interlock.ports.leases import Downtime, Lease, Leases
from interlock.ports.reading.journal_feed import FeedPage, JournalFeed
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    AppendResult,
    Duplicate,
    EntityPage,
    EntityQuery,
    EntityVerification,
    Itself,
    JournalArchive,
    JournalRelease,
    Loaded,
    check_plain,
)
from interlock.ports.store_facts import StoreFacts
from interlock.ports.threads import in_thread_or_here
from interlock.ports.trust.audit import AuditLog
from interlock.ports.trust.retention import JournalBase, Removal, Retention, Tombstone
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkQueue
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import LOCKED, SEGMENT_BYTES_MAX, Settings
from interlock.stores.files.filesystem import FileSystem, OperatingSystem
from interlock.stores.key_file import SUFFIX, KeyFile
from interlock.stores.threads.inline_policy import InlinePolicy
from interlock.stores.threads.pool import ThreadPool
from interlock.stores.wakeup_pipes import WakeupPipes

THREADS_MAX = 16
"""Threads of a store: they wait for the disk, which groups their flushes; sixteen were twice as fast as four."""

OPTIONS = {"tenant"}
"""The options of a URL."""

T = TypeVar("T")


class FileStore:
    """Journals below a directory.

    Any number of processes may write to it.

    Raises UsageError for a format or file system that it does not support; UnavailableError when the directory cannot
    be opened.
    """

    work = Itself[WorkQueue]()
    leases = Itself[Leases]()
    audit = Itself[AuditLog]()
    journal_archive = Itself[JournalArchive]()
    journal_release = Itself[JournalRelease]()
    retention = Itself[Retention]()
    verification = Itself[EntityVerification]()
    clock_stamps = statistics = field_indexes = joins = projections = engine = None
    facts = Itself[StoreFacts]()
    definitions = Itself[Definitions]()

    def __init__(
        self,
        root: str | Path,
        *,
        fs: FileSystem | None = None,
        tenant: str = "",
        store_key: bytes = b"",
        snapshot_every: int = 400,
        lock_ms_max: int = 5_000,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        open_journals_max: int | None = None,
    ) -> None:
        settings = Settings(
            tenant=tenant,
            store_key=store_key,
            snapshot_every=snapshot_every,
            lock_ms_max=lock_ms_max,
            segment_bytes_max=segment_bytes_max,
        )
        self._store = BlockingFileStore(str(root), fs or OperatingSystem(), settings, open_max=open_journals_max)
        is_real = fs is None or isinstance(fs, OperatingSystem)
        self.wakeups = WakeupPipes(Path(os.path.realpath(root)), "", _release_claims) if is_real else None
        place = Path(os.path.realpath(root))
        self.data_keys = KeyFile(place.with_name(place.name + SUFFIX), tenant) if is_real else None
        self._dispatcher = self._store.dispatcher()
        self._leases = self._store.leases()
        self._definitions = self._store.definitions()
        self._facts = self._store.facts()
        self._feed = self._store.feed()
        self.journal_feed: JournalFeed | None = self if self._store.root.read_only is None else None
        self._guard = Lock()  # for `_closed`: callers may be in several threads
        self._pace = InlinePolicy()
        self._threads = _new_threads()
        self._closed = False
        after_fork(self, FileStore._after_fork)

    async def append(self, append: Append) -> AppendResult:
        """Append one entry, if the entity is at the expected version and the key is new."""
        pace = self._pace
        with pace.guard:
            pace.running += 1
        try:
            if pace.is_quick:
                if pace.should_yield(time.perf_counter_ns()):
                    await asyncio.sleep(0)  # other callers first: several are better served in parallel, by threads
                if pace.running == 1 and not self._closed:
                    answer = self._timed(self._store.append_inline, append)
                    if answer is not None:
                        return answer
            return await self._in_thread(lambda: self._timed(self._store.append, append))
        finally:
            with pace.guard:
                pace.running -= 1

    def _timed(self, call: Callable[[Append], T], append: Append) -> T:
        """Measure a flush, or a failed one: an answer without a flush says nothing about the disk."""
        start_ns = time.perf_counter_ns()
        is_flush = False
        try:
            answer = call(append)
            is_flush = isinstance(answer, Appended)
        except UnavailableError as error:  # a failing disk takes long for each of its last answers
            is_flush = error.code != LOCKED
            raise
        finally:
            if is_flush:
                self._pace.record(time.perf_counter_ns() - start_ns)
        return answer

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity; None when it does not exist. With `key`: `Duplicate` when an entry has that key."""
        return await self._in_thread(lambda: self._store.load(entity, key))

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        return await self._in_thread(lambda: self._store.read(entity, after=after, limit=limit))

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, the longest in their state first, page by page."""
        check_plain(query)
        return await self._in_thread(lambda: self._store.find(query))

    async def entity_names(self) -> tuple[str, ...]:
        """Every entity that has a directory, readable or not, sorted, and every stray directory with a journal."""
        return await self._in_thread(self._store.entity_names)

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:  # noqa: ARG002 - there are none
        """Return no differences: this store derives no rows from its journals."""
        return ()

    async def kinds(self) -> tuple[str, ...]:
        """The kinds of all entities, sorted."""
        return await self._in_thread(self._store.kinds)

    async def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
        """Add verified records, byte for byte, after those already here; return the version reached."""
        return await self._in_thread(lambda: self._store.adopt(append, records))

    async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        return await self._in_thread(lambda: self._store.release_journal(entity, version=version, archive=archive))

    async def prune(self, tombstone: Tombstone, *, rows: int) -> Removal:  # noqa: ARG002 - files go as a whole
        """Write the tombstone if the entity may go, and remove its files."""
        return await self._in_thread(lambda: self._store.prune(tombstone))

    async def compact(self, base: JournalBase, *, newest: Snapshot, rows: int) -> Removal:  # noqa: ARG002 - as a whole
        """Remove the records up to the version of a base: the segments before it, and the first part of its own."""
        return await self._in_thread(lambda: self._store.compact(base, newest))

    async def remove_rest(self, entity: str, *, rows: int) -> Removal:  # noqa: ARG002 - files go as a whole
        """Remove the files that a process left when it died."""
        return await self._in_thread(lambda: self._store.remove_rest(entity))

    async def unfinished(self, *, limit: int) -> tuple[str, ...]:
        """Entities that were pruned by a process that died before it had removed their files."""
        return await self._in_thread(lambda: self._store.tombstones.removed(limit))

    async def tip(self, entity: str) -> tuple[int, str]:
        """The last version of an entity and the hash of that record."""
        return await self._in_thread(lambda: self._store.tip(entity))

    async def tombstones(self, *, after: str | None, limit: int) -> tuple[Tombstone, ...]:
        """Return the tombstones after an entity."""
        return await self._in_thread(lambda: self._store.tombstones.listed(after, max(1, limit)))

    async def tombstone(self, entity: str) -> Tombstone | None:
        """The tombstone of a pruned entity."""
        return await self._in_thread(lambda: self._store.tombstone(entity))

    async def journal_base(self, entity: str) -> JournalBase | None:
        """Where a compacted journal starts."""
        return await self._in_thread(lambda: self._store.journal_base(entity))

    async def reclaim(self, *, pages: int) -> int:  # noqa: ARG002 - removed files leave nothing to return
        """Do nothing."""
        return 0

    # Audit

    @property
    def first_audit_head(self) -> str:
        """The head before the first row."""
        return self._store.audit.first_head

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Append rows to the audit, with one flush for callers that wait at the same time."""
        await self._in_thread(lambda: self._store.append_audit(rows))

    async def audit_before(
        self, sequence: int | None, *, actor: str | None = None, limit: int = 50
    ) -> tuple[AuditRecord, ...]:
        """Rows of the audit before a number, newest first."""
        return await self._in_thread(lambda: self._store.audit.rows_before(sequence, actor=actor, limit=limit))

    async def audit_after(self, sequence: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:
        """Rows of the audit after a number, in order."""
        return await self._in_thread(lambda: self._store.audit.rows_after(sequence, limit=limit))

    async def former_audit_after(self, former: int, *, limit: int = PAGE_MAX) -> tuple[AuditRecord, ...]:  # noqa: ARG002 - there are none
        """No rows: earlier releases had no chain here."""
        return ()

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names."""
        return await self._in_thread(lambda: self._definitions.save(definition, now_ms=now_ms))

    async def read_facts(self) -> dict[str, str]:
        """Return all facts."""
        return await self._in_thread(self._facts.read)

    async def save_fact(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set or remove a fact."""
        await self._in_thread(lambda: self._facts.save(name, value, audit=audit))

    async def feed(self, after: str | None, *, kinds: tuple[str, ...] | None = None, limit: int) -> FeedPage:
        """The entries after a cursor; those of one entity in the order of their versions."""
        return await self._in_thread(lambda: self._feed.read(after, kinds, limit))

    async def cursor_at(self, time_ms: int) -> str:
        """The cursor before the entries from this time on."""
        return await self._in_thread(lambda: self._feed.cursor_at(time_ms))

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """The revisions of a kind that a name means, in their order."""
        return await self._in_thread(lambda: self._definitions.read(kind, name))

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """All editions, of one kind or of all, sorted by kind and sequence."""
        return await self._in_thread(lambda: self._definitions.list_editions(kind))

    async def acquire_lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Acquire or extend the lease of a name; None while another owner has it."""
        return await self._in_thread(
            lambda: self._leases.acquire_lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)
        )

    async def release_lease(self, lease: Lease) -> bool:
        """Release a lease; False when it was no longer ours."""
        return await self._in_thread(lambda: self._leases.release_lease(lease))

    async def record_heartbeat(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Record a heartbeat of a worker; the downtime that it ends, if any."""
        return await self._in_thread(lambda: self._leases.record_heartbeat(now_ms=now_ms, gap_ms=gap_ms))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._in_thread(lambda: self._leases.downtimes(since_ms=since_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Drop heartbeats and downtimes that are in the future."""
        await self._in_thread(lambda: self._leases.correct(now_ms=now_ms))

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first; none while another process runs it."""
        call = partial(self._dispatcher.claim, lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        return await self._in_thread(call)

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend claims."""
        return await self._in_thread(lambda: self._dispatcher.renew(claims, until_ms=until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims, with the outcome of each."""
        return await self._in_thread(lambda: self._dispatcher.settle(settled, now_ms=now_ms))

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """Record progress or an error of claimed work; False when the claim is no longer valid."""
        return await self._in_thread(lambda: self._dispatcher.save_details(claim, error))

    async def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due; None while another process runs it."""
        return self._dispatcher.next_due_ms(lane, names)

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._in_thread(lambda: self._dispatcher.list_work(query))

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """Retry dead work from its first attempt."""
        return await self._in_thread(
            lambda: self._dispatcher.requeue_dead_letter(entity, work_id, now_ms=now_ms, audit=audit)
        )

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:  # noqa: ARG002 - the time is in `settled`
        """Retry work that is not dead; False when it changed meanwhile."""
        return await self._in_thread(lambda: self._dispatcher.requeue(settled, audit=audit))

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work."""
        return await self._in_thread(lambda: self._dispatcher.delete_work(entity, work_id, audit=audit))

    async def close(self) -> None:
        """Close everything. Appends in progress finish first; later calls raise UnavailableError."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        if self.wakeups is not None:
            await self.wakeups.close()
        await in_thread_or_here(self._close_now)

    def _close_now(self) -> None:
        if self.data_keys is not None:
            self.data_keys.close()
        self._threads.close()
        self._dispatcher.close()
        self._leases.close()
        self._feed.close()
        self._store.close()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise UnavailableError("the store is closed", code="store.closed")
        return await self._threads.run(call)

    def _after_fork(self) -> None:
        was_closed, self._closed = (
            self._closed,
            True,
        )  # until the parent's are dropped: none may be free
        self._guard, self._pace = Lock(), InlinePolicy()
        with suppress(OSError, UnavailableError):  # it stays closed then
            self._dispatcher.abandon()
            self._leases.abandon()
            self._feed.close()
            self._store.abandon()
            self._threads = _new_threads()
            self._closed = was_closed


async def _release_claims(owner: str) -> int:  # noqa: ARG001 - the process that ran the work held all claims
    """Nothing has to be released: the claims were in the memory of the dead process, and its lock is free."""
    return 0


def _new_threads() -> ThreadPool:
    return ThreadPool(THREADS_MAX, "interlock-files")


def open_store(url: str) -> FileStore:
    """The store at a URL such as `file:///var/lib/orders`.

    With `?tenant=name` a new store belongs to that tenant, and an existing one must; without it an existing store is
    opened with its own tenant. Raises UsageError for any other URL, and for a store of another tenant.
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    if "layout" in options:
        hint = "remove it from the URL; for group commit use a store such as sqlite:///orders.db"
        raise UsageError(f"`{url}`: file stores no longer have a layout option", code="store.layout", hint=hint)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path or set(options) - OPTIONS:
        hint = "write file:///path/to/directory, perhaps with ?tenant=name"
        raise UsageError(f"`{url}` is not the URL of a directory", code="store.url", hint=hint)
    return FileStore(unquote(parts.path), tenant=options.get("tenant", [""])[-1])
