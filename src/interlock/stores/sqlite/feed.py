"""The entries of a SQLite file in the order of their commits.

Rule 1: every question is a step along the primary key: a position by time is found by bisection.
Rule 2: a position is never given to two entries. SQLite gives a new row the number after the highest, so the row with
the highest number is never deleted: `release_journal` leaves it empty, under a negative version.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from interlock.model.journal.entry import Entry
from interlock.ports.reading.journal_feed import (
    FeedEntry,
    FeedPage,
    cursor_ahead,
    numbered_cursor,
    read_numbered_cursor,
)
from interlock.stores.sql.database import Ask, Questions

SCHEME = "sqlite"

SELECT_AFTER = """
    SELECT position, tenant, kind, id, version, record FROM journal
    WHERE position > ? ORDER BY position LIMIT ?"""
SELECT_ENDS = """
    SELECT coalesce((SELECT min(position) FROM journal), 0), coalesce((SELECT max(position) FROM journal), 0)"""
SELECT_TIME = "SELECT position, time_ms FROM journal WHERE position >= ? ORDER BY position LIMIT 1"


class _Line(Struct):
    e: Entry
    h: str


_decode_line = msgspec.json.Decoder(_Line).decode


def read_feed(tenant: str, after: str | None, kinds: tuple[str, ...] | None, limit: int) -> Questions[FeedPage]:
    """Return the entries after a cursor; those of other tenants and kinds are skipped."""
    position = read_numbered_cursor(SCHEME, after)
    rows = yield Ask(SELECT_AFTER, (position, limit))
    if not rows:
        ((_, newest),) = yield Ask(SELECT_ENDS)
        if position > newest:
            raise cursor_ahead(position, newest)
    entries = tuple(
        FeedEntry(f"{kind}/{own}", (line := _decode_line(record)).e, numbered_cursor(SCHEME, number), line.h)
        for number, owner, kind, own, version, record in rows
        if owner == tenant and version > 0 and (kinds is None or kind in kinds)
    )
    return FeedPage(entries, numbered_cursor(SCHEME, rows[-1][0] if rows else position), len(rows) < limit)


def cursor_at(time_ms: int) -> Questions[str]:
    """Return the cursor after which the entries from this time on are."""
    ((low, high),) = yield Ask(SELECT_ENDS)
    if high == 0:
        return numbered_cursor(SCHEME, 0)
    low -= 1  # every entry up to `low` is older, and none after `high` is
    while low < high:
        middle = (low + high + 1) // 2
        ((position, entry_ms),) = yield Ask(SELECT_TIME, (middle,))
        if entry_ms < time_ms:
            low = position
        else:
            high = middle - 1
    return numbered_cursor(SCHEME, int(low))
