"""How many there are, and how they stand: read off the counters of the store, so that it costs nothing to ask often.

Rule: an entity is in exactly one of the outermost states of its chart, or ended in none of them, so counting those
counts entities.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.errors import InternalError
from interlock.model.chart import Chart
from interlock.ports.statistics import Statistics, entities_in
from interlock.ports.store import PAGE_MAX, Store
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.runtime import Runtime

COMPENSATED = {
    "order": ("refund_pending", "refund_failed", "refunded"),
    "network": ("refused",),
    "storage": ("refused",),
}
"""Where a saga of these charts leads only when it was compensated."""


class Census(Struct, frozen=True):
    """The world at one moment: entities, those that go on, those whose saga was compensated, and dead letters.

    `dead` stops at `PAGE_MAX`.
    """

    entities: int = 0
    going: int = 0
    compensated: int = 0
    dead: int = 0


async def census(runtime: Runtime) -> Census:
    """Count the world."""
    entities = going = compensated = 0
    for kind in runtime.charts.kinds():
        chart = runtime.charts.for_new_entity(kind).chart
        counts = await _counts(runtime.store, chart)
        tops = {chart.states[each].id: chart.states[each].type for each in chart.states[0].children}
        entities += entities_in(chart, counts)
        going += sum(counts.get(each, 0) for each, how in tops.items() if how != "final")
        compensated += sum(counts.get(each, 0) for each in COMPENSATED.get(kind, ()))
    return Census(entities, going, compensated, await _dead(runtime.store))


async def entities_of(store: Store, chart: Chart) -> int:
    """How many entities of a chart there are."""
    return entities_in(chart, await _counts(store, chart))


async def _counts(store: Store, chart: Chart) -> dict[str, int]:
    if not isinstance(store, Statistics):
        raise InternalError("the store of the demo keeps no counters", code="demo.store")
    found: dict[str, int] = {}
    for each in await store.counts(chart.kind):
        found[each.state] = found.get(each.state, 0) + each.entities
    return found


async def _dead(store: Store) -> int:
    if not isinstance(store, WorkStore):
        return 0
    return len((await store.works(WorkQuery(dead=True, limit=PAGE_MAX))).rows)
