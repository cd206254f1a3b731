"""The tables of a PostgreSQL store: made, brought up to date, and kept up beside the steps.

Rule 1: schema changes are numbered files, applied in one transaction under an advisory lock; a schema that a newer
release wrote is refused before anything in it is touched.
Rule 2: what only keeps house never stops a store from opening or a step from being kept.
Rule 3: a key is forgotten when it is from before a boundary (`boundary`), which is at least `KEY_WINDOW_MS` behind the
server's clock and the newest entry that this process wrote, and which moves with the time that passes here: both clocks
may be those of one machine, and wrong together. The first upkeep of a process reads it, later ones move it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator
from importlib.resources import files

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

from interlock.errors import UsageError
from interlock.model.backoff import Backoff
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.clock import SystemClock
from interlock.stores.key_expiry import KeyExpiry, window_begin_ms
from interlock.stores.postgres.address import PostgresAddress
from interlock.stores.postgres.connection import Connection, is_lost, is_retryable, sqlstate

MONTHS_AHEAD = 3
"""Partitions that are there before their month: a quarter of a year without any process of ours."""

PURGE_MAX = 1_000
"""Keys forgotten in one transaction: some milliseconds."""

MIGRATE_TRIES = 5
"""Tries to bring the schema up to date: of processes that open a new database at once, one does it."""

MIGRATE_BACKOFF = Backoff(200, 1_000)
"""The wait before such a try: a new schema takes the other process less than a second."""

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
BEGIN_BOUNDARY = """
    INSERT INTO key_boundary (tenant, at)
    SELECT $1, now() - make_interval(secs => $2::bigint / 1000.0)
    WHERE NOT EXISTS (SELECT FROM key_boundary WHERE tenant = $1)
    ON CONFLICT DO NOTHING"""
SELECT_BOUNDARY = "SELECT floor(extract(epoch FROM at) * 1000)::bigint FROM key_boundary WHERE tenant = $1"
MOVE_BOUNDARY = """
    UPDATE key_boundary SET at = greatest(at, to_timestamp($2::bigint / 1000.0)) WHERE tenant = $1"""
SELECT_NOW = "SELECT clock_ms()"
PURGE_KEYS = """
    WITH purged AS (
      DELETE FROM event_key WHERE ctid = ANY (ARRAY (
        SELECT ctid FROM event_key
        WHERE tenant = $1 AND at < to_timestamp($2::bigint / 1000.0)
        LIMIT $3))
      RETURNING 1)
    SELECT count(*) FROM purged"""

_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")


async def migrate(connection: Connection, address: PostgresAddress) -> None:
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
            if not (is_retryable(error) or sqlstate(error) in RACING) or attempt == MIGRATE_TRIES:
                raise
            await clock.sleep_ms(MIGRATE_BACKOFF.wait_ms(attempt - 1, clock.jitter()))
        else:
            break
    await _kept_up(begin_boundary(connection, address.tenant))
    # Without the right to make tables, or while others hold them, the partition for everything else is enough.
    await _kept_up(keep_partitions(connection))


async def _kept_up(chore: Awaitable[None]) -> None:
    """Rule 2."""
    try:
        await chore
    except asyncpg.PostgresError as error:
        if is_lost(error):
            raise


async def _current(connection: Connection, address: PostgresAddress) -> int:
    _, has_versions = await connection.fetchrow(SELECT_PLACE, address.schema)
    current: int = await connection.fetchval(SELECT_SCHEMA) if has_versions else 0
    return current


async def _upgrade(connection: Connection, address: PostgresAddress, migrations: dict[int, tuple[str, str]]) -> None:
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


async def begin_boundary(connection: Connection, tenant: str) -> None:
    """Let the keys of a tenant that is new be forgotten from its window on."""
    await connection.execute(BEGIN_BOUNDARY, tenant, KEY_WINDOW_MS)


class KeyRetention:
    """What a process forgets of the keys of its tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._boundary: KeyExpiry | None = None

    async def forget(self, connection: Connection, newest_ms: int) -> None:
        """Forget the keys from before the boundary, some at a time; the first time it is only read."""
        boundary = self._boundary
        if boundary is None:
            await begin_boundary(connection, self._tenant)
            self._boundary = KeyExpiry(await connection.fetchval(SELECT_BOUNDARY, self._tenant))
            return
        before_ms = boundary.moved(window_begin_ms(await connection.fetchval(SELECT_NOW), newest_ms))
        await connection.execute(MOVE_BOUNDARY, self._tenant, boundary.time_ms)
        while True:  # until fewer are left than one transaction takes
            async with connection.transaction():
                await connection.execute(ALLOW_BITMAPS)  # the index by time knows no other scan
                purged: int = await connection.fetchval(PURGE_KEYS, self._tenant, before_ms, PURGE_MAX)
            if purged < PURGE_MAX:
                return


def _migrations() -> Iterator[tuple[int, tuple[str, str]]]:
    for each in (files("interlock.stores") / "migrations" / "postgres").iterdir():
        match = _MIGRATION.fullmatch(each.name)
        if match is not None:
            yield int(match[1]), (match[2], each.read_text(encoding="utf-8"))
