"""Migrations on a connection of the caller: with a blocking cursor, inside the caller's transaction.

Rule: the search path is that of the store for the migrations, and the caller's own again afterwards.
"""

from __future__ import annotations

from typing import Any, Protocol

from interlock.errors import UsageError
from interlock.stores.postgres.address import check_schema_name
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


class Cursor(Protocol):
    """The part of a cursor of psycopg that is used; statements have no parameters."""

    def execute(self, query: Any) -> Any:
        """Run one statement or several."""

    def fetchone(self) -> Any:
        """Return the next row."""


def upgrade_statements(current: int, schema: str, *, place: str) -> list[str]:
    """Return the statements that upgrade a schema in one transaction, for a person or another tool."""
    pending = pending_migrations("postgres", SchemaState(current), place=place)
    found = [f'CREATE SCHEMA IF NOT EXISTS "{schema}";', f'SET LOCAL search_path TO "{schema}";', f"{LOCK};"]
    for each in pending:
        found += [f"-- {each.number:04} {each.name}", each.text.strip("\n"), f"{record_migration('postgres', each)};"]
    return found if pending else []


def upgrade_script(current: int, schema: str, *, place: str) -> str:
    """Return a script that upgrades a schema; empty when there is nothing to do."""
    statements = upgrade_statements(current, schema, place=place)
    return "\n".join(("BEGIN;", *statements, "COMMIT;", "")) if statements else ""


def migrate_joined(cursor: Cursor, schema: str) -> int:
    """Create or upgrade the tables of a schema; return its number. Raises UsageError for a newer one."""
    check_schema_name(schema)

    def value(statement: str) -> Any:
        cursor.execute(statement.encode())
        row = cursor.fetchone()
        return row[0] if isinstance(row, tuple) else next(iter(row.values()))

    if value("SELECT current_setting('transaction_read_only')") == "on":
        raise UsageError("the transaction is read-only", code="join.read_only")
    theirs = value("SELECT quote_literal(current_setting('search_path'))")
    cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
    cursor.execute(f'SET LOCAL search_path TO "{schema}"'.encode())
    value(LOCK)
    has_versions = value("SELECT to_regclass('schema_version') IS NOT NULL")
    state = SchemaState(value(SELECT_SCHEMA), value(SELECT_OLDEST_READER_IF_ANY)) if has_versions else SchemaState(0)
    for each in pending_migrations("postgres", state, place=f"schema `{schema}`"):
        cursor.execute(each.text.encode())
        cursor.execute(record_migration("postgres", each).encode())
    cursor.execute(f"SELECT set_config('search_path', {theirs}, true)".encode())
    return newest_schema("postgres")
