"""The limit of group commit: the rows that Interlock writes, written without a chart, a codec or a check.

Rule 1: the rows are recorded. One order runs through Interlock, and after each step all tables are compared with those
before: inserted, updated and deleted rows are what a step writes. Other orders write the same rows with their own id.
So the limit follows every change of the schema.
The rows of many orders are prepared before the measurement.
Rule 2: all steps that wait are one transaction: a statement per table on SQLite, one statement on PostgreSQL.
Rule 3: rows that orders share, such as counters, are written once per transaction.
Rule 4: the log of SQLite is copied into the file at the same length as by Interlock: no store can let it grow.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple

import interlock
from bench.durable.engines.interlock_stores import CHART
from bench.durable.order import EVENTS, STEPS_EACH, Line, Place, step
from interlock.stores.sqlite.checkpoint import WriteAheadLog
from interlock.stores.sqlite.connection import open_writer
from interlock.stores.sqlite.writer import CHECKPOINT_RESTART, WAL_BYTES_MAX

asyncpg: Any = import_module("asyncpg")  # it has no types

TEMPLATE = "o-template"
ORDERS_MAX = 1_000
"""Orders of one round, as in `COMMANDS` of the suite."""
FIRST = "entity"
"""The table that others refer to: it is written before them."""

Row = tuple[Any, ...]


class Table(NamedTuple):
    """The columns of a table that are written, and how many of them, at the front, are the key."""

    name: str
    columns: tuple[str, ...]
    keys: int


class Write(NamedTuple):
    """Rows of one table that a step inserts, updates, replaces (shared rows) or deletes."""

    table: Table
    verb: str
    rows: list[Row]


Contents = dict[Table, dict[Row, Row]]
"""The rows of every table, by key."""


def difference(before: Contents, after: Contents) -> list[Write]:
    """Return what a step wrote."""
    writes = []
    for table, rows in after.items():
        old = before.get(table, {})
        changed: dict[str, list[Row]] = {"insert": [], "update": [], "replace": [], "delete": []}
        for key, row in rows.items():
            if old.get(key) != row:
                verb = "replace" if not _is_own(row) else "update" if key in old else "insert"
                changed[verb].append(row)
        changed["delete"] = [row[: table.keys] for key, row in old.items() if key not in rows]
        writes += [Write(table, verb, found) for verb, found in changed.items() if found]
    return sorted(writes, key=lambda write: write.table.name != FIRST)


def _is_own(row: Row) -> bool:
    return any(isinstance(value, str) and TEMPLATE in value for value in row)


def _renamed(row: Row, order: str) -> Row:
    encoded = order.encode()
    return tuple(
        value.replace(TEMPLATE, order)
        if isinstance(value, str)
        else value.replace(TEMPLATE.encode(), encoded)
        if isinstance(value, bytes)
        else value
        for value in row
    )


Life = list[list[Write]]
"""What each step of an order writes."""


def _renamed_life(steps: Life, order: str) -> Life:
    return [
        [
            write if write.verb == "replace" else write._replace(rows=[_renamed(row, order) for row in write.rows])
            for write in writes
        ]
        for writes in steps
    ]


async def recorded(url: str, contents: Callable[[], Awaitable[Contents]]) -> Life:
    """Run one order through Interlock, and return the writes of its creation and of each event."""
    steps = []
    async with interlock.open(url, charts=[CHART], work=False) as runtime:
        before = await contents()
        await runtime.create(f"order/{TEMPLATE}", key=f"create:{TEMPLATE}")
        for event in (*EVENTS, None):
            after = await contents()
            steps.append(difference(before, after))
            before = after
            if event is not None:
                (await runtime.send(f"order/{TEMPLATE}", event, key=f"{TEMPLATE}:{event}")).expect()
    return steps


class GroupCommit:
    """Orders whose states are in memory. The subclass writes the rows of many steps in one transaction."""

    def __init__(self) -> None:
        self._prepared: list[Life] = []
        self._lives: dict[str, Life] = {}
        self._states: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._waiting: list[tuple[list[Write], asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    def prepare(self, steps: Life) -> None:
        """Prepare the rows of many orders from those of the recorded one."""
        self._prepared = [_renamed_life(steps, f"o-{number}") for number in range(ORDERS_MAX)]

    async def create(self, order: str) -> None:
        """Create an order. Its rows have another id, which was prepared."""
        self._lives[order] = self._prepared.pop()
        await self._write(order, 0)
        self._states[order], self._positions[order] = "created", 0

    async def send(self, order: str, event: str, key: str) -> str:
        """Send an event to an order."""
        state, _ = step(self._states[order], event)
        position = self._positions[order] + 1
        assert position < STEPS_EACH
        await self._write(order, position)
        self._states[order], self._positions[order] = state, position
        return state

    async def _write(self, order: str, position: int) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((self._lives[order][position], done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._commit_all())
        await done

    async def _commit_all(self) -> None:
        while True:
            await asyncio.sleep(0)  # the callers that were answered send their next step
            if not self._waiting:
                break
            batch, self._waiting = self._waiting, []
            try:
                await self.commit(_merged([writes for writes, _ in batch]))
            except Exception as error:  # noqa: BLE001  # every caller gets it, or would wait without end
                for _, done in batch:
                    done.set_exception(error)
            else:
                for _, done in batch:
                    done.set_result(None)
        self._writer = None

    async def commit(self, writes: list[Write]) -> None:
        """Write everything in one transaction."""
        raise NotImplementedError


def _merged(steps: list[list[Write]]) -> list[Write]:
    """Return the writes of many steps, one per table and verb, with each shared row once."""
    merged: dict[tuple[Table, str], Write] = {}
    for write in (write for writes in steps for write in writes):
        found = merged.get((write.table, write.verb))
        if found is None:
            merged[write.table, write.verb] = write._replace(rows=list(write.rows))
        else:
            found.rows.extend(write.rows)
    for (table, verb), write in merged.items():
        if verb == "replace":
            write.rows[:] = {row[: table.keys]: row for row in write.rows}.values()
    return sorted(merged.values(), key=lambda write: write.table.name != FIRST)


class Sqlite(GroupCommit):
    """In the caller's thread, because all callers wait for the transaction."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._folder = place.folder
        self._path = place.folder / "group.db"
        self._log = WriteAheadLog(self._path)
        self._connection: sqlite3.Connection | None = None

    async def start(self) -> None:
        """Record an order in one file, and open another one."""
        path = self._folder / "recorded.db"
        self.prepare(await recorded(f"sqlite:///{path}", lambda: _sqlite_contents(sqlite3.connect(path))))
        self._connection = open_writer(self._path)

    async def stop(self) -> None:
        """Close the file."""
        assert self._connection is not None
        self._log.close()
        self._connection.close()

    async def commit(self, writes: list[Write]) -> None:
        """Run one statement per table and verb, over all rows."""
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        for table, verb, rows in writes:
            connection.executemany(
                _sqlite_statement(table, verb), rows if verb != "update" else map(_keys_last(table), rows)
            )
        connection.execute("COMMIT")
        if self._log.reaches(WAL_BYTES_MAX):
            connection.execute(CHECKPOINT_RESTART)


