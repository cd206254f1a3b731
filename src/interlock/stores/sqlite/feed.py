"""The entries of a SQLite file in the order of their commits.

Rule: every question is a step along the primary key: a position by time is found by bisection.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from interlock.model.journal.entry import Entry
from interlock.ports.journal_feed import FeedEntry, FeedPage
from interlock.stores.sql.database import Ask, Questions

SELECT_AFTER = """
    SELECT position, tenant, kind, id, record FROM journal WHERE position > ? ORDER BY position LIMIT ?"""
SELECT_ENDS = """
    SELECT coalesce((SELECT min(position) FROM journal), 0), coalesce((SELECT max(position) FROM journal), 0)"""
SELECT_TIME = "SELECT position, time_ms FROM journal WHERE position >= ? ORDER BY position LIMIT 1"


class _Line(Struct):
    e: Entry


_decode_line = msgspec.json.Decoder(_Line).decode


def read_feed(tenant: str, after: int, limit: int) -> Questions[FeedPage]:
    """Return the entries after a position; those of other tenants are skipped."""
    rows = yield Ask(SELECT_AFTER, (after, limit))
    entries = tuple(
        FeedEntry(f"{kind}/{own}", _decode_line(record).e) for _, owner, kind, own, record in rows if owner == tenant
    )
    if rows:
        return FeedPage(entries, rows[-1][0])
    ((_, newest),) = yield Ask(SELECT_ENDS)
    return FeedPage(entries, min(after, newest))  # positions are reused once the newest journals went to an archive


def position_at(time_ms: int) -> Questions[int]:
    """Return the position after which the entries from this time on are."""
    ((low, high),) = yield Ask(SELECT_ENDS)
    if high == 0:
        return 0
    low -= 1  # every entry up to `low` is older, and none after `high` is
    while low < high:
        middle = (low + high + 1) // 2
        ((position, entry_ms),) = yield Ask(SELECT_TIME, (middle,))
        if entry_ms < time_ms:
            low = position
        else:
            high = middle - 1
    return int(low)
