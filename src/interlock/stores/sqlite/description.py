"""What is at the address of a SQLite store: schema and tenants. It changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from interlock.stores.registry import Schema
from interlock.stores.sql.schema import SELECT_AUDITED, SELECT_TENANTS, SchemaState, newest_schema
from interlock.stores.sqlite.connection import open_reader, schema_number, schema_state, translate_error
from interlock.stores.sqlite.connection import upgrade_script as script_from
from interlock.stores.sqlite.files import CALLS, Connection
from interlock.stores.sqlite.prefix import find_prefix, use_prefix
from interlock.stores.sqlite.store import address

T = TypeVar("T")


async def describe(url: str) -> Schema:
    """Return the schema of the file, 0 when there is none. Raises as opening it would."""
    newest = newest_schema("sqlite")
    if not address(url).path.exists():
        return Schema("sqlite", 0, newest)
    return Schema("sqlite", _ask(url, schema_number), newest)


async def upgrade_script(url: str) -> str:
    """Return the statements that opening would run to upgrade the file; empty when there are none."""
    found = address(url)
    state, prefix = SchemaState(0), found.prefix or ""
    if found.path.exists():
        state, prefix = _ask(url, lambda connection: (schema_state(connection), connection.prefix))
    return script_from(state, prefix, place=str(found.path))


def tenant_of(url: str) -> str:
    """Return the tenant that the address names. Raises UsageError when the address is invalid."""
    return address(url).tenant


async def list_tenants(url: str, limit: int) -> tuple[str, ...]:
    """Return the tenants that have entities, sorted, up to a limit. Raises as opening the store would."""
    rows = _ask(url, lambda connection: connection.execute(f"{SELECT_TENANTS} LIMIT {limit}").fetchall())
    return tuple(row[0] for row in rows)


async def list_audited(url: str, limit: int) -> tuple[str, ...]:
    """Return the tenants that have rows of the audit, sorted, up to a limit. Raises as opening the store would."""
    rows = _ask(url, lambda connection: connection.execute(f"{SELECT_AUDITED} LIMIT {limit}").fetchall())
    return tuple(row[0] for row in rows)


def _ask(url: str, question: Callable[[Connection], T]) -> T:
    found = address(url)
    path = found.path.absolute()
    try:
        connection = open_reader(path)
        with CALLS, closing(connection):
            use_prefix(connection, find_prefix(connection, path, found.prefix))
            return question(connection)
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
