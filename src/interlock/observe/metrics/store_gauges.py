"""What the store as a whole contains, for metrics: entities and ages by state, work by lane.

Rule 1: everything is a counter or the start of an index range: a scrape costs the same for ten entities and for ten
million. A store without counters has none of it.
Rule 2: a kind with hidden states is left out, as it is for a user of the console without `read:sensitive`: every count
would disclose them. So is a kind with a revision whose chart is unknown here. While there is such a kind, lanes are
left out, because their rows do not name a kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from interlock.errors import NotFoundError, UnavailableError
from interlock.model.charts.chart import Chart, State
from interlock.model.duration import parse_duration
from interlock.model.journal.work import LANES
from interlock.observe.held_entities import HeldEntities, first_held_entities
from interlock.observe.metrics.families import (
    DEAD_LETTERS,
    ENTITIES,
    HELD_ENTITIES,
    HELD_KINDS,
    STATE_OLDEST,
    STUCK_ENTITIES,
    WORK_OLDEST,
    WORK_ROWS,
    Family,
    Samples,
)
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.paging import pages
from interlock.ports.reading.statistics import COUNT_MAX, Statistics
from interlock.ports.store import ENDED_STATES, PAGE_MAX, Store
from interlock.ports.work import WorkQuery, WorkQueue
from interlock.runtime.charts.registry import BUILTIN_KINDS
from interlock.runtime.reading.readers import ReaderViews
from interlock.runtime.runtime import Runtime

NO_RIGHTS = {"id": "metrics"}
"""The reader of metrics: the person or program that gets the text."""


class ShownKinds(Struct, frozen=True):
    """The kinds that may be shown, each with its newest chart, and whether there are others."""

    charts: Mapping[str, Chart]
    has_others: bool


async def shown_kinds(runtime: Runtime) -> ShownKinds:
    """Return the kinds of this process and of the store without hidden states."""
    found: dict[str, Chart] = {}
    kinds = dict.fromkeys((*runtime.charts.kinds(), *await runtime.store.kinds()))
    others = False
    for kind in kinds:
        if kind not in BUILTIN_KINDS:
            chart = await _shown_chart(runtime, kind)
            if chart is None:
                others = True
            else:
                found[kind] = chart
    return ShownKinds(found, others)


async def _shown_chart(runtime: Runtime, kind: str) -> Chart | None:
    """Return the newest chart of a kind; None if a chart of the kind has hidden states or is unknown."""
    statistics, revisions = runtime.store.statistics, runtime.revisions
    counts = () if statistics is None else await statistics.count_states(kind)
    try:
        newest = (await revisions.newest(kind)).chart
        for each in sorted({each.revision for each in counts}):  # one whose chart is unknown may have hidden states
            await revisions.chart(kind, each)
        await ReaderViews(runtime.entities).check_kind(kind, NO_RIGHTS)
    except (NotFoundError, UnavailableError) as error:
        if isinstance(error, UnavailableError) and error.code not in CHART_MISSING_CODES:
            raise
        return None
    return newest


async def read_store_gauges(runtime: Runtime, shown: ShownKinds) -> dict[Family, Samples]:
    """Return the store-wide metrics."""
    store, now_ms = runtime.store, runtime.clock.now_ms()
    found: dict[Family, Samples] = {}
    if store.statistics is not None:
        found = {ENTITIES: {}, STATE_OLDEST: {}, STUCK_ENTITIES: {}, HELD_ENTITIES: {}, HELD_KINDS: {}}
        for chart in shown.charts.values():
            held = await first_held_entities(runtime, chart.kind)
            found[HELD_ENTITIES][chart.kind,] = held.count
            found[HELD_KINDS][chart.kind,] = int(held.is_kind)
            await _read_states(store, store.statistics, chart, now_ms, held, found)
    if store.work is not None:
        found[DEAD_LETTERS] = await _dead_letters(store.work, shown)
        if store.statistics is not None and not shown.has_others:
            found[WORK_ROWS], found[WORK_OLDEST] = await _lanes(store.statistics, store.work, now_ms)
    return found


async def _read_states(
    store: Store, statistics: Statistics, chart: Chart, now_ms: int, held: HeldEntities, found: dict[Family, Samples]
) -> None:
    totals = dict.fromkeys((each.id for each in chart.states[1:] if each.type != "history"), 0)
    for count in await statistics.count_states(chart.kind):
        totals[count.state] = totals.get(count.state, 0) + count.entities
    by_id = {each.id: each for each in chart.states}
    for name, entities in totals.items():
        labels, state = (chart.kind, name), by_id.get(name)
        found[ENTITIES][labels] = entities
        if not _is_aged(state, name):
            continue
        oldest = await held.oldest_ms(store, name) if entities else None
        found[STATE_OLDEST][labels] = 0 if oldest is None else max(0, now_ms - oldest) / 1_000
        within = None if state is None or state.expect is None else parse_duration(state.expect.within)
        if within is not None:
            found[STUCK_ENTITIES][labels] = (
                await held.count_stuck(store, statistics, name, before_ms=now_ms - within) if entities else 0
            )


def _is_aged(state: State | None, name: str) -> bool:
    """Whether the age of a state is of interest: it does not end the entity, and does not only repeat its children."""
    if name in ENDED_STATES.values():
        return False
    return state is None or state.expect is not None or (state.type != "final" and not state.children)


async def _dead_letters(work: WorkQueue, shown: ShownKinds) -> Samples:
    found: Samples = {(lane,): 0 for lane in LANES}
    async for page in pages(work.list_work, WorkQuery(dead=True, limit=PAGE_MAX), rows_max=COUNT_MAX):
        for row in page.rows:
            if row.entity.partition("/")[0] in shown.charts:
                lane = (row.work.id.lane,)
                found[lane] = _number(found[lane]) + 1
    return found


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


async def _lanes(statistics: Statistics, work: WorkQueue, now_ms: int) -> tuple[Samples, Samples]:
    rows: Samples = {}
    oldest: Samples = {}
    for lane in LANES:
        rows[lane,] = await statistics.count_work(lane)
        due_ms = await work.next_due_ms(lane, None)
        oldest[lane,] = 0 if due_ms is None else max(0, now_ms - due_ms) / 1_000
    return rows, oldest
