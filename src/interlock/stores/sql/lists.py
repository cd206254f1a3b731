"""Entity lists of a SQL store: always along an index, page by page from a cursor.

Rule 1: the order is (entry time of the state, id). A cursor is the position of the last row, so pages never shift.
Rule 2: a walk follows the index of its order (by id or by age), and filters narrow it. It stops after
`WALK_MAX` rows and returns what it found, with a cursor to continue from. When few entities have a tag, all of them are
read and sorted instead.
Rule 3: a walk reads its rows in pieces that double from `limit + 1`: a page without filters is one piece.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery
from interlock.stores.cursor import decode_cursor
from interlock.stores.listing import FIRST_MS, Found, page, row_position
from interlock.stores.sql.database import Ask, Questions, Statements

WALK_MAX = 2_000
"""Rows that one page reads at most: a few milliseconds, whatever the size of the table."""

FEW_MAX = 1_000
"""Entities with one tag that are read as a whole: each is a lookup, which costs more than a row of a walk."""

LAST_MS = 2**63 - 1


def list_kinds(sql: Statements, tenant: str) -> Questions[tuple[str, ...]]:
    """Return the kinds that have entities: one index step for each, however many entities they have."""
    return tuple(row[0] for row in (yield Ask(sql.kinds, (tenant,))))


def find_entities(sql: Statements, tenant: str, query: EntityQuery) -> Questions[EntityPage]:
    """Return the page of a query. Raises UsageError (`cursor.malformed`) for an invalid cursor."""
    entered_ms, entity = (FIRST_MS, "") if query.after is None else decode_cursor(query.after)
    position = (entered_ms, entity.removeprefix(f"{query.kind}/"))
    limit = min(query.limit, PAGE_MAX)
    if query.tag is not None and not query.is_in_id_order:
        many = yield Ask(sql.has_many_tagged, (tenant, query.kind, query.tag, FEW_MAX))
        if not many:
            rows = yield Ask(sql.list_by_tag, (tenant, query.kind, query.tag))
            placed = ((at_ms, *row[1:]) for row in rows if (at_ms := row_position(row, query)) is not None)
            found = sorted(each for each in placed if each[:2] > position)
            return page(query, found[:limit], last=found[limit - 1][:2] if len(found) > limit else None)
    return (yield from _walk(_pieces(sql, tenant, query), query, position, limit))


def _walk(
    ask: Callable[[tuple[int, str], int], Ask], query: EntityQuery, position: tuple[int, str], limit: int
) -> Questions[EntityPage]:
    found: list[Found] = []
    piece, remaining, last = limit + 1, WALK_MAX, position
    while remaining > 0:
        rows = yield ask(last, min(piece, remaining))
        for row in rows:
            if len(found) == limit:
                return page(query, found, last=last)
            if query.prefix and not row[1].startswith(query.prefix):
                return page(query, found, last=None)
            last = 0 if query.is_in_id_order else row[0], row[1]
            if row_position(row, query) is not None:
                found.append(row)
        if len(rows) < min(piece, remaining):
            return page(query, found, last=None)
        remaining -= len(rows)
        piece *= 2
    return page(query, found, last=last)


def _pieces(sql: Statements, tenant: str, query: EntityQuery) -> Callable[[tuple[int, str], int], Ask]:
    """Return what asks for the next rows after a position, in the order of the query."""
    if query.is_in_id_order:
        prefix = query.prefix or ""
        return lambda last, rows: Ask(sql.list_by_id, (tenant, query.kind, max(prefix, last[1]), last[1], rows))
    before_ms = LAST_MS if query.entered_before_ms is None else query.entered_before_ms
    if query.state is None:
        return lambda last, rows: Ask(sql.list_by_age, (tenant, query.kind, *last, before_ms, rows))
    return lambda last, rows: Ask(sql.list_by_state, (tenant, query.kind, *last, before_ms, rows, query.state))
