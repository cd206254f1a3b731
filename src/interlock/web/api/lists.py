"""Lists of entities, by state, age, tag, revision, id and error.

Rule: a list is walked along an index, from a cursor that is sealed and bound to its filter; nothing is counted.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from interlock.errors import UsageError
from interlock.model.duration import parse_duration
from interlock.ports.store import EntityPage, EntityQuery, EntityRow
from interlock.ports.work import WorkQuery, WorkStore
from interlock.web.api.views import RowsView, row_view
from interlock.web.http.endpoint import Endpoint, RequestContext

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


def list_query(console_now_ms: int, kind: str, asked: ListQuery, cursor: str | None) -> EntityQuery:
    """The store's question for a list. Raises UsageError for an age that is none."""
    before_ms = None
    if asked.older is not None:
        age = parse_duration(asked.older)
        if age is None:
            hint = "write 30s, 15m, 2h, 1h30m or 3d"
            raise UsageError(f"`{asked.older[:40]}` is no age", code="older.malformed", hint=hint)
        before_ms = console_now_ms - age
    return EntityQuery(
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


async def rows(asked: RequestContext) -> RowsView:
    """Entities of a kind by state, age, tag, revision, id and error, oldest in their state first."""
    console, query, kind = asked.console, asked.query, asked.path("kind")
    console.check_kind(asked.person, kind)
    now_ms = console.clock.now_ms()
    cursor = console.unsealed(query.after, about(kind, query))
    wanted = list_query(now_ms, kind, query, cursor)
    page = await (console.store.find(wanted) if query.error is None else _with_error(asked, wanted))
    return RowsView(
        tuple(row_view(each) for each in page.rows),
        now_ms,
        console.sealed(page.after, about(kind, query)),
        page.after is not None and len(page.rows) < query.limit,
    )


async def _with_error(asked: RequestContext, wanted: EntityQuery) -> EntityPage:
    """Entities whose work has died: the list of work leads to them. Its cursor names the last one, too, because the
    next page of work may begin with more of it.
    """
    store, query = asked.console.store, asked.query
    if not isinstance(store, WorkStore):
        return EntityPage(())
    name = None if query.error == "any" else query.error
    last, _, cursor = (None, "", None) if wanted.after is None else wanted.after.partition("\n")
    found: dict[str, None] = {}
    for _ in range(ERROR_PAGES_MAX):
        page = await store.works(WorkQuery(kind=wanted.kind, dead=True, name=name, after=cursor, limit=query.limit))
        found |= dict.fromkeys(each.entity for each in page.rows if each.entity != last)
        cursor = page.after
        if cursor is None or len(found) >= query.limit:
            break
    rows: list[EntityRow] = []
    for entity in found:  # a list by prefix is in the order of ids: whoever has it as its whole id comes first
        narrow = msgspec.structs.replace(wanted, prefix=entity.partition("/")[2], after=None, limit=1)
        rows.extend(each for each in (await store.find(narrow)).rows if each.entity == entity)
    end = next(reversed(found), last or "")
    return EntityPage(tuple(rows), None if cursor is None else f"{end}\n{cursor}")


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
