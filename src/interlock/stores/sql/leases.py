"""Leases and downtimes of a SQL store.

Rule 1: one statement decides who holds a name.
Rule 2: a database with its own clock decides by that clock when a lease expires and how long no worker was alive
(`Statements.clock_value`). Statistics are by the clocks of the workers.
`LeaseTable` is the reference in memory, and one suite runs on all of them.
"""

from __future__ import annotations

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LEASE_MS_MAX
from interlock.ports.leases import Downtime, Lease
from interlock.stores.lease_table import RELEASED_OWNER
from interlock.stores.sql.database import Ask, Questions, Statements


def acquire_lease(
    sql: Statements, tenant: str, name: str, *, owner: str, now_ms: int, until_ms: int
) -> Questions[Lease | None]:
    """Acquire or extend a lease; None while another owner holds it."""
    times = (sql.clock_value(each, now_ms=now_ms) for each in (now_ms, until_ms, now_ms + LEASE_MS_MAX))
    rows = yield Ask(sql.acquire_lease, (tenant, name, owner, *times))
    return Lease(name, owner, rows[0][0], until_ms) if rows else None


def release_lease(sql: Statements, tenant: str, lease: Lease) -> Questions[bool]:
    """Release a lease; False when it was no longer held."""
    return bool((yield Ask(sql.release_lease, (tenant, lease.name, lease.owner, lease.fence, RELEASED_OWNER))))


def heartbeat(sql: Statements, tenant: str, *, now_ms: int, gap_ms: int) -> Questions[Downtime | None]:
    """Record that a worker is alive; return the downtime that ends with this, if any.

    When the last heartbeat is in the future, nothing is recorded, and the result is from that time to now.
    """
    latest_ms = sql.clock_value(now_ms + CLOCK_AHEAD_MS_MAX, now_ms=now_ms)
    ahead = yield Ask(sql.alive_ahead, (tenant, sql.clock_value(now_ms, now_ms=now_ms), latest_ms))
    if ahead:
        return Downtime(*ahead[0])
    return (yield from sql.record_heartbeat(tenant, now_ms, gap_ms))


def correct_clock(sql: Statements, tenant: str, *, now_ms: int) -> Questions[None]:
    """Delete heartbeats, downtimes and statistics with a time in the future; now counts as a heartbeat."""
    latest_ms = sql.clock_value(now_ms + CLOCK_AHEAD_MS_MAX, now_ms=now_ms)
    yield Ask(sql.correct_alive, (tenant, sql.clock_value(now_ms, now_ms=now_ms), latest_ms))
    yield Ask(sql.correct_downtimes, (tenant, latest_ms))
    for statement in sql.correct_statistics:
        yield Ask(statement, (tenant, now_ms + CLOCK_AHEAD_MS_MAX))


def stamped_after(sql: Statements, tenant: str, time_ms: int, limit: int) -> Questions[tuple[str, ...]]:
    """Return entities with an entry later than a time, sorted."""
    return tuple(f"{kind}/{own}" for kind, own in (yield Ask(sql.stamped_after, (tenant, time_ms, limit))))


def list_downtimes(sql: Statements, tenant: str, *, since_ms: int) -> Questions[tuple[Downtime, ...]]:
    """Return the downtimes that ended after a time, in order."""
    return tuple(Downtime(*row) for row in (yield Ask(sql.downtimes, (tenant, since_ms))))
