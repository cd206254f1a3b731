"""The SQLite store: journals of many entities in one file, written by one thread, read by a few.

Rule 1: writes go through the `CommitQueue`, which groups steps into transactions.
Rule 2: readers have separate connections that cannot write. What they see is committed, and so durable.
Rule 3: connections and threads belong to the process that opened the store. A child that is forked meanwhile can use
neither this store nor another one on the same file (`files`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote

from interlock.errors import CorruptionError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.work import Lane
from interlock.ports.fork import forked_error
from interlock.ports.reading.journal_feed import FeedEntry, FeedPage, JournalFeed
from interlock.ports.reading.projections import ProjectionStatus, Projector
from interlock.ports.store import Append, Itself
from interlock.ports.threads import in_thread, in_thread_or_here
from interlock.ports.transactions import CallerTransaction, TransactionEnd
from interlock.ports.work import Claim
from interlock.stores.file_identity import replaced_error
from interlock.stores.key_file import SUFFIX, KeyFile
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Questions, SqlAppendResult
from interlock.stores.sql.join_errors import other_database_error
from interlock.stores.sql.store import SqlStore
from interlock.stores.sqlite.commit_queue import CommitQueue
from interlock.stores.sqlite.connection import open_reader, open_writer, run_questions, translate_error
from interlock.stores.sqlite.feed import cursor_at, read_feed
from interlock.stores.sqlite.files import CALLS, Connection
from interlock.stores.sqlite.joined import JoinedSqliteStore, JoinedStep, select_versions
from interlock.stores.sqlite.prefix import check_prefix
from interlock.stores.sqlite.projections import project_batch
from interlock.stores.sqlite.statements import SELECT_LOADED, STATEMENTS
from interlock.stores.sqlite.work import SqliteWork
from interlock.stores.threads.pool import ThreadPool
from interlock.stores.wakeup_pipes import WakeupPipes

READERS_MAX = 4
"""Threads that read: more would only wait for the interpreter's lock."""

T = TypeVar("T")


def open_store(url: str) -> SqliteStore:
    """Open the store of `sqlite:///relative.db` or `sqlite:////absolute.db`, and create the file if needed. Blocks.

    `?tenant=name` binds the store to a tenant. A file that has tables of an application is shared: the names of the
    store's tables then start with `interlock_`, or with `?prefix=`. With `?migrate=0` an older schema is refused, not
    upgraded. Raises UsageError when the address is invalid.
    """
    found = address(url)
    return SqliteStore(found.path, tenant=found.tenant, prefix=found.prefix, migrates=found.migrates)


class SqliteAddress(NamedTuple):
    """What an address names: the file, the tenant, the prefix of tables if any, and whether opening may migrate."""

    path: Path
    tenant: str
    prefix: str | None
    migrates: bool


def address(url: str) -> SqliteAddress:
    """Return what an address names. Raises UsageError when it is invalid."""
    rest, _, options = url.removeprefix("sqlite://").partition("?")
    name = unquote(rest.removeprefix("/"))
    if not url.startswith("sqlite:///") or not name:
        hint = "write three slashes before a relative path, sqlite:///orders.db, and four before an absolute one"
        raise UsageError(f"`{url}` names no file", code="url.malformed", hint=hint)
    if name == ":memory:":
        hint = "use `memory:` for a store without a file"
        raise UsageError("a SQLite store needs a file", code="url.memory", hint=hint)
    given = parse_qs(options, keep_blank_values=True)
    if set(given) - {"tenant", "prefix", "migrate"}:
        hint = "the options are `tenant`, `prefix` and `migrate`"
        raise UsageError(f"unknown option in `{url}`", code="url.option", hint=hint)
    migrate = given.get("migrate", ["1"])[-1]
    if migrate not in {"0", "1"}:
        raise UsageError(f"invalid option `migrate={migrate[:80]}`", code="url.option", hint="0 or 1")
    prefix = check_prefix(given["prefix"][-1]) if "prefix" in given else None
    return SqliteAddress(Path(name), given.get("tenant", [""])[-1], prefix, migrate == "1")


