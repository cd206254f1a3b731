"""The tables of a PostgreSQL store: created, upgraded, and maintained in the background.

Rule 1: migrations run in one transaction under an advisory lock.
Rule 2: housekeeping never stops a store from opening or a step from being committed.
Rule 3: keys expire by the server's clock and the newest entry that this process wrote (`ExpiredKeys`).
"""

from __future__ import annotations

from collections.abc import Awaitable

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.model.backoff import Backoff
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.clock import SystemClock
from interlock.stores.key_boundary import window_start_ms
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.commit import OWN_STRIPE
from interlock.stores.postgres.connection import (
    SELECT_PLACE,
    Connection,
    is_lost,
    is_retryable,
    run_questions,
    sqlstate,
)
from interlock.stores.postgres.joined_migration import SELECT_OLDEST_READER_IF_ANY
from interlock.stores.sql.expired_keys import ExpiredKeys
from interlock.stores.sql.schema import SELECT_SCHEMA, SchemaState, check_schema, pending_migrations, record_migration

MONTHS_AHEAD = 3
"""Partitions created before their month: enough for a quarter of a year in which no process runs."""

MIGRATE_TRIES = 5
"""Tries to upgrade the schema: of several processes that open a new database at the same time, one does it."""

MIGRATE_BACKOFF = Backoff(200, 1_000)
"""The wait before such a try: a new schema takes the other process less than a second."""

MIGRATE_SECONDS = 3_600.0
"""How long one migration may take: it reads whole tables, and its work is lost when it is cancelled."""

RACING = frozenset({"23505", "42P06", "42P07"})
"""Errors of two processes that create the same schema or table concurrently, from the server's catalogue."""

LOCK_MIGRATION = "SELECT pg_advisory_xact_lock(hashtextextended('interlock/migrate/' || current_schema(), 0))"
MIGRATION_SETTINGS = (
    "SET LOCAL lock_timeout = '10s'",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL enable_seqscan = on",
)
"""For statements that change whole tables; the settings of the connection are for steps."""

LOCK_PARTITIONS = "SELECT pg_try_advisory_xact_lock(hashtextextended('interlock/partitions/' || current_schema(), 0))"
KEEP_PARTITIONS = "SELECT keep_partitions($1)"

ALLOW_BITMAPS = "SET LOCAL enable_bitmapscan = on"
BEGIN_BOUNDARY = """
    INSERT INTO key_boundary (tenant, at)
    SELECT $1, now() - make_interval(secs => $2::bigint / 1000.0)
    WHERE NOT EXISTS (SELECT FROM key_boundary WHERE tenant = $1)
    ON CONFLICT DO NOTHING"""
SELECT_NOW = "SELECT clock_ms()"
MERGE_COUNTS_MAX = 10_000
MERGE_COUNTS = f"""
    WITH apart AS (
      DELETE FROM state_count WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM state_count WHERE tenant = $1 AND stripe < 0 LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING kind, revision, state, entities)
    INSERT INTO state_count AS c (tenant, kind, revision, state, stripe, entities)
    SELECT $1, kind, revision, state, {OWN_STRIPE}, sum(entities)
    FROM apart
    GROUP BY kind, revision, state
    HAVING sum(entities) <> 0
    ORDER BY kind COLLATE "C", revision COLLATE "C", state COLLATE "C"
    ON CONFLICT (tenant, kind, revision, state, stripe) DO UPDATE SET entities = c.entities + excluded.entities"""  # noqa: S608 - made of constants


async def migrate(connection: Connection, address: PostgresAddress) -> None:
    """Upgrade the schema, and create partitions ahead. Raises UsageError when a newer release wrote it."""
    place = f"schema `{address.schema}` of {address.place}"
    clock = SystemClock()
    for attempt in range(1, MIGRATE_TRIES + 1):
        state = await _schema_state(connection, address)
        try:
            if not address.migrates:
                check_schema("postgres", state, place=place, url=address.shown)
            elif pending_migrations("postgres", state, place=place):  # otherwise no lock, and no right to create tables
                async with connection.transaction():
                    await _upgrade(connection, address, place)
        except asyncpg.PostgresError as error:
            if not (is_retryable(error) or sqlstate(error) in RACING) or attempt == MIGRATE_TRIES:
                raise
            await clock.sleep_ms(MIGRATE_BACKOFF.wait_ms(attempt - 1, clock.jitter()))
        else:
            break
    await _try_housekeeping(start_key_boundary(connection, address.tenant))
    # Without the right to create tables, or while others hold them, the default partition is enough.
    await _try_housekeeping(create_partitions(connection))


async def _try_housekeeping(housekeeping: Awaitable[None]) -> None:
    """Rule 2: only a lost connection stops the store from opening."""
    try:
        await housekeeping
    except asyncpg.PostgresError as error:
        if is_lost(error):
            raise


async def _schema_state(connection: Connection, address: PostgresAddress) -> SchemaState:
    _, has_versions = await connection.fetchrow(SELECT_PLACE, address.schema)
    if not has_versions:
        return SchemaState(0)
    return SchemaState(await connection.fetchval(SELECT_SCHEMA), await connection.fetchval(SELECT_OLDEST_READER_IF_ANY))


async def _upgrade(connection: Connection, address: PostgresAddress, place: str) -> None:
    for setting in MIGRATION_SETTINGS:
        await connection.execute(setting)
    has_schema, _ = await connection.fetchrow(SELECT_PLACE, address.schema)
    if not has_schema:
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{address.schema}"')
    await connection.fetchval(LOCK_MIGRATION)
    state = await _schema_state(connection, address)
    for each in pending_migrations("postgres", state, place=place):
        await connection.execute(each.text, timeout=MIGRATE_SECONDS)
        await connection.execute(record_migration("postgres", each))


async def create_partitions(connection: Connection) -> None:
    """Create the journal's partitions of the months ahead, unless another process is doing it."""
    async with connection.transaction():
        if await connection.fetchval(LOCK_PARTITIONS):
            await connection.fetchval(KEEP_PARTITIONS, MONTHS_AHEAD)


async def start_key_boundary(connection: Connection, tenant: str) -> None:
    """Store the boundary of a new tenant, before which keys expire: the window before now."""
    await connection.execute(BEGIN_BOUNDARY, tenant, KEY_WINDOW_MS)


async def delete_expired_keys(connection: Connection, keys: ExpiredKeys, newest_ms: int) -> None:
    """Delete the keys that expired, in small transactions. The first call only loads the boundary."""
    if not keys.is_loaded:
        await start_key_boundary(connection, keys.tenant)
        await run_questions(connection, keys.load())
        return
    window_ms = window_start_ms(await connection.fetchval(SELECT_NOW), newest_ms)
    has_more = True
    while has_more:
        async with connection.transaction():
            await connection.execute(ALLOW_BITMAPS)  # the index by time supports no other scan
            has_more = await run_questions(connection, keys.delete_some(window_ms))


async def merge_counts(connection: Connection, tenant: str) -> None:
    """Add the counters that joined transactions have written apart to the others."""
    await connection.fetch(MERGE_COUNTS, tenant, MERGE_COUNTS_MAX)
