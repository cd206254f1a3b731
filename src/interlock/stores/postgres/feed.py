"""The entries of a PostgreSQL server, none missed, in the order of positions within a window.

Rule 1: a position is drawn under the lock of the entity, so the entries of one entity are in order. It is not the order
of commits: an entry may be committed after one with a higher position was read. So a cursor is not a position.
Rule 2: a cursor is two snapshots of the server and a position. The window between them is every entry that the older
one does not show and the newer one does. It is complete when it is read: both ends are fixed, also after a crash.
Rule 3: a window is found by two ranges of an index, those transactions that were in progress at the older snapshot, and
those that started later. An open transaction, of any program, delays only its own entries.
Rule 4: entries that were there before entries had positions come first, in the order of time, entity and version.
Rule 5: transaction numbers belong to one cluster. In a store that was restored from a dump they may lie ahead of the
server's own: reading is refused, because entries would be missed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from interlock.errors import UsageError
from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.entry import Entry
from interlock.ports.reading.journal_feed import FeedEntry, FeedPage, invalid_feed_cursor
from interlock.stores.sql.database import Ask, Questions

SCHEME = "postgres"
OLDER_SCHEME = "postgres-old"
NOTHING = "1:1:"
"""A snapshot from before every transaction."""

SELECT_SNAPSHOT = """
    SELECT pg_current_snapshot()::text, coalesce((SELECT max(xid) FROM journal WHERE xid IS NOT NULL), 0)"""

# Fenced by OFFSET 0, so that the planner finds entries by `xid` and by nothing else.

_SHOWN = """
    xid < $4 AND pg_visible_in_snapshot(xid::text::xid8, $5::text::pg_snapshot) AND position > $6 AND tenant = $1
      AND ($7::text[] IS NULL OR kind = ANY ($7))"""
SELECT_WINDOW = f"""
    SELECT position, kind, id, record FROM (
      SELECT j.* FROM unnest($2::bigint[]) AS r (xid) CROSS JOIN LATERAL (
        SELECT xid, position, tenant, kind, id, record FROM journal WHERE xid = r.xid OFFSET 0) AS j
      UNION ALL
      SELECT j.* FROM (
        SELECT xid, position, tenant, kind, id, record FROM journal WHERE xid >= $3 AND xid < $4 OFFSET 0) AS j) AS w
    WHERE {_SHOWN}
    ORDER BY position LIMIT $8"""  # noqa: S608 - made of constants
SELECT_OLDER = """
    SELECT floor(extract(epoch FROM at) * 1000000)::bigint, kind, id, version, record FROM journal
    WHERE xid IS NULL AND tenant = $1
      AND (at, kind, id, version) > (to_timestamp($2::bigint / 1000000.0), $3, $4, $5::bigint)
      AND ($6::text[] IS NULL OR kind = ANY ($6))
    ORDER BY at, kind, id, version LIMIT $7"""
HAS_OLDER = "SELECT EXISTS (SELECT FROM journal WHERE xid IS NULL AND tenant = $1)"
SELECT_XIDS = """
    SELECT (SELECT min(xid) FROM journal WHERE xid IS NOT NULL), (SELECT max(xid) FROM journal WHERE xid IS NOT NULL)"""
SELECT_XID_TIME = """
    SELECT xid, floor(extract(epoch FROM at) * 1000)::bigint FROM journal
    WHERE xid >= $1 ORDER BY xid LIMIT 1"""


class _Line(Struct):
    e: Entry
    h: str


_decode_line = msgspec.json.Decoder(_Line).decode


class Snapshot(NamedTuple):
    """A snapshot of the server: transactions before `xmin` are over, those from `xmax` on had not started, and those of
    `running` were in progress.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Return the snapshot of `xmin:xmax:xip,...`. Raises ValueError."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(each) for each in running.split(",") if each))


class WindowCursor(NamedTuple):
    """A position in the window between two snapshots, as the server writes them."""

    old: str
    new: str
    position: int

    def text(self) -> str:
        """Return the cursor as text."""
        return f"{SCHEME}.{self.old}/{self.new}/{self.position}"


