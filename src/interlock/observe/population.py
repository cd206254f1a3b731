"""How many entities are where: from a store's counters, or, on one that keeps none, from a walk with an end.

Rule: a walk stops at `COUNT_MAX` entities and says so; nothing here grows with the number of entities.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.kernel.step import Kernel
from interlock.model.chart import Chart, State
from interlock.model.duration import parse_duration
from interlock.ports.statistics import COUNT_MAX, DAY_MS, MINUTE_MS, MinuteRates, Statistics, entities_in
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.runtime import Runtime

DWELL_WINDOW_MS = 7 * DAY_MS
SPARK_MINUTES = 60


class StateView(Struct, frozen=True):
    """A state and those in it. `stuck` is None when the chart does not say how long is too long.

    The type `gone` is of a state that the current chart does not have, and entities of other revisions are in; the type
    `ended` of one of `ENDED_STATES`, which is no state: there are those who ended without a final one.
    """

    id: str
    type: str
    depth: int
    parent: str | None
    entities: int
    p95_ms: int | None = None
    expect_ms: int | None = None
    stuck: int | None = None
    stuck_more: bool = False
    tags: tuple[str, ...] = ()
    description: str | None = None


class RevisionView(Struct, frozen=True):
    """A revision and how many entities were last written by it, by state. `chart_loaded`: its chart is loaded."""

    revision: str
    chart_loaded: bool
    current: bool
    entities: int
    states: dict[str, int]


class Population(Struct, frozen=True):
    """The entities of a kind. `partial`: counted by a walk that ended at its bound, so there are more."""

    entities: int
    stuck: int
    stuck_more: bool
    partial: bool
    states: tuple[StateView, ...]
    revisions: tuple[RevisionView, ...]


async def population(runtime: Runtime, kind: str) -> Population:
    """The population of a kind whose chart is here."""
    kernel = runtime.charts.for_new_entity(kind)
    by_revision, partial = await _counts(runtime, kind)
    totals: dict[str, int] = {}
    for states in by_revision.values():
        for state, entities in states.items():
            totals[state] = totals.get(state, 0) + entities
    p95 = await dwell_p95(runtime, kind)
    views = [await _state(runtime, kind, each, totals, p95, kernel.chart) for each in kernel.chart.states[1:]]
    views = [each for each in views if each.type != "history"]
    views += [StateView(each, "gone", 1, None, totals[each]) for each in _gone(kernel.chart, totals)]
    views += [StateView(each, "ended", 1, None, totals[each]) for each in ENDED_STATES.values() if totals.get(each)]
    stuck = [each for each in views if each.stuck]
    revisions = _revisions(runtime, kernel, by_revision)
    return Population(
        entities=sum(each.entities for each in revisions),
        stuck=sum(each.stuck or 0 for each in stuck),
        stuck_more=any(each.stuck_more for each in stuck),
        partial=partial,
        states=tuple(views),
        revisions=revisions,
    )


def _gone(chart: Chart, totals: dict[str, int]) -> list[str]:
    known = {*ENDED_STATES.values(), *(each.id for each in chart.states)}
    return sorted(each for each in totals if each not in known)


def _revisions(runtime: Runtime, kernel: Kernel, by_revision: dict[str, dict[str, int]]) -> tuple[RevisionView, ...]:
    here = runtime.charts.revisions(kernel.chart.kind)
    names = dict.fromkeys([*here, *sorted(by_revision)])
    return tuple(
        RevisionView(
            each,
            each in here,
            each == kernel.chart.revision,
            entities_in((here.get(each) or kernel).chart, by_revision.get(each, {})),
            by_revision.get(each, {}),
        )
        for each in names
    )


async def _state(
    runtime: Runtime, kind: str, state: State, totals: dict[str, int], p95: dict[str, int], chart: Chart
) -> StateView:
    within = None if state.expect is None else parse_duration(state.expect.within)
    stuck = None
    if within is not None and state.type != "final" and isinstance(runtime.store, Statistics):
        stuck = 0
        if totals.get(state.id):
            stuck = await runtime.store.overdue(kind, state.id, before_ms=runtime.clock.now_ms() - within)
    return StateView(
        id=state.id,
        type=state.type,
        depth=state.depth,
        parent=chart.states[state.parent].id if state.parent > 0 else None,
        entities=totals.get(state.id, 0),
        p95_ms=p95.get(state.id),
        expect_ms=within,
        stuck=None if stuck is None else min(stuck, COUNT_MAX),
        stuck_more=stuck is not None and stuck > COUNT_MAX,
        tags=state.tags,
        description=state.description,
    )


async def dwell_p95(runtime: Runtime, kind: str) -> dict[str, int]:
    """The bound that 95 of 100 stays of the last week did not pass, by state."""
    if not isinstance(runtime.store, Statistics):
        return {}
    found = await runtime.store.dwell(kind, since_ms=runtime.clock.now_ms() - DWELL_WINDOW_MS)
    quantiles = ((each.state, each.quantile_ms(0.95)) for each in found)
    return {state: ms for state, ms in quantiles if ms is not None}


async def rates(runtime: Runtime, kind: str) -> tuple[MinuteRates, ...]:
    """What each minute of the last hour brought."""
    if not isinstance(runtime.store, Statistics):
        return ()
    return await runtime.store.rates(kind, since_ms=runtime.clock.now_ms() - SPARK_MINUTES * MINUTE_MS)


async def _counts(runtime: Runtime, kind: str) -> tuple[dict[str, dict[str, int]], bool]:
    """How many by revision and state, and whether a bound ended the count."""
    found: dict[str, dict[str, int]] = {}
    if isinstance(runtime.store, Statistics):
        for each in await runtime.store.counts(kind):
            found.setdefault(each.revision, {})[each.state] = each.entities
        return found, False
    charts = runtime.charts.revisions(kind)
    current = runtime.charts.for_new_entity(kind)
    seen, cursor = 0, None
    while True:  # ends with the last page, or at the bound
        page = await runtime.store.find(EntityQuery(kind=kind, after=cursor, limit=PAGE_MAX))
        for row in page.rows:
            kernel = charts.get(row.revision, current)
            states = found.setdefault(row.revision, {})
            for name in _standing(kernel.chart, row):
                states[name] = states.get(name, 0) + 1
        seen, cursor = seen + len(page.rows), page.after
        if cursor is None or seen >= COUNT_MAX:
            return found, cursor is not None


def _standing(chart: Chart, row: EntityRow) -> set[str]:
    """The active states, compounds too; or, of one that ended without a final state, how it ended."""
    return {ENDED_STATES[row.ended]} if row.ended in ENDED_STATES else _with_ancestors(chart, row.configuration)


def _with_ancestors(chart: Chart, configuration: tuple[str, ...]) -> set[str]:
    by_id = {each.id: each for each in chart.states}
    found: set[str] = set()
    for name in configuration:
        state = by_id.get(name)
        while state is not None and state.index > 0:
            found.add(state.id)
            state = chart.states[state.parent]
    return found
