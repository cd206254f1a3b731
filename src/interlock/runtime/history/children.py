"""The children that a recorded effect started."""

from __future__ import annotations

from interlock.kernel.step import Kernel
from interlock.model.effect import CHART_TYPES, Effect
from interlock.model.limits import BUNDLE_RESTARTS_MAX
from interlock.ports.store import Store
from interlock.runtime.charts.registry import child_entity


async def started_children(store: Store, kernel: Kernel, effect: Effect) -> list[str]:
    """Return the children that an effect started and the store has: the first one, and one for each restart."""
    if effect.type != "invoke" or effect.payload.get("type") not in CHART_TYPES:
        return []
    src = effect.payload.get("src")
    inline = dict(kernel.chart.inline).get(str(src))
    kind = str(src) if inline is None else inline.kind
    found: list[str] = []
    for restarts in range(BUNDLE_RESTARTS_MAX):
        child = child_entity(kind, effect.payload["id"], effect.key, restarts=restarts)
        if await store.load(child) is not None:
            found.append(child)
        elif store.retention is None or await store.retention.tombstone(child) is None:
            break  # a later restart may exist after a child that was pruned
    return found
