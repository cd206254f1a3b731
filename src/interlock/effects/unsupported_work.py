"""What entities need a worker for: as far as a chart shows it, and as the effects of a step asked for it.

For stores that keep no work (`ports.work`), where no worker would do it, so that users are warned in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import block_sites
from interlock.model.document.actions import Send
from interlock.model.effect import Effect
from interlock.ports.store import Loaded, Store

_WORK: dict[str, str] = {
    "timer": "timers",
    "call": "handlers",
    "invoke": "invokes",
    "send": "sends",
    "forward": "sends",
}
"""What an effect needs a worker for, by its type. Other types need none."""


def runs_effects(store: Store) -> bool:
    """Whether effects of the entities of a store are run: by our workers, or by its engine."""
    return store.work is not None or store.engine is not None


def work_used_by(charts: Iterable[Chart]) -> dict[str, tuple[str, ...]]:
    """Return what entities of each kind may need a worker for; kinds that need none are left out."""
    found: dict[str, set[str]] = {}
    for chart in charts:
        found.setdefault(chart.kind, set()).update(_used_by(chart))
    return {kind: _in_order(names) for kind, names in found.items() if names}


def work_requested(effects: Iterable[Effect]) -> tuple[str, ...]:
    """Return what the effects of a step need a worker for."""
    return _in_order({_WORK[each.type] for each in effects if each.type in _WORK})


def work_outstanding(loaded: Loaded) -> tuple[str, ...]:
    """Return what an entity waits for, or recently asked for, as far as its store shows without a chart."""
    found = {_WORK[each.type] for record in loaded.records for each in record.entry.effects if each.type in _WORK}
    if loaded.snapshot is not None:
        found |= {"timers"} if loaded.snapshot.timers else set()
        found |= {"invokes"} if loaded.snapshot.invokes else set()
    return _in_order(found)


def work_unsupported() -> UsageError:
    """Return the error for a store that keeps no work where work is needed."""
    hint = "this store only records effects in the journal; use sqlite:, postgresql: or file:"
    return UsageError("this store does not run effects", code="store.work", hint=hint)


def _used_by(chart: Chart) -> Iterator[str]:
    if chart.handlers:
        yield "handlers"
    if any(each.invokes for each in chart.states):
        yield "invokes"
    if any(each.after for each in chart.states):
        yield "timers"
    if chart.unhandled == "defer":  # a deferred event comes back as a send
        yield "sends"
    for site in block_sites(chart):
        for action in site.actions():
            if isinstance(action, Send) and action.to != "internal":
                yield "sends" if action.delay is None else "timers"


def _in_order(names: set[str]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(_WORK.values()) if each in names)
