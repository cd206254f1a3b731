"""Refusals of one event loop on their way to a PostgreSQL server, in batches.

Rule: refusals that cannot be written are counted, and the count is written with the next ones. A value that the server
does not accept loses its own refusal only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError
from interlock.ports.refusals import Refusal
from interlock.stores.postgres.connection import CONNECTION_LOST, is_bad_value, run_questions
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.sql.refusals import RefusalQueue, append_refusals


class RefusalWriter:
    """The refusals of one event loop, and the task that writes them."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._queue = RefusalQueue()
        self._task: asyncio.Task[None] | None = None

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Queue refusals, and write them soon."""
        self._queue.add(refusals)
        if self._queue and self._task is None:
            self._task = self._pool.loop.create_task(self._run())

    async def drain(self) -> None:
        """Wait until the queue is empty."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._write(self._queue.take())
        finally:
            self._task = None

    async def _write(self, refusals: list[Refusal]) -> None:
        questions = append_refusals(STATEMENTS, self._pool.address.tenant, refusals)
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await run_questions(connection, questions)
        except asyncpg.PostgresError as error:
            if is_bad_value(error) and len(refusals) > 1:
                middle = len(refusals) // 2
                await self._write(refusals[:middle])
                await self._write(refusals[middle:])
            else:
                self._queue.count_dropped(len(refusals))
        except (InterlockError, *CONNECTION_LOST):
            self._queue.count_dropped(len(refusals))
