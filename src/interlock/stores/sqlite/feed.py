"""The entries of a SQLite file in the order of their commits, for those who look on.

Rule: every question is a step along the primary key: a place by time is found by halving.
"""

from __future__ import annotations

import sqlite3

import msgspec
from msgspec import Struct

from interlock.model.journal.entry import Entry
from interlock.ports.journal_feed import FeedEntry, FeedPage

SELECT_BEHIND = """
    SELECT position, tenant, kind, id, record FROM journal WHERE position > ? ORDER BY position LIMIT ?"""
SELECT_ENDS = "SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM journal"
SELECT_TIME = "SELECT position, time_ms FROM journal WHERE position >= ? ORDER BY position LIMIT 1"


class _Line(Struct):
    e: Entry


_lines = msgspec.json.Decoder(_Line)


def feed(connection: sqlite3.Connection, tenant: str, after: int, limit: int) -> FeedPage:
    """The entries behind a place; those of other tenants are passed over."""
    rows = connection.execute(SELECT_BEHIND, (after, limit)).fetchall()
    told = tuple(
        FeedEntry(f"{kind}/{own}", _lines.decode(record).e) for _, of, kind, own, record in rows if of == tenant
    )
    if rows:
        return FeedPage(told, rows[-1][0])
    _, newest = connection.execute(SELECT_ENDS).fetchone()
    return FeedPage(told, min(after, newest))  # numbers are given again once the newest journals went to an archive


def place_at(connection: sqlite3.Connection, time_ms: int) -> int:
    """The place behind which entries from this time on stand."""
    low, high = connection.execute(SELECT_ENDS).fetchone()
    if high == 0:
        return 0
    low -= 1  # up to `low` everything is older; behind `high` nothing is
    while low < high:
        middle = (low + high + 1) // 2
        position, kept_ms = connection.execute(SELECT_TIME, (middle,)).fetchone()
        if kept_ms < time_ms:
            low = position
        else:
            high = middle - 1
    return int(low)
