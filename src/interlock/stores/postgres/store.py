"""The PostgreSQL store: journals of many entities on one server, written by any number of processes.

Rule 1: the server's promise is ours: a statement that returned is flushed. Asynchronous standbys can lose it in a
failover; `synchronous_standby_names` prevents that, and an answer from a read waits for those standbys too
(`standbys`).
Rule 2: connections belong to an event loop. Each loop that uses a store gets its own, so a store may be opened in one
and used in others. A forked child opens its own store. It never frees the inherited one: finalizing a connection
would remove its socket from the epoll instance that the child shares with its parent.
Rule 3: a change whose connection is lost is asked once more: repeated, a claim, a renewal or a settlement has the same
effect, or its lease expires. What an operator asks for is repeated by the operator.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.backoff import Backoff
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.work import Lane
from interlock.ports.clock import SystemClock
from interlock.ports.fork import after_fork, forked_error, keep_forever
from interlock.ports.reading.journal_feed import FeedPage, JournalFeed
from interlock.ports.store import Append, Itself
from interlock.ports.transactions import CallerTransaction, TransactionEnd
from interlock.ports.work import Claim
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.audit import AuditWriter
from interlock.stores.postgres.commit import SELECT_LOADED
from interlock.stores.postgres.connection import (
    CONNECTION_LOST,
    Connection,
    connect,
    is_bad_value,
    is_retryable,
    run_questions,
    translate_error,
)
from interlock.stores.postgres.data_keys import PostgresKeys
from interlock.stores.postgres.feed import cursor_at, read_feed
from interlock.stores.postgres.joined import (
    ENDS,
    SELECT_IDENTITY,
    Identity,
    JoinedPostgresStore,
    JoinedTransaction,
    KnownFields,
    select_ends,
)
from interlock.stores.postgres.maintenance import migrate
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.projections import PostgresProjections
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.statistics import StatisticsWriter
from interlock.stores.postgres.wakeups import PostgresWakeups
from interlock.stores.postgres.work import PostgresWork
from interlock.stores.postgres.writer import Writer
from interlock.stores.sql.commit_plan import JournalTip, split_entity
from interlock.stores.sql.database import Questions, SqlAppendResult
from interlock.stores.sql.join_errors import other_database_error
from interlock.stores.sql.store import SqlStore
from interlock.stores.stay_tally import StayTally

CHANGE_TRIES = 3
"""How often a change is tried when the server undid it for the sake of other transactions."""

CHANGE_BACKOFF = Backoff(50, 50)
"""The wait before such a change is tried again: the other transaction takes a few milliseconds."""

LOCK_TRIES = 12
"""How often a change is tried that waits until no step is in progress, each time for a fraction of a second: a longer
wait would hold up all other steps, and a transaction of a caller may take seconds."""

LOCK_BACKOFF = Backoff(50, 1_000)
"""The wait before such a change is tried again."""

ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

T = TypeVar("T")


class LoopConnections:
    """The part of a store that belongs to one event loop: connections, queues of steps and of the audit, statistics."""

    def __init__(self, address: PostgresAddress, stays: StayTally) -> None:
        self.pool = ConnectionPool(address)
        self.statistics = StatisticsWriter(self.pool, stays)
        self.writer = Writer(self.pool, self.statistics)
        self.audit = AuditWriter(self.pool)

    async def close(self) -> None:
        """Finish what is in progress, then close the connections."""
        await self.writer.drain()
        await self.audit.drain()
        await self.statistics.drain()
        await self.pool.close()


class PostgresStore(SqlStore):
    """Journals on a PostgreSQL server. Safe for many callers, event loops, threads and processes."""

    database: PostgresDatabase
    journal_feed = Itself[JournalFeed]()
    server_clock = True

    def __init__(self, address: PostgresAddress, *, identity: Identity | None = None) -> None:
        database = PostgresDatabase(address)
        release = partial(_release_claims, database)
        super().__init__(database, PostgresWakeups(address, lambda: database.connections().pool, release))
        self.joins = None if identity is None else PostgresJoins(database, identity)

    @property
    def data_keys(self) -> PostgresKeys:
        """The keys of personal data, in a table."""
        return PostgresKeys(self.database)

    @property
    def projections(self) -> PostgresProjections:
        """Positions of projections, in the transaction of what they write."""
        database = self.database
        return PostgresProjections(self, database.address.schema, lambda: database.connections().pool)

    async def feed(self, after: str | None, *, kinds: tuple[str, ...] | None = None, limit: int) -> FeedPage:
        """Return the entries after a cursor; those of one entity are in the order of their versions."""
        return await self.database.read(lambda: read_feed(self.database.tenant, after, kinds, limit))

    async def cursor_at(self, time_ms: int) -> str:
        """Return the cursor before the entries from this time on, by the server's clock."""
        return await self.database.read(lambda: cursor_at(time_ms))

    @classmethod
    async def open(cls, address: PostgresAddress) -> PostgresStore:
        """Check the server, upgrade its tables, and return a store. Raises as `opening.open_store`."""
        connection = await connect(address)
        try:
            await migrate(connection, address)
            store_id, database = await connection.fetchrow(SELECT_IDENTITY)
            await connection.close()
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            raise translate_error(error, address) from error
        finally:
            connection.terminate()
        return cls(address, identity=(store_id, database))


