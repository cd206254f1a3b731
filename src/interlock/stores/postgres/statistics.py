"""What pages about many entities are served from on a PostgreSQL server: counters, and index ranges with an end.

Rule 1: no statement here scans; a test asks the server for the plan of each.
Rule 2: rates and dwell times come out of a `StatisticsBuffer` that each event loop keeps and writes at most once a
second: one row
per kind and minute, and one per state, day and bucket, however many steps there were.
Rule 3: what cannot be written is lost, and stops no step: it is statistics, not truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # see postgres_connect
import msgspec

from interlock.errors import InterlockError
from interlock.model.journal.record import chain_start
from interlock.ports.statistics import (
    COUNT_MAX,
    DAY_MS,
    DWELL_DAYS,
    MINUTE_MS,
    RATE_MINUTES,
    DwellTimes,
    MinuteRates,
    RefusalRow,
    RefusalVerification,
    StateCount,
)
from interlock.ports.store import PAGE_MAX, Append, Refusal
from interlock.stores.postgres.connection import CONNECTION_LOST, Connection
from interlock.stores.postgres.pool import ConnectionPool
from interlock.stores.sql.commit_plan import CommitPlan, split_entity
from interlock.stores.statistics_buffer import BUCKETS, CONFLICTS, REFUSALS, StatisticsBuffer

TALLY_SECONDS = 1.0
"""How long statistics are summed before they are written: pages lag by that, and steps do not pay for them."""

SELECT_COUNTS = """
    SELECT revision, state, sum(entities)::bigint FROM state_count
    WHERE tenant = $1 AND kind = $2
    GROUP BY revision, state HAVING sum(entities) > 0 ORDER BY revision, state"""
SELECT_DWELL = """
    SELECT state, bucket, sum(stays)::bigint FROM state_dwell
    WHERE tenant = $1 AND kind = $2 AND day_ms >= $3
    GROUP BY state, bucket ORDER BY state, bucket"""
SELECT_RATES = """
    SELECT minute_ms, steps, conflicts, refusals FROM kind_minute
    WHERE tenant = $1 AND kind = $2 AND minute_ms >= $3 ORDER BY minute_ms"""
COUNT_OVERDUE = """
    SELECT count(*) FROM (
      SELECT FROM entity_state WHERE tenant = $1 AND kind = $2 AND state = $3 AND entered_ms < $4 LIMIT $5) AS found"""
SELECT_REFUSALS = """
    SELECT sequence, body FROM audit_refusal
    WHERE tenant = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3"""
SELECT_REFUSALS_BY_PRINCIPAL = """
    SELECT sequence, body FROM audit_refusal
    WHERE tenant = $1 AND principal = $4 AND sequence < $2 ORDER BY sequence DESC LIMIT $3"""
SELECT_REFUSAL_CHAIN = """
    SELECT sequence, body, head FROM audit_refusal WHERE sequence > $1 ORDER BY sequence LIMIT $2"""

# In the order of their keys, so that processes that write at once wait for each other, and not in a circle.

UPSERT_DWELL = """
    INSERT INTO state_dwell AS d (tenant, kind, state, day_ms, bucket, stays)
    SELECT $1, i.kind, i.state, i.day_ms, i.bucket, i.stays
    FROM unnest($2::text[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[])
      AS i (kind, state, day_ms, bucket, stays)
    ORDER BY i.kind COLLATE "C", i.day_ms, i.state COLLATE "C", i.bucket
    ON CONFLICT (tenant, kind, day_ms, state, bucket) DO UPDATE SET stays = d.stays + excluded.stays"""
UPSERT_MINUTES = """
    INSERT INTO kind_minute AS m (tenant, kind, minute_ms, steps, conflicts, refusals)
    SELECT $1, i.kind, i.minute_ms, i.steps, i.conflicts, i.refusals
    FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
      AS i (kind, minute_ms, steps, conflicts, refusals)
    ORDER BY i.kind COLLATE "C", i.minute_ms
    ON CONFLICT (tenant, kind, minute_ms) DO UPDATE
    SET steps = m.steps + excluded.steps, conflicts = m.conflicts + excluded.conflicts,
        refusals = m.refusals + excluded.refusals"""
DELETE_DWELL = "DELETE FROM state_dwell WHERE tenant = $1 AND kind = $2 AND day_ms < $3"
DELETE_MINUTES = "DELETE FROM kind_minute WHERE tenant = $1 AND kind = $2 AND minute_ms < $3"

LAST_SEQUENCE = 2**63 - 1

_decode_refusal = msgspec.json.Decoder(Refusal).decode


class StatisticsWriter:
    """The tally of one event loop on its way to the server."""

    def __init__(self, link: ConnectionPool) -> None:
        self._link = link
        self._tally = StatisticsBuffer()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def kept(self, plan: CommitPlan) -> None:
        """Count a step that was committed, and the stays that ended with it."""
        left = () if plan.changes is None else plan.changes.states_left
        self._counting().count_step(plan.append.kind, left, plan.append.entry.event.at_ms)

    def lost(self, append: Append) -> None:
        """A swap was lost."""
        self._counting().count(append.kind, CONFLICTS, append.entry.event.at_ms)

    def refused(self, refusals: Iterable[Refusal]) -> None:
        """Attempts were refused."""
        for each in refusals:
            self._counting().count(split_entity(each.entity)[0], REFUSALS, each.time_ms)

    def _counting(self) -> StatisticsBuffer:
        """What to count in: it is written within a second."""
        if self._timer is None:
            self._timer = self._link.loop.call_later(TALLY_SECONDS, self._write_soon)
        return self._tally

    async def drain(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._write_soon()
        if self._writing:
            await asyncio.wait(self._writing)

    def _write_soon(self) -> None:
        self._timer = None
        tally, self._tally = self._tally, StatisticsBuffer()
        task = self._link.loop.create_task(self._written(tally))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, tally: StatisticsBuffer) -> None:
        try:
            async with self._link.connection() as connection:
                await write_statistics(connection, self._link.address.tenant, tally)
        except (InterlockError, asyncpg.PostgresError, *CONNECTION_LOST):
            return  # lost: the next second is told


async def write_statistics(connection: Connection, tenant: str, tally: StatisticsBuffer) -> None:
    """Add a tally to the counters, and forget what is older than they are kept."""
    stays = [(*place, count) for place, count in sorted(tally.stays.items())]
    minutes = [(*when, *counts) for when, counts in sorted(tally.minutes.items())]
    newest: dict[str, int] = {}
    for kind, minute_ms in tally.minutes:
        newest[kind] = max(minute_ms, newest.get(kind, minute_ms))
    async with connection.transaction():
        if stays:
            await connection.execute(UPSERT_DWELL, tenant, *_columns(stays))
        if minutes:
            await connection.execute(UPSERT_MINUTES, tenant, *_columns(minutes))
        for kind, minute_ms in sorted(newest.items()):
            await connection.execute(DELETE_MINUTES, tenant, kind, minute_ms - RATE_MINUTES * MINUTE_MS)
            oldest_ms = minute_ms // DAY_MS * DAY_MS - DWELL_DAYS * DAY_MS
            await connection.execute(DELETE_DWELL, tenant, kind, oldest_ms)


async def counts(connection: Connection, tenant: str, kind: str) -> tuple[StateCount, ...]:
    """The population of every state, by revision."""
    return tuple(StateCount(*row) for row in await connection.fetch(SELECT_COUNTS, tenant, kind))


async def dwell(connection: Connection, tenant: str, kind: str, since_ms: int) -> tuple[DwellTimes, ...]:
    """Dwell times by state, over all days since one."""
    found: dict[str, list[int]] = {}
    for state, bucket, stays in await connection.fetch(SELECT_DWELL, tenant, kind, since_ms // DAY_MS * DAY_MS):
        found.setdefault(state, [0] * BUCKETS)[bucket] += stays
    return tuple(DwellTimes(state, tuple(buckets)) for state, buckets in found.items())


async def rates(connection: Connection, tenant: str, kind: str, since_ms: int) -> tuple[MinuteRates, ...]:
    """What each minute since a time brought."""
    return tuple(MinuteRates(*row) for row in await connection.fetch(SELECT_RATES, tenant, kind, since_ms))


async def overdue(connection: Connection, tenant: str, kind: str, state: str, before_ms: int) -> int:
    """How many are in a state since before a time, up to one more than `COUNT_MAX`."""
    return int(await connection.fetchval(COUNT_OVERDUE, tenant, kind, state, before_ms, COUNT_MAX + 1))


async def refusals_before(
    connection: Connection, tenant: str, sequence: int | None, principal: str | None, limit: int
) -> tuple[RefusalRow, ...]:
    """Refusals before a sequence number, newest first."""
    values = (tenant, LAST_SEQUENCE if sequence is None else sequence, max(1, min(limit, PAGE_MAX)))
    if principal is None:
        rows = await connection.fetch(SELECT_REFUSALS, *values)
    else:
        rows = await connection.fetch(SELECT_REFUSALS_BY_PRINCIPAL, *values, principal)
    return tuple(RefusalRow(row[0], _decode_refusal(row[1])) for row in rows)


async def verify_refusals(connection: Connection) -> RefusalVerification:
    """Follow the chain of refusals, which is one for the whole schema. Its numbers may have gaps, its hashes none."""
    head, linked, last = chain_start("audit_refusal"), 0, 0
    while rows := await connection.fetch(SELECT_REFUSAL_CHAIN, last, PAGE_MAX):
        for sequence, body, kept in rows:
            head = blake2b(head.encode() + body, digest_size=16).hexdigest()
            if head != kept:
                return RefusalVerification(linked, sequence)
            linked, last = linked + 1, sequence
    return RefusalVerification(linked)


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
