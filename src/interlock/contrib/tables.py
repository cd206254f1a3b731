"""The tables of a store in the database of an application: kept out of its migrations, and created by them.

Rule 1: a tool that compares an application's models with its database would drop the tables of the store, because no
model has them. `include_name` leaves them out.
Rule 2: the numbered files of the store are the only history of its schema. `upgrade` runs those that are missing in the
transaction of the application's migration, and records them in the same table as an opening does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from interlock.errors import UsageError
from interlock.stores.postgres.address import check_schema_name
from interlock.stores.sql.schema import SchemaState
from interlock.stores.sqlite.prefix import SHARED_PREFIX, check_prefix

SCHEMA = "interlock"
"""The schema of a store on PostgreSQL, unless its address names another one."""


def include_name(
    name: str | None, type_: str, parent_names: Mapping[str, str | None], *, prefix: str = SHARED_PREFIX
) -> bool:
    """Return whether a name of the database belongs to the application: for the option `include_name` of Alembic.

    It leaves out tables with the prefix of a store in a SQLite file, and the schema of a store on PostgreSQL.

        context.configure(connection=connection, target_metadata=metadata, include_name=include_name)
    """
    if type_ == "schema":
        return name != SCHEMA
    table = name if type_ == "table" else parent_names.get("table_name")
    return parent_names.get("schema_name") != SCHEMA and not (table or "").startswith(prefix)


def upgrade(connection: Any, *, prefix: str = SHARED_PREFIX, schema: str = SCHEMA) -> int:
    """Create or upgrade the tables of a store on an open connection, in its transaction; return the schema number.

    `connection` is a connection of sqlite3 or psycopg, a Connection of SQLAlchemy (Alembic: `op.get_bind()`), also one
    inside `run_sync` of its asyncio classes, or a connection of Django (`schema_editor.connection`). Opening the store
    then finds nothing to do, and `migrate=False` makes sure of that. On SQLite, an empty `prefix` is for a file that
    has no other tables, and a connection in autocommit, as Alembic has there, commits the tables here.

    Raises UsageError for tables of a newer release, and on PostgreSQL outside a transaction.
    """
    driver = _driver_connection(connection)
    if isinstance(driver, sqlite3.Connection):
        return _upgrade_file(driver, prefix)
    package = type(driver).__module__.partition(".")[0]
    if _is_asynchronous(connection) and package == "aiosqlite":
        from interlock.runtime.join.drivers import run_in_aiosqlite

        adapted = connection.connection.dbapi_connection
        number: int = adapted.run_async(lambda inner: run_in_aiosqlite(inner, lambda ours: _upgrade_file(ours, prefix)))
        return number
    if _is_asynchronous(connection) and package in {"asyncpg", "psycopg"}:
        from interlock.stores.postgres.joined_migration import AdaptedMigration, migrate_joined

        return migrate_joined(AdaptedMigration(connection), schema)
    if package == "psycopg" and not hasattr(driver, "__aenter__"):
        from interlock.stores.postgres.joined_migration import PsycopgMigration, migrate_joined

        return migrate_joined(PsycopgMigration(driver), schema)
    hint = "pass a connection of sqlite3 or psycopg 3, or one of SQLAlchemy or Django"
    what = f"{type(driver).__module__}.{type(driver).__qualname__}"
    raise UsageError(f"cannot create tables on `{what}`", code="join.unsupported", hint=hint)


def _upgrade_file(connection: sqlite3.Connection, prefix: str) -> int:
    from interlock.stores.sqlite.connection import migrate_joined

    return migrate_joined(connection, prefix)


def _is_asynchronous(connection: Any) -> bool:
    """Whether it is a Connection of SQLAlchemy for an asynchronous driver."""
    return bool(getattr(getattr(connection, "dialect", None), "is_async", False))


def upgrade_statements(database: str, *, prefix: str = SHARED_PREFIX, schema: str = SCHEMA) -> list[str]:
    """Return the statements that create the tables of a store, for tools that print them (`sqlmigrate`, `--sql`).

    `database` is `sqlite` or `postgresql`. They are for one transaction, and for a database that has no store yet;
    `interlock db upgrade --dry-run` prints those that an existing store lacks.
    """
    if database == "sqlite":
        from interlock.stores.sqlite.connection import upgrade_statements as for_file

        return for_file(SchemaState(0), check_prefix(prefix), place="the file")
    if database == "postgresql":
        from interlock.stores.postgres.joined_migration import upgrade_statements as for_server

        return for_server(SchemaState(0), check_schema_name(schema), place=f"schema `{schema}`")
    hint = "use `sqlite` or `postgresql`"
    raise UsageError(f"no store can be in a database of {database}", code="join.unsupported", hint=hint)


def _driver_connection(connection: Any) -> Any:
    """Return the connection of the driver behind a connection of SQLAlchemy or Django."""
    package = next((each.__module__.partition(".")[0] for each in type(connection).__mro__[:-1]), "")
    if package == "sqlalchemy":
        if not connection.in_transaction():
            connection.begin()
        return connection.connection.driver_connection
    return connection.connection if hasattr(connection, "ensure_connection") else connection