def read_feed(tenant: str, after: str | None, kinds: tuple[str, ...] | None, limit: int) -> Questions[FeedPage]:
    """Return the entries after a cursor.

    Raises UsageError for an invalid one (`feed.cursor`), and after a restore from a dump (`feed.restored`).
    """
    wanted = None if kinds is None else list(kinds)
    if after is None:
        ((has_older,),) = yield Ask(HAS_OLDER, (tenant,))
        if has_older:
            return (yield from _read_older(tenant, wanted, limit, (-(2**53), "", "", 0)))
    elif after.startswith(f"{OLDER_SCHEME}."):
        return (yield from _read_older(tenant, wanted, limit, _older_cursor(after)))
    cursor = WindowCursor(NOTHING, (yield from _current_snapshot()), 0) if after is None else _window_cursor(after)
    return (yield from _read_window(tenant, wanted, limit, cursor))


def _read_window(tenant: str, kinds: list[str] | None, limit: int, cursor: WindowCursor) -> Questions[FeedPage]:
    """Return the next entries of a window; where it is empty, those of the window up to now."""
    rows: list[Any] = []
    for is_last_try in (False, True):
        old, new = Snapshot.parse(cursor.old), Snapshot.parse(cursor.new)
        values = (tenant, list(old.running), old.xmax, new.xmax, cursor.new, cursor.position, kinds, limit)
        rows = yield Ask(SELECT_WINDOW, values)
        if rows or is_last_try:
            break
        cursor = WindowCursor(cursor.new, (yield from _current_snapshot()), 0)
    entries = tuple(
        FeedEntry(f"{kind}/{own}", (line := _decode_line(record)).e, cursor._replace(position=position).text(), line.h)
        for position, kind, own, record in rows
    )
    return FeedPage(entries, entries[-1].cursor if entries else cursor.text(), not rows)


def _current_snapshot() -> Questions[str]:
    ((text, newest),) = yield Ask(SELECT_SNAPSHOT)
    if newest >= Snapshot.parse(text).xmax:
        message = "the store was restored from a dump of another server: its entries are numbered by that server"
        hint = "set the column `xid` of the table `journal` to NULL, then read the feed from its start"
        raise UsageError(message, code="feed.restored", hint=hint)
    return str(text)


def _read_older(
    tenant: str, kinds: list[str] | None, limit: int, after: tuple[int, str, str, int]
) -> Questions[FeedPage]:
    """Return entries from before entries had positions; after the last of them the windows start."""
    rows = yield Ask(SELECT_OLDER, (tenant, *after, kinds, limit))
    entries = tuple(
        FeedEntry(f"{kind}/{own}", (line := _decode_line(record)).e, _older_text(at_us, kind, own, version), line.h)
        for at_us, kind, own, version, record in rows
    )
    if len(rows) == limit:
        return FeedPage(entries, entries[-1].cursor, is_last=False)
    start = WindowCursor(NOTHING, (yield from _current_snapshot()), 0).text()
    return FeedPage(entries, start, is_last=False)


def _older_text(*place: object) -> str:
    return f"{OLDER_SCHEME}.{msgspec.json.encode(place).decode()}"


def _older_cursor(text: str) -> tuple[int, str, str, int]:
    try:
        return msgspec.json.decode(text.partition(".")[2], type=tuple[int, str, str, int])
    except UNDECODABLE as error:
        raise invalid_feed_cursor(text) from error


def _window_cursor(text: str) -> WindowCursor:
    try:
        scheme, _, rest = text.partition(".")
        old, new, position = rest.split("/")
        cursor = WindowCursor(old, new, int(position))
        if scheme != SCHEME or Snapshot.parse(old).xmax > Snapshot.parse(new).xmax:
            raise invalid_feed_cursor(text)
    except ValueError as error:
        raise invalid_feed_cursor(text) from error
    return cursor


def cursor_at(time_ms: int) -> Questions[str]:
    """Return the cursor before the entries from this time on, by the server's clock."""
    new = yield from _current_snapshot()
    ((low, high),) = yield Ask(SELECT_XIDS)
    if low is None:
        return WindowCursor(NOTHING, new, 0).text()
    low, high = int(low) - 1, int(high)
    while low < high:  # every transaction up to `low` is older, and none after `high` is
        middle = (low + high + 1) // 2
        ((xid, entry_ms),) = yield Ask(SELECT_XID_TIME, (middle,))
        if entry_ms < time_ms:
            low = int(xid)
        else:
            high = middle - 1
    return WindowCursor(f"{low + 1}:{low + 1}:", new, 0).text()
