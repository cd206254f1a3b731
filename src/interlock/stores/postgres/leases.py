"""Leases and downtimes on a PostgreSQL server: the statements by which a name is taken, held and given back.

Rule 1: one statement decides who holds a name.
Rule 2: the server's clock decides when a lease lapses and how long nobody was alive: a worker says for how long it
wants a name, counted from its own `now_ms`. Downtimes are in the server's time, the same for all who ask.
`LeaseTable` is the same in memory, and one suite runs on both.
"""

from __future__ import annotations

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, DOWNTIMES_MAX, LEASE_MS_MAX
from interlock.ports.leases import Downtime, Lease
from interlock.stores.lease_table import NOBODY
from interlock.stores.postgres.connection import Connection

TAKE_LEASE = """
    INSERT INTO lease AS l (tenant, name, owner, fence, until_ms) VALUES ($1, $2, $3, 1, clock_ms() + $4::bigint)
    ON CONFLICT (tenant, name)
    DO UPDATE SET owner = excluded.owner, fence = l.fence + (l.owner <> excluded.owner)::integer,
                  until_ms = excluded.until_ms
      WHERE l.owner = excluded.owner OR l.until_ms <= clock_ms() OR l.until_ms > clock_ms() + $5::bigint
    RETURNING fence"""
GIVE_BACK = """
    UPDATE lease SET owner = $5, until_ms = 0 WHERE tenant = $1 AND name = $2 AND owner = $3 AND fence = $4
    RETURNING true"""
SELECT_AHEAD = "SELECT alive_ms, clock_ms() FROM alive WHERE tenant = $1 AND alive_ms > clock_ms() + $2::bigint"
CORRECT_ALIVE = "UPDATE alive SET alive_ms = clock_ms() WHERE tenant = $1 AND alive_ms > clock_ms() + $2::bigint"
CORRECT_DOWNTIMES = "DELETE FROM downtime WHERE tenant = $1 AND ended_ms > clock_ms() + $2::bigint"
CORRECT_STATISTICS = (
    "DELETE FROM kind_minute WHERE tenant = $1 AND minute_ms > $2::bigint",
    "DELETE FROM state_dwell WHERE tenant = $1 AND day_ms > $2::bigint",
)
"""Statistics are by the drivers' clocks."""
SELECT_STAMPED = """
    SELECT kind, id FROM entity WHERE tenant = $1 AND changed_ms > $2::bigint ORDER BY kind, id LIMIT $3"""
NOTE_ALIVE = "SELECT since_ms, until_ms FROM note_alive($1, $2, $3)"
SELECT_DOWNTIMES = """
    SELECT began_ms, ended_ms FROM downtime WHERE tenant = $1 AND ended_ms > $2 ORDER BY ended_ms"""


async def take(
    connection: Connection, tenant: str, name: str, *, owner: str, now_ms: int, until_ms: int
) -> Lease | None:
    """Take a name, or hold it longer; None while another holds it."""
    fence = await connection.fetchval(TAKE_LEASE, tenant, name, owner, until_ms - now_ms, LEASE_MS_MAX)
    return None if fence is None else Lease(name, owner, fence, until_ms)


async def give_back(connection: Connection, tenant: str, lease: Lease) -> bool:
    """Let go of a name at once; False when it was no longer ours."""
    return bool(await connection.fetchval(GIVE_BACK, tenant, lease.name, lease.owner, lease.fence, NOBODY))


async def note_alive(connection: Connection, tenant: str, *, gap_ms: int) -> Downtime | None:
    """Note that a worker is alive; the downtime that ends with this, if it does."""
    ahead = await connection.fetchrow(SELECT_AHEAD, tenant, CLOCK_AHEAD_MS_MAX)
    if ahead is not None:
        return Downtime(*ahead)
    since_ms, until_ms = await connection.fetchrow(NOTE_ALIVE, tenant, gap_ms, DOWNTIMES_MAX)
    return None if since_ms is None else Downtime(since_ms, until_ms)


async def correct(connection: Connection, tenant: str, *, now_ms: int) -> None:
    """Forget signs of life and downtimes after the server's clock, and statistics after the driver's."""
    for statement in (CORRECT_ALIVE, CORRECT_DOWNTIMES):
        await connection.execute(statement, tenant, CLOCK_AHEAD_MS_MAX)
    for statement in CORRECT_STATISTICS:
        await connection.execute(statement, tenant, now_ms + CLOCK_AHEAD_MS_MAX)


async def stamped_after(connection: Connection, tenant: str, time_ms: int, limit: int) -> tuple[str, ...]:
    """Entities whose last entry is stamped after a time. It reads the whole table: for a person who asks."""
    rows = await connection.fetch(SELECT_STAMPED, tenant, time_ms, limit)
    return tuple(f"{kind}/{own}" for kind, own in rows)


async def downtimes(connection: Connection, tenant: str, *, since_ms: int) -> tuple[Downtime, ...]:
    """The downtimes that ended after a time, in order."""
    return tuple(Downtime(*row) for row in await connection.fetch(SELECT_DOWNTIMES, tenant, since_ms))
