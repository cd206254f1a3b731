"""Leases and downtimes on a PostgreSQL server: the statements by which a name is taken, held and given back.

Rule 1: one statement decides who holds a name.
Rule 2: the server's clock decides when a lease lapses and how long nobody was alive: a worker says for how long it
wants a name, counted from its own `now_ms`. Downtimes are in the server's time, the same for all who ask.
`LeaseTable` is the same in memory, and one suite runs on both.
"""

from __future__ import annotations

from interlock.model.limits import DOWNTIMES_MAX
from interlock.ports.lease import Downtime, Lease
from interlock.stores.lease_table import NOBODY
from interlock.stores.postgres_connect import Connection

TAKE_LEASE = """
    INSERT INTO lease AS l (tenant, name, owner, fence, until_ms) VALUES ($1, $2, $3, 1, clock_ms() + $4::bigint)
    ON CONFLICT (tenant, name)
    DO UPDATE SET owner = excluded.owner, fence = l.fence + (l.owner <> excluded.owner)::integer,
                  until_ms = excluded.until_ms
      WHERE l.owner = excluded.owner OR l.until_ms <= clock_ms()
    RETURNING fence"""
GIVE_BACK = """
    UPDATE lease SET owner = $5, until_ms = 0 WHERE tenant = $1 AND name = $2 AND owner = $3 AND fence = $4
    RETURNING true"""
NOTE_ALIVE = "SELECT since_ms, until_ms FROM note_alive($1, $2, $3)"
SELECT_DOWNTIMES = """
    SELECT began_ms, ended_ms FROM downtime WHERE tenant = $1 AND ended_ms > $2 ORDER BY ended_ms"""


async def take(
    connection: Connection, tenant: str, name: str, *, owner: str, now_ms: int, until_ms: int
) -> Lease | None:
    """Take a name, or hold it longer; None while another holds it."""
    fence = await connection.fetchval(TAKE_LEASE, tenant, name, owner, until_ms - now_ms)
    return None if fence is None else Lease(name, owner, fence, until_ms)


async def give_back(connection: Connection, tenant: str, lease: Lease) -> bool:
    """Let go of a name at once; False when it was no longer ours."""
    return bool(await connection.fetchval(GIVE_BACK, tenant, lease.name, lease.owner, lease.fence, NOBODY))


async def note_alive(connection: Connection, tenant: str, *, gap_ms: int) -> Downtime | None:
    """Note that a worker is alive; the downtime that ends with this, if it does."""
    since_ms, until_ms = await connection.fetchrow(NOTE_ALIVE, tenant, gap_ms, DOWNTIMES_MAX)
    return None if since_ms is None else Downtime(since_ms, until_ms)


async def downtimes(connection: Connection, tenant: str, *, since_ms: int) -> tuple[Downtime, ...]:
    """The downtimes that ended after a time, in order."""
    return tuple(Downtime(*row) for row in await connection.fetch(SELECT_DOWNTIMES, tenant, since_ms))
