"""What pages about many entities are served from in a SQLite file: counters, and index ranges with an end.

Rule 1: no statement here scans; a test asks SQLite for the plan of each.
Rule 2: rates and dwell times come out of a `StatisticsBuffer` that the writer keeps, at most once a second: one row
per kind and
minute, and one per state, day and bucket, however many steps there were.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b

import msgspec

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
from interlock.ports.store import PAGE_MAX, Refusal
from interlock.stores.statistics_buffer import BUCKETS, StatisticsBuffer

SELECT_COUNTS = "SELECT revision, state, entities FROM state_count WHERE tenant = ? AND kind = ? AND entities > 0"
SELECT_DWELL = "SELECT state, bucket, stays FROM state_dwell WHERE tenant = ? AND kind = ? AND day_ms >= ?"
SELECT_RATES = """
    SELECT minute_ms, steps, conflicts, refusals FROM kind_minute
    WHERE tenant = ? AND kind = ? AND minute_ms >= ? ORDER BY minute_ms"""
COUNT_OVERDUE = """
    SELECT count(*) FROM (
      SELECT 1 FROM entity_state WHERE tenant = ? AND kind = ? AND state = ? AND entered_ms < ? LIMIT ?)"""
SELECT_REFUSALS = """
    SELECT sequence, body FROM audit_refusal
    WHERE sequence < ? AND tenant = ? ORDER BY sequence DESC LIMIT ?"""
SELECT_REFUSALS_BY_PRINCIPAL = """
    SELECT sequence, body FROM audit_refusal
    WHERE tenant = ? AND principal = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?"""
SELECT_REFUSAL_CHAIN = "SELECT sequence, body, head FROM audit_refusal WHERE sequence > ? ORDER BY sequence LIMIT ?"
UPSERT_DWELL = """
    INSERT INTO state_dwell (tenant, kind, state, day_ms, bucket, stays) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, day_ms, state, bucket) DO UPDATE SET stays = stays + excluded.stays"""
UPSERT_MINUTE = """
    INSERT INTO kind_minute (tenant, kind, minute_ms, steps, conflicts, refusals) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, minute_ms) DO UPDATE
    SET steps = steps + excluded.steps, conflicts = conflicts + excluded.conflicts,
        refusals = refusals + excluded.refusals"""
DELETE_DWELL = "DELETE FROM state_dwell WHERE tenant = ? AND kind = ? AND day_ms < ?"
DELETE_MINUTES = "DELETE FROM kind_minute WHERE tenant = ? AND kind = ? AND minute_ms < ?"

LAST_SEQUENCE = 2**63 - 1

_decode_refusal = msgspec.json.Decoder(Refusal).decode


def write_statistics(connection: sqlite3.Connection, tenant: str, tally: StatisticsBuffer) -> None:
    """Add a tally to the counters, and forget what is older than they are kept."""
    stays = [(tenant, *place, count) for place, count in sorted(tally.stays.items())]
    minutes = [(tenant, *when, *counts) for when, counts in sorted(tally.minutes.items())]
    connection.executemany(UPSERT_DWELL, stays)
    connection.executemany(UPSERT_MINUTE, minutes)
    newest: dict[str, int] = {}
    for kind, minute_ms in tally.minutes:
        newest[kind] = max(minute_ms, newest.get(kind, minute_ms))
    for kind, minute_ms in newest.items():
        connection.execute(DELETE_MINUTES, (tenant, kind, minute_ms - RATE_MINUTES * MINUTE_MS))
        connection.execute(DELETE_DWELL, (tenant, kind, minute_ms // DAY_MS * DAY_MS - DWELL_DAYS * DAY_MS))


def counts(connection: sqlite3.Connection, tenant: str, kind: str) -> tuple[StateCount, ...]:
    """The population of every state, by revision."""
    return tuple(StateCount(*row) for row in connection.execute(SELECT_COUNTS, (tenant, kind)))


def dwell(connection: sqlite3.Connection, tenant: str, kind: str, since_ms: int) -> tuple[DwellTimes, ...]:
    """Dwell times by state, over all days since one."""
    found: dict[str, list[int]] = {}
    for state, bucket, stays in connection.execute(SELECT_DWELL, (tenant, kind, since_ms // DAY_MS * DAY_MS)):
        found.setdefault(state, [0] * BUCKETS)[bucket] += stays
    return tuple(DwellTimes(state, tuple(buckets)) for state, buckets in sorted(found.items()))


def rates(connection: sqlite3.Connection, tenant: str, kind: str, since_ms: int) -> tuple[MinuteRates, ...]:
    """What each minute since a time brought."""
    return tuple(MinuteRates(*row) for row in connection.execute(SELECT_RATES, (tenant, kind, since_ms)))


def overdue(connection: sqlite3.Connection, tenant: str, kind: str, state: str, before_ms: int) -> int:
    """How many are in a state since before a time, up to one more than `COUNT_MAX`."""
    found: int = connection.execute(COUNT_OVERDUE, (tenant, kind, state, before_ms, COUNT_MAX + 1)).fetchone()[0]
    return found


def refusals_before(
    connection: sqlite3.Connection, tenant: str, sequence: int | None, principal: str | None, limit: int
) -> tuple[RefusalRow, ...]:
    """Refusals before a sequence number, newest first."""
    before = LAST_SEQUENCE if sequence is None else sequence
    wanted = max(1, min(limit, PAGE_MAX))
    if principal is None:
        rows = connection.execute(SELECT_REFUSALS, (before, tenant, wanted))
    else:
        rows = connection.execute(SELECT_REFUSALS_BY_PRINCIPAL, (tenant, principal, before, wanted))
    return tuple(RefusalRow(row[0], _decode_refusal(row[1])) for row in rows)


def verify_refusals(connection: sqlite3.Connection) -> RefusalVerification:
    """Follow the chain of refusals, which is one for the whole file."""
    head, linked, last = chain_start("audit_refusal"), 0, 0
    while rows := connection.execute(SELECT_REFUSAL_CHAIN, (last, PAGE_MAX)).fetchall():
        for sequence, body, kept in rows:
            head = blake2b(head.encode() + body, digest_size=16).hexdigest()
            if sequence != last + 1 or head != kept:
                return RefusalVerification(linked, last + 1 if sequence != last + 1 else sequence)
            linked, last = linked + 1, sequence
    return RefusalVerification(linked)
