"""Lists for others, from the rows that a store keeps for them (`ports.reading.visible_names`).

Rule 1: they answer if every entity of the kind was written by a chart that covers its hidden states, and with these
rows. The counters of the store show it: they count as many entities for others as there are. Entities that an earlier
release wrote last have no such rows, and neither have those of a revision without hidden states.
Rule 2: their order and their cursors consist of times that others see, so they are the same whether an entity is in a
hidden state or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.model.charts.chart import Chart
from interlock.ports.reading.statistics import VisibleCounts
from interlock.ports.reading.visible_names import VISIBLE, visible_state, visible_tag
from interlock.ports.store import EntityQuery, Store
from interlock.runtime.reading.entity_counts import by_revision, entities_in


async def complete_counts(store: Store, kind: str, charts: Iterable[Chart]) -> VisibleCounts | None:
    """Return the counts of a kind if the store has every entity in the lists for others; None if not.

    `charts` are the charts of all revisions of the kind. A store without counters has no such lists.
    """
    if store.statistics is None:
        return None
    known = tuple(charts)
    counts = await store.statistics.visible_counts(kind)
    visible = {each.revision: each.entities for each in counts.visible if not each.state}
    for revision, states in by_revision(counts.states).items():
        chart = next((each for each in known if each.is_revision(revision)), None)
        if chart is None or entities_in(chart, states) != visible.get(revision, 0):
            return None
    return counts


def visible_query(query: EntityQuery) -> EntityQuery:
    """Return what to ask the store for a list for others. Its rows are yet to be compared with the query."""
    name = VISIBLE
    if query.state is not None:
        name = visible_state(query.state)
    elif query.tag is not None:
        name = visible_tag(query.tag)
    return EntityQuery(
        kind=query.kind,
        state=name,
        entered_before_ms=query.entered_before_ms,
        prefix=query.prefix,
        by_id=query.by_id,
        after=query.after,
        limit=query.limit,
    )
