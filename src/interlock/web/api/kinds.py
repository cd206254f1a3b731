"""Kinds: the overview of all kinds, one kind in detail, its drawing, and two of its revisions compared."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.responses import Response

from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import event_names
from interlock.model.encoding.index_key import IndexedField
from interlock.observe.acceptance import payload_schema
from interlock.observe.population import Population, RevisionPopulation, StatePopulation, population
from interlock.observe.revision_diff import Change, revision_changes
from interlock.ports.reading.statistics import MinuteRates
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import BUILTIN_KINDS
from interlock.runtime.charts.rollouts import RolloutState, read_rollout
from interlock.trust.visibility import is_entitled
from interlock.web.api.covered import counts_covered, covered_population
from interlock.web.api.jobs import may_see_job
from interlock.web.api.work import find_visible_work
from interlock.web.http.console import reader_of
from interlock.web.http.endpoint import Endpoint, RequestContext

DEAD_LETTERS_MAX = 1_000
"""Dead letters that the overview counts; if there are more, it says so."""


class KindView(Struct, frozen=True):
    """A kind in the overview. `chart` is False if no chart of it is known: then it has only a name."""

    kind: str
    chart: bool
    revision: str | None = None
    entities: int = 0
    partial: bool = False
    stuck: int = 0
    stuck_more: bool = False
    states: tuple[StatePopulation, ...] = ()
    revisions: tuple[RevisionPopulation, ...] = ()
    minutes: tuple[MinuteRates, ...] = ()
    steps_per_second: float | None = None
    label: str | None = None


class OverviewView(Struct, frozen=True):
    """The kinds that the user may see.

    `dead` counts their dead letters; None if the store does not run effects. `interrupted` counts the jobs that need to
    be resumed and that the user may see.
    """

    kinds: tuple[KindView, ...]
    now_ms: int
    dead: int | None = None
    dead_more: bool = False
    interrupted: int = 0


class EventView(Struct, frozen=True):
    """An event that a chart accepts."""

    name: str
    roles: tuple[str, ...] | None = None
    payload: dict[str, Any] | None = None
    description: str | None = None


class RolloutView(Struct, frozen=True):
    """The rollout of a kind: the share of new entities that start on a revision; all others start on the base.

    `percent` is 0 for a rollout that was aborted.
    """

    state: RolloutState
    percent: float
    revision: str
    base: str
    changed_ms: int
    why: str = ""


class KindDetail(Struct, frozen=True):
    """One kind in detail. `context` is the JSON Schema of the initial context, `indexes` the fields that the user may
    find entities by.
    """

    kind: KindView
    now_ms: int
    events: tuple[EventView, ...]
    context: dict[str, Any]
    description: str | None = None
    indexes: tuple[IndexedField, ...] = ()
    rollout: RolloutView | None = None


class DiffQuery(Struct, frozen=True, rename={"from_revision": "from"}):
    """The two revisions to compare."""

    from_revision: str
    to: str


class RevisionQuery(Struct, frozen=True):
    """The revision to draw; the current one by default."""

    revision: str | None = None


class DiffView(Struct, frozen=True):
    """The differences between two revisions. `affected` counts the entities in removed states."""

    kind: str
    before: str
    after: str
    changes: tuple[Change, ...]
    affected: int
    same: bool


async def get_overview(request: RequestContext) -> OverviewView:
    """Return every kind that has a chart or an entity."""
    console = request.console
    known = dict.fromkeys([*console.kinds(), *await console.store.kinds()])
    views = []
    for each in known:
        if each in BUILTIN_KINDS:
            continue
        if request.may_see(each):
            views.append(await _kind_view(request, each) if each in console.kinds() else KindView(each, chart=False))
        elif await counts_covered(request, each):
            views.append(_kind_of(await covered_population(request, each)))
    dead, dead_more = await _dead_letters(request)
    interrupted = [each for each in await console.jobs.interrupted() if may_see_job(request, each)]
    return OverviewView(tuple(views), console.clock.now_ms(), dead, dead_more, len(interrupted))


async def _kind_view(request: RequestContext, kind: str) -> KindView:
    return _kind_of(await population(request.console.runtime, kind))


def _kind_of(found: Population) -> KindView:
    return KindView(
        found.kind,
        True,
        found.revision,
        found.entities or 0,
        not found.is_complete,
        found.stuck or 0,
        found.stuck_more,
        found.states,
        found.revisions,
        found.minutes,
        found.steps_per_second,
        found.label,
    )


async def _dead_letters(request: RequestContext) -> tuple[int | None, bool]:
    """Return the number of visible dead letters, and whether there are more."""
    if request.console.store.work is None:
        return None, False
    page = await find_visible_work(request, WorkQuery(dead=True, limit=DEAD_LETTERS_MAX))
    return len(page.rows), page.after is not None


async def get_kind(request: RequestContext) -> KindDetail:
    """Return the population of a kind, and the events that its chart accepts."""
    kind = request.path("kind")
    is_covered = await counts_covered(request, kind)
    chart = request.console.kernel(kind).chart if is_covered else request.console.chart_for(request.user, kind)
    view = _kind_of(await covered_population(request, kind)) if is_covered else await _kind_view(request, kind)
    root = chart.states[0]
    hidden = request.console.masked_fields(request.user, kind)
    forms = await request.console.runtime.index_forms(kind)
    return KindDetail(
        view,
        request.console.clock.now_ms(),
        _events(chart),
        payload_schema(root.context),
        root.description,
        tuple(IndexedField(kind, field, form) for field, form in sorted(forms.items()) if field not in hidden),
        await _rollout(request, kind),
    )


async def _rollout(request: RequestContext, kind: str) -> RolloutView | None:
    found = await read_rollout(request.console.store, kind)
    if found is None:
        return None
    last = found.history[-1]
    return RolloutView(found.state, found.share / 100, found.revision, found.base, last.changed_ms, last.why)


def _events(chart: Chart) -> tuple[EventView, ...]:
    declared = {each.name: each for each in chart.events or ()}
    views = []
    for name in event_names(chart):
        event = declared.get(name)
        if event is None:
            views.append(EventView(name))
        else:
            payload = None if event.payload is None else payload_schema(event.payload)
            views.append(EventView(name, event.roles, payload, event.description))
    return tuple(views)


async def get_drawing(request: RequestContext) -> Response:
    """Return the drawing of a chart as SVG without colours: the page colours it."""
    console, kind, revision = request.console, request.path("kind"), request.query.revision
    if await counts_covered(request, kind):
        chart = console.kernel(kind, revision).chart
        if not is_entitled(chart, reader_of(request.user)):
            return _svg_response(request, await console.visible_drawing(chart), f"{chart.revision}/visible")
        return _svg_response(request, await console.drawing(chart), chart.revision)
    chart = console.chart_for(request.user, kind, revision)
    return _svg_response(request, await request.console.drawing(chart), chart.revision)


def _compared_charts(request: RequestContext) -> tuple[Chart, Chart]:
    console, kind = request.console, request.path("kind")
    before = console.chart_for(request.user, kind, request.query.from_revision)
    return before, console.chart_for(request.user, kind, request.query.to)


async def get_diff(request: RequestContext) -> DiffView:
    """Return the differences between two revisions."""
    kind = request.path("kind")
    before, after = _compared_charts(request)
    found = await population(request.console.runtime, kind)
    entities = next((each.states for each in found.revisions if each.revision == before.revision), {})
    changes = revision_changes(before, after, entities)
    removed = [each for each in changes if each.what == "state" and each.change == "removed"]
    affected = sum(each.entities for each in removed)
    return DiffView(kind, before.revision, after.revision, changes, affected, same=not changes)


async def get_diff_drawing(request: RequestContext) -> Response:
    """Return one drawing of two revisions."""
    before, after = _compared_charts(request)
    drawing = await request.console.drawing(before, after)
    return _svg_response(request, drawing, f"{before.revision}..{after.revision}")


def _svg_response(request: RequestContext, text: str, tag: str) -> Response:
    """Return a drawing that the browser may cache until the revision changes."""
    etag = f'"{tag}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache, private"}
    if request.http.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="image/svg+xml", headers=headers)


ENDPOINTS = (
    Endpoint(method="GET", path="/kinds", summary="List all kinds", handler=get_overview, answer=OverviewView),
    Endpoint(method="GET", path="/kinds/{kind}", summary="Get a kind", handler=get_kind, answer=KindDetail),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/chart.svg",
        summary="Draw a chart",
        handler=get_drawing,
        query=RevisionQuery,
        media="image/svg+xml",
    ),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/diff",
        summary="Compare two revisions",
        handler=get_diff,
        query=DiffQuery,
        answer=DiffView,
    ),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/diff.svg",
        summary="Draw two revisions in one drawing",
        handler=get_diff_drawing,
        query=DiffQuery,
        media="image/svg+xml",
    ),
)
