"""Lists of entities from a PostgreSQL server: always along an index, never a scan, page by page from a cursor.

Rule 1: the order is (since when in the state, id); a cursor is the last row's place in it, so a page never shifts.
Rule 2: a walk follows the index of its order, by id for a prefix, else by age, and filters narrow it; it stops after
`WALK_MAX` rows and answers what it found, with a cursor to go on from. Few entities with a tag are read whole instead,
and put in order.
Rule 3: a walk asks for its rows in pieces: what a page does not need is not sent.
"""

from __future__ import annotations

from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery
from interlock.stores.cursor import decode_cursor
from interlock.stores.listing import Found, matches, page, placed
from interlock.stores.postgres.commit import ANY_STATE
from interlock.stores.postgres.connection import Connection

WALK_MAX = 2_000
"""Rows that one answer reads at most: some milliseconds, at any size of the table."""

FEW_MAX = 1_000
"""Entities with a tag that are few. Each of them is looked up where it lies, which takes longer than a walk does."""

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
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id >= $3 AND e.id <> $4
    ORDER BY e.id LIMIT $5"""  # noqa: S608 - made of constants
BY_TAG = f"""
    SELECT e.entered_ms, e.id, {_COLUMNS}
    FROM entity_tag AS t CROSS JOIN LATERAL (
      SELECT * FROM entity WHERE tenant = $1 AND kind = $2 AND id = t.id OFFSET 0) AS e
    WHERE t.tenant = $1 AND t.kind = $2 AND t.tag = $3
    ORDER BY t.id"""  # noqa: S608 - made of constants
MANY_TAGGED = "SELECT 1 FROM entity_tag WHERE tenant = $1 AND kind = $2 AND tag = $3 ORDER BY id LIMIT 1 OFFSET $4"
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


async def find(connection: Connection, tenant: str, query: EntityQuery) -> EntityPage:
    """The page of a query."""
    start, begin = (FIRST_MS, "") if query.after is None else decode_cursor(query.after)
    place = (start, begin.removeprefix(f"{query.kind}/"))
    limit = min(query.limit, PAGE_MAX)
    if query.tag is not None and not query.prefix and not await _is_many(connection, tenant, query):
        tagged = map(tuple, await connection.fetch(BY_TAG, tenant, query.kind, query.tag))
        found = sorted(each for row in tagged if matches(row, query) and (each := placed(row, query))[:2] > place)
        return page(query, found[:limit], last=found[limit - 1][:2] if len(found) > limit else None)
    return await _walked(connection, tenant, query, place, limit)


async def _is_many(connection: Connection, tenant: str, query: EntityQuery) -> bool:
    return bool(await connection.fetch(MANY_TAGGED, tenant, query.kind, query.tag, FEW_MAX))


async def _walked(
    connection: Connection, tenant: str, query: EntityQuery, place: tuple[int, str], limit: int
) -> EntityPage:
    narrowed = query.prefix or query.revision is not None or query.tag is not None
    piece = PIECE if narrowed else limit + 1
    found: list[Found] = []
    last = place
    for _ in range(0, WALK_MAX, piece):
        rows = await _piece(connection, tenant, query, last, piece)
        for row in rows:
            if len(found) == limit:
                return page(query, found, last=last)
            if query.prefix and not row[1].startswith(query.prefix):
                return page(query, found, last=None)
            last = 0 if query.prefix else row[0], row[1]
            if matches(row, query):
                found.append(row)
        if len(rows) < piece:
            return page(query, found, last=None)
    return page(query, found, last=last)


async def _piece(
    connection: Connection, tenant: str, query: EntityQuery, place: tuple[int, str], piece: int
) -> list[Found]:
    """The next rows behind a place, in the query's order."""
    if query.prefix:
        rows = await connection.fetch(BY_ID, tenant, query.kind, max(query.prefix, place[1]), place[1], piece)
    else:
        before = LAST_MS if query.entered_before_ms is None else query.entered_before_ms
        where = (tenant, query.kind, ANY_STATE if query.state is None else query.state)
        rows = await connection.fetch(BY_AGE, *where, *place, before, piece)
    return [tuple(row) for row in rows]