class SqliteStore(SqlStore):
    """Journals in a SQLite file. Safe for many callers, threads and processes."""

    database: SqliteDatabase
    journal_feed = Itself[JournalFeed]()
    server_clock = False

    def __init__(self, path: Path, *, tenant: str = "", prefix: str | None = None, migrates: bool = True) -> None:
        database = SqliteDatabase(path, tenant, prefix=prefix, migrates=migrates)
        release = partial(_release_claims, database)
        super().__init__(database, WakeupPipes(database.path, tenant, release))
        self.joins = SqliteJoins(database)
        file = database.path.with_name(database.path.name + SUFFIX)
        self.data_keys = KeyFile(file, tenant if prefix is None else f"{prefix}:{tenant}")

    @property
    def projections(self) -> SqliteProjections:
        """Positions of projections, in the transaction of what they write."""
        return SqliteProjections(self)

    async def close(self) -> None:
        """Finish what is queued, then close all connections."""
        await super().close()
        self.data_keys.close()

    async def feed(self, after: str | None, *, kinds: tuple[str, ...] | None = None, limit: int) -> FeedPage:
        """Return the entries after a cursor, in the order of their commits."""
        return await self.database.read(lambda: read_feed(self.database.tenant, after, kinds, limit))

    async def cursor_at(self, time_ms: int) -> str:
        """Return the cursor after which the entries from this time on are."""
        return await self.database.read(lambda: cursor_at(time_ms))


class SqliteJoins:
    """Writes in transactions of the caller."""

    one_writer = True

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def joined(self, transaction: CallerTransaction, *, wait: bool = True) -> JoinedSqliteStore:  # noqa: ARG002 - the
        # driver's own timeout says how long a connection waits for the file
        """Return the store on a connection of the caller."""
        database = self._database
        if transaction.dialect != "sqlite":
            raise other_database_error(str(database.path))
        return JoinedSqliteStore(
            transaction,
            path=database.path,
            identity=database.queue.writer.files.identity,
            tenant=database.tenant,
            prefix=database.prefix,
        )

    async def ended(self, marks: Sequence[object]) -> list[TransactionEnd]:
        """Return which transactions are committed. One that was rolled back looks like one that is open."""
        steps = [each for each in marks if isinstance(each, JoinedStep)]
        versions = await self._database.read(
            lambda: select_versions(self._database.tenant, [each.entity for each in steps])
        )
        return [
            TransactionEnd.COMMITTED if version >= step.version else TransactionEnd.OPEN
            for step, version in zip(steps, versions, strict=True)
        ]

    def committed(self, mark: object) -> None:
        """Count nothing: a joined transaction has written its counters itself."""


async def _release_claims(database: SqliteDatabase, owner: str) -> int:
    """Make the claims of a dead worker due."""
    return await database.change_work(lambda: database.work.release_owner(owner))


class SqliteProjections:
    """The projections of a SQLite store: plain functions, called in a thread."""

    is_async = False

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def projections(self) -> tuple[ProjectionStatus, ...]:
        """Return all projections, by name."""
        return await self._store.projections_of()

    async def project(
        self, name: str, projector: Projector, entries: tuple[FeedEntry, ...], *, before: str | None, after: str
    ) -> bool:
        """Run a projector and move its cursor in one transaction; False when the cursor is no longer `before`."""
        database = self._store.database
        place = (database.tenant, name)
        return await in_thread(
            lambda: project_batch(database.path, place, projector, entries, before, after, prefix=database.prefix),
            name="interlock-projection",
        )

    async def record_failure(self, name: str, *, cursor: str | None, error: str, stopped: bool) -> None:
        """Count a failure at this cursor."""
        await self._store.record_projection_failure(name, cursor=cursor, error=error, stopped=stopped)


