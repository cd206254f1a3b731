"""Statistics of one event loop on their way to a PostgreSQL server.

Rule 1: they are summed in a `StatisticsBuffer` and written at most once a second.
Rule 2: statistics that cannot be written are lost, and stop no step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError
from interlock.model.audit import AuditRow
from interlock.ports.store import Append
from interlock.stores.postgres.connection import CONNECTION_LOST, run_questions
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.sql.commit_plan import CommitPlan
from interlock.stores.sql.statistics import write_statistics
from interlock.stores.statistics_buffer import StatisticsBuffer
from interlock.stores.stay_tally import StayTally

WRITE_SECONDS = 1.0
"""How long statistics are summed before they are written: pages lag by that, and steps do not pay for them."""


class StatisticsWriter:
    """The buffer of one event loop, and the timer that writes it."""

    def __init__(self, pool: ConnectionPool, stays: StayTally) -> None:
        self._pool = pool
        self._stays = stays
        self._buffer = StatisticsBuffer()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def count_step(self, plan: CommitPlan) -> None:
        """Count a step that was committed, and the stays that ended with it."""
        changes = plan.changes
        left, entered = ((), ()) if changes is None else (changes.states_left, changes.states_entered)
        self._scheduled().count_step(plan.append.kind, left, entered, plan.append.entry.event)

    def count_conflict(self, append: Append) -> None:
        """Count a step that lost its swap."""
        self._scheduled().count_conflict(append.kind, append.entry.event.at_ms)

    def count_refusals(self, rows: Iterable[AuditRow]) -> None:
        """Count refused attempts."""
        for each in rows:
            self._scheduled().count_refusal(each)

    def _scheduled(self) -> StatisticsBuffer:
        """Return the buffer; it is written within a second."""
        if self._timer is None:
            self._timer = self._pool.loop.call_later(WRITE_SECONDS, self._start_write)
        return self._buffer

    async def drain(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._start_write()
        if self._writing:
            await asyncio.wait(self._writing)

    def _start_write(self) -> None:
        self._timer = None
        buffer, self._buffer = self._buffer, StatisticsBuffer()
        self._stays.add(buffer)
        task = self._pool.loop.create_task(self._write(buffer))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, buffer: StatisticsBuffer) -> None:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await run_questions(connection, write_statistics(STATEMENTS, self._pool.address.tenant, buffer))
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST):
            return  # rule 2
