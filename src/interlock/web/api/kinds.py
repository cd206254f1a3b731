"""Kinds: the fleet at a glance, one kind in full, its drawing, and two of its revisions side by side."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.responses import Response

from interlock.observe.acceptance import event_names, payload_schema
from interlock.observe.population import RevisionPopulation, StatePopulation, population
from interlock.ports.statistics import MinuteRates
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.builtin_charts import BUILTIN_KINDS
from interlock.web.api.work import seen_works
from interlock.web.diagrams import ChangeView, changes
from interlock.web.http.endpoint import Endpoint, RequestContext
from interlock.web.jobs.job import is_open_to

WORK_SEEN_MAX = 1_000
"""Dead letters that the fleet's page counts: beyond that it says "and more"."""


class KindView(Struct, frozen=True):
    """A kind at a glance. `chart` False: this process has none, and can say only that there are entities."""

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


class FleetView(Struct, frozen=True):
    """The kinds that one may see. `dead` counts their dead letters; None where the store keeps no work. `interrupted`
    counts jobs that wait for somebody to resume them, as far as one may see them.
    """

    kinds: tuple[KindView, ...]
    now_ms: int
    dead: int | None = None
    dead_more: bool = False
    interrupted: int = 0


class EventView(Struct, frozen=True):
    """An event that a chart takes."""

    name: str
    roles: tuple[str, ...] | None = None
    payload: dict[str, Any] | None = None
    description: str | None = None


class KindDetail(Struct, frozen=True):
    """One kind in full."""

    kind: KindView
    now_ms: int
    events: tuple[EventView, ...]
    context: dict[str, Any]
    description: str | None = None


class Revisions(Struct, frozen=True, rename={"of": "from"}):
    """Which two revisions to compare."""

    of: str
    to: str


class Revision(Struct, frozen=True):
    """Which revision to draw; the current one when none is named."""

    revision: str | None = None


class DiffView(Struct, frozen=True):
    """What differs between two revisions, and how many entities sit where it does."""

    kind: str
    before: str
    after: str
    changes: tuple[ChangeView, ...]
    affected: int
    same: bool


async def fleet(asked: RequestContext) -> FleetView:
    """Every kind that there is a chart or an entity of."""
    console = asked.console
    known = dict.fromkeys([*console.kinds(), *await console.store.kinds()])
    found = [
        await kind_view(asked, each) if each in console.kinds() else KindView(each, False)
        for each in known
        if each not in BUILTIN_KINDS and console.may_see(asked.person, each)
    ]
    dead, more = await _dead(asked)
    waiting = [each for each in await console.jobs.interrupted() if is_open_to(asked.person, each, asked.may_see)]
    return FleetView(tuple(found), console.clock.now_ms(), dead, more, len(waiting))


async def kind_view(asked: RequestContext, kind: str) -> KindView:
    """A kind whose chart is here."""
    runtime = asked.console.runtime
    people = await population(runtime, kind)
    return KindView(
        kind,
        True,
        asked.console.kernel(kind).chart.revision,
        people.entities or 0,
        not people.is_complete,
        people.stuck or 0,
        people.stuck_more,
        people.states,
        people.revisions,
        people.minutes,
        people.steps_per_second,
    )


async def _dead(asked: RequestContext) -> tuple[int | None, bool]:
    """How many dead letters there are of kinds that one may see, and whether the count ended at its bound."""
    if not isinstance(asked.console.store, WorkStore):
        return None, False
    page = await seen_works(asked, WorkQuery(dead=True, limit=WORK_SEEN_MAX))
    return len(page.rows), page.after is not None


async def one_kind(asked: RequestContext) -> KindDetail:
    """The population of a kind, and the events that its chart takes."""
    kind = asked.path("kind")
    chart = asked.console.chart_for(asked.person, kind)
    declared = {each.name: each for each in chart.events or ()}
    events = []
    for name in event_names(chart):
        known = declared.get(name)
        fields = None if known is None else known.payload
        events.append(
            EventView(
                name,
                None if known is None else known.roles,
                None if fields is None else payload_schema(fields),
                None if known is None else known.description,
            )
        )
    given = tuple(each for each in chart.states[0].context if not each.name.startswith("saga_"))
    view = await kind_view(asked, kind)
    root = chart.states[0]
    return KindDetail(view, asked.console.clock.now_ms(), tuple(events), payload_schema(given), root.description)


async def chart_svg(asked: RequestContext) -> Response:
    """The drawing of a chart, without colours of its own: the page brings them."""
    chart = asked.console.chart_for(asked.person, asked.path("kind"), asked.query.revision)
    return _picture(asked, await asked.console.drawing(chart), chart.revision)


async def diff(asked: RequestContext) -> DiffView:
    """What differs between two revisions."""
    kind = asked.path("kind")
    before = asked.console.chart_for(asked.person, kind, asked.query.of)
    after = asked.console.chart_for(asked.person, kind, asked.query.to)
    people = await population(asked.console.runtime, kind)
    inside = next((each.states for each in people.revisions if each.revision == before.revision), {})
    found = changes(before, after, inside)
    gone = [each for each in found if each.what == "state" and each.change == "removed"]
    return DiffView(kind, before.revision, after.revision, found, sum(each.entities for each in gone), not found)


async def diff_picture(asked: RequestContext) -> Response:
    """Two revisions in one drawing."""
    kind = asked.path("kind")
    before = asked.console.chart_for(asked.person, kind, asked.query.of)
    after = asked.console.chart_for(asked.person, kind, asked.query.to)
    return _picture(asked, await asked.console.drawing(before, after), f"{before.revision}..{after.revision}")


def _picture(asked: RequestContext, text: str, tag: str) -> Response:
    """A drawing, which the browser may keep as long as the revision is the same."""
    etag = f'"{tag}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache, private"}
    if asked.request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="image/svg+xml", headers=headers)


ENDPOINTS = (
    Endpoint(method="GET", path="/kinds", summary="Every kind at a glance", handler=fleet, answer=FleetView),
    Endpoint(method="GET", path="/kinds/{kind}", summary="One kind in full", handler=one_kind, answer=KindDetail),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/chart.svg",
        summary="The drawing of a chart",
        handler=chart_svg,
        query=Revision,
        media="image/svg+xml",
    ),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/diff",
        summary="What differs between two revisions",
        handler=diff,
        query=Revisions,
        answer=DiffView,
    ),
    Endpoint(
        method="GET",
        path="/kinds/{kind}/diff.svg",
        summary="Two revisions in one drawing",
        handler=diff_picture,
        query=Revisions,
        media="image/svg+xml",
    ),
)
