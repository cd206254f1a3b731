"""The PostgreSQL store: journals of many entities on one server, written by any number of processes.

Rule 1: the server's promise is ours: a statement that returned is flushed. Standbys that follow later can lose it in a
failover; `synchronous_standby_names` is the cure.
Rule 2: connections belong to an event loop. Each loop that uses a store gets its own, so a store may be opened in one
and used in others; a process that was forked opens its own.
Rule 3: one handle is bound to one tenant: no statement can be written without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect
import msgspec

from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.codec import decode_snapshot
from interlock.model.record import HASH_HEX, Bad, Record, decode_record, genesis
from interlock.ports.store import (
    PAGE_MAX,
    Append,
    Appended,
    Conflict,
    Duplicate,
    Loaded,
    Page,
    Query,
    Refusal,
)
from interlock.stores.postgres_address import UNKEPT, Address
from interlock.stores.postgres_batch import Tip, split
from interlock.stores.postgres_connect import LOST, Connection, connected, is_its_own, translated
from interlock.stores.postgres_link import Link
from interlock.stores.postgres_lists import find, kinds
from interlock.stores.postgres_refusals import Refusals
from interlock.stores.postgres_statements import RELEASE, SELECT_LOADED, SELECT_RECORDS
from interlock.stores.postgres_upkeep import migrate
from interlock.stores.postgres_writer import Writer

VERSION_MAX = 2**62
"""No entity gets there, and a page behind it can still be asked for."""

T = TypeVar("T")


class _Line:
    """What one event loop has of a store: its connections, its queue of steps, its queue of refusals."""

    def __init__(self, address: Address) -> None:
        self.link = Link(address)
        self.writer = Writer(self.link)
        self.refusals = Refusals(self.link)

    async def close(self) -> None:
        """Let what is under way end, then let go."""
        await self.writer.drain()
        await self.refusals.drain()
        await self.link.close()


class PostgresStore:
    """Journals on a PostgreSQL server. Safe for many callers, event loops, threads and processes."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tenant = address.tenant
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._lock = Lock()
        self._closed = False
        self._process = os.getpid()

    @classmethod
    async def opened(cls, address: Address) -> PostgresStore:
        """A store whose server was looked at and whose tables are up to date. Raises as `postgres.open_store`."""
        connection = await connected(address)
        try:
            await migrate(connection, address)
            await connection.close()
        except (asyncpg.PostgresError, *LOST) as error:
            raise translated(error, address) from error
        finally:
            connection.terminate()
        return cls(address)

    async def append(self, append: Append) -> Appended | Duplicate | Conflict:
        """Keep one step, if the entity still is at the expected version and its key is new."""
        _check_text(append.entity)
        _check_text(append.entry.key, "key")
        if append.entry.version != append.expected + 1:
            message = f"entry {append.entry.version} cannot follow version {append.expected}"
            raise UsageError(message, code="append.version")
        return await self._line().writer.submit(append)

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """The entity as it is; None when there is none. With `key`: `Duplicate` when that key was kept before."""
        _check_text(entity)
        _check_text(key or "", "key")
        name = (self._tenant, *split(entity), key)
        found = await self._read(lambda connection: connection.fetchrow(SELECT_LOADED, *name))
        if found is None:
            return None
        version, changed_ms, body, kept, *rest = found
        if kept is not None:
            return Duplicate(kept)
        try:
            snapshot = decode_snapshot(body)
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"the snapshot of `{entity}` does not read: {error}", code="entity.row") from error
        if snapshot.version != version or snapshot.entity != entity:
            message = f"the row of `{entity}` at version {version} holds a snapshot of version {snapshot.version}"
            raise CorruptionError(message, code="snapshot.version")
        self._line().writer.note(entity, Tip(version, *rest))
        return Loaded(version, changed_ms, snapshot)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[Record, ...]:
        """The verified records after a version, in order.

        Raises CorruptionError at the first bad link, NotFoundError when they were released to an archive.
        """
        _check_text(entity)
        begin, wanted = max(0, min(after, VERSION_MAX)), max(0, min(limit, PAGE_MAX))
        # Versions have no gaps, so a page is a range of them; the record before it has the hash that it follows.
        values = (self._tenant, *split(entity), max(begin, 1), wanted + (begin > 0))
        rows = await self._read(lambda connection: connection.fetch(SELECT_RECORDS, *values))
        return _records(entity, self._tenant, begin, wanted, rows)

    async def find(self, query: Query) -> Page:
        """Entities by kind, state, age and tag, oldest in their state first, page by page."""
        return await self._read(lambda connection: find(connection, self._tenant, query))

    async def kinds(self) -> tuple[str, ...]:
        """The kinds that there are entities of, sorted."""
        return await self._read(lambda connection: kinds(connection, self._tenant))

    async def refuse(self, refusals: tuple[Refusal, ...]) -> None:
        """Keep refusals; they are written soon, and nobody waits for that."""
        self._line().refusals.add(refusals)

    async def release(self, entity: str, *, version: int, archive: str) -> bool:
        """Drop the records of an ended entity that is still at this version; False when it is not."""
        _check_text(entity)
        _check_text(archive, "archive")
        values = (self._tenant, *split(entity), version, archive)
        released: bool = await self._read(lambda connection: connection.fetchval(RELEASE, *values))
        return released

    async def close(self) -> None:
        """Let go of everything. Appends under way end first; later calls raise UnavailableError."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
            self._lines.clear()
        if os.getpid() != self._process:
            return  # the connections are those of the process that was forked
        here = asyncio.get_running_loop()
        for line in lines:
            if line.link.loop is here:
                await line.close()
            elif line.link.loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(line.close(), line.link.loop))
            else:
                line.link.abandon()

    def _line(self) -> _Line:
        """What the running event loop has of this store. Raises when the store is closed, or another process's."""
        loop = asyncio.get_running_loop()
        if os.getpid() != self._process:
            message = "this store was opened before the process was forked"
            raise UsageError(message, code="store.forked", hint="open one in each process")
        line = self._lines.get(loop)
        if line is not None:
            return line
        with self._lock:
            if self._closed:
                raise UnavailableError("the store is closed", code="store.closed")
            for each in [each for each in self._lines if each.is_closed()]:
                self._lines.pop(each).link.abandon()
            line = self._lines[loop] = _Line(self._address)
        return line

    async def _read(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        line = self._line()
        try:
            return await line.link.asked(question)
        except (asyncpg.PostgresError, *LOST) as error:
            if is_its_own(error):
                raise UsageError(f"this cannot be asked for: {str(error)[:200]}", code="query.malformed") from error
            raise translated(error, self._address) from error
        except msgspec.MsgspecError as error:
            message = f"a row of {self._address.place} does not read: {error}"
            raise CorruptionError(message, code="entity.row") from error


def _records(entity: str, tenant: str, after: int, limit: int, rows: list[Any]) -> tuple[Record, ...]:
    """The records of an answer, verified: against each other, and against the entity that they belong to."""
    if not rows or after >= rows[0][0] or limit == 0:
        return ()
    version, head, archive, archive_version, archive_head = rows[0][:5]
    lines = [(row[5], row[6]) for row in rows if row[5] is not None]
    if archive_version is not None and after < archive_version:
        message = f"the journal of `{entity}` up to version {archive_version} is in the archive {archive}"
        raise NotFoundError(message, code="journal.archived", hint="open the archive to read it")
    previous = genesis(entity, tenant=tenant)
    if after == archive_version:
        previous, lines = archive_head, lines[:limit]
    elif after > 0:
        if not lines or lines[0][0] != after:
            raise _broken(entity, after, "the record is missing")
        previous = lines.pop(0)[1][-HASH_HEX - 3 : -3].decode(errors="replace")
    records = _verified(entity, after, previous, lines)
    last = records[-1] if records else None
    if len(records) < limit and (last is None or (last.version, last.head) != (version, head)):
        raise _broken(entity, version, "the journal ends before the entity does")
    return records


def _verified(entity: str, after: int, previous: str, lines: list[tuple[int, bytes]]) -> tuple[Record, ...]:
    records: list[Record] = []
    for version, (number, line) in enumerate(lines, start=after + 1):
        record = decode_record(line, previous=previous, version=version)
        if isinstance(record, Bad):
            raise _broken(entity, version, record.reason)
        if number != version:
            raise _broken(entity, version, f"its row is numbered {number}")
        previous = record.head
        records.append(record)
    return tuple(records)


def _broken(entity: str, version: int, reason: str) -> CorruptionError:
    return CorruptionError(f"the journal of `{entity}` is damaged at version {version}: {reason}", code="journal.chain")


def _check_text(text: str, what: str = "entity id") -> None:
    # What PostgreSQL cannot keep as text, the driver refuses before; a store used by itself says the same.
    if UNKEPT.search(text):
        raise UsageError(f"the {what} holds what no text holds: {text[:80]!r}", code="text.malformed")
