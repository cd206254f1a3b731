"""Lists of entities, by state, age, tag, revision, id and error.

Rule: a list is walked along an index, from a cursor that is signed and bound to its filter; nothing is counted.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from interlock.errors import UsageError
from interlock.model.duration import parse_duration
from interlock.ports.store import Page, Query, Row
from interlock.ports.work import WorkQuery, WorkStore
from interlock.web.endpoint import Asked, Endpoint
from interlock.web.views import RowsView, row_view

ROWS_MAX = 200
ERROR_PAGES_MAX = 10
"""Pages of work that a list by error looks through before it answers what it found."""

Limit = Annotated[int, Meta(ge=1, le=ROWS_MAX)]


class ListQuery(Struct, frozen=True):
    """The filters of a list. `older`: a duration such as 2h. `error`: the name of a handler whose work died, or any."""

    state: str | None = None
    revision: str | None = None
    tag: str | None = None
    older: str | None = None
    error: str | None = None
    q: str | None = None
    after: str | None = None
    limit: Limit = 50


def list_query(console_now_ms: int, kind: str, asked: ListQuery, cursor: str | None) -> Query:
    """The store's question for a list. Raises UsageError for an age that is none."""
    before_ms = None
    if asked.older is not None:
        age = parse_duration(asked.older)
        if age is None:
            hint = "write 30s, 15m, 2h, 1h30m or 3d"
            raise UsageError(f"`{asked.older[:40]}` is no age", code="older.malformed", hint=hint)
        before_ms = console_now_ms - age
    return Query(
        kind=kind,
        state=asked.state,
        entered_before_ms=before_ms,
        tag=asked.tag,
        revision=asked.revision,
        prefix=asked.q,
        after=cursor,
        limit=asked.limit,
    )


def about(kind: str, asked: ListQuery) -> str:
    """What a cursor of this list is bound to."""
    told = (kind, asked.state, asked.revision, asked.tag, asked.older, asked.error, asked.q)
    return msgspec.json.encode(told).decode()


async def rows(asked: Asked) -> RowsView:
    """Entities of a kind by state, age, tag, revision, id and error, oldest in their state first."""
    console, query, kind = asked.console, asked.query, asked.path("kind")
    console.check_kind(asked.person, kind)
    now_ms = console.clock.now_ms()
    cursor = console.unsigned(query.after, about(kind, query))
    wanted = list_query(now_ms, kind, query, cursor)
    page = await (console.store.find(wanted) if query.error is None else _with_error(asked, wanted))
    return RowsView(
        tuple(row_view(each) for each in page.rows),
        now_ms,
        console.signed(page.after, about(kind, query)),
        page.after is not None and len(page.rows) < query.limit,
    )


async def _with_error(asked: Asked, wanted: Query) -> Page:
    """Entities whose work has died: the list of work leads to them."""
    store, query = asked.console.store, asked.query
    if not isinstance(store, WorkStore):
        return Page(())
    name = None if query.error == "any" else query.error
    found: dict[str, None] = {}
    cursor = wanted.after
    for _ in range(ERROR_PAGES_MAX):
        page = await store.works(WorkQuery(dead=True, name=name, after=cursor, limit=query.limit))
        found |= dict.fromkeys(each.entity for each in page.rows if each.entity.startswith(f"{wanted.kind}/"))
        cursor = page.after
        if cursor is None or len(found) >= query.limit:
            break
    rows: list[Row] = []
    for entity in found:
        own = entity.partition("/")[2]
        narrow = msgspec.structs.replace(wanted, prefix=own, after=None, limit=ROWS_MAX)
        listed = await asked.console.store.find(narrow)
        rows.extend(each for each in listed.rows if each.entity == entity)
    return Page(tuple(rows), cursor)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/kinds/{kind}/entities",
        summary="Entities of a kind, oldest in their state first",
        handler=rows,
        query=ListQuery,
        answer=RowsView,
    ),
)
