"""What is at the address of a SQLite store: schema and tenants. It changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from interlock.stores.registry import Schema
from interlock.stores.sql.schema import SELECT_SCHEMA, SELECT_TENANTS, newest_schema
from interlock.stores.sqlite.connection import open_reader, translate_error
from interlock.stores.sqlite.files import CALLS
from interlock.stores.sqlite.store import address

HAS_SCHEMA = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"


async def describe(url: str) -> Schema:
    """Return the schema of the file, 0 when there is none. Raises as opening it would."""
    newest = newest_schema("sqlite")
    if not address(url)[0].exists():
        return Schema("sqlite", 0, newest)
    current = _query(url, SELECT_SCHEMA)[0][0] if _query(url, HAS_SCHEMA) else 0
    return Schema("sqlite", current, newest)


def tenant_of(url: str) -> str:
    """Return the tenant that the address names. Raises UsageError when the address is invalid."""
    return address(url)[1]


async def list_tenants(url: str, limit: int) -> tuple[str, ...]:
    """Return the tenants that have entities, sorted, up to a limit. Raises as opening the store would."""
    return tuple(row[0] for row in _query(url, f"{SELECT_TENANTS} LIMIT {limit}"))


def _query(url: str, statement: str) -> list[Any]:
    path = address(url)[0].absolute()
    try:
        connection = open_reader(path)
        with CALLS, closing(connection):
            return connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
