"""Work that entries left: what waits, what is tried again, what has died, and a hand for the latter.

Rule: work is looked up kind by kind, among those that the caller may see. So neither a page that is short nor a cursor
tells of work that is hidden, and nobody retries or drops what they may not see.
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
from interlock.ports.work import WorkPage, WorkQuery, WorkRow, WorkStore
from interlock.runtime.request_checks import check_entity
from interlock.web.api.views import WorkView, masked_work, masks, work_view
from interlock.web.http.endpoint import Endpoint, RequestContext

SAGAS_MAX = 20
"""Entities shown of one saga: the oldest."""

Number = Annotated[int, Meta(ge=0, le=2**53)]
"""A version or an ordinal: more than any store counts to, and no more than a browser can."""


class WorksQuery(Struct, frozen=True):
    """Which work."""

    lane: Lane | None = None
    name: str | None = None
    entity: str | None = None
    dead: bool | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class WorksView(Struct, frozen=True):
    """A page of work. `kept` False: this store keeps none."""

    rows: tuple[WorkView, ...]
    now_ms: int
    kept: bool
    after: str | None = None


class PlaceBody(Struct, frozen=True):
    """Which piece of work, and why it is touched."""

    entity: str
    lane: Lane
    version: Number
    ordinal: Number
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class Done(Struct, frozen=True):
    """It was done."""

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
    """All sagas of all charts here."""

    sagas: tuple[SagaKind, ...]
    now_ms: int


async def works(asked: RequestContext) -> WorksView:
    """Work by lane, name, entity, and whether it has died."""
    console, query = asked.console, asked.query
    now_ms = console.clock.now_ms()
    if not isinstance(console.store, WorkStore):
        return WorksView((), now_ms, False)
    kind = None if query.entity is None else check_entity(query.entity)
    sees_all = "read:sensitive" in asked.person.rights
    bound = msgspec.json.encode((query.lane, query.name, query.entity, query.dead, sees_all)).decode()
    wanted = WorkQuery(
        kind=kind,
        lane=query.lane,
        name=query.name,
        entity=query.entity,
        dead=query.dead,
        after=console.unsealed(query.after, bound),
        limit=query.limit,
    )
    page = await seen_works(asked, wanted)
    rows = tuple(_masked(asked, work_view(each, now_ms)) for each in page.rows)
    return WorksView(rows, now_ms, True, console.sealed(page.after, bound))


async def seen_works(asked: RequestContext, query: WorkQuery) -> WorkPage:
    """A page of the work of kinds that one may see; of one kind, if the query names one. The store keeps work."""
    console, store = asked.console, asked.console.store
    assert isinstance(store, WorkStore)
    if "read:sensitive" in asked.person.rights:
        return await store.works(query)
    kinds = [each for each in console.seen_kinds(asked.person) if query.kind in (None, each)]
    start, _, cursor = (query.after or "").partition("\n")
    rows: list[WorkRow] = []
    for kind in [each for each in kinds if each >= start]:
        if len(rows) >= query.limit:
            return WorkPage(tuple(rows), f"{kind}\n")
        after = cursor if cursor and kind == start else None
        page = await store.works(replace(query, kind=kind, after=after, limit=query.limit - len(rows)))
        rows += page.rows
        if page.after is not None:
            return WorkPage(tuple(rows), f"{kind}\n{page.after}")
    return WorkPage(tuple(rows))


def _masked(asked: RequestContext, view: WorkView) -> WorkView:
    """Masked when any revision of its kind says so: a list does not know which one wrote the entity."""
    kind = view.entity.partition("/")[0]
    charts = asked.console.runtime.charts.revisions(kind).values()
    found = (masks(each.chart, asked.person) for each in charts)
    return masked_work(view, next((each for each in found if each is not None), None))


async def retry(asked: RequestContext) -> Done:
    """Let dead work be tried again, under its key."""
    return await _acted(asked, "retry")


async def drop(asked: RequestContext) -> Done:
    """Forget dead work: its entity will never hear of it."""
    return await _acted(asked, "drop")


async def _acted(asked: RequestContext, act: Act) -> Done:
    body, console = asked.body, asked.console
    console.check_kind(asked.person, check_entity(body.entity))
    desk = WorkOperations(console.store, console.clock)
    row = await desk.at(body.entity, WorkId(body.lane, body.version, body.ordinal))
    await desk.act(act, row, principal=asked.person.name, why=body.reason)
    return Done(True)


async def saga_list(asked: RequestContext) -> SagasView:
    """Every saga, with the entities that have been in it longest."""
    console = asked.console
    found = []
    for kind in (each for each in console.kinds() if console.may_see(asked.person, each)):
        for saga in sagas(console.kernel(kind).chart):
            page = await console.store.find(EntityQuery(kind=kind, state=saga.state.id, limit=SAGAS_MAX))
            entities = [
                SagaEntity(row.entity, row.entered_ms, await _saga_views(asked, row.entity)) for row in page.rows
            ]
            found.append(SagaKind(kind, saga.state.id, saga.steps, tuple(entities), page.after is not None))
    return SagasView(tuple(found), console.clock.now_ms())


async def _saga_views(asked: RequestContext, entity: str) -> tuple[SagaView, ...]:
    runtime = asked.console.runtime
    snapshot = await runtime.state(entity)
    return saga_views(runtime.charts.of(snapshot), snapshot)


ENDPOINTS = (
    Endpoint(method="GET", path="/works", summary="Work", handler=works, query=WorksQuery, answer=WorksView),
    Endpoint(
        method="POST",
        path="/works/retry",
        summary="Let dead work be tried again",
        handler=retry,
        right="operate",
        body=PlaceBody,
        answer=Done,
    ),
    Endpoint(
        method="POST",
        path="/works/drop",
        summary="Forget dead work",
        handler=drop,
        right="operate",
        body=PlaceBody,
        answer=Done,
    ),
    Endpoint(method="GET", path="/sagas", summary="Sagas and those in them", handler=saga_list, answer=SagasView),
)