class PostgresJoins:
    """Writes in transactions of the caller."""

    one_writer = False

    def __init__(self, database: PostgresDatabase, identity: Identity) -> None:
        self._database = database
        self._identity = identity
        self._fields = KnownFields()

    def joined(self, transaction: CallerTransaction, *, wait: bool = True) -> JoinedPostgresStore:
        """Return the store on a connection of the caller."""
        address = self._database.address
        if transaction.dialect != "postgres":
            raise other_database_error(f"PostgreSQL at {address.place}")
        return JoinedPostgresStore(
            transaction,
            tenant=address.tenant,
            schema=address.schema,
            identity=self._identity,
            fields=self._fields,
            wait=wait,
        )

    async def ended(self, marks: Sequence[object]) -> list[TransactionEnd]:
        """Return the state of transactions. One so old that the server has forgotten it has ended."""
        numbers = [mark.number for mark in marks if isinstance(mark, JoinedTransaction)]
        rows = await self._database.read(lambda: select_ends(numbers))
        return [ENDS.get(status, TransactionEnd.COMMITTED) for (status,) in rows]

    def committed(self, mark: object) -> None:
        """Count what a transaction has written, and merge its counters with the others soon."""
        assert isinstance(mark, JoinedTransaction)
        mine = self._database.connections()
        mine.statistics.count_step(mark.plan)
        mine.writer.merge_counts_soon()


async def _release_claims(database: PostgresDatabase, owner: str) -> int:
    """Make the claims of a dead worker due."""
    return await database.change_work(lambda: database.work.release_owner(owner))


