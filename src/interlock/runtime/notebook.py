"""What is shown of an entity or a kind in a notebook, gathered from a runtime.

Rule: an answer costs the same however much there is: counters where the store keeps them, else a walk with an end.
"""

from __future__ import annotations

from typing import Protocol

from interlock.errors import NotFoundError, UsageError
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.ports.statistics import COUNT_MAX, Statistics, entities_in
from interlock.ports.store import PAGE_MAX, EntityQuery, Store, listed_states
from interlock.render.notebook import EntityView, KindView
from interlock.runtime.chart_registry import ChartRegistry

ENTRIES_MAX = 200
"""Entries that are shown of an entity: what a person reads."""


class NotebookSource(Protocol):
    """What is asked of a runtime."""

    store: Store
    charts: ChartRegistry

    async def state(self, entity: str) -> Snapshot:
        """The entity now."""

    async def journal(self, entity: str, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """The entries after a version."""


async def shown(runtime: NotebookSource, what: str, *, entries: int) -> EntityView | KindView:
    """An entity by its id, or a kind. Raises NotFoundError; UsageError for entries that cannot be shown."""
    if type(entries) is not int or not 0 <= entries <= ENTRIES_MAX:
        raise UsageError(f"entries={entries!r:.40} is no number up to {ENTRIES_MAX}", code="show.entries")
    return await (_entity(runtime, what, entries) if "/" in what else _kind(runtime, what))


async def _entity(runtime: NotebookSource, entity: str, entries: int) -> EntityView:
    snapshot = await runtime.state(entity)
    after = max(0, snapshot.version - entries)
    try:
        last = await runtime.journal(entity, after=after, limit=entries) if entries else ()
    except NotFoundError:  # an archive has them
        last = ()
    return EntityView(chart=runtime.charts.for_snapshot(snapshot).chart, snapshot=snapshot, entries=last)


async def _kind(runtime: NotebookSource, kind: str) -> KindView:
    chart = runtime.charts.for_new_entity(kind).chart
    counts: dict[str, int] = {}
    if isinstance(runtime.store, Statistics):
        more = False
        for each in await runtime.store.counts(kind):
            counts[each.state] = counts.get(each.state, 0) + each.entities
        entities = entities_in(chart, counts)
    else:
        counts, entities, more = await _walked(runtime.store, kind)
    known = [each.id for each in chart.states[1:] if each.type != "history"]
    gone = sorted(set(counts) - set(known))
    states = tuple((name, counts.get(name, 0)) for name in [*known, *gone])
    return KindView(chart=chart, entities=entities, states=states, more=more)


async def _walked(store: Store, kind: str) -> tuple[dict[str, int], int, bool]:
    """How many are in each atomic state, how many there are, and whether the count ended at its bound."""
    counts: dict[str, int] = {}
    seen, cursor = 0, None
    while True:  # ends with the last page, or at the bound
        page = await store.find(EntityQuery(kind=kind, after=cursor, limit=PAGE_MAX))
        for row in page.rows:
            for name in listed_states(row.ended, row.configuration):
                counts[name] = counts.get(name, 0) + 1
        seen, cursor = seen + len(page.rows), page.after
        if cursor is None or seen >= COUNT_MAX:
            return counts, seen, cursor is not None
