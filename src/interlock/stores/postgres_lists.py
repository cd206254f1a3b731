"""Lists of entities from a PostgreSQL server: always along an index, never a scan, page by page from a cursor.

Rule 1: the order is (since when in the state, id); a cursor is the last row's place in it, so a page never shifts.
Rule 2: few candidates by id prefix or tag are read whole and put in order. Otherwise the walk follows the index by age
and a filter narrows it; it stops after `WALK_MAX` rows and answers what it found, with a cursor to go on from.
Rule 3: a walk asks for its rows in pieces: what a page does not need is not sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from interlock.ports.store import PAGE_MAX, Page, Query
from interlock.stores.cursor import decode_cursor
from interlock.stores.listing import Found, matches, page, placed
from interlock.stores.postgres_batch import WHOLE
from interlock.stores.postgres_connect import Connection

WALK_MAX = 5_000
"""Rows that one answer reads at most: some milliseconds, at any size of the table."""

PIECE = 500
"""Rows of a walk that are asked for at once, when a filter may leave some out."""

_COLUMNS = "e.version, e.revision, e.configuration, e.created_ms, e.entered_ms, e.changed_ms, e.ended, e.active, e.tags"

BY_AGE = f"""
    SELECT s.entered_ms, s.id, {_COLUMNS}
    FROM entity_state AS s CROSS JOIN LATERAL (
      SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = s.id OFFSET 0) AS e
    WHERE s.tenant = $1 AND s.kind = $2 AND s.state = $3 AND (s.entered_ms, s.id) > ($4, $5) AND s.entered_ms < $6
    ORDER BY s.entered_ms, s.id LIMIT $7"""  # noqa: S608 - made of constants
BY_ID = f"""
    SELECT e.entered_ms, e.id, {_COLUMNS}
    FROM entity AS e
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id >= $3 AND e.id IS DISTINCT FROM $4
    ORDER BY e.id LIMIT $5"""  # noqa: S608 - made of constants
BY_TAG = f"""
    SELECT e.entered_ms, e.id, {_COLUMNS}
    FROM entity_tag AS t CROSS JOIN LATERAL (
      SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = t.id OFFSET 0) AS e
    WHERE t.tenant = $1 AND t.kind = $2 AND t.tag = $3 AND t.id >= $4 AND t.id IS DISTINCT FROM $5
    ORDER BY t.id LIMIT $6"""  # noqa: S608 - made of constants
KINDS = """
    WITH RECURSIVE found (kind) AS (
      (SELECT kind FROM entity WHERE tenant = $1 ORDER BY kind LIMIT 1)
      UNION ALL
      SELECT (SELECT e.kind FROM entity AS e WHERE e.tenant = $1 AND e.kind > f.kind ORDER BY e.kind LIMIT 1)
      FROM found AS f WHERE f.kind IS NOT NULL)
    SELECT kind FROM found WHERE kind IS NOT NULL"""

FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


async def kinds(connection: Connection, tenant: str) -> tuple[str, ...]:
    """The kinds that there are entities of: one step along the key for each, however many entities they have."""
    return tuple(row[0] for row in await connection.fetch(KINDS, tenant))


async def find(connection: Connection, tenant: str, query: Query) -> Page:
    """The page of a query."""
    start, begin = (FIRST_MS, "") if query.after is None else decode_cursor(query.after)
    place = (start, begin.removeprefix(f"{query.kind}/"))
    limit = max(1, min(query.limit, PAGE_MAX))
    few = await _few(connection, tenant, query)
    if few is not None:
        found = sorted(each for each in few if each[:2] > place)
        return page(query, found[:limit], last=found[limit - 1][:2] if len(found) > limit else None)
    return await _walked(connection, tenant, query, place, limit)


async def _few(connection: Connection, tenant: str, query: Query) -> list[Found] | None:
    """All rows of the query, when an index by id or tag leaves only few to look at; else None."""
    prefix = query.prefix
    narrow: list[tuple[AsyncIterator[Found], Callable[[Found], bool]]] = []
    if prefix:
        rows = _by_name(connection, BY_ID, (tenant, query.kind), prefix)
        narrow.append((rows, lambda each: not each[1].startswith(prefix)))
    if query.tag is not None:
        narrow.append((_by_name(connection, BY_TAG, (tenant, query.kind, query.tag), ""), lambda _: False))
    for walk, is_behind in narrow:
        read: list[Found] = []
        async for each in walk:
            if len(read) > WALK_MAX or is_behind(each):
                break
            read.append(each)
        if len(read) <= WALK_MAX:
            return [placed(each, query) for each in read if matches(each, query)]
    return None


async def _by_name(connection: Connection, statement: str, where: tuple[str, ...], begin: str) -> AsyncIterator[Found]:
    """The rows of a statement in the order of their ids, piece by piece."""
    last: str | None = None
    while True:  # a piece that is not full is the last
        rows = await connection.fetch(statement, *where, begin, last, PIECE)
        for row in rows:
            yield tuple(row)
        if len(rows) < PIECE:
            return
        begin = last = rows[-1][1]  # from there on, without it


async def _walked(connection: Connection, tenant: str, query: Query, place: tuple[int, str], limit: int) -> Page:
    before = LAST_MS if query.entered_before_ms is None else query.entered_before_ms
    where = (tenant, query.kind, WHOLE if query.state is None else query.state)
    narrowed = query.prefix is not None or query.revision is not None or query.tag is not None
    piece = PIECE if narrowed else limit + 1
    found: list[Found] = []
    last = place
    for _ in range(0, WALK_MAX, piece):
        rows = await connection.fetch(BY_AGE, *where, *last, before, piece)
        for row in map(tuple, rows):
            if len(found) == limit:
                return page(query, found, last=last)
            last = row[0], row[1]
            if matches(row, query):
                found.append(row)
        if len(rows) < piece:
            return page(query, found, last=None)
    return page(query, found, last=last)
