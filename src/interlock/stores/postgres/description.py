"""What is at the address of a PostgreSQL store: schema and tenants. It changes nothing.

Rule: the driver is an extra, so it is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from interlock.stores.postgres import roles
from interlock.stores.postgres.address import parse_address
from interlock.stores.postgres.opening import needing_driver
from interlock.stores.registry import Schema
from interlock.stores.sql.schema import SELECT_AUDITED, SELECT_SCHEMA, SELECT_TENANTS, SchemaState, newest_schema

if TYPE_CHECKING:
    from interlock.stores.postgres.connection import Connection


async def describe(url: str) -> Schema:
    """Return the schema of the tables, 0 when there are none. Raises as opening the store would."""
    return Schema("postgres", (await _schema_state(url)).current, newest_schema("postgres"))


async def _schema_state(url: str) -> SchemaState:
    async with _connection(url) as connection:
        from interlock.stores.postgres.connection import SELECT_PLACE
        from interlock.stores.postgres.joined_migration import SELECT_OLDEST_READER_IF_ANY

        _, has_versions = await connection.fetchrow(SELECT_PLACE, parse_address(url).schema)
        if not has_versions:
            return SchemaState(0)
        return SchemaState(
            await connection.fetchval(SELECT_SCHEMA), await connection.fetchval(SELECT_OLDEST_READER_IF_ANY)
        )


async def upgrade_script(url: str) -> str:
    """Return the statements that opening would run to upgrade the tables; empty when there are none."""
    from interlock.stores.postgres.joined_migration import upgrade_script as script_from

    address = parse_address(url)
    return script_from(await _schema_state(url), address.schema, place=f"schema `{address.schema}` of {address.place}")


def grant_script(url: str, role: str) -> str:
    """Return the statements by which the owner of the tables admits the role of an application."""
    return roles.grant_script(parse_address(url).schema, role)


async def audit_privileges(url: str) -> tuple[str, ...]:
    """Return the privileges by which the role of the address could change the audit. Raises as opening would."""
    async with _connection(url) as connection:
        return tuple(row[0] for row in await connection.fetch(roles.SELECT_PRIVILEGES))


def tenant_of(url: str) -> str:
    """Return the tenant that the address names. Raises UsageError when the address is invalid."""
    return parse_address(url).tenant


async def list_tenants(url: str, limit: int) -> tuple[str, ...]:
    """Return the tenants that have entities, sorted, up to a limit. Raises as opening the store would."""
    async with _connection(url) as connection:
        rows = await connection.fetch(f"{SELECT_TENANTS} LIMIT {limit}")
    return tuple(row[0] for row in rows)


async def list_audited(url: str, limit: int) -> tuple[str, ...]:
    """Return the tenants that have rows of the audit, sorted, up to a limit. Raises as opening the store would."""
    async with _connection(url) as connection:
        rows = await connection.fetch(f"{SELECT_AUDITED} LIMIT {limit}")
    return tuple(row[0] for row in rows)


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Connection]:
    with needing_driver():
        from asyncpg import PostgresError  # type: ignore[import-untyped]  # see `connection`

        from interlock.stores.postgres.connection import CONNECTION_LOST, connect, translate_error

    address = parse_address(url)
    connection = await connect(address)
    try:
        yield connection
    except (PostgresError, *CONNECTION_LOST) as error:
        raise translate_error(error, address) from error
    finally:
        await connection.close()
