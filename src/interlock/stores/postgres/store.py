"""The PostgreSQL store: journals of many entities on one server, written by any number of processes.

Rule 1: the server's promise is ours: a statement that returned is flushed. Standbys that follow later can lose it in a
failover; `synchronous_standby_names` is the cure, and what is answered from a read waits for them too
(`postgres_standbys`).
Rule 2: connections belong to an event loop. Each loop that uses a store gets its own, so a store may be opened in one
and used in others. A forked child opens a store of its own. It never frees the inherited one: finalizing a connection
would remove its socket from the epoll instance that the child shares with its parent.
Rule 3: one handle is bound to one tenant: no statement can be written without it.
Rule 4: what changes hands and is lost on the way is asked for once more: done twice, a claim, a renewal or a settlement
is done once, or its lease lapses. What a person asks for is that person's to repeat.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect
import msgspec

from interlock.errors import CorruptionError, UnavailableError, UsageError
from interlock.model.backoff import Backoff
from interlock.model.codec import decode_snapshot
from interlock.model.journal.record import JournalRecord
from interlock.model.journal.work import Lane, WorkId
from interlock.ports.clock import SystemClock
from interlock.ports.fork import after_fork, forked_error, keep_forever
from interlock.ports.leases import Downtime, Lease
from interlock.ports.statistics import DwellTimes, MinuteRates, RefusalRow, RefusalVerification, StateCount
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    Conflict,
    Duplicate,
    EntityPage,
    EntityQuery,
    Loaded,
    Refusal,
    StaleAttempt,
)
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.postgres import leases, work
from interlock.stores.postgres import statistics as sight
from interlock.stores.postgres.address import UNKEPT, PostgresAddress
from interlock.stores.postgres.commit import RELEASE, SELECT_LOADED, SELECT_RECORDS
from interlock.stores.postgres.connection import (
    CONNECTION_LOST,
    Connection,
    connect,
    is_bad_value,
    is_retryable,
    translate_error,
)
from interlock.stores.postgres.lists import find, kinds
from interlock.stores.postgres.maintenance import migrate
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.records import verified_records
from interlock.stores.postgres.refusals import Refusals, write_refusals
from interlock.stores.postgres.verification import entity_differences, schema_differences
from interlock.stores.postgres.writer import Writer
from interlock.stores.sql.commit_plan import JournalTip, split_entity

VERSION_MAX = 2**62
"""No entity gets there, and a page behind it can still be asked for."""

CHANGE_TRIES = 3
"""How often a change is tried when the server undid it for the sake of other transactions."""

CHANGE_BACKOFF = Backoff(50, 50)
"""The wait before such a change is tried again: the other transaction takes a few milliseconds."""

T = TypeVar("T")


class _LoopConnections:
    """What one event loop has of a store: its connections, its queues of steps and refusals, what it counts."""

    def __init__(self, address: PostgresAddress) -> None:
        self.link = ConnectionPool(address)
        self.statistics = sight.StatisticsWriter(self.link)
        self.writer = Writer(self.link, self.statistics)
        self.refusals = Refusals(self.link)

    async def close(self) -> None:
        """Let what is under way end, then let go."""
        await self.writer.drain()
        await self.refusals.drain()
        await self.statistics.drain()
        await self.link.close()


class PostgresStore:
    """Journals on a PostgreSQL server. Safe for many callers, event loops, threads and processes."""

    server_clock = True

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._tenant = address.tenant
        self._lines: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}
        self._lock = Lock()
        self._closed = False
        self._process = os.getpid()
        self._clock = SystemClock()
        self._skew = work.ClockSkew()
        after_fork(self, keep_forever)

    @classmethod
    async def opened(cls, address: PostgresAddress) -> PostgresStore:
        """A store whose server was looked at and whose tables are up to date. Raises as `postgres.open_store`."""
        connection = await connect(address)
        try:
            await migrate(connection, address)
            await connection.close()
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            raise translate_error(error, address) from error
        finally:
            connection.terminate()
        return cls(address)

    async def append(self, append: Append) -> Appended | Duplicate | Conflict | StaleAttempt:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        _check_text(append.entity)
        _check_text(append.entry.key, "key")
        if append.entry.version != append.expected + 1:
            message = f"entry {append.entry.version} cannot follow version {append.expected}"
            raise UsageError(message, code="append.version")
        if append.fence is not None and append.expected == 0:
            raise UsageError(f"`{append.entity}` is not there: no work of it can be held", code="append.fence")
        return await self._line().writer.submit(append)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        _check_text(entity)
        _check_text(key or "", "key")
        name = (self._tenant, *split_entity(entity), key)
        standbys = self._line().link.standbys

        async def looked_up(connection: Connection) -> Any:
            row = await connection.fetchrow(SELECT_LOADED, *name)
            if row is not None and row[3] is not None and row[4]:
                await standbys.confirm(connection)
            return row

        found = await self._read(looked_up)
        if found is None:
            return None
        version, changed_ms, body, kept, _, *rest = found
        if kept is not None:
            return Duplicate(kept)
        try:
            snapshot = decode_snapshot(body)
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"the snapshot of `{entity}` does not read: {error}", code="entity.row") from error
        if snapshot.version != version or snapshot.entity != entity:
            message = f"the row of `{entity}` at version {version} holds a snapshot of version {snapshot.version}"
            raise CorruptionError(message, code="snapshot.version")
        self._line().writer.note(entity, JournalTip(version, *rest))
        return Loaded(version, changed_ms, snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """The verified records after a version, in order.

        Raises CorruptionError at the first bad link, NotFoundError when they were released to an archive.
        """
        _check_text(entity)
        begin, wanted = max(0, min(after, VERSION_MAX)), max(0, min(limit, PAGE_MAX))
        # Versions have no gaps, so a page is a range of them; the record before it has the hash that it follows.
        values = (self._tenant, *split_entity(entity), max(begin, 1), wanted + (begin > 0))
        rows = await self._read(lambda connection: connection.fetch(SELECT_RECORDS, *values))
        return verified_records(entity, self._tenant, begin, wanted, rows)

    async def find(self, query: EntityQuery) -> EntityPage:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        return await self._read(lambda connection: find(connection, self._tenant, query))

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        return await self._read(lambda connection: kinds(connection, self._tenant))

    async def differences(self, entity: str | None = None) -> tuple[str, ...]:
        """How rows beside the journals differ from them: of one entity; without one, what belongs to no single one."""
        if entity is None:
            return await self._read(lambda connection: schema_differences(connection, self._tenant))
        _check_text(entity)
        return await self._read(lambda connection: entity_differences(connection, self._tenant, entity))

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals; they are written soon, and nobody waits for that."""
        line = self._line()
        line.refusals.add(refusals)
        line.statistics.refused(refusals)

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        _check_text(entity)
        _check_text(archive, "archive")
        values = (self._tenant, *split_entity(entity), version, archive)
        released: bool = await self._read(lambda connection: connection.fetchval(RELEASE, *values))
        return released

    # Work: who takes it up, holds it and lets it go. It is born and ends in `append`.

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first. When there is none, nothing is written."""
        return await self._change(
            lambda connection: work.claim(
                connection,
                self._tenant,
                lane,
                names,
                owner=owner,
                now_ms=now_ms,
                until_ms=until_ms,
                limit=limit,
                skew=self._skew,
            )
        )

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        return await self._change(
            lambda connection: work.renew(connection, self._tenant, claims, until_ms=until_ms, skew=self._skew)
        )

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims. False may also mean that it was done already, on a connection that was lost after it."""
        return await self._change(lambda connection: work.settle(connection, self._tenant, settled, now_ms=now_ms))

    async def note(self, claim: Claim, error: Any) -> bool:
        """Keep this beside the work of a claim; False when it is no longer ours."""
        return await self._change(lambda connection: work.note(connection, self._tenant, claim, error))

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due or its lease lapses, by the clock of whoever claimed last; None: there is none."""
        return await self._read(lambda connection: work.soonest(connection, self._tenant, lane, names, skew=self._skew))

    async def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, page by page."""
        return await self._read(lambda connection: work.works(connection, self._tenant, query))

    async def revive(
        self,
        entity: str,
        place: WorkId,
        *,
        now_ms: int,  # noqa: ARG002 - the server's clock
        audit: Refusal | None = None,
    ) -> bool:
        """Let dead work be tried again, from its first attempt; False when there is no such."""
        _check_text(entity)
        return await self._acted(lambda connection: work.revive(connection, self._tenant, entity, place), audit)

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let work that is not dead be tried again; False when it has changed since."""

        async def requeued(connection: Connection) -> bool:
            return (await work.settle(connection, self._tenant, (settled,), now_ms=now_ms))[0]

        return await self._acted(requeued, audit)

    async def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work; False when there is no such."""
        _check_text(entity)
        return await self._acted(lambda connection: work.drop(connection, self._tenant, entity, place), audit)

    async def _acted(self, act: Callable[[Connection], Awaitable[bool]], audit: Refusal | None) -> bool:
        """Do what an operator asks for, and keep who it was, in one transaction."""

        async def acted(connection: Connection) -> bool:
            async with connection.transaction():
                done = await act(connection)
                if done and audit is not None:
                    await write_refusals(connection, self._tenant, [audit])
                return done

        return await self._once(acted)

    # Sight: what pages about many entities need

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
        """How many entities are in a state since before a time; `COUNT_MAX` + 1 means that there are more."""
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

    # Leases

    async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
        """Take a name, or hold it longer; None while another holds it."""
        return await self._change(
            lambda connection: leases.take(
                connection, self._tenant, name, owner=owner, now_ms=now_ms, until_ms=until_ms
            )
        )

    async def give_back(self, lease: Lease) -> bool:
        """Give a name back; False when it was no longer ours."""
        return await self._change(lambda connection: leases.give_back(connection, self._tenant, lease))

    async def alive(self, *, now_ms: int, gap_ms: int) -> Downtime | None:  # noqa: ARG002 - the server's clock
        """Note that a worker is alive; the downtime that ends with this, by the server's clock."""
        return await self._change(lambda connection: leases.note_alive(connection, self._tenant, gap_ms=gap_ms))

    async def correct_clock(self, *, now_ms: int) -> None:
        """Forget signs of life, downtimes and statistics that are stamped in the future."""
        await self._change(lambda connection: leases.correct(connection, self._tenant, now_ms=now_ms))

    async def stamped_after(self, time_ms: int, *, limit: int) -> tuple[str, ...]:
        """Entities with an entry that is stamped after a time, sorted."""
        return await self._read(lambda connection: leases.stamped_after(connection, self._tenant, time_ms, limit))

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, in order."""
        return await self._read(lambda connection: leases.downtimes(connection, self._tenant, since_ms=since_ms))

    async def close(self) -> None:
        """Let go of everything. Appends under way end first; later calls raise UnavailableError."""
        if os.getpid() != self._process:
            return  # the connections are the parent's; another thread of it may have held the lock
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
            self._lines.clear()
        here = asyncio.get_running_loop()
        for line in lines:
            if line.link.loop is here:
                await line.close()
            elif line.link.loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(line.close(), line.link.loop))
            else:
                line.link.abandon()

    def _line(self) -> _LoopConnections:
        """What the running event loop has of this store. Raises when the store is closed, or another process's."""
        loop = asyncio.get_running_loop()
        if os.getpid() != self._process:
            raise forked_error("this store")
        line = self._lines.get(loop)
        if line is not None:
            return line
        with self._lock:
            if self._closed:
                raise UnavailableError("the store is closed", code="store.closed")
            for each in [each for each in self._lines if each.is_closed()]:
                self._lines.pop(each).link.abandon()
            line = self._lines[loop] = _LoopConnections(self._address)
        return line

    async def _change(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """What a change of hands comes to; again, when the server gave it up for the sake of others."""
        line = self._line()
        for _ in range(CHANGE_TRIES - 1):
            try:
                return await self._answered(line.link.asked(change))
            except UnavailableError as error:
                if error.__cause__ is None or not is_retryable(error.__cause__):
                    raise
            await self._clock.sleep_ms(CHANGE_BACKOFF.wait_ms(0, self._clock.jitter()))
        return await self._answered(line.link.asked(change))

    async def _once(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """What a change comes to that is not repeated: its second answer would not be that of the first."""
        line = self._line()

        async def changed() -> T:
            async with line.link.connection() as connection:
                return await change(connection)

        return await self._answered(changed())

    async def _read(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._answered(self._line().link.asked(question))

    async def _answered(self, answer: Awaitable[T]) -> T:
        """An answer, or the error as one of ours."""
        try:
            return await answer
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            if is_bad_value(error):
                raise UsageError(f"this cannot be asked for: {str(error)[:200]}", code="query.malformed") from error
            raise translate_error(error, self._address) from error
        except msgspec.MsgspecError as error:
            message = f"a row of {self._address.place} does not read: {error}"
            raise CorruptionError(message, code="entity.row") from error


def _check_text(text: str, what: str = "entity id") -> None:
    # What PostgreSQL cannot keep as text, the driver refuses before; a store used by itself says the same.
    if UNKEPT.search(text):
        raise UsageError(f"the {what} holds what no text holds: {text[:80]!r}", code="text.malformed")
