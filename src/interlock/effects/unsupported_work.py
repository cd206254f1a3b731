"""What others must do for entities: as far as a chart tells it, and as a step has asked for it.

Rule: this is for stores that keep no work (`ports.work`), where nobody does it, so that somebody hears of it in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlock.compiler.checks.sites import block_sites
from interlock.errors import UsageError
from interlock.model.chart import Chart
from interlock.model.document.actions import Send
from interlock.model.effect import Effect
from interlock.ports.store import Loaded

_DEEDS: dict[str, str] = {
    "timer": "timers",
    "call": "handlers",
    "invoke": "invokes",
    "send": "sends",
    "forward": "sends",
}
"""What is asked for, by the type of its effect. What ends such a thing, or tells of it, is missed by nobody."""


def work_used_by(charts: Iterable[Chart]) -> dict[str, tuple[str, ...]]:
    """What entities of each kind may ask for; kinds that keep to themselves are left out."""
    found: dict[str, set[str]] = {}
    for chart in charts:
        found.setdefault(chart.kind, set()).update(_asked(chart))
    return {kind: _ordered(deeds) for kind, deeds in found.items() if deeds}


def work_requested(effects: Iterable[Effect]) -> tuple[str, ...]:
    """What the effects of a step ask for."""
    return _ordered({_DEEDS[each.type] for each in effects if each.type in _DEEDS})


def work_outstanding(loaded: Loaded) -> tuple[str, ...]:
    """What an entity waits for, or lately asked for, as far as its store tells without a chart."""
    found = {_DEEDS[each.type] for record in loaded.records for each in record.entry.effects if each.type in _DEEDS}
    if loaded.snapshot is not None:
        found |= {"timers"} if loaded.snapshot.timers else set()
        found |= {"invokes"} if loaded.snapshot.invokes else set()
    return _ordered(found)


def work_unsupported() -> UsageError:
    """What is said where a store must keep work and keeps none."""
    hint = "sqlite:, postgresql: and files of layout A keep it; here effects stand in the journals alone"
    return UsageError("this store keeps no work", code="store.work", hint=hint)


def _asked(chart: Chart) -> Iterator[str]:
    if chart.handlers:
        yield "handlers"
    if any(each.invokes for each in chart.states):
        yield "invokes"
    if any(each.after for each in chart.states):
        yield "timers"
    if chart.unhandled == "defer":  # what was put off comes back as a send
        yield "sends"
    for site in block_sites(chart):
        for action in site.actions():
            if isinstance(action, Send) and action.to != "internal":
                yield "sends" if action.delay is None else "timers"


def _ordered(deeds: set[str]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(_DEEDS.values()) if each in deeds)
