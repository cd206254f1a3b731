"""Leases and downtimes in a SQLite file: the statements by which a name is taken, held and given back.

Rule: one statement decides who holds a name. `LeaseTable` is the same in memory, and one suite runs on both.
"""

from __future__ import annotations

import sqlite3

from interlock.model.limits import CLOCK_AHEAD_MS_MAX, DOWNTIMES_MAX, LEASE_MS_MAX
from interlock.ports.leases import Downtime, Lease
from interlock.stores.lease_table import NOBODY

TAKE_LEASE = """
    INSERT INTO lease (tenant, name, owner, fence, until_ms) VALUES (?1, ?2, ?3, 1, ?5)
    ON CONFLICT (tenant, name)
    DO UPDATE SET owner = ?3, fence = fence + (owner <> ?3), until_ms = ?5
      WHERE owner = ?3 OR until_ms <= ?4 OR until_ms > ?6
    RETURNING fence"""
GIVE_BACK = "UPDATE lease SET owner = ?, until_ms = 0 WHERE tenant = ? AND name = ? AND owner = ? AND fence = ?"
SELECT_ALIVE = "SELECT alive_ms FROM alive WHERE tenant = ?"
UPSERT_ALIVE = """
    INSERT INTO alive (tenant, alive_ms) VALUES (?, ?)
    ON CONFLICT (tenant) DO UPDATE SET alive_ms = max(alive_ms, excluded.alive_ms)"""
INSERT_DOWNTIME = "INSERT OR REPLACE INTO downtime (tenant, began_ms, ended_ms) VALUES (?, ?, ?)"
DELETE_OLD_DOWNTIMES = """
    DELETE FROM downtime WHERE tenant = ?1
      AND ended_ms <= (SELECT ended_ms FROM downtime WHERE tenant = ?1 ORDER BY ended_ms DESC LIMIT 1 OFFSET ?2)"""
CORRECT_ALIVE = "UPDATE alive SET alive_ms = ?2 WHERE tenant = ?1 AND alive_ms > ?3"
CORRECT = (
    "DELETE FROM downtime WHERE tenant = ?1 AND ended_ms > ?2",
    "DELETE FROM kind_minute WHERE tenant = ?1 AND minute_ms > ?2",
    "DELETE FROM state_dwell WHERE tenant = ?1 AND day_ms > ?2",
)
"""What is stamped in the future, of downtimes and statistics."""
SELECT_STAMPED = """
    SELECT DISTINCT kind, id FROM event_key INDEXED BY event_key_by_time
    WHERE tenant = ? AND time_ms > ? ORDER BY kind, id LIMIT ?"""
SELECT_DOWNTIMES = "SELECT began_ms, ended_ms FROM downtime WHERE tenant = ? AND ended_ms > ? ORDER BY ended_ms"


def take(
    connection: sqlite3.Connection, tenant: str, name: str, *, owner: str, now_ms: int, until_ms: int
) -> Lease | None:
    """Take a name, or hold it longer; None while another holds it."""
    found = connection.execute(TAKE_LEASE, (tenant, name, owner, now_ms, until_ms, now_ms + LEASE_MS_MAX)).fetchone()
    return None if found is None else Lease(name, owner, found[0], until_ms)


def give_back(connection: sqlite3.Connection, tenant: str, lease: Lease) -> bool:
    """Let go of a name at once; False when it was no longer ours."""
    row = (NOBODY, tenant, lease.name, lease.owner, lease.fence)
    return connection.execute(GIVE_BACK, row).rowcount == 1


def note_alive(connection: sqlite3.Connection, tenant: str, *, now_ms: int, gap_ms: int) -> Downtime | None:
    """Note that a worker is alive; the downtime that ends with this, if it does."""
    last = connection.execute(SELECT_ALIVE, (tenant,)).fetchone()
    if last is not None and last[0] > now_ms + CLOCK_AHEAD_MS_MAX:
        return Downtime(last[0], now_ms)
    connection.execute(UPSERT_ALIVE, (tenant, now_ms))
    if last is None or now_ms - last[0] <= gap_ms:
        return None
    connection.execute(INSERT_DOWNTIME, (tenant, last[0], now_ms))
    connection.execute(DELETE_OLD_DOWNTIMES, (tenant, DOWNTIMES_MAX))
    return Downtime(last[0], now_ms)


def correct(connection: sqlite3.Connection, tenant: str, *, now_ms: int) -> None:
    """Forget signs of life, downtimes and statistics that are stamped in the future."""
    latest_ms = now_ms + CLOCK_AHEAD_MS_MAX
    connection.execute(CORRECT_ALIVE, (tenant, now_ms, latest_ms))
    for statement in CORRECT:
        connection.execute(statement, (tenant, latest_ms))


def stamped_after(connection: sqlite3.Connection, tenant: str, time_ms: int, limit: int) -> tuple[str, ...]:
    """Entities with an entry that is stamped after a time, by the times of their keys, which are in an index."""
    rows = connection.execute(SELECT_STAMPED, (tenant, time_ms, limit))
    return tuple(f"{kind}/{own}" for kind, own in rows)


def downtimes(connection: sqlite3.Connection, tenant: str, *, since_ms: int) -> tuple[Downtime, ...]:
    """The downtimes that ended after a time, in order."""
    return tuple(Downtime(*row) for row in connection.execute(SELECT_DOWNTIMES, (tenant, since_ms)))