class PostgresDatabase:
    """A PostgreSQL server, with connections for each event loop."""

    statements = STATEMENTS

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.tenant = address.tenant
        self.work = PostgresWork(address.tenant)
        self.stays = StayTally()
        self.loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._lock = Lock()
        self._is_closed = False
        self._process = os.getpid()
        self._clock = SystemClock()
        after_fork(self, keep_forever)

    def connections(self) -> LoopConnections:
        """Return what the running event loop has. Raises when the store is closed, or was opened before a fork."""
        loop = asyncio.get_running_loop()
        if os.getpid() != self._process:
            raise forked_error("this store")
        found = self.loops.get(loop)
        if found is not None:
            return found
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the store is closed", code="store.closed")
            for each in [each for each in self.loops if each.is_closed()]:
                self.loops.pop(each).pool.abandon()
            found = self.loops[loop] = LoopConnections(self.address, self.stays)
        return found

    async def append(self, append: Append) -> SqlAppendResult:
        """Commit one step."""
        if append.entry.version != append.expected + 1:
            message = f"entry {append.entry.version} cannot follow version {append.expected}"
            raise UsageError(message, code="append.version")
        if append.fence is not None and append.expected == 0:
            raise UsageError(f"a new entity has no claims: `{append.entity}`", code="append.fence")
        return await self.connections().writer.submit(append)

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Commit rows of the audit, together with those of other callers."""
        mine = self.connections()
        await mine.audit.append(rows)
        mine.statistics.count_refusals(rows)

    async def find_entity(self, entity: str, key: str | None) -> tuple[int, int, bytes, int | None] | None:
        """Return version, time of the last entry, snapshot, and the version that used the key; None: no such entity."""
        mine = self.connections()
        values = (self.tenant, *split_entity(entity), key)

        async def find(connection: Connection) -> tuple[int, int, bytes, int | None] | None:
            row = await connection.fetchrow(SELECT_LOADED, *values)
            if row is None:
                return None
            version, changed_ms, snapshot, key_version, waits_for_standbys, *tip = row
            if key_version is None:
                mine.writer.remember_tip(entity, JournalTip(version, *tip))
            elif waits_for_standbys:
                await mine.pool.standbys.confirm(connection)
            return version, changed_ms, snapshot, key_version

        return await self._read(find)

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first."""
        return await self.change(
            lambda: self.work.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit)
        )

    async def read(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that change nothing; after a lost connection, once more."""
        return await self._read(lambda connection: run_questions(connection, questions()))

    async def read_snapshot(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that change nothing, on the state of one moment."""

        async def run(connection: Connection) -> T:
            async with connection.transaction():
                await connection.execute(ONE_MOMENT)
                return await run_questions(connection, questions())

        return await self._read(run)

    async def _read(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        with self._translated():
            return await self.connections().pool.ask_with_retry(question)

    async def change(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions that may be repeated; again when the server undid them for the sake of other transactions."""
        for _ in range(CHANGE_TRIES - 1):
            try:
                return await self.read(questions)
            except UnavailableError as error:
                if error.__cause__ is None or not is_retryable(error.__cause__):
                    raise
            await self._clock.sleep_ms(CHANGE_BACKOFF.wait_ms(0, self._clock.jitter()))
        return await self.read(questions)

    change_work = change

    async def change_once(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions in one transaction, and never again: their second answer would not be that of the first."""
        with self._translated():
            async with self.connections().pool.connection() as connection, connection.transaction():
                return await run_questions(connection, questions())

    async def change_whole(self, questions: Callable[[], Questions[T]]) -> T:
        """Run questions in one transaction that may be repeated; again when it had to wait for other transactions."""
        for attempt in range(LOCK_TRIES - 1):
            try:
                return await self.change_once(questions)
            except UnavailableError as error:
                if error.__cause__ is None or not is_retryable(error.__cause__):
                    raise
            await self._clock.sleep_ms(LOCK_BACKOFF.wait_ms(attempt, self._clock.jitter()))
        return await self.change_once(questions)

    async def close(self) -> None:
        """Finish appends that are in progress, then close the connections of all event loops."""
        if os.getpid() != self._process:
            return  # the connections belong to the parent; another thread of it may have held the lock
        with self._lock:
            self._is_closed = True
            loops = list(self.loops.values())
            self.loops.clear()
        here = asyncio.get_running_loop()
        for each in loops:
            if each.pool.loop is here:
                await each.close()
            elif each.pool.loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(each.close(), each.pool.loop))
            else:
                each.pool.abandon()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raises errors of the driver as ours."""
        try:
            yield
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            if is_bad_value(error):
                message = f"invalid value in a query: {str(error)[:200]}"
                raise UsageError(message, code="query.malformed") from error
            raise translate_error(error, self.address) from error
        except UNDECODABLE as error:
            raise CorruptionError(f"cannot decode a row of {self.address.place}: {error}", code="entity.row") from error
