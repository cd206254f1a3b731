"""The differences between two revisions of a chart, and how many entities they affect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from interlock.model.charts.chart import Chart, State
from interlock.model.document.wording import guard_text


class Change(Struct, frozen=True):
    """A state or a transition that was added, removed or changed.

    `detail` names the changed parts of a state. `entities` counts the entities of the first revision in the state.
    """

    what: Literal["state", "transition"]
    change: Literal["added", "removed", "changed"]
    name: str
    detail: str = ""
    entities: int = 0


def revision_changes(before: Chart, after: Chart, entities: Mapping[str, int]) -> tuple[Change, ...]:
    """Return the differences, states first, in document order.

    `entities` counts the entities of the first revision by state.
    """
    old, new = _states(before), _states(after)
    found: list[Change] = []
    for name, state in new.items():
        if name not in old:
            found.append(Change("state", "added", name))
            continue
        changed = _changed_parts(_parts(before, old[name]), _parts(after, state))
        if changed:
            found.append(Change("state", "changed", name, ", ".join(changed), entities.get(name, 0)))
    found.extend(Change("state", "removed", name, "", entities.get(name, 0)) for name in old if name not in new)
    was, now = _transitions(before), _transitions(after)
    found.extend(Change("transition", "added", each) for each in now if each not in was)
    found.extend(Change("transition", "removed", each) for each in was if each not in now)
    return tuple(found)


def _states(chart: Chart) -> dict[str, State]:
    return {each.id: each for each in chart.states[1:]}


def _parts(chart: Chart, state: State) -> dict[str, object]:
    """The parts of a state that two revisions are compared by, by their name in a definition."""
    return {
        "type": state.type,
        "children": tuple(chart.states[each].id for each in state.children),
        "entry": state.entry,
        "exit": state.exit,
        "timers": tuple((each.event, each.delay, each.restore) for each in state.after),
        "invokes": state.invokes,
        "expect": state.expect,
        "sensitive": state.sensitive,
        "output": state.output,
        "tags": state.tags,
    }


def _changed_parts(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [name for name, value in new.items() if value != old[name]]


def _transitions(chart: Chart) -> dict[str, None]:
    """Every transition as text: source, event, guard and targets."""
    found: dict[str, None] = {}
    for each in chart.transitions:
        guard = "" if each.guard is None else f" [{guard_text(each.guard)}]"
        targets = ", ".join(chart.states[target].id for target in each.targets) or "no state change"
        label = each.label or ", ".join(one.text for one in each.descriptors) or "always"
        found[f"{chart.states[each.source].id or chart.kind}: {label}{guard} → {targets}"] = None
    return found
