"""Lists of entities from a SQLite file: always along an index, never a scan, page by page from a cursor.

Rule 1: the order is (since when in the state, id); a cursor is the last row's place in it, so a page never shifts.
Rule 2: few candidates by id prefix or tag are read whole and put in order. Otherwise the walk follows the index by age
and a filter narrows it; it stops after `WALK_MAX` rows and answers what it found, with a cursor to go on from.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice, takewhile

from interlock.ports.store import PAGE_MAX, Page, Query
from interlock.stores.cursor import decode_cursor
from interlock.stores.listing import Found, matches, page, placed

WALK_MAX = 5_000
"""Rows that one answer reads at most: some milliseconds, at any size of the table."""

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
    WHERE tenant = ? AND kind = ? AND id >= ?
    ORDER BY id"""
BY_TAG = """
    SELECT e.entered_ms, e.id, e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms,
           e.ended, e.active, e.tags
    FROM entity_tag AS t CROSS JOIN entity AS e ON e.tenant = t.tenant AND e.kind = t.kind AND e.id = t.id
    WHERE t.tenant = ? AND t.kind = ? AND t.tag = ?
    ORDER BY t.id"""
NEXT_KIND = "SELECT kind FROM entity WHERE tenant = ? AND kind > ? ORDER BY kind LIMIT 1"

FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


def kinds(connection: sqlite3.Connection, tenant: str) -> tuple[str, ...]:
    """The kinds that there are entities of: one step along the key for each, however many entities they have."""
    found: list[str] = []
    while row := connection.execute(NEXT_KIND, (tenant, found[-1] if found else "")).fetchone():
        found.append(row[0])
    return tuple(found)


def find(connection: sqlite3.Connection, tenant: str, query: Query) -> Page:
    """The page of a query."""
    start, begin = (FIRST_MS, "") if query.after is None else decode_cursor(query.after)
    place = (start, begin.removeprefix(f"{query.kind}/"))
    limit = max(1, min(query.limit, PAGE_MAX))
    few = _few(connection, tenant, query)
    if few is not None:
        found = sorted(each for each in few if each[:2] > place)
        return page(query, found[:limit], last=found[limit - 1][:2] if len(found) > limit else None)
    return _walked(connection, tenant, query, place, limit)


def _few(connection: sqlite3.Connection, tenant: str, query: Query) -> list[Found] | None:
    """All rows of the query, when an index by id or tag leaves only few to look at; else None."""
    for rows in _narrow(connection, tenant, query):
        read = list(islice(rows, WALK_MAX + 1))
        if len(read) <= WALK_MAX:
            return [placed(each, query) for each in read if matches(each, query)]
    return None


def _narrow(connection: sqlite3.Connection, tenant: str, query: Query) -> Iterator[Iterator[Found]]:
    prefix = query.prefix
    if prefix:
        rows = connection.execute(BY_ID, (tenant, query.kind, prefix))
        yield takewhile(lambda each: each[1].startswith(prefix), rows)
    if query.tag is not None:
        yield connection.execute(BY_TAG, (tenant, query.kind, query.tag))


def _walked(connection: sqlite3.Connection, tenant: str, query: Query, place: tuple[int, str], limit: int) -> Page:
    before = LAST_MS if query.entered_before_ms is None else query.entered_before_ms
    if query.state is None:
        rows = connection.execute(BY_AGE, (tenant, query.kind, *place, before))
    else:
        rows = connection.execute(BY_STATE, (tenant, query.kind, query.state, *place, before))
    found: list[Found] = []
    last: tuple[int, str] | None = None
    for read, each in enumerate(rows):
        if read == WALK_MAX or len(found) == limit:
            return page(query, found, last=last)
        last = each[0], each[1]
        if matches(each, query):
            found.append(each)
    return page(query, found, last=None)
