"""Adapters of SQLAlchemy and Django, which wrap a connection of a driver. Both databases, blocking and asynchronous.

Rule 1: a framework is imported only for one of its connections, so it is installed.
Rule 2: what the program has changed through the framework is written first (`Session.flush`): rows before entities, in
every transaction, so that two transactions lock in the same order.
Rule 3: the asynchronous classes of SQLAlchemy run the blocking adapter (`run_sync`): there is one path.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from interlock.ports.transactions import CallerTransaction
from interlock.runtime.join.drivers import (
    PsycopgAdapter,
    Sqlite3Adapter,
    check_psycopg,
    fetch_with_psycopg,
    run_in_aiosqlite,
    unsupported_error,
)
from interlock.stores.sql.join_errors import autocommit_error

T = TypeVar("T")

CALLS = "interlock.after_commit"
"""Where a Session keeps what is called after its COMMIT."""

DRIVERS = "SQLAlchemy supports pysqlite, aiosqlite, psycopg (version 3) and asyncpg here"


class SqlAlchemyAdapter:
    """A Connection of SQLAlchemy. Its commit is reported before it happens, so it is observed instead."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> CallerTransaction:
        """Return the transaction, which a Connection starts with its first statement."""
        if not self._connection.in_transaction():
            self._connection.begin()
        return transaction_of(self._connection)

    def on_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002 - the event comes too early
        """Return False: the event `commit` comes before the COMMIT."""
        return False


class SessionAdapter:
    """A Session of SQLAlchemy."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def transaction(self) -> CallerTransaction:
        """Return the transaction, which a Session starts automatically, after writing what is pending in it."""
        self._session.flush()
        return transaction_of(self._session.connection())

    def on_commit(self, call: Callable[[], None]) -> bool:
        """Call a function after the outermost COMMIT; never after a rollback."""
        info = self._session.info
        if CALLS not in info:
            from sqlalchemy import event

            info[CALLS] = []
            event.listen(self._session, "after_commit", _call_after_commit)
            event.listen(self._session, "after_rollback", _forget_calls)
        info[CALLS].append(call)
        return True


def _call_after_commit(session: Any) -> None:
    if session.in_nested_transaction():  # the end of a savepoint is reported as well
        return
    calls, session.info[CALLS] = session.info[CALLS], []
    for call in calls:
        call()


def _forget_calls(session: Any) -> None:
    session.info[CALLS] = []


def transaction_of(connection: Any) -> CallerTransaction:
    """Return the transaction of a Connection of SQLAlchemy. Raises UsageError for other drivers, and for autocommit."""
    dialect = connection.dialect
    adapted = connection.connection.dbapi_connection
    driver = connection.connection.driver_connection
    match (dialect.name, dialect.driver, dialect.is_async):
        case ("sqlite", "pysqlite", _):
            return Sqlite3Adapter(driver).transaction()
        case ("sqlite", "aiosqlite", _):
            return _AdaptedAiosqlite(adapted)
        case ("postgresql", "psycopg", False):
            return PsycopgAdapter(driver).transaction()
        case ("postgresql", "psycopg", True):
            check_psycopg(driver)
            return _AdaptedPsycopg(adapted)
        case ("postgresql", "asyncpg", _):
            if getattr(adapted, "autocommit", False):
                raise autocommit_error("use an engine without the isolation level AUTOCOMMIT")
            return _AdaptedAsyncpg(connection)
        case (name, driver_name, _):
            raise unsupported_error(f"a connection of SQLAlchemy to {name} by {driver_name}", DRIVERS)


class _AdaptedAiosqlite:
    """A connection of aiosqlite behind SQLAlchemy."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, adapted: Any) -> None:
        self._adapted = adapted

    async def run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function in the thread of the connection."""
        result: T = self._adapted.run_async(lambda driver: run_in_aiosqlite(driver, call))
        return result


class _AdaptedPsycopg:
    """An asynchronous connection of psycopg behind SQLAlchemy."""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, adapted: Any) -> None:
        self._adapted = adapted

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement."""
        rows: list[Any] = self._adapted.run_async(lambda driver: fetch_with_psycopg(driver, statement, values))
        return rows


class _AdaptedAsyncpg:
    """A connection of asyncpg behind SQLAlchemy, which starts the transaction with its first statement."""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement."""
        return list(self._connection.exec_driver_sql(statement, tuple(values)).fetchall())


class DjangoAdapter:
    """A connection of Django (`django.db.connection`, or `connections[alias]`)."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> CallerTransaction:
        """Return the transaction. Raises UsageError (`join.autocommit`) outside `transaction.atomic`."""
        connection = self._connection
        if not connection.in_atomic_block:
            raise autocommit_error("use `with transaction.atomic():`")
        connection.validate_no_broken_transaction()
        driver = connection.connection
        if connection.vendor == "sqlite":
            return Sqlite3Adapter(driver).transaction()
        if connection.vendor == "postgresql" and type(driver).__module__.partition(".")[0] == "psycopg":
            return PsycopgAdapter(driver).transaction()
        hint = "Interlock joins SQLite, and PostgreSQL with psycopg 3"
        raise unsupported_error(f"a connection of Django to {connection.vendor}", hint)

    def on_commit(self, call: Callable[[], None]) -> bool:
        """Call a function after the outermost COMMIT; never after a rollback."""
        self._connection.on_commit(call, robust=True)
        return True
