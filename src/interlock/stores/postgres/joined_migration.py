"""Migrations on a connection of the caller, inside the caller's transaction.

Rule: the search path is that of the store for the migrations, and the caller's own again afterwards.
"""

from __future__ import annotations

from typing import Any, Protocol

from interlock.errors import UsageError
from interlock.stores.postgres.address import check_schema_name
from interlock.stores.sql.join_errors import autocommit_error
from interlock.stores.sql.schema import (
    SELECT_SCHEMA,
    SchemaState,
    newest_schema,
    pending_migrations,
    record_migration,
)

SELECT_OLDEST_READER_IF_ANY = (
    "SELECT max(coalesce((to_jsonb(v) ->> 'oldest_reader')::integer, version)) FROM schema_version v"
)
"""Also where the column does not exist yet: an error would end the transaction."""

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('interlock/migrate/' || current_schema(), 0))"


KEEP_PATH = "SELECT set_config('interlock.search_path', current_setting('search_path'), true);"
RESTORE_PATH = "SELECT set_config('search_path', current_setting('interlock.search_path'), true);"
"""In printed statements: those that follow in the transaction find the tables of the application again."""

FIRST_STATEMENT = "SELECT 1"
"""SQLAlchemy starts the transaction of the driver with its first statement."""


class MigrationConnection(Protocol):
    """A connection of any driver, whose calls return when they are done. Statements have no parameters."""

    def in_transaction(self) -> bool:
        """Whether statements are part of a transaction that the caller commits."""

    def run(self, text: str) -> None:
        """Run one statement or several."""

    def value(self, statement: str) -> Any:
        """Return the only value of a query."""


class PsycopgMigration:
    """A connection of psycopg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def in_transaction(self) -> bool:
        """Whether a transaction is open or starts with the next statement."""
        return not self._connection.autocommit or self._connection.info.transaction_status != 0

    def run(self, text: str) -> None:
        """Run one statement or several."""
        self._connection.cursor().execute(text.encode())

    def value(self, statement: str) -> Any:
        """Return the only value of a query, whatever the caller's rows are."""
        cursor = self._connection.cursor()
        cursor.execute(statement.encode())
        return _only(cursor.fetchone())


class AdaptedMigration:
    """A Connection of SQLAlchemy whose driver is asyncpg, or psycopg's asyncio class: it waits for their coroutines."""

    def __init__(self, connection: Any) -> None:
        connection.exec_driver_sql(FIRST_STATEMENT)
        self._adapted = connection.connection.dbapi_connection
        self._is_psycopg = hasattr(self._adapted.driver_connection, "info")

    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        driver = self._adapted.driver_connection
        is_open: bool = driver.info.transaction_status != 0 if self._is_psycopg else driver.is_in_transaction()
        return is_open

    def run(self, text: str) -> None:
        """Run one statement or several."""
        query = text.encode() if self._is_psycopg else text
        self._adapted.run_async(lambda driver: driver.execute(query))

    def value(self, statement: str) -> Any:
        """Return the only value of a query."""
        if not self._is_psycopg:
            return self._adapted.run_async(lambda driver: driver.fetchval(statement))

        async def fetch(driver: Any) -> Any:
            return await (await driver.execute(statement.encode())).fetchone()

        return _only(self._adapted.run_async(fetch))


def _only(row: Any) -> Any:
    return row[0] if isinstance(row, tuple) else next(iter(row.values()))


def upgrade_statements(state: SchemaState, schema: str, *, place: str) -> list[str]:
    """Return the statements that upgrade a schema in one transaction, for a person or another tool."""
    pending = pending_migrations("postgres", state, place=place)
    found = [f'CREATE SCHEMA IF NOT EXISTS "{schema}";', KEEP_PATH, f'SET LOCAL search_path TO "{schema}";', f"{LOCK};"]
    for each in pending:
        found += [f"-- {each.number:04} {each.name}", each.text.strip("\n"), f"{record_migration('postgres', each)};"]
    return [*found, RESTORE_PATH] if pending else []


def upgrade_script(state: SchemaState, schema: str, *, place: str) -> str:
    """Return a script that upgrades a schema; empty when there is nothing to do."""
    statements = upgrade_statements(state, schema, place=place)
    return "\n".join(("BEGIN;", *statements, "COMMIT;", "")) if statements else ""


def migrate_joined(connection: MigrationConnection, schema: str) -> int:
    """Create or upgrade the tables of a schema; return its number.

    Raises UsageError for a newer one, and outside a transaction, where the search path would not apply.
    """
    check_schema_name(schema)
    if not connection.in_transaction():
        raise autocommit_error("start a transaction first, or turn off autocommit")
    run, value = connection.run, connection.value
    if value("SELECT current_setting('transaction_read_only')") == "on":
        raise UsageError("the transaction is read-only", code="join.read_only")
    theirs = value("SELECT quote_literal(current_setting('search_path'))")
    run(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    run(f'SET LOCAL search_path TO "{schema}"')
    value(LOCK)
    has_versions = value("SELECT to_regclass('schema_version') IS NOT NULL")
    state = SchemaState(value(SELECT_SCHEMA), value(SELECT_OLDEST_READER_IF_ANY)) if has_versions else SchemaState(0)
    for each in pending_migrations("postgres", state, place=f"schema `{schema}`"):
        run(each.text)
        run(record_migration("postgres", each))
    value(f"SELECT set_config('search_path', {theirs}, true)")
    return newest_schema("postgres")
