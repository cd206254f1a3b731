"""Entities of a kind: list them by state, age, tag, revision, id or error; create one; send it an event.

Rule 1: a list follows an index from a cursor that is bound to its filter; nothing is counted.
Rule 2: a refused event is a problem that contains the receipt, so a client that checks only the status is not misled.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from interlock.errors import UnavailableError, UsageError
from interlock.model.conditions import read_conditions
from interlock.model.duration import require_duration
from interlock.model.journal.entry import Receipt
from interlock.ports.reading.field_indexes import check_searchable
from interlock.ports.store import EntityPage, EntityQuery, EntityRow
from interlock.ports.work import WorkQuery
from interlock.runtime.request_checks import check_entity
from interlock.web.api.covered import create_covered, send_covered
from interlock.web.api.views import RowsView, mask_for
from interlock.web.http.console import reader_of
from interlock.web.http.endpoint import Endpoint, RequestContext, traceparent_of
from interlock.web.http.errors import problem_body, problem_response

ROWS_MAX = 200
ERROR_PAGES_MAX = 10
"""Pages of work that a list by error reads before it returns what it found."""

# List


class ListQuery(Struct, frozen=True):
    """The filters of a list. `older`: a duration such as 2h. `error`: a handler with dead letters, or `any`.

    `where`: conditions on indexed fields, such as `customer=c-7; amount>=10`.
    """

    state: str | None = None
    revision: str | None = None
    tag: str | None = None
    older: str | None = None
    error: str | None = None
    q: str | None = None
    where: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = 50


def entity_query(kind: str, filters: ListQuery, *, now_ms: int, cursor: str | None) -> EntityQuery:
    """Return the store's query for a list. Raises UsageError if `older` is not a duration."""
    before_ms = None
    if filters.older is not None:
        before_ms = now_ms - require_duration(filters.older, what="older", code="older.malformed")
    return EntityQuery(
        kind=kind,
        state=filters.state,
        entered_before_ms=before_ms,
        tag=filters.tag,
        revision=filters.revision,
        prefix=filters.q,
        after=cursor,
        limit=filters.limit,
    )


def _scope(kind: str, filters: ListQuery) -> str:
    """What a cursor of this list is bound to."""
    parts = [kind, filters.state, filters.revision, filters.tag, filters.older, filters.error, filters.q]
    if filters.where is not None:
        parts.append(filters.where)
    return msgspec.json.encode(parts).decode()


async def list_entities(request: RequestContext) -> RowsView:
    """Return a page of the entities of a kind, those longest in their state first."""
    console, filters, kind = request.console, request.query, request.path("kind")
    is_covered = console.sees_covers(request.user, kind)
    if filters.error is not None and not is_covered:
        console.check_kind(request.user, kind)  # work is not listed by owner
    now_ms = console.clock.now_ms()
    cursor = console.cursors.decrypt(filters.after, _scope(kind, filters))
    query = entity_query(kind, filters, now_ms=now_ms, cursor=cursor)
    if filters.where is not None:
        if filters.error is not None:
            raise UsageError("`error` and `where` cannot be combined", code="where.malformed", hint="use one of them")
        query = msgspec.structs.replace(query, where=await _conditions(request, kind, filters.where))
    if is_covered:  # work is unknown to such users, and so are errors
        reader = reader_of(request.user)
        page = EntityPage(()) if filters.error is not None else await console.runtime.list(query, reader=reader)
    elif filters.error is not None:
        page = await _find_by_error(request, query)
    else:
        narrowed = await console.runtime.permissions.narrow(query, request.user.principal)
        if narrowed is None:
            page = EntityPage(())
        else:
            page = await (console.store.find(query) if narrowed.where is None else console.runtime.list(narrowed))
    return RowsView(
        page.rows,
        now_ms,
        console.cursors.encrypt(page.after, _scope(kind, filters)),
        page.after is not None and len(page.rows) < filters.limit,
    )


async def _conditions(request: RequestContext, kind: str, text: str) -> dict[str, Any]:
    """Return the conditions on fields. A field that is masked for the user has no index for them: the list would
    disclose its values.
    """
    runtime = request.console.runtime
    texts = tuple(each for each in text.split(";") if each.strip())
    known = await runtime.index_forms(kind)
    hidden = request.console.masked_fields(request.user, kind)
    visible = {field: form for field, form in known.items() if field not in hidden}
    conditions = read_conditions(texts, visible)
    for field in conditions:
        if field not in visible:
            check_searchable(kind, field, None, tuple(visible))
    return conditions


async def _find_by_error(request: RequestContext, query: EntityQuery) -> EntityPage:
    """Return entities with dead letters, found through the list of work.

    The cursor contains the last entity, too: the next page of work may start with more work of it.
    """
    store, filters = request.console.store, request.query
    if store.work is None:
        return EntityPage(())
    name = None if filters.error == "any" else filters.error
    last, _, cursor = (None, "", None) if query.after is None else query.after.partition("\n")
    found: dict[str, None] = {}
    for _ in range(ERROR_PAGES_MAX):
        page = await store.work.list_work(
            WorkQuery(kind=query.kind, dead=True, name=name, after=cursor, limit=filters.limit)
        )
        found |= dict.fromkeys(each.entity for each in page.rows if each.entity != last)
        cursor = page.after
        if cursor is None or len(found) >= filters.limit:
            break
    rows: list[EntityRow] = []
    for entity in found:  # a list by prefix is ordered by id, so an exact match comes first
        narrow = msgspec.structs.replace(query, prefix=entity.partition("/")[2], after=None, limit=1)
        rows.extend(each for each in (await store.find(narrow)).rows if each.entity == entity)
    end = next(reversed(found), last or "")
    return EntityPage(tuple(rows), None if cursor is None else f"{end}\n{cursor}")


