"""Adapters of database drivers: sqlite3, aiosqlite, psycopg 3 and asyncpg. They only translate calls.

Rule 1: a driver is imported only for one of its connections, so it is installed.
Rule 2: an adapter starts no transaction. If the driver starts one with the first statement, the caller ends it.
Rule 3: these drivers do not report their commits (`on_commit` returns False): the end of the transaction is observed on
another connection (`after_commit`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

from interlock.errors import UsageError
from interlock.ports.transactions import CallerTransaction, PostgresTransaction, SqliteTransaction
from interlock.stores.sql.join_errors import autocommit_error

T = TypeVar("T")

PSYCOPG_IDLE = 0
"""`TransactionStatus.IDLE`: no transaction is open."""


class Adapter(Protocol):
    """What `join` needs of a connection."""

    def transaction(self) -> CallerTransaction:
        """Return the open transaction. Raises UsageError (`join.autocommit`) when there is none."""

    def on_commit(self, call: Callable[[], None]) -> bool:
        """Call a function after the COMMIT of the transaction; False when the driver does not report it."""


class _Unreported:
    """A driver that does not report its commits."""

    def on_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002 - the driver cannot call it
        """Return False: the driver does not report its commits."""
        return False


class Sqlite3Adapter(_Unreported):
    """A connection of the module `sqlite3`."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def transaction(self) -> SqliteTransaction:
        """Return this: whether a transaction is open is checked in the thread of the connection."""
        return self

    async def run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection."""
        return call(self._connection)


class AiosqliteAdapter(_Unreported):
    """A connection of aiosqlite, which runs its calls in its own thread."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> SqliteTransaction:
        """Return this: whether a transaction is open is checked in the thread of the connection."""
        return self

    async def run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection of the thread."""
        result: T = await run_in_aiosqlite(self._connection, call)
        return result


async def run_in_aiosqlite(connection: Any, call: Callable[[sqlite3.Connection], T]) -> T:
    """Call a function in the thread of an aiosqlite connection. It offers no public way to do several calls as one."""
    result: T = await connection._execute(lambda: call(connection._conn))  # noqa: SLF001 - as SQLAlchemy does
    return result


class PsycopgAdapter(_Unreported):
    """A connection of psycopg 3."""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> PostgresTransaction:
        """Return this. Raises UsageError (`join.autocommit`) outside a transaction of an autocommit connection."""
        check_psycopg(self._connection)
        return self

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement; its parameters are sent to the server, which knows their types."""
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()


class AsyncPsycopgAdapter(_Unreported):
    """An asynchronous connection of psycopg 3."""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> PostgresTransaction:
        """Return this. Raises UsageError (`join.autocommit`) outside a transaction of an autocommit connection."""
        check_psycopg(self._connection)
        return self

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement; its parameters are sent to the server, which knows their types."""
        return await fetch_with_psycopg(self._connection, statement, values)


async def fetch_with_psycopg(connection: Any, statement: str, values: Sequence[Any]) -> list[Any]:
    """Run a statement on an asynchronous connection of psycopg."""
    from psycopg import AsyncRawCursor
    from psycopg.rows import tuple_row

    async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


def check_psycopg(connection: Any) -> None:
    """Raises UsageError (`join.autocommit`) outside a transaction of an autocommit connection."""
    if connection.autocommit and connection.info.transaction_status == PSYCOPG_IDLE:
        raise autocommit_error("use `with connection.transaction():`, or a connection without autocommit")


class AsyncpgAdapter(_Unreported):
    """A connection of asyncpg, or one that its pool has lent."""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> PostgresTransaction:
        """Return this. Raises UsageError (`join.autocommit`) outside a transaction."""
        if not self._connection.is_in_transaction():
            raise autocommit_error("use `async with connection.transaction():`")
        return self

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement."""
        rows: list[Any] = await self._connection.fetch(statement, *values)
        return rows


def unsupported_error(what: str, hint: str) -> UsageError:
    """Return the error for a connection that cannot be joined."""
    return UsageError(f"cannot join {what}", code="join.unsupported", hint=hint)
