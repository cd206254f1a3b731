"""Work that steps requested: effects, timers and messages; retry or drop dead letters; sagas.

Rule: work is read kind by kind, and only of kinds that the user may see. So neither a short page nor a cursor discloses
hidden work, and no user retries or drops work that they may not see.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.model.journal.work import Lane, WorkId
from interlock.observe.sagas import SagaView, saga_views, sagas
from interlock.operate.dead_letters import Act, WorkOperations
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkPage, WorkQuery, WorkRow
from interlock.runtime.request_checks import check_entity
from interlock.web.api.views import WorkView, mask_for, masked_work, work_view
from interlock.web.http.endpoint import Endpoint, RequestContext

PATH = "/work"

SAGA_ENTITIES_MAX = 20
"""Entities that are listed for one saga: the ones that have been in it longest."""

Number = Annotated[int, Meta(ge=0, le=2**53)]
"""A version or an ordinal, within the integers of a browser."""


class WorkQueryParams(Struct, frozen=True):
    """The filters of a list of work."""

    lane: Lane | None = None
    name: str | None = None
    entity: str | None = None
    dead: bool | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class WorkListView(Struct, frozen=True):
    """A page of work. `supported` is False if the store does not run effects."""

    rows: tuple[WorkView, ...]
    now_ms: int
    supported: bool
    after: str | None = None


class WorkBody(Struct, frozen=True):
    """The piece of work to retry or drop, and the reason for it."""

    entity: str
    lane: Lane
    version: Number
    ordinal: Number
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class Done(Struct, frozen=True):
    """The request was carried out."""

    done: bool


class SagaEntity(Struct, frozen=True):
    """An entity in a saga."""

    entity: str
    entered_ms: int
    sagas: tuple[SagaView, ...]


class SagaKind(Struct, frozen=True):
    """A saga of a chart, and the entities that have been in it longest. `more`: there are others."""

    kind: str
    state: str
    steps: tuple[str, ...]
    entities: tuple[SagaEntity, ...]
    more: bool


class SagasView(Struct, frozen=True):
    """All sagas of all loaded charts."""

    sagas: tuple[SagaKind, ...]
    now_ms: int


async def list_work(request: RequestContext) -> WorkListView:
    """Return work by lane, name and entity, and whether it is a dead letter."""
    console, query = request.console, request.query
    now_ms = console.clock.now_ms()
    if console.store.work is None:
        return WorkListView((), now_ms, supported=False)
    scope = msgspec.json.encode(
        (query.lane, query.name, query.entity, query.dead, request.user.sees_all_kinds)
    ).decode()
    page = await find_visible_work(
        request,
        WorkQuery(
            kind=None if query.entity is None else check_entity(query.entity),
            lane=query.lane,
            name=query.name,
            entity=query.entity,
            dead=query.dead,
            after=console.cursors.decrypt(query.after, scope),
            limit=query.limit,
        ),
    )
    rows = tuple(_masked(request, work_view(each, now_ms)) for each in page.rows)
    return WorkListView(rows, now_ms, supported=True, after=console.cursors.encrypt(page.after, scope))


async def find_visible_work(request: RequestContext, query: WorkQuery) -> WorkPage:
    """Return a page of work of the kinds that the user may see, or of one kind. The store must support work."""
    console, store = request.console, request.console.store
    assert store.work is not None
    hidden = [each for each in console.kinds() if not request.may_see(each)]
    if request.user.sees_all_kinds and not hidden:
        return await store.work.list_work(query)
    kinds = [each for each in console.visible_kinds(request.user) if query.kind in (None, each)]
    start, _, cursor = (query.after or "").partition("\n")
    rows: list[WorkRow] = []
    for kind in [each for each in kinds if each >= start]:
        if len(rows) >= query.limit:
            return WorkPage(tuple(rows), f"{kind}\n")
        after = cursor if cursor and kind == start else None
        page = await store.work.list_work(replace(query, kind=kind, after=after, limit=query.limit - len(rows)))
        rows += page.rows
        if page.after is not None:
            return WorkPage(tuple(rows), f"{kind}\n{page.after}")
    return WorkPage(tuple(rows))


def _masked(request: RequestContext, view: WorkView) -> WorkView:
    """Mask work if any revision of its kind is sensitive: a list does not know the revision of an entity."""
    charts = request.console.revisions(view.entity.partition("/")[0]).values()
    masks = (mask_for(each.chart, request.user) for each in charts)
    return masked_work(view, next((each for each in masks if each is not None), None))


async def retry_work(request: RequestContext) -> Done:
    """Retry a dead letter with the same key."""
    return await _act(request, "retry")


async def drop_work(request: RequestContext) -> Done:
    """Drop a dead letter; its entity gets no result."""
    return await _act(request, "drop")


async def _act(request: RequestContext, act: Act) -> Done:
    body, console = request.body, request.console
    console.check_kind(request.user, check_entity(body.entity))
    operations = WorkOperations(console.store, console.clock)
    row = await operations.at(body.entity, WorkId(body.lane, body.version, body.ordinal))
    await operations.act(act, row, principal=request.user.name, why=body.reason)
    return Done(True)


async def list_sagas(request: RequestContext) -> SagasView:
    """Return every saga, with the entities that have been in it longest."""
    console = request.console
    found = []
    for kind in (each for each in console.kinds() if request.may_see(each)):
        for state, saga in sagas(console.kernel(kind).chart):
            query = EntityQuery(kind=kind, state=state.id, limit=SAGA_ENTITIES_MAX)
            page = await console.store.find(query)
            entities = [
                SagaEntity(each.entity, each.entered_ms, await _saga_views(request, each.entity)) for each in page.rows
            ]
            steps = tuple(each.id for each in saga.steps)
            found.append(SagaKind(kind, state.id, steps, tuple(entities), page.after is not None))
    return SagasView(tuple(found), console.clock.now_ms())


async def _saga_views(request: RequestContext, entity: str) -> tuple[SagaView, ...]:
    runtime = request.console.runtime
    snapshot = await runtime.state(entity)
    return saga_views(await runtime.revisions.for_reading(snapshot.kind, snapshot.revision), snapshot)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        summary="List effects, timers and messages",
        handler=list_work,
        query=WorkQueryParams,
        answer=WorkListView,
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/retry",
        summary="Retry a dead letter",
        handler=retry_work,
        right="operate",
        body=WorkBody,
        answer=Done,
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/drop",
        summary="Drop a dead letter",
        handler=drop_work,
        right="operate",
        body=WorkBody,
        answer=Done,
    ),
    Endpoint(method="GET", path="/sagas", summary="List sagas", handler=list_sagas, answer=SagasView),
)
