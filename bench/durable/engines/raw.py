"""The limits of this machine: one small record per durable write, and nothing else. No chart can be faster.

They run in the caller's thread (PostgreSQL: on sixteen connections), keep states in memory, and check no keys.
"""

from __future__ import annotations

import os
import sqlite3
from importlib import import_module
from typing import Any

from bench.durable.order import Line, Place, step

CONNECTIONS = 16
"""Connections to PostgreSQL: four gave less on two processors, sixty-four no more."""

asyncpg: Any = import_module("asyncpg")  # it has no types


async def unreset(connection: object) -> None:
    """Do not reset a connection that returns to the pool: that would be a second round trip for each step."""


class Remembering:
    """States in memory, and a record for each step. The record is all that differs."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    async def start(self) -> None:
        """Open it, empty."""

    async def stop(self) -> None:
        """Close it."""

    async def keep(self, order: str, version_key: str) -> None:
        """Make one record durable."""
        raise NotImplementedError

    async def create(self, order: str) -> None:
        """Create an order."""
        self._states[order] = "created"
        await self.keep(order, order)

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        state, _ = step(self._states[order], event)
        await self.keep(order, key)
        self._states[order] = state
        return state


class RawFile(Remembering):
    """One file, a line of the size of our records, write and fdatasync for each."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._path = place.folder / "raw.log"
        self._file = -1

    async def start(self) -> None:
        """Open the file."""
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def stop(self) -> None:
        """Close the file."""
        os.close(self._file)

    async def keep(self, order: str, version_key: str) -> None:
        """Write and flush."""
        os.write(self._file, b"%-349b\n" % f"{order} {version_key}".encode())
        os.fdatasync(self._file)


class RawSqlite(Remembering):
    """One insert for each transaction, WAL, `synchronous=FULL`."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._path = place.folder / "raw.db"
        self._connection: sqlite3.Connection | None = None

    async def start(self) -> None:
        """Create the table."""
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE raw (position INTEGER PRIMARY KEY, order_id TEXT, key TEXT)")
        self._connection = connection

    async def stop(self) -> None:
        """Close the file."""
        assert self._connection is not None
        self._connection.close()

    async def keep(self, order: str, version_key: str) -> None:
        """Insert and commit."""
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO raw (order_id, key) VALUES (?, ?)", (order, version_key))
        self._connection.execute("COMMIT")


class RawPostgres(Remembering):
    """One insert for each transaction, on a pool of connections."""

    DDL = """
        DROP SCHEMA IF EXISTS bench_raw CASCADE;
        CREATE SCHEMA bench_raw;
        CREATE TABLE bench_raw.raw (
          position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, key text NOT NULL)"""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._url = place.postgres
        self._pool: Any = None

    async def start(self) -> None:
        """Create the table."""
        self._pool = await asyncpg.create_pool(self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=unreset)
        await self._pool.execute(self.DDL)

    async def stop(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def keep(self, order: str, version_key: str) -> None:
        """Insert, which commits."""
        await self._pool.execute("INSERT INTO bench_raw.raw (order_id, key) VALUES ($1, $2)", order, version_key)


class StatementPostgres(RawPostgres):
    """A step as one statement: swap the entity, insert the entry, its key, its message and its effects."""

    DDL = """
        DROP SCHEMA IF EXISTS bench_step CASCADE;
        CREATE SCHEMA bench_step;
        CREATE TABLE bench_step.entity (
          id text PRIMARY KEY, version bigint NOT NULL, state text NOT NULL, changed_at timestamptz NOT NULL
        ) WITH (fillfactor = 70);
        CREATE TABLE bench_step.entry (
          id text NOT NULL, version bigint NOT NULL, event text NOT NULL, key text NOT NULL, before text, after text,
          at timestamptz NOT NULL, PRIMARY KEY (id, version), UNIQUE (id, key));
        CREATE TABLE bench_step.effect (
          id text NOT NULL, version bigint NOT NULL, ordinal integer NOT NULL, name text NOT NULL,
          PRIMARY KEY (id, version, ordinal))"""
    CREATE = """
        WITH e AS (INSERT INTO bench_step.entity VALUES ($1, 1, 'created', now()) RETURNING id)
        INSERT INTO bench_step.entry SELECT id, 1, 'create', $2, NULL, 'created', now() FROM e"""
    STEP = """
        WITH e AS (
          UPDATE bench_step.entity SET version = $2 + 1, state = $3, changed_at = now()
          WHERE id = $1 AND version = $2 RETURNING id, version),
        j AS (INSERT INTO bench_step.entry SELECT id, version, $4, $5, $6, $3, now() FROM e),
        f AS (INSERT INTO bench_step.effect
              SELECT id, version, x.ordinal, x.name FROM e, unnest($7::text[]) WITH ORDINALITY AS x(name, ordinal))
        SELECT version FROM e"""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._versions: dict[str, int] = {}

    async def create(self, order: str) -> None:
        """Create an order."""
        await self._pool.execute(self.CREATE, order, f"create:{order}")
        self._states[order], self._versions[order] = "created", 1

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        before, version = self._states[order], self._versions[order]
        after, effects = step(before, event)
        found = await self._pool.fetchval(self.STEP, order, version, after, event, key, before, list(effects))
        assert found == version + 1
        self._states[order], self._versions[order] = after, found
        return after


LINES = {
    "file": Line(name="raw: write + fdatasync", version="", make=RawFile),
    "sqlite": Line(name="raw: SQLite insert", version=sqlite3.sqlite_version, make=RawSqlite),
    "postgres": Line(name="raw: PostgreSQL insert, asyncpg", version=asyncpg.__version__, make=RawPostgres),
    "postgres-step": Line(name="raw: PostgreSQL step, asyncpg", version=asyncpg.__version__, make=StatementPostgres),
}
