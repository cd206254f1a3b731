"""Rows of the audit of one event loop on their way to a PostgreSQL server: committed together, awaited by each caller.

Rule 1: a batch is what arrived during the last commit. Callers wait for it, so memory is bounded by them, and no row is
dropped.
Rule 2: the chain of a tenant has one writer at a time, by a lock that a transaction holds until its commit.
Rule 3: after a lost connection it is unknown whether the rows were committed: their callers get an error. Whatever
happens here, every caller gets an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from interlock.errors import InterlockError, InternalError, UnavailableError
from interlock.model.audit import AuditRow
from interlock.model.backoff import Backoff
from interlock.model.limits import AUDIT_BATCH_ROWS_MAX
from interlock.ports.clock import SystemClock
from interlock.stores.postgres.connection import CONNECTION_LOST, is_bad_value, is_retryable, run_questions
from interlock.stores.postgres.connection import translate_error as translate
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.sql.audit import append_audit

TRIES_MAX = 5
"""How often a batch is tried that the server undid for the sake of other transactions, such as a slow writer."""

RETRY = Backoff(20, 500)

_Waiting = tuple[tuple[AuditRow, ...], asyncio.Future[None]]


class AuditWriter:
    """The rows of one event loop, and the task that commits them."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._clock = SystemClock()

    async def append(self, rows: tuple[AuditRow, ...]) -> None:
        """Return when the rows are committed. Raises UnavailableError."""
        future: asyncio.Future[None] = self._pool.loop.create_future()
        self._waiting.append((rows, future))
        if self._task is None:
            self._task = self._pool.loop.create_task(self._run())
        await future

    async def drain(self) -> None:
        """Wait until nothing is left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, size = [self._waiting.popleft()], 0
                while self._waiting and (size := size + len(batch[-1][0])) < AUDIT_BATCH_ROWS_MAX:
                    batch.append(self._waiting.popleft())
                await self._commit(batch)
        finally:
            self._task = None
            while self._waiting:  # this task was cancelled: every caller gets an answer
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_exception(UnavailableError("the store is closed", code="store.closed"))

    async def _commit(self, batch: list[_Waiting]) -> None:
        """Commit a batch and answer its callers; rows that the server does not accept concern their caller only."""
        try:
            await self._write([row for rows, _ in batch for row in rows])
        except BaseException as error:
            if is_bad_value(error) and len(batch) > 1:
                for each in batch:
                    await self._commit([each])
                return
            failure = self._failure(error)
            for _, future in batch:
                if not future.done():
                    future.set_exception(copy(failure))
            if not isinstance(error, Exception):
                raise
        else:
            for _, future in batch:
                if not future.done():
                    future.set_result(None)

    def _failure(self, error: BaseException) -> InterlockError:
        if isinstance(error, InterlockError):
            return error
        if isinstance(error, (asyncpg.PostgresError, *CONNECTION_LOST)):
            return translate(error, self._pool.address)
        return InternalError(f"the writer of the audit failed: {error!r}", code="store.writer")

    async def _write(self, rows: list[AuditRow]) -> None:
        for attempt in range(TRIES_MAX):
            try:
                async with self._pool.connection() as connection, connection.transaction():
                    await run_questions(connection, append_audit(STATEMENTS, self._pool.address.tenant, rows))
            except asyncpg.PostgresError as error:
                if not is_retryable(error) or attempt == TRIES_MAX - 1:
                    raise
                await self._clock.sleep_ms(RETRY.wait_ms(attempt, self._clock.jitter()))
            else:
                return
