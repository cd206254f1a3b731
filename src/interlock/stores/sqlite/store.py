"""The SQLite store: journals of many entities in one file, written by one thread, read by a few.

Rule 1: writes go to the writer thread (`sqlite_writer`), which groups steps into transactions. A step that comes alone
to a quick disk (`pace`) is written in place, where the hop to that thread costs more than the flush.
Rule 2: readers have connections of their own that cannot write; what they see is committed, and so durable.
Rule 3: one handle is bound to one tenant: no statement can be written without it.
Rule 4: connections and threads belong to the process that opened the store. A child that is forked meanwhile can use
neither this store nor another one on the same file (`sqlite_files`).
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from interlock.errors import ArchivedError, CorruptionError, UsageError
from interlock.model.codec import decode_snapshot, encode
from interlock.model.journal.record import InvalidRecord, JournalRecord, chain_start, decode_record
from interlock.model.journal.work import Lane, WorkId
from interlock.ports.fork import forked_error
from interlock.ports.journal_feed import FeedPage
from interlock.ports.leases import Downtime, Lease
from interlock.ports.statistics import DwellTimes, MinuteRates, RefusalRow, RefusalVerification, StateCount
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Duplicate,
    EntityPage,
    EntityQuery,
    Loaded,
    Refusal,
)
from interlock.ports.threads import in_thread_or_here, thread_future
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.replaced_files import replaced
from interlock.stores.sqlite import feed, leases, work
from interlock.stores.sqlite import statistics as sight
from interlock.stores.sqlite.commit import Answer, split, write_refusals
from interlock.stores.sqlite.commit_queue import CommitQueue, PendingCommit
from interlock.stores.sqlite.connection import open_reader, open_writer, translate_error
from interlock.stores.sqlite.files import CALLS, Connection
from interlock.stores.sqlite.lists import find, kinds
from interlock.stores.sqlite.maintenance import WriteJob, archived, release
from interlock.stores.sqlite.verification import entity_differences, file_differences
from interlock.stores.threads.pool import ThreadPool

READERS_MAX = 4
"""Threads that read: more only queue for the interpreter's lock."""

SELECT_LOADED = """
    SELECT e.version, e.changed_ms, e.snapshot, k.version
    FROM entity AS e LEFT JOIN event_key AS k
      ON k.tenant = e.tenant AND k.kind = e.kind AND k.id = e.id AND k.key = ?
    WHERE e.tenant = ? AND e.kind = ? AND e.id = ?"""
SELECT_HEAD = "SELECT version, head FROM entity WHERE tenant = ? AND kind = ? AND id = ?"
SELECT_RECORDS = """
    SELECT version, record, head FROM journal
    WHERE tenant = ? AND kind = ? AND id = ? AND version >= ?
    ORDER BY version LIMIT ?"""
BEGIN = "BEGIN"
COMMIT = "COMMIT"

_UNKEPT = re.compile("[\0\ud800-\udfff]")

T = TypeVar("T")


def open_store(url: str) -> SqliteStore:
    """The store of `sqlite:///relative.db` or `sqlite:////absolute.db`, created when there is none. Blocks.

    `?tenant=name` binds the handle to a tenant. Raises UsageError when the address is none.
    """
    path, tenant = address(url)
    return SqliteStore(path, tenant=tenant)


def address(url: str) -> tuple[Path, str]:
    """The file and the tenant that an address names. Raises UsageError when it is none."""
    rest, _, options = url.removeprefix("sqlite://").partition("?")
    name = unquote(rest.removeprefix("/"))
    if not url.startswith("sqlite:///") or not name:
        hint = "three slashes stand before a file here, sqlite:///orders.db, four before a path from the root"
        raise UsageError(f"`{url}` names no file", code="url.malformed", hint=hint)
    if name == ":memory:":
        raise UsageError("a SQLite store keeps a file", code="url.memory", hint="use `memory:` for one that does not")
    given = parse_qs(options, keep_blank_values=True)
    if set(given) - {"tenant"}:
        raise UsageError(f"unknown option in `{url}`", code="url.option", hint="the only one is `tenant`")
    return Path(name), given.get("tenant", [""])[-1]