async def _sqlite_contents(connection: sqlite3.Connection) -> Contents:
    found: Contents = {}
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (name,) in tables.fetchall():
        info = connection.execute(f"PRAGMA table_info({name})").fetchall()
        keys = [column for _, column, kind, _, _, place in sorted(info, key=lambda each: each[5]) if place]
        numbered = len(keys) == 1 and any(each[1] == keys[0] and each[2] == "INTEGER" for each in info)
        if numbered:  # SQLite chooses the number
            keys = [column for _, column, *_ in info if column not in keys]
        columns = (*keys, *[each[1] for each in info if each[1] not in keys and not (numbered and each[5])])
        table = Table(name, columns, len(keys))
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
        found[table] = {row[: table.keys]: row for row in rows}
    connection.close()
    return found


def _sqlite_statement(table: Table, verb: str) -> str:
    keys, others = table.columns[: table.keys], table.columns[table.keys :]
    where = " AND ".join(f"{key} = ?" for key in keys)
    match verb:
        case "delete":
            return f"DELETE FROM {table.name} WHERE {where}"
        case "update":
            return f"UPDATE {table.name} SET {', '.join(f'{each} = ?' for each in others)} WHERE {where}"
        case _:
            word = "INSERT OR REPLACE" if verb == "replace" else "INSERT"
            return (
                f"{word} INTO {table.name} ({', '.join(table.columns)}) VALUES ({', '.join('?' * len(table.columns))})"
            )


