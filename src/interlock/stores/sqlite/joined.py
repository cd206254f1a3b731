"""A SQLite store on a connection of the caller: load and append in the caller's transaction.

Rule 1: before anything is read, the transaction takes the write lock: one that reads first cannot write once another
connection has committed (`SQLITE_BUSY_SNAPSHOT`), however long it waits.
Rule 2: what a call writes is inside a savepoint, so that an error leaves nothing of it in the caller's transaction.
Rule 3: a connection that would acknowledge before the log is flushed (`synchronous` below FULL) is refused: it cannot
be changed inside a transaction.
Rule 4: a connection of the caller does not checkpoint: SQLite before 3.51.3 can damage the file when a checkpoint and
a write of two connections meet (`writer`, rule 5).
Rule 5: the caller's own settings for rows and texts do not apply here, and stay as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from interlock.errors import InterlockError, InternalError, UsageError
from interlock.ports.store import Append, Appended, Duplicate, Loaded
from interlock.ports.transactions import SqliteTransaction
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, SqlAppendResult
from interlock.stores.sql.join_errors import (
    autocommit_error,
    joined_conflict_error,
    other_database_error,
    read_only_error,
)
from interlock.stores.sql.joined import JoinedSqlStore
from interlock.stores.sql.statistics import write_statistics
from interlock.stores.sql.store import check_text, decode_loaded
from interlock.stores.sqlite.batch_rows import Counts, write_counts, write_steps
from interlock.stores.sqlite.connection import BEGIN, is_autocommit, primary_code, run_questions, translate_error
from interlock.stores.sqlite.files import Identity, identity_at
from interlock.stores.sqlite.prefix import PrefixedConnection
from interlock.stores.sqlite.statements import SELECT_LOADED, STATEMENTS
from interlock.stores.statistics_buffer import StatisticsBuffer

SELECT_VERSION = "SELECT version FROM entity WHERE tenant = ? AND kind = ? AND id = ?"

DATABASES = "PRAGMA database_list"
SYNCHRONOUS = "PRAGMA synchronous"
SYNCHRONOUS_FULL = 2
NO_CHECKPOINTS = "PRAGMA wal_autocheckpoint = 0"
TAKE_WRITE_LOCK = "UPDATE entity SET version = version WHERE false"
"""Changes nothing; SQLite takes the write lock for every statement that could."""

SAVEPOINT = "SAVEPOINT interlock_join"
ROLLBACK_TO = "ROLLBACK TO interlock_join"
RELEASE = "RELEASE interlock_join"

T = TypeVar("T")


class JoinedStep(NamedTuple):
    """What a call has written: the entity and its version."""

    entity: str
    version: int


class JoinedSqliteStore(JoinedSqlStore):
    """A store on a connection of the caller."""

    def __init__(
        self, transaction: SqliteTransaction, *, path: Path, identity: Identity, tenant: str, prefix: str = ""
    ) -> None:
        super().__init__(STATEMENTS, tenant)
        self._transaction = transaction
        self._path = path
        self._identity = identity
        self._prefix = prefix

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Return the entity; None when it does not exist. With `key`: `Duplicate` when that key was used before."""
        check_text(entity)
        check_text(key or "", "key")
        values = (key, self._tenant, *split_entity(entity))
        found = await self._run(lambda connection: connection.execute(SELECT_LOADED, values).fetchone())
        if found is None:
            return None
        version, changed_ms, body, key_version = found
        if version < 0:  # it is being removed
            return None
        return Duplicate(key_version) if key_version is not None else decode_loaded(entity, version, changed_ms, body)

    async def look(self, entity: str) -> Loaded | None:
        """Return the entity as the transaction sees it, without the write lock; None when it does not exist."""
        check_text(entity)
        values = (None, self._tenant, *split_entity(entity))
        found = await self._transaction.run(
            lambda connection: self._run_here(
                connection, lambda ours: ours.execute(SELECT_LOADED, values).fetchone(), writes=False
            )
        )
        return None if found is None or found[0] < 0 else decode_loaded(entity, *found[:3])

    async def append(self, append: Append) -> SqlAppendResult:
        """Write one step, if the entity is still at the expected version and the key is new."""
        check_text(append.entity)
        check_text(append.entry.key, "key")
        result = await self._run(lambda connection: self._append(connection, append))
        if isinstance(result, Appended):
            self.mark = JoinedStep(append.entity, result.version)
        return result

    def _append(self, connection: sqlite3.Connection, append: Append) -> SqlAppendResult:
        counts: Counts = {}
        statistics = StatisticsBuffer()
        connection.execute(SAVEPOINT)
        try:
            (result,), _ = write_steps(connection, self._tenant, [append], counts, statistics)
            if isinstance(result, InterlockError):
                raise result
            write_counts(connection, self._tenant, counts)
            run_questions(connection, write_statistics(STATEMENTS, self._tenant, statistics))
        except BaseException:
            connection.execute(ROLLBACK_TO)
            raise
        finally:
            connection.execute(RELEASE)
        return result

    async def _ask(self, questions: Questions[T]) -> T:
        """Run questions on the caller's connection."""
        return await self._run(lambda connection: run_questions(connection, questions))

    async def lock(self, entities: Sequence[str]) -> None:  # noqa: ARG002 - the lock is that of the file
        """Lock all entities: a SQLite file has one lock."""
        await self._run(lambda _: None)

    async def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function inside the caller's transaction, with the write lock."""
        return await self._transaction.run(lambda connection: self._run_here(connection, call))

    def _run_here(
        self, connection: sqlite3.Connection, call: Callable[[sqlite3.Connection], T], *, writes: bool = True
    ) -> T:
        with _plain_texts(connection), self._translated():
            ours = cast("sqlite3.Connection", PrefixedConnection(connection, self._prefix))
            self._check_file(ours)
            if writes:
                self._enter(connection, ours)
            return call(ours)

    def _check_file(self, ours: sqlite3.Connection) -> None:
        """Raises UsageError unless the connection leads to the store's own file."""
        main = next((path for _, name, path in ours.execute(DATABASES) if name == "main"), "")
        if not main or identity_at(main) != self._identity:
            raise other_database_error(str(self._path))

    def _enter(self, connection: sqlite3.Connection, ours: sqlite3.Connection) -> None:
        """Check the connection, start a transaction where the driver would, and take the write lock."""
        if ours.execute(SYNCHRONOUS).fetchone()[0] < SYNCHRONOUS_FULL:
            hint = "execute PRAGMA synchronous = FULL when the connection is opened"
            message = "the connection can lose an acknowledged commit: its `synchronous` is below FULL"
            raise UsageError(message, code="join.durability", hint=hint)
        if not connection.in_transaction:
            if is_autocommit(connection):
                raise autocommit_error('execute "BEGIN IMMEDIATE" first')
            ours.execute(BEGIN)
        ours.execute(NO_CHECKPOINTS)
        ours.execute(TAKE_WRITE_LOCK)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as error:
            raise InternalError(f"cannot write the step: {error}", code="store.unwritable") from error
        except sqlite3.OperationalError as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.OperationalError) -> InterlockError:
        match primary_code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                is_stale = error.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
                why = "has written since the first read of this transaction" if is_stale else "is writing"
                message = f"another connection to {self._path.name} {why}"
                hint = 'roll back, and run the whole transaction again; start it with "BEGIN IMMEDIATE"'
                return joined_conflict_error(message, hint)
            case sqlite3.SQLITE_READONLY:
                return read_only_error()
            case _:
                return translate_error(error, self._path)


def select_versions(tenant: str, entities: Sequence[str]) -> Questions[list[int]]:
    """Return the version of each entity; 0 when it does not exist."""
    versions: list[int] = []
    for entity in entities:
        rows = yield Ask(SELECT_VERSION, (tenant, *split_entity(entity)))
        versions.append(rows[0][0] if rows else 0)
    return versions


@contextmanager
def _plain_texts(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts as strings in the block; the caller may read them as something else."""
    theirs = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = theirs