class SqliteStore:
    """Journals in a SQLite file. Safe for many callers, threads and processes."""

    server_clock = False

    def __init__(self, path: Path, *, tenant: str = "") -> None:
        self._path = Path(os.path.realpath(path))  # its log lies beside the file, not beside a link to it
        self._tenant = tenant
        self._process = os.getpid()
        self._writer = CommitQueue(open_writer(self._path), self._path, tenant)
        self._pace, self._files = self._writer.ledger.pace, self._writer.ledger.files
        self._readers = ThreadPool(READERS_MAX, f"interlock-{path.name}-read")
        self._idle: LifoQueue[Connection] = LifoQueue()
        self._writer.start()

    async def append(self, append: Append) -> Answer:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        _check_text(append.entity)
        _check_text(append.entry.key, "key")
        self._check_process()
        writer, pace, snapshot = self._writer, self._pace, encode(append.snapshot)
        with pace.guard:
            pace.under_way += 1
        try:
            if pace.is_quick:
                if pace.is_turn_over(time.perf_counter_ns()):
                    await asyncio.sleep(0)  # others first: many at once are one batch
                if pace.under_way == 1:
                    answer = writer.append_at_once(append, snapshot)
                    if answer is not None:
                        return answer
            loop = asyncio.get_running_loop()
            future: asyncio.Future[Answer] = thread_future(loop)
            writer.loops.listen(loop)
            writer.submit(PendingCommit(append, snapshot, loop, future))
            return await future
        finally:
            with pace.guard:
                pace.under_way -= 1

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        _check_text(entity)
        _check_text(key or "", "key")
        return await self._read(lambda connection: self._load(connection, entity, key))

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order. Raises CorruptionError at the first bad link."""
        _check_text(entity)
        wanted = max(0, min(limit, PAGE_MAX))
        return await self._read(lambda connection: self._records(connection, entity, max(0, after), wanted))

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        return await self._read(lambda connection: find(connection, self._tenant, query))

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        return await self._read(lambda connection: kinds(connection, self._tenant))

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals; they are written with the next batch, and nobody waits for that."""
        self._check_process()
        self._writer.refuse(refusals)

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """How the rows beside the journals differ from them: of one entity, or of the file as a whole."""
        if entity is None:
            return await self._read(lambda connection: file_differences(connection, self._tenant))
        _check_text(entity)
        return await self._read(lambda connection: entity_differences(connection, self._tenant, entity))

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not.

        They are gone when this returns True, and reading them names the archive; the entity and its keys stay.
        """
        _check_text(entity)
        _check_text(archive, "archive")
        return await self._write(lambda connection: release(connection, self._tenant, entity, version, archive))

    # Sight: what is kept for pages about many entities.

    async def counts(self, kind: str) -> tuple[StateCount, ...]:
        """The population of every state, by revision."""
        return await self._read(lambda connection: sight.counts(connection, self._tenant, kind))

    async def dwell(self, kind: str, *, since_ms: int) -> tuple[DwellTimes, ...]:
        """Dwell times of stays that ended since a day, by state."""
        return await self._read(lambda connection: sight.dwell(connection, self._tenant, kind, since_ms))

    async def rates(self, kind: str, *, since_ms: int) -> tuple[MinuteRates, ...]:
        """What each minute since a time brought, in order."""
        return await self._read(lambda connection: sight.rates(connection, self._tenant, kind, since_ms))

    async def overdue(self, kind: str, state: str, *, before_ms: int) -> int:
        """How many entities are in a state since before a time; one more than `COUNT_MAX` at most."""
        return await self._read(lambda connection: sight.overdue(connection, self._tenant, kind, state, before_ms))

    async def refusals_before(
        self, sequence: int | None, *, principal: str | None = None, limit: int = 50
    ) -> tuple[RefusalRow, ...]:
        """Refusals before a sequence number, newest first."""
        return await self._read(
            lambda connection: sight.refusals_before(connection, self._tenant, sequence, principal, limit)
        )

    async def prove_refusals(self) -> RefusalVerification:
        """Follow the chain of refusals from its beginning."""
        return await self._read(sight.verify_refusals)

    # Work: who takes it up, holds it and lets it go. It is born and ends in `append`.

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first. When there is none, nothing is written."""
        if not await self._read(lambda connection: work.is_due(connection, self._tenant, lane, names, now_ms)):
            return ()
        return await self._write(
            lambda connection: work.claim(
                connection, self._tenant, lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit
            )
        )

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        return await self._write(lambda connection: work.renew(connection, self._tenant, claims, until_ms))

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims."""
        return await self._write(lambda connection: work.settle(connection, self._tenant, settled, now_ms))

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due or its lease lapses; None when there is none."""
        return await self._read(lambda connection: work.soonest(connection, self._tenant, lane, names))

    async def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._read(lambda connection: work.works(connection, self._tenant, query))

    async def revive(self, entity: str, place: WorkId, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let dead work be tried again, from its first attempt; False when there is no such."""
        return await self._acted(lambda connection: work.revive(connection, self._tenant, entity, place, now_ms), audit)

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let work that is not dead be tried again; False when it has changed since."""
        return await self._acted(lambda connection: work.settle(connection, self._tenant, (settled,), now_ms)[0], audit)

    async def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work; False when there is no such."""
        return await self._acted(lambda connection: work.drop(connection, self._tenant, entity, place), audit)

    async def _acted(self, act: Callable[[sqlite3.Connection], bool], audit: Refusal | None) -> bool:
        """Do what an operator asks for, and keep who it was, in one transaction."""

        def acted(connection: sqlite3.Connection) -> bool:
            done = act(connection)
            if done and audit is not None:
                write_refusals(connection, self._tenant, (audit,))
            return done

        return await self._write(acted)

    async def note(self, claim: Claim, error: Any) -> bool:
        """Keep this beside the work of a claim; False when it is no longer ours."""
        return await self._write(lambda connection: work.note(connection, self._tenant, claim, error))

    # For those who look on

    async def feed(self, after: int, *, limit: int) -> FeedPage:
        """The entries behind a place, in the order of their commits."""
        return await self._read(lambda connection: feed.feed(connection, self._tenant, after, limit))

    async def place_at(self, time_ms: int) -> int:
        """The place behind which the entries from this time on stand."""
        return await self._read(lambda connection: feed.place_at(connection, time_ms))

    # Leases

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        _check_text(name, "name")
        _check_text(owner, "owner")
        return await self._write(
            lambda connection: leases.take(
                connection, self._tenant, name, owner=owner, now_ms=now_ms, until_ms=until_ms
            )
        )

    async def give_back(self, lease: Lease) -> bool:
        """Let go of a name at once; False when it was no longer ours."""
        return await self._write(lambda connection: leases.give_back(connection, self._tenant, lease))

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:
        """Note that a worker is alive; the downtime that ends with this, if it does."""
        return await self._write(
            lambda connection: leases.note_alive(connection, self._tenant, now_ms=now_ms, gap_ms=gap_ms)
        )

    async def correct_clock(self, *, now_ms: int) -> None:
        """Forget signs of life, downtimes and statistics that are stamped in the future."""
        await self._write(lambda connection: leases.correct(connection, self._tenant, now_ms=now_ms))

    async def stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Entities with an entry that is stamped after a time, as far as keys are remembered."""
        return await self._read(lambda connection: leases.stamped_after(connection, self._tenant, time_ms, limit))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._read(lambda connection: leases.downtimes(connection, self._tenant, since_ms=since_ms))

    async def _write(self, chore: Callable[[sqlite3.Connection], T]) -> T:
        """What a chore of the writer answers, once it is committed."""
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = thread_future(loop)
        self._writer.loops.listen(loop)
        self._writer.submit_chore(WriteJob(chore, loop, future))
        return await future

    async def close(self) -> None:
        """Let go of everything. Appends under way end first; later calls raise UnavailableError."""
        if os.getpid() == self._process:  # else all of it is of the process that was forked
            await in_thread_or_here(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._readers.close()
        with CALLS:
            while not self._idle.empty():
                self._idle.get_nowait().close()

    def _check_process(self) -> None:
        """Raises UsageError in a forked child: the threads are not there, and rings would be heard by its parent's."""
        if os.getpid() != self._process:
            raise forked_error("this store")

    # Reading

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._check_process()
        self._writer.check()
        return await self._readers.run(lambda: self._asked(question))

    def _asked(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer on a connection that nobody uses; there are never more than threads."""
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = self._reader()
        try:
            with CALLS:
                return question(connection)
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error
        except (OverflowError, UnicodeEncodeError) as error:  # raised while binding, before SQLite sees anything
            raise UsageError(f"this cannot be asked for: {error}", code="query.malformed") from error
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"a row of {self._path.name} does not read: {error}", code="entity.row") from error
        finally:
            self._idle.put(connection)

    def _reader(self) -> Connection:
        """One more connection that reads, on the very file that is written."""
        try:
            connection = open_reader(self._path)
        except sqlite3.Error as error:
            raise self._files.problem() or translate_error(error, self._path) from error
        if connection.identity != self._files.identity:
            with CALLS:
                connection.close()
            raise replaced(f"{self._path} was replaced")
        return connection

    def _check_files(self) -> None:
        """Raises UnavailableError, and poisons the store, when another file has the name of an open one."""
        problem = self._files.problem()
        if problem is not None:
            self._writer.give_up(problem)
            raise problem

    def _load(self, connection: sqlite3.Connection, entity: str, key: str | None) -> Loaded | Duplicate | None:
        found = connection.execute(SELECT_LOADED, (key, self._tenant, *split(entity))).fetchone()
        if found is None:
            return None
        version, changed_ms, body, kept = found
        if kept is not None:
            self._check_files()
            return Duplicate(kept)
        snapshot = decode_snapshot(body)
        if snapshot.version != version or snapshot.entity != entity:
            message = f"the row of `{entity}` at version {version} holds a snapshot of version {snapshot.version}"
            raise CorruptionError(message, code="snapshot.version")
        return Loaded(version, changed_ms, snapshot)

    def _records(
        self, connection: sqlite3.Connection, entity: str, after: int, limit: int
    ) -> tuple[JournalRecord, ...]:
        name = (self._tenant, *split(entity))
        connection.execute(BEGIN)
        try:
            known = connection.execute(SELECT_HEAD, name).fetchone()
            rows = connection.execute(SELECT_RECORDS, (*name, after, limit + (after > 0))).fetchall()
            base = archived(connection, name) if known is not None and (not rows or rows[0][0] > after) else None
        finally:
            connection.execute(COMMIT)
        if known is None or after >= known[0] or limit == 0:
            return ()
        if base is not None and after < base.version:
            raise ArchivedError(entity, base.version, base.archive)
        previous = chain_start(entity, tenant=self._tenant)
        if base is not None and after == base.version:
            previous, rows = base.head, rows[:limit]
        elif after > 0:
            if not rows or rows[0][0] != after:
                raise _broken(entity, after, "the record is missing")
            previous = rows.pop(0)[2]
        records = _verified(entity, after, previous, rows)
        last = records[-1] if records else None
        if len(records) < limit and (last is None or (last.version, last.head) != tuple(known)):
            raise _broken(entity, known[0], "the journal ends before the entity does")
        return records


def _verified(entity: str, after: int, previous: str, rows: list[tuple[int, bytes, str]]) -> tuple[JournalRecord, ...]:
    records: list[JournalRecord] = []
    for version, (number, line, _) in enumerate(rows, start=after + 1):
        record = decode_record(line, previous=previous, version=version)
        if isinstance(record, InvalidRecord):
            raise _broken(entity, version, record.reason)
        if number != version:
            raise _broken(entity, version, f"its row is numbered {number}")
        previous = record.head
        records.append(record)
    return tuple(records)


def _broken(entity: str, version: int, reason: str) -> CorruptionError:
    return CorruptionError(f"the journal of `{entity}` is damaged at version {version}: {reason}", code="journal.chain")


def _check_text(text: str, what: str = "entity id") -> None:
    # What SQLite cannot keep as text, the driver refuses before; a store used by itself says the same.
    if _UNKEPT.search(text):
        raise UsageError(f"the {what} holds what no text holds: {text[:80]!r}", code="text.malformed")
