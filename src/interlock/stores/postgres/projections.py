"""Projections on a PostgreSQL server: the program's coroutine function with a connection of asyncpg.

Rule: the settings of the store's connections are for steps. The transaction of a projection has those of an ordinary
connection, so its statements are planned as usual, and its tables are found in the schema `public`.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.ports.reading.journal_feed import FeedEntry
from interlock.ports.reading.projections import ProjectionStatus, Projector
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.sql.store import SqlStore

ORDINARY = (
    "SET LOCAL search_path TO public",
    *(f"SET LOCAL {name} = on" for name in SETTINGS if name.startswith("enable_") or name == "jit"),
)
LOCK_CURSOR = "SELECT cursor FROM {schema}.projection WHERE tenant = $1 AND name = $2 FOR UPDATE"
ADD_ROW = "INSERT INTO {schema}.projection (tenant, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"
MOVE_CURSOR = """
    UPDATE {schema}.projection
    SET cursor = $3, entries = entries + $4, failures = 0, error = NULL, stopped = 0
    WHERE tenant = $1 AND name = $2"""


class PostgresProjections:
    """The projections of a PostgreSQL store: coroutine functions."""

    is_async = True

    def __init__(self, store: SqlStore, schema: str, pool: Callable[[], ConnectionPool]) -> None:
        self._store = store
        self._schema = f'"{schema}"'
        self._pool = pool

    async def projections(self) -> tuple[ProjectionStatus, ...]:
        """Return all projections, by name."""
        return await self._store.projections_of()

    async def project(
        self, name: str, projector: Projector, entries: tuple[FeedEntry, ...], *, before: str | None, after: str
    ) -> bool:
        """Run a projector and move its cursor in one transaction; False when the cursor is no longer `before`."""
        place, schema = (self._store.database.tenant, name), self._schema
        async with self._pool().connection() as connection, connection.transaction():
            await connection.execute(ADD_ROW.format(schema=schema), *place)
            if await connection.fetchval(LOCK_CURSOR.format(schema=schema), *place) != before:
                return False
            for statement in ORDINARY:
                await connection.execute(statement)
            if entries:
                await projector(connection, entries)
            await connection.execute(MOVE_CURSOR.format(schema=schema), *place, after, len(entries))
        return True

    async def record_failure(self, name: str, *, cursor: str | None, error: str, stopped: bool) -> None:
        """Count a failure at this cursor."""
        await self._store.record_projection_failure(name, cursor=cursor, error=error, stopped=stopped)
