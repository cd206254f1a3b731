"""Whose part of a place an address names, and who else has a part of it.

Rule 1: handles of stores are bound to one tenant and stay so: this asks the place itself, for commands of those who can
read all of it anyway.
Rule 2: looking changes nothing; the place must be there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from interlock.errors import UsageError

OTHERS_MAX = 1_000
"""Other tenants that are counted: for one who mistyped a name, more are many."""

# Each row is found from the one before, along the key: as many steps as there are tenants, however many entities.
SELECT_TENANTS = """
    WITH RECURSIVE found (tenant) AS (
      SELECT min(tenant) FROM entity
      UNION ALL
      SELECT (SELECT min(tenant) FROM entity WHERE tenant > found.tenant) FROM found WHERE found.tenant IS NOT NULL)
    SELECT tenant FROM found WHERE tenant IS NOT NULL"""
LIMITED = f"{SELECT_TENANTS} LIMIT {OTHERS_MAX + 1}"


class Tenants(Struct, frozen=True):
    """The tenant of an address ("" without a name), and the others that have entities at its place, sorted."""

    mine: str = ""
    others: tuple[str, ...] = ()


def tenant_of(url: str) -> str:
    """The tenant that an address is bound to; "" where there are none. Raises UsageError for a malformed one."""
    match url.partition(":")[0]:
        case "sqlite":
            from interlock.stores.sqlite.store import address

            return address(url)[1]
        case "postgresql" | "postgres":
            from interlock.stores.postgres.address import parse_address

            return parse_address(url).tenant
        case "file":
            return _of_folder(url)
        case _:
            return ""


async def tenants_of(url: str) -> Tenants:
    """Who has entities at an address, besides its own tenant; `OTHERS_MAX` of them at most. Raises as opening would."""
    mine = tenant_of(url)
    found = await _asked(url, LIMITED)
    return Tenants(mine, tuple(each for each in found if each != mine)[:OTHERS_MAX])


async def all_tenants(url: str) -> tuple[str, ...]:
    """Everybody who has entities at an address, sorted; a folder's one tenant whether it has or not.

    Raises UsageError for a store that cannot say.
    """
    if url.partition(":")[0] not in {"file", "postgres", "postgresql", "sqlite"}:
        raise UsageError("this store cannot say whom it keeps entities of", code="tenants.none")
    return await _asked(url, SELECT_TENANTS)


async def _asked(url: str, statement: str) -> tuple[str, ...]:
    match url.partition(":")[0]:
        case "sqlite":
            return _sqlite(url, statement)
        case "postgresql" | "postgres":
            return await _postgres(url, statement)
        case _:  # a folder is one tenant's; of other stores nothing is known
            return (tenant_of(url),)


def _of_folder(url: str) -> str:
    """What its format says: a folder belongs to one tenant. One that cannot be read is told by whoever opens it."""
    root = Path(unquote(urlsplit(url).path))
    try:
        found = msgspec.json.decode((root / "format.json").read_bytes(), type=dict[str, int | str])
    except (OSError, msgspec.MsgspecError):
        return ""
    return str(found.get("tenant", ""))


def _sqlite(url: str, statement: str) -> tuple[str, ...]:
    from interlock.stores.sqlite.connection import open_reader, translate_error
    from interlock.stores.sqlite.files import CALLS
    from interlock.stores.sqlite.store import address

    path = address(url)[0].absolute()
    try:
        connection = open_reader(path)
        with CALLS, closing(connection):
            rows = connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
    return tuple(row[0] for row in rows)


async def _postgres(url: str, statement: str) -> tuple[str, ...]:
    from interlock.stores.postgres.address import parse_address
    from interlock.stores.postgres.opening import needing_driver

    with needing_driver():
        from asyncpg import PostgresError  # type: ignore[import-untyped]  # see postgres_connect

        from interlock.stores.postgres.connection import CONNECTION_LOST, connect
        from interlock.stores.postgres.connection import translate_error as translate_postgres_error

    place = parse_address(url)
    connection = await connect(place)
    try:
        rows = await connection.fetch(statement)
    except (PostgresError, *CONNECTION_LOST) as error:
        raise translate_postgres_error(error, place) from error
    finally:
        await connection.close()
    return tuple(row[0] for row in rows)
