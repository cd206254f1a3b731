"""Refusals on their way to a PostgreSQL server: written beside the steps, a batch at a time, chained.

Rule 1: nobody waits for a refusal, and a flood of them holds up no step: what does not fit is counted and dropped.
Rule 2: the chain is one for the whole schema; an advisory lock lets one writer at a time continue it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect

from interlock.errors import InterlockError
from interlock.model.codec import encode
from interlock.model.journal.record import chain_start
from interlock.ports.store import Refusal
from interlock.stores.postgres.commit import INSERT_REFUSALS, LOCK_REFUSALS, SELECT_REFUSAL_HEAD
from interlock.stores.postgres.connection import CONNECTION_LOST, Connection, is_bad_value
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.sql.commit_plan import split_entity

REFUSALS_MAX = 1_024
"""Refusals waiting; more are counted and dropped."""


class Refusals:
    """The refusals of one event loop."""

    def __init__(self, link: ConnectionPool) -> None:
        self._link = link
        self._queue: deque[Refusal] = deque()
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Queue refusals; what does not fit is counted, and the count is kept as one row."""
        for refusal in refusals:
            if len(self._queue) < REFUSALS_MAX:
                self._queue.append(refusal)
            else:
                self._dropped += 1
        if self._queue and self._task is None:
            self._task = self._link.loop.create_task(self._run())

    async def drain(self) -> None:
        """Wait until the queue is empty."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                refusals = list(self._queue)
                self._queue.clear()
                if self._dropped:
                    refusals.append(Refusal("", "", "dropped", f"{self._dropped} more", refusals[-1].time_ms))
                    self._dropped = 0
                await self._kept(refusals)
        finally:
            self._task = None

    async def _kept(self, refusals: list[Refusal]) -> None:
        """Write refusals, or lose them: the lost are counted with the next; one that cannot be written goes alone."""
        try:
            async with self._link.connection() as connection, connection.transaction():
                await write_refusals(connection, self._link.address.tenant, refusals)
        except asyncpg.PostgresError as error:
            if is_bad_value(error) and len(refusals) > 1:
                middle = len(refusals) // 2
                await self._kept(refusals[:middle])
                await self._kept(refusals[middle:])
            else:
                self._dropped += len(refusals)
        except (InterlockError, *CONNECTION_LOST):
            self._dropped += len(refusals)


async def write_refusals(connection: Connection, tenant: str, refusals: list[Refusal]) -> None:
    """Append refusals to their chain, inside a transaction."""
    await connection.fetchval(LOCK_REFUSALS)
    head = await connection.fetchval(SELECT_REFUSAL_HEAD) or chain_start("audit_refusal")
    rows: list[tuple[Any, ...]] = []
    for refusal in refusals:
        body = encode(refusal)
        head = blake2b(head.encode() + body, digest_size=16).hexdigest()
        rows.append((*split_entity(refusal.entity), refusal.principal, refusal.time_ms, body, head))
    await connection.execute(INSERT_REFUSALS, tenant, *(list(column) for column in zip(*rows, strict=True)))
