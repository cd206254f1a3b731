"""Tables of work to compare with each other: in memory, in SQLite, and on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from msgspec.structs import replace

from interlock.model.journal.work import Lane, WorkDelta, WorkId
from interlock.ports.store import Appended
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery
from interlock.stores.postgres.opening import open_store
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Questions
from interlock.stores.sql.work_lists import list_work, requeue_dead_work
from interlock.stores.sqlite.connection import run_questions
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.stores.sqlite.work import SqliteWork, newest_attempt, write_work
from interlock.stores.work_table import WorkTable
from interlock.testing.store_suite.samples import SampleEntity
from tests.conformance.stores.files_tables import FilesTable
from tests.support.postgres_server import store_or_skip

T = TypeVar("T")


class Table(Protocol):
    """The methods of every table."""

    def apply(self, entity: str, left: WorkDelta) -> None:
        """What an entry leaves."""

    def fence(self, entity: str, work_id: WorkId) -> int | None:
        """The newest attempt."""

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work."""

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend leases."""

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims."""

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""

    def list_work(self, query: WorkQuery) -> WorkPage:
        """List."""

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int) -> bool:
        """Try dead work again."""

    def delete_work(self, entity: str, work_id: WorkId) -> bool:
        """Forget."""


class SqliteTable:
    """The statements of the SQLite store, on a database in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        text = files("interlock.stores").joinpath("migrations/sqlite/0003_work.sql").read_text(encoding="utf-8")
        self.connection.executescript(text)
        self._work = SqliteWork("")

    def apply(self, entity: str, left: WorkDelta) -> None:
        """Apply the work of an entry."""
        write_work(self.connection, [(("", *split_entity(entity)), left)])

    def fence(self, entity: str, work_id: WorkId) -> int | None:
        """Return the newest attempt."""
        return newest_attempt(self.connection, ("", *split_entity(entity)), work_id)

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work; check that the table knows in advance whether there is any."""
        is_due = self._run(self._work.is_due(lane, names, now_ms))
        found = self._run(self._work.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit))

        assert is_due == bool(found)
        return found

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend leases."""
        return self._run(self._work.renew(claims, until_ms=until_ms))

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims."""
        return self._run(self._work.settle(settled, now_ms=now_ms))

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """Return when the next work is due."""
        return self._run(self._work.next_due_ms(lane, names))

    def list_work(self, query: WorkQuery) -> WorkPage:
        """List work."""
        return self._run(list_work(STATEMENTS, "", query))

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int) -> bool:
        """Requeue a dead letter."""
        return self._run(requeue_dead_work(STATEMENTS, "", entity, work_id, now_ms))

    def delete_work(self, entity: str, work_id: WorkId) -> bool:
        """Delete work."""
        return self._run(self._work.delete(entity, work_id))

    def _run(self, questions: Questions[T]) -> T:
        return run_questions(self.connection, questions)


CLOCK = """
    CREATE TABLE IF NOT EXISTS set_clock (ms bigint NOT NULL);
    INSERT INTO set_clock VALUES (0);
    CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT ms FROM set_clock'"""
"""Lets a test set the clock of the server."""


class PostgresTable:
    """A PostgreSQL store; the clock of its server shows the time that each call passes as now."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._store = self._runner.run(open_store(url))
        self._raw = self._runner.run(_connected(url))
        self._done(self._raw.execute(CLOCK))
        self.clear()

    def clear(self) -> None:
        """Forget everything, and start again at time 0."""
        self._lives: dict[str, SampleEntity] = {}
        self._now = 0
        self._done(self._raw.execute("UPDATE set_clock SET ms = 0"))
        self._done(self._raw.execute("TRUNCATE work, entity, entity_state, entity_tag, event_key, journal"))

    def close(self) -> None:
        """Close the connections."""
        self._done(self._store.close())
        self._done(self._raw.close())
        self._runner.close()

    def apply(self, entity: str, left: WorkDelta) -> None:
        """What an entry leaves: the append of a real step."""
        sample = self._lives.get(entity)
        if sample is None:
            sample = self._lives[entity] = SampleEntity(entity, time_ms=self._now)
            append = sample.create()
        else:
            sample.time_ms = self._now
            assert sample.snapshot is not None
            append = sample.step(key=f"k{sample.snapshot.version}", after_ms=0)
        answer = self._done(self._store.append(replace(append, work=left)))

        assert isinstance(answer, Appended), answer

    def fence(self, entity: str, work_id: WorkId) -> int | None:
        """The newest attempt."""
        kind, _, own = entity.partition("/")
        statement = "SELECT attempts FROM work WHERE (kind, id, lane, version, ordinal) = ($1, $2, $3, $4, $5)"
        found = self._done(self._raw.fetchval(statement, kind, own, work_id.lane, work_id.version, work_id.ordinal))
        return None if found is None else int(found)

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work."""
        self._at(now_ms)
        return self._done(self._store.claim(lane, names, owner=owner, now_ms=now_ms, until_ms=until_ms, limit=limit))

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend leases."""
        return self._done(self._store.renew(claims, until_ms=until_ms))

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims."""
        self._at(now_ms)
        return self._done(self._store.settle(settled, now_ms=now_ms))

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next is due."""
        return self._done(self._store.next_due_ms(lane, names))

    def list_work(self, query: WorkQuery) -> WorkPage:
        """List."""
        return self._done(self._store.list_work(query))

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int) -> bool:
        """Try dead work again."""
        self._at(now_ms)
        return self._done(self._store.requeue_dead_letter(entity, work_id, now_ms=now_ms))

    def delete_work(self, entity: str, work_id: WorkId) -> bool:
        """Forget."""
        return self._done(self._store.delete_work(entity, work_id))

    def _at(self, now_ms: int) -> None:
        if now_ms != self._now:
            self._now = now_ms
            self._done(self._raw.execute("UPDATE set_clock SET ms = $1", now_ms))

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


async def _connected(url: str) -> Any:
    bare, _, options = url.partition("?schema=")
    return await asyncpg.connect(bare, server_settings={"search_path": options.partition("&")[0]})


@contextmanager
def opened(name: str) -> Iterator[Table]:
    """Open a table by its name, and close it at the end; without a server the test is skipped."""
    if name == "memory":
        yield WorkTable()
    elif name == "sqlite":
        yield SqliteTable()
    elif name == "files":
        yield FilesTable()
    else:
        table = PostgresTable(f"{store_or_skip()}&connections=2&commit={name.partition('-')[2]}")
        try:
            yield table
        finally:
            table.close()


TABLES = ("memory", "sqlite", "files", "postgres-one", "postgres-group")
