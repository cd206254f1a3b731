"""Lists of entities from a SQLite file: always along an index, never a scan, page by page from a cursor.

Rule 1: the order is (since when in the state, id); a cursor is the last row's place in it, so a page never shifts.
Rule 2: a walk follows the index of its order, by id for a prefix, else by age, and filters narrow it; it stops after
`WALK_MAX` rows and answers what it found, with a cursor to go on from. Few entities with a tag are read whole instead,
and put in order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import takewhile

from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery
from interlock.stores.cursor import decode_cursor
from interlock.stores.listing import Found, matches, page, placed

WALK_MAX = 2_000
"""Rows that one answer reads at most: some milliseconds, at any size of the table."""

FEW_MAX = 1_000
"""Entities with a tag that are few. Each of them is looked up where it lies, which takes longer than a walk does."""

BY_AGE = """
    SELECT entered_ms, id, version, revision, configuration, created_ms, entered_ms, changed_ms, ended, active, tags
    FROM entity
    WHERE tenant = ? AND kind = ? AND (entered_ms, id) > (?, ?) AND entered_ms < ?
    ORDER BY entered_ms, id"""
BY_STATE = """
    SELECT s.entered_ms, s.id, e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms,
           e.ended, e.active, e.tags
    FROM entity_state AS s CROSS JOIN entity AS e ON e.tenant = s.tenant AND e.kind = s.kind AND e.id = s.id
    WHERE s.tenant = ? AND s.kind = ? AND s.state = ? AND (s.entered_ms, s.id) > (?, ?) AND s.entered_ms < ?
    ORDER BY s.entered_ms, s.id"""
BY_ID = """
    SELECT entered_ms, id, version, revision, configuration, created_ms, entered_ms, changed_ms, ended, active, tags
    FROM entity
    WHERE tenant = ? AND kind = ? AND id >= ? AND id <> ?
    ORDER BY id"""
BY_TAG = """
    SELECT e.entered_ms, e.id, e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms,
           e.ended, e.active, e.tags
    FROM entity_tag AS t CROSS JOIN entity AS e ON e.tenant = t.tenant AND e.kind = t.kind AND e.id = t.id
    WHERE t.tenant = ? AND t.kind = ? AND t.tag = ?
    ORDER BY t.id"""
MANY_TAGGED = "SELECT 1 FROM entity_tag WHERE tenant = ? AND kind = ? AND tag = ? LIMIT 1 OFFSET ?"
NEXT_KIND = "SELECT kind FROM entity WHERE tenant = ? AND kind > ? ORDER BY kind LIMIT 1"

FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


def kinds(connection: sqlite3.Connection, tenant: str) -> tuple[str, ...]:
    """The kinds that there are entities of: one step along the key for each, however many entities they have."""
    found: list[str] = []
    while row := connection.execute(NEXT_KIND, (tenant, found[-1] if found else "")).fetchone():
        found.append(row[0])
    return tuple(found)


def find(connection: sqlite3.Connection, tenant: str, query: EntityQuery) -> EntityPage:
    """The page of a query."""
    start, begin = (FIRST_MS, "") if query.after is None else decode_cursor(query.after)
    place = (start, begin.removeprefix(f"{query.kind}/"))
    limit = min(query.limit, PAGE_MAX)
    if query.tag is not None and not query.prefix and not _is_many(connection, tenant, query):
        tagged = connection.execute(BY_TAG, (tenant, query.kind, query.tag))
        found = sorted(each for row in tagged if matches(row, query) and (each := placed(row, query))[:2] > place)
        return page(query, found[:limit], last=found[limit - 1][:2] if len(found) > limit else None)
    return _walked(_rows(connection, tenant, query, place), query, limit)


def _is_many(connection: sqlite3.Connection, tenant: str, query: EntityQuery) -> bool:
    return connection.execute(MANY_TAGGED, (tenant, query.kind, query.tag, FEW_MAX)).fetchone() is not None


def _rows(connection: sqlite3.Connection, tenant: str, query: EntityQuery, place: tuple[int, str]) -> Iterator[Found]:
    """The rows behind a place, in the query's order."""
    before = LAST_MS if query.entered_before_ms is None else query.entered_before_ms
    if prefix := query.prefix:
        rows = connection.execute(BY_ID, (tenant, query.kind, max(prefix, place[1]), place[1]))
        return takewhile(lambda each: each[1].startswith(prefix), rows)
    if query.state is None:
        return connection.execute(BY_AGE, (tenant, query.kind, *place, before))
    return connection.execute(BY_STATE, (tenant, query.kind, query.state, *place, before))


def _walked(rows: Iterator[Found], query: EntityQuery, limit: int) -> EntityPage:
    found: list[Found] = []
    last: tuple[int, str] | None = None
    for read, each in enumerate(rows):
        if read == WALK_MAX or len(found) == limit:
            return page(query, found, last=last)
        last = 0 if query.prefix else each[0], each[1]
        if matches(each, query):
            found.append(each)
    return page(query, found, last=None)
