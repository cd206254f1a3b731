"""The tables of a PostgreSQL store: made, brought up to date, and kept up beside the steps.

Rule 1: schema changes are numbered files, applied in one transaction under an advisory lock; a schema that a newer
release wrote is refused before anything in it is touched.
Rule 2: what only keeps house never stops a store from opening or a step from being kept.
Rule 3: a key is forgotten only when it is older than `KEY_WINDOW_MS` by two clocks: the server's, and the time of the
newest entry that this process wrote. A clock that runs ahead makes nobody forget.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

from interlock.errors import UsageError
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.clock import SystemClock
from interlock.stores.postgres_address import Address
from interlock.stores.postgres_connect import Connection, is_lost, is_passing, sqlstate

MONTHS_AHEAD = 3
"""Partitions that are there before their month: a quarter of a year without any process of ours."""

PURGE_MAX = 1_000
"""Keys forgotten in one transaction: some milliseconds."""

MIGRATE_TRIES = 5
"""Tries to bring the schema up to date: of processes that open a new database at once, one does it."""

MIGRATE_SECONDS = 3_600.0
"""How long one migration may take: it walks whole tables, and what it did is lost when it is given up."""

RACING = frozenset({"23505", "42P06", "42P07"})
"""What two hear that make the same schema or table at once: they meet in the server's own catalogue."""

SELECT_PLACE = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass('schema_version') IS NOT NULL"
SELECT_SCHEMA = "SELECT coalesce(max(version), 0) FROM schema_version"
INSERT_SCHEMA = "INSERT INTO schema_version (version, name) VALUES ($1, $2)"
LOCK_MIGRATION = "SELECT pg_advisory_xact_lock(hashtextextended('interlock/migrate/' || current_schema(), 0))"
MIGRATION_SETTINGS = (
    "SET LOCAL lock_timeout = '10s'",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL enable_seqscan = on",
)
"""For what changes whole tables; those of the connection are for steps."""

LOCK_PARTITIONS = "SELECT pg_try_advisory_xact_lock(hashtextextended('interlock/partitions/' || current_schema(), 0))"
KEEP_PARTITIONS = "SELECT keep_partitions($1)"

ALLOW_BITMAPS = "SET LOCAL enable_bitmapscan = on"
PURGE_KEYS = """
    WITH purged AS (
      DELETE FROM event_key WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM event_key
        WHERE tenant = $1
          AND at < least(now(), to_timestamp($2::bigint / 1000.0)) - make_interval(secs => $3::bigint / 1000.0)
        LIMIT $4))
      RETURNING 1)
    SELECT count(*) FROM purged"""

_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")


async def migrate(connection: Connection, address: Address) -> None:
    """Bring the schema up to date, and make partitions ahead. Raises UsageError when a newer release wrote it."""
    migrations = dict(_migrations())
    newest = max(migrations)
    clock = SystemClock()
    for attempt in range(1, MIGRATE_TRIES + 1):
        current = await _current(connection, address)
        if current > newest:
            message = f"schema `{address.schema}` of {address.place} is number {current}; this release knows {newest}"
            raise UsageError(message, code="schema.newer", hint="use the release that wrote it, or a newer one")
        try:
            if current < newest:  # otherwise without the lock, and without the right to make tables
                async with connection.transaction():
                    await _upgrade(connection, address, migrations)
        except asyncpg.PostgresError as error:
            if not (is_passing(error) or sqlstate(error) in RACING) or attempt == MIGRATE_TRIES:
                raise
            await clock.sleep_ms(200 * attempt * clock.jitter())
        else:
            break
    try:
        await keep_partitions(connection)
    except asyncpg.PostgresError as error:
        # Without the right to make tables, or while others hold them, the partition for everything else is enough.
        if is_lost(error):
            raise


async def _current(connection: Connection, address: Address) -> int:
    _, has_versions = await connection.fetchrow(SELECT_PLACE, address.schema)
    current: int = await connection.fetchval(SELECT_SCHEMA) if has_versions else 0
    return current


async def _upgrade(connection: Connection, address: Address, migrations: dict[int, tuple[str, str]]) -> None:
    for setting in MIGRATION_SETTINGS:
        await connection.execute(setting)
    has_schema, _ = await connection.fetchrow(SELECT_PLACE, address.schema)
    if not has_schema:
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{address.schema}"')
    await connection.fetchval(LOCK_MIGRATION)
    current = await _current(connection, address)
    for version in range(current + 1, max(migrations) + 1):
        name, text = migrations[version]
        await connection.execute(text, timeout=MIGRATE_SECONDS)
        await connection.execute(INSERT_SCHEMA, version, name)


async def keep_partitions(connection: Connection) -> None:
    """Make the journal's partitions of the months ahead, unless another process is just doing it."""
    async with connection.transaction():
        if await connection.fetchval(LOCK_PARTITIONS):
            await connection.fetchval(KEEP_PARTITIONS, MONTHS_AHEAD)


async def purge_keys(connection: Connection, tenant: str, newest_ms: int) -> None:
    """Forget the keys from before the window, some at a time."""
    while True:  # until fewer are left than one transaction takes
        async with connection.transaction():
            await connection.execute(ALLOW_BITMAPS)  # the index by time knows no other scan
            purged: int = await connection.fetchval(PURGE_KEYS, tenant, newest_ms, KEY_WINDOW_MS, PURGE_MAX)
        if purged < PURGE_MAX:
            return


def _migrations() -> Iterator[tuple[int, tuple[str, str]]]:
    for each in (files("interlock.stores") / "migrations" / "postgres").iterdir():
        match = _MIGRATION.fullmatch(each.name)
        if match is not None:
            yield int(match[1]), (match[2], each.read_text(encoding="utf-8"))