def _keys_last(table: Table) -> Callable[[Row], Row]:
    return lambda row: row[table.keys :] + row[: table.keys]


SCHEMA = "bench_group"
BY_INDEX = {f"enable_{each}": "off" for each in ("seqscan", "hashjoin", "mergejoin")}
"""A plan that was made while the tables were empty would scan them when they are full."""
SELECT_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, NULL), a.attidentity <> '',
           coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    ORDER BY c.relname, a.attnum"""


class Postgres(GroupCommit):
    """One statement for a batch, on one connection."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        if place.postgres is None:
            raise RuntimeError("no PostgreSQL server")
        self._url = place.postgres
        self._connection: Any = None
        self._types: dict[tuple[str, str], str] = {}

    async def start(self) -> None:
        """Record an order in a new schema, and write into the same tables."""
        self._connection = await asyncpg.connect(self._url, server_settings={"search_path": SCHEMA, **BY_INDEX})
        await self._connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        self.prepare(await recorded(f"{self._url}?schema={SCHEMA}", self._contents))

    async def stop(self) -> None:
        """Delete the tables, and close the connection."""
        await self._connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        await self._connection.close()

    async def _contents(self) -> Contents:
        columns: dict[str, list[Any]] = {}
        for name, column, kind, identity, place in await self._connection.fetch(SELECT_COLUMNS, SCHEMA):
            self._types[name, column] = kind
            if not identity:
                columns.setdefault(name, []).append((place or 1_000, column, bool(place)))
        found: Contents = {}
        for name, each in columns.items():
            ordered = sorted(each, key=lambda column: column[0])
            table = Table(
                name, tuple(column for _, column, _ in ordered), sum(is_key for *_, is_key in ordered) or len(each)
            )
            rows = await self._connection.fetch(f"SELECT {', '.join(table.columns)} FROM {name}")
            found[table] = {tuple(row)[: table.keys]: tuple(row) for row in rows}
        return found

    async def commit(self, writes: list[Write]) -> None:
        """Run one statement with an array per column."""
        parts: list[str] = []
        arrays: list[list[Any]] = []
        for number, (table, verb, rows) in enumerate(writes):
            columns = table.columns[: table.keys] if verb == "delete" else table.columns
            names = ", ".join(columns)
            kinds = [
                f"${len(arrays) + place}::{self._types[table.name, each]}[]" for place, each in enumerate(columns, 1)
            ]
            parts.append(f"w{number} AS ({_postgres_statement(table, verb, names, ', '.join(kinds))})")
            arrays += [list(column) for column in zip(*rows, strict=True)]
        await self._connection.execute(f"WITH {', '.join(parts)} SELECT 1", *arrays)


def _postgres_statement(table: Table, verb: str, names: str, arrays: str) -> str:
    keys, others = table.columns[: table.keys], table.columns[table.keys :]
    source = f"unnest({arrays}) AS x ({names})"
    where = " AND ".join(f"t.{key} = x.{key}" for key in keys)
    match verb:
        case "delete":
            return f"DELETE FROM {table.name} AS t USING {source} WHERE {where}"
        case "update":
            assigned = ", ".join(f"{each} = x.{each}" for each in others)
            return f"UPDATE {table.name} AS t SET {assigned} FROM {source} WHERE {where}"
        case "replace":
            assigned = ", ".join(f"{each} = excluded.{each}" for each in others)
            conflict = f"ON CONFLICT ({', '.join(keys)}) DO " + (f"UPDATE SET {assigned}" if others else "NOTHING")
            return f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {source} {conflict}"
        case _:
            return f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {source}"


LINES = {
    "sqlite": Line(
        name="raw: SQLite group commit, the same rows",
        version=sqlite3.sqlite_version,
        make=Sqlite,
        engine_workloads=("fleet",),
    ),
    "postgres": Line(
        name="raw: PostgreSQL group commit, the same rows",
        version=asyncpg.__version__,
        make=Postgres,
        engine_workloads=("fleet",),
    ),
}