# Create and send


class SendBody(Struct, frozen=True):
    """An event to send. `dry_run`: return what would happen. `reason` is stored with the entry."""

    event: str
    payload: Any = None
    key: str | None = None
    expected: int | None = None
    reason: str | None = None
    dry_run: bool = False


class CreateBody(Struct, frozen=True):
    """An entity to create."""

    id: str
    context: dict[str, Any] = {}
    key: str | None = None
    reason: str | None = None


class ReceiptView(Struct, frozen=True):
    """The outcome of an event. `guards`: the guards that were false, and the values that they read."""

    entity: str
    outcome: str
    version: int
    reason: str | None = None
    configuration: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    guards: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    dry_run: bool = False


async def create_entity(request: RequestContext) -> ReceiptView | Response:
    """Create an entity."""
    body, kind = request.body, request.path("kind")
    if request.console.may_write_covered(request.user, kind):
        return await create_covered(request, f"{kind}/{body.id}")
    receipt = await request.console.runtime.create(
        f"{kind}/{body.id}",
        body.context,
        key=body.key,
        principal=request.user.principal,
        trace=traceparent_of(request.http),
        reason=body.reason or None,
    )
    return await _receipt_response(request, receipt, "create")


async def send_event(request: RequestContext) -> ReceiptView | Response:
    """Send an event to an entity, or do a dry run of it."""
    entity, body = request.path("entity"), request.body
    if request.console.may_write_covered(request.user, check_entity(entity)):
        return await send_covered(request, entity)
    runtime = request.console.runtime
    if body.dry_run:
        principal = request.user.principal
        receipt = await runtime.dry_run(entity, body.event, body.payload, key=body.key, principal=principal)
    else:
        receipt = await runtime.send(
            entity,
            body.event,
            body.payload,
            key=body.key,
            expected=body.expected,
            principal=request.user.principal,
            trace=traceparent_of(request.http),
            reason=body.reason or None,
        )
    return await _receipt_response(request, receipt, body.event, dry_run=body.dry_run)


async def _receipt_response(
    request: RequestContext, receipt: Receipt, event: str, *, dry_run: bool = False
) -> ReceiptView | Response:
    """Return the receipt, or a problem that contains it if the event was refused.

    A user without the right `read`, or who may not read the entity, gets no states, effects or guards.
    """
    may_read = "read" in request.user.rights and (
        receipt.version == 0 or await request.console.may_read(request.user, receipt.entity)
    )
    view = await _receipt_view(request, receipt, may_read=may_read, dry_run=dry_run)
    if receipt.outcome not in ("rejected", "denied"):
        return view
    status, title = (422, "Rejected by the chart") if receipt.outcome == "rejected" else (403, "Forbidden")
    code = f"{receipt.outcome}.{receipt.reason}"
    detail = receipt.explanation if may_read else None  # it contains no sensitive values
    problem = problem_body(status, title, detail or f"`{receipt.entity}` {receipt.outcome} `{event}`", code=code)
    if may_read:
        problem["receipt"] = msgspec.to_builtins(view)
    return problem_response(status, problem)


async def _receipt_view(request: RequestContext, receipt: Receipt, *, may_read: bool, dry_run: bool) -> ReceiptView:
    snapshot, mask = receipt.snapshot, None
    if snapshot is not None and may_read:
        try:
            mask = mask_for(
                await request.console.runtime.revisions.chart(snapshot.kind, snapshot.revision), request.user
            )
        except UnavailableError:  # a duplicate, and its revision cannot be read: nothing says what is sensitive
            may_read = request.user.sees_sensitive
    if not may_read:  # the messages of faults may quote values
        codes = tuple(each.code for each in receipt.faults)
        return ReceiptView(
            receipt.entity, receipt.outcome, receipt.version, receipt.reason, faults=codes, dry_run=dry_run
        )
    if mask is None:
        effects = tuple(each.name or each.type for each in receipt.effects)
        guards = tuple(
            {"guard": each.guard, "values": each.values, "error": each.error} for each in receipt.failed_guards
        )
        faults = tuple(each.message for each in receipt.faults)
    else:  # errors and the messages of faults may quote values
        effects = tuple(each.type if each.name is None else mask.name(each.name) for each in receipt.effects)
        guards = tuple({"guard": each.guard, "values": {}, "error": None} for each in receipt.failed_guards)
        faults = tuple(each.code for each in receipt.faults)
    return ReceiptView(
        receipt.entity,
        receipt.outcome,
        receipt.version,
        receipt.reason,
        () if snapshot is None else snapshot.configuration,
        effects,
        guards,
        faults,
        dry_run,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/kinds/{kind}/entities",
        summary="List the entities of a kind, those longest in their state first",
        handler=list_entities,
        query=ListQuery,
        answer=RowsView,
    ),
    Endpoint(
        method="POST",
        path="/kinds/{kind}/entities",
        summary="Create an entity",
        handler=create_entity,
        right="send",
        body=CreateBody,
        answer=ReceiptView,
    ),
    Endpoint(
        method="POST",
        path="/send/{entity:path}",
        summary="Send an event to an entity",
        handler=send_event,
        right="send",
        body=SendBody,
        answer=ReceiptView,
    ),
)