class SqliteDatabase:
    """A SQLite file: one connection that writes, in its own thread, and a few that read."""

    statements = STATEMENTS

    def __init__(self, path: Path, tenant: str, *, prefix: str | None = None, migrates: bool = True) -> None:
        self.path = Path(os.path.realpath(path))  # the log is next to the file, not next to a link to it
        self.tenant = tenant
        self.work = SqliteWork(tenant)
        writer = open_writer(self.path, prefix=prefix, migrates=migrates)
        self.prefix = writer.prefix
        self.queue = CommitQueue(writer, self.path, tenant)
        self._files = self.queue.writer.files
        self.stays = self.queue.writer.stays
        self._process = os.getpid()
        self._readers = ThreadPool(READERS_MAX, f"interlock-{path.name}-read")
        self._idle: LifoQueue[Connection] = LifoQueue()
        self.queue.start()

    def append(self, append: Append) -> Coroutine[Any, Any, SqlAppendResult]:
        """Commit one step."""
        self._check_process()
        return self.queue.append(append)

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Commit rows of the audit with the next batch."""
        self._check_process()
        await self.queue.append_audit(rows)

    async def change(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions in a transaction of the writer."""
        self._check_process()
        return await self.queue.run(questions)

    change_once = change_whole = change

    async def change_work(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that change rows of work, and no journal."""
        self._check_process()
        return await self.queue.run(questions, keeps_journals=True)

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first. A reader looks first, so that nothing is written when there is none."""
        if not await self.read(lambda: self.work.is_due(lane, names, now_ms)):
            return ()
        return await self.change_work(
            lambda: self.work.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        )

    async def close(self) -> None:
        """Finish what is queued, then close all connections."""
        if os.getpid() == self._process:  # otherwise everything belongs to the process that was forked
            await in_thread_or_here(self._close)

    def _close(self) -> None:
        self.queue.close()
        self._readers.close()
        with CALLS:
            while not self._idle.empty():
                self._idle.get_nowait().close()

    def _check_process(self) -> None:
        """Raises UsageError in a forked child: the threads are not there, and wake-ups would reach the parent's."""
        if os.getpid() != self._process:
            raise forked_error("this store")

    # Reading

    async def find_entity(self, entity: str, key: str | None) -> tuple[int, int, bytes, int | None] | None:
        """Return version, time of the last entry, snapshot, and the version that used the key; None: no such entity."""
        values = (key, self.tenant, *split_entity(entity))

        def find(connection: sqlite3.Connection) -> tuple[int, int, bytes, int | None] | None:
            found: tuple[int, int, bytes, int | None] | None = connection.execute(SELECT_LOADED, values).fetchone()
            if found is not None and found[3] is not None:
                self._check_files()
            return found

        return await self._read(find)

    async def read(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions on a connection that cannot write."""
        return await self._read(lambda connection: run_questions(connection, questions()))

    async def read_snapshot(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions on the state of one moment."""

        def run(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return run_questions(connection, questions())
            finally:
                connection.execute("COMMIT")

        return await self._read(run)

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._check_process()
        self.queue.check()
        return await self._readers.run(lambda: self._read_in_thread(question))

    def _read_in_thread(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Run on an idle connection; there are never more connections than threads."""
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = self._open_reader()
        try:
            with CALLS:
                return question(connection)
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error
        except (OverflowError, UnicodeEncodeError) as error:  # raised while binding, before SQLite sees anything
            raise UsageError(f"invalid value in a query: {error}", code="query.malformed") from error
        except UNDECODABLE as error:
            raise CorruptionError(f"cannot decode a row of {self.path.name}: {error}", code="entity.row") from error
        finally:
            self._idle.put(connection)

    def _open_reader(self) -> Connection:
        """Open one more connection that reads, on the very file that is written."""
        try:
            connection = open_reader(self.path, prefix=self.prefix)
        except sqlite3.Error as error:
            raise self._files.problem() or translate_error(error, self.path) from error
        if connection.identity != self._files.identity:
            with CALLS:
                connection.close()
            raise replaced_error(f"{self.path} was replaced")
        return connection

    def _check_files(self) -> None:
        """Raises UnavailableError, and poisons the store, when the path of an open file leads to another file."""
        problem = self._files.problem()
        if problem is not None:
            self.queue.give_up(problem)
            raise problem
