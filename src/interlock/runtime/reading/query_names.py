"""The names of states and tags in a query: a misspelt one is an error, not an empty page."""

from __future__ import annotations

from interlock.errors import UsageError
from interlock.model.diagnostics import suggestion
from interlock.model.held import HELD_TAG
from interlock.ports.store import ENDED_STATES, EntityQuery, Store
from interlock.runtime.charts.registry import ChartRegistry, unknown_kind


async def check_query_names(store: Store, charts: ChartRegistry, query: EntityQuery) -> None:
    """Raise an error for a name in a query without results that no loaded chart has: it may be misspelt."""
    loaded = [each.chart for each in charts.revisions(query.kind).values()]
    if not loaded:
        if charts.kinds() and query.kind not in await store.kinds():
            raise unknown_kind(query.kind, charts.kinds())
        return  # a reader without charts cannot distinguish a misspelt kind from one without entities
    states = {each.id: each.tags for chart in loaded for each in chart.states[1:]}
    names = {"state": (query.state, {*states, *ENDED_STATES.values()})}
    names["tag"] = (query.tag, {tag for tags in states.values() for tag in tags})
    for what, (name, known) in names.items():
        if name not in (None, HELD_TAG) and name not in known:
            hint = suggestion(name, known) or f"its {what}s are {', '.join(sorted(known)[:20]) or 'none'}"
            message = f"unknown {what} `{name[:80]}` in chart `{query.kind}`"
            raise UsageError(message, code=f"{what}.unknown", hint=hint)
