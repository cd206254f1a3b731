"""How many entities of a kind are in each state, by revision.

Rule: the numbers come from the store's counters, at a cost that does not grow with the entities. A store without
counters is read page by page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import aclosing

from interlock.errors import NotFoundError, UnavailableError
from interlock.model.charts.chart import Chart
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.reading.paging import pages
from interlock.ports.reading.statistics import StateCount
from interlock.ports.store import ENDED_STATES, PAGE_MAX, EntityQuery, EntityRow, Store
from interlock.runtime.charts.revisions import Revisions


async def count_by_revision(
    store: Store, revisions: Revisions, kind: str, *, rows_max: int | None = None
) -> tuple[dict[str, dict[str, int]], bool]:
    """Return the number of entities by revision and state, and whether all were counted: at most `rows_max`."""
    if store.statistics is not None:
        return by_revision(await store.statistics.count_states(kind)), True
    found: dict[str, dict[str, int]] = {}
    charts: dict[str, Chart | None] = {}
    is_complete = True
    async for page in pages(store.find, EntityQuery(kind=kind, limit=PAGE_MAX), rows_max=rows_max):
        for row in page.rows:
            if row.revision not in charts:
                charts[row.revision] = await _chart(revisions, kind, row.revision)
            states = found.setdefault(row.revision, {})
            for name in _counted_states(charts[row.revision], row):
                states[name] = states.get(name, 0) + 1
        is_complete = page.after is None
    return found, is_complete


def by_revision(counts: Iterable[StateCount]) -> dict[str, dict[str, int]]:
    """Return the number of entities by revision and state."""
    found: dict[str, dict[str, int]] = {}
    for each in counts:
        found.setdefault(each.revision, {})[each.state] = each.entities
    return found


async def _chart(revisions: Revisions, kind: str, revision: str) -> Chart | None:
    """Return the chart of a revision, or the current one if it is unknown here; None if there is none."""
    try:
        return await revisions.chart(kind, revision)
    except UnavailableError as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        current = revisions.charts.current(kind)
        return None if current is None else current.chart


def _counted_states(chart: Chart | None, row: EntityRow) -> set[str]:
    """The states that an entity counts in: its active states with their ancestors, or how it ended without one."""
    if row.ended in ENDED_STATES:
        return {ENDED_STATES[row.ended]}
    by_id = {} if chart is None else {each.id: each for each in chart.states}
    found: set[str] = set()
    for name in row.configuration:
        state = by_id.get(name)
        found.add(name)
        while chart is not None and state is not None and state.index > 0:
            found.add(state.id)
            state = chart.states[state.parent]
    return found


async def oldest_ages(
    store: Store, revisions: Revisions, kind: str, counts: Mapping[str, int], *, now_ms: int
) -> dict[str, int]:
    """Return for how long the oldest entity of each state has been in it; without empty states and ended entities."""
    try:
        states = (await revisions.newest(kind)).chart.states
    except (NotFoundError, UnavailableError) as error:
        if error.code not in CHART_MISSING_CODES:
            raise
        states = ()
    ended = {*ENDED_STATES.values(), *(each.id for each in states if each.type == "final")}
    limit = PAGE_MAX if store.statistics is None else 1  # a store without lists has cancelled entities in them
    found: dict[str, int] = {}
    for state in (name for name, entities in counts.items() if entities and name not in ended):
        async with aclosing(pages(store.find, EntityQuery(kind=kind, state=state, limit=limit))) as listed:
            async for page in listed:
                row = next((each for each in page.rows if each.ended is None), None)
                if row is not None:
                    found[state] = max(0, now_ms - row.entered_ms)
                    break
    return found


def entities_in(chart: Chart, counts: Mapping[str, int]) -> int:
    """Return how many entities these counts of states belong to.

    An entity is in one child of the root, or in all of them if the root is parallel; or in a state that the chart no
    longer has; or it ended without a state.
    """
    tops = [counts.get(chart.states[each].id, 0) for each in chart.states[0].children]
    found = max(tops, default=0) if chart.states[0].type == "parallel" else sum(tops)
    ended = sum(counts.get(each, 0) for each in ENDED_STATES.values())
    elsewhere = max((entities for state, entities in counts.items() if state not in ENDED_STATES.values()), default=0)
    return (found or elsewhere) + ended
