"""Which events a sender may send to a chart, where they are accepted, and the errors for other names and payloads.

Rule 1: a name that no transition and no declaration of a chart mentions is a mistake of the program. A name that the
chart has, in a state that does not accept it, is not: the step rejects it.
Rule 2: a prefix (`payment.*`), a wildcard (`*`) and an invoke that forwards every event make a chart know more names
than it writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.charts.sites import event_names, takes_any_event
from interlock.model.diagnostics import suggestion
from interlock.model.document.field import complete_payload

UNKNOWN_EVENT = "event.unknown"

LISTED_EVENTS_MAX = 20
"""Names of events that one message lists."""

_NAME_LENGTH_MAX = 80


def knows_event(chart: Chart, name: str) -> bool:
    """Whether a sender may send an event of this name to the chart: in some state it has a meaning."""
    if chart.events is not None:
        return any(each.name == name and each.direction == "in" for each in chart.events)
    if takes_any_event(chart):
        return True
    return any(each.matches(name) for transition in chart.transitions for each in transition.descriptors)


def accepting_states(chart: Chart, name: str) -> tuple[str, ...]:
    """Return the states that have a transition for an event, in document order."""
    found = (chart.states[each.source].id for each in chart.transitions if matches_event(chart, each.index, name))
    return tuple(dict.fromkeys(found))


def matches_event(chart: Chart, transition: int, name: str) -> bool:
    """Whether a transition is for an event, which may be a descriptor of the chart such as `payment.*`."""
    return any(each.matches(name) or each.text == name for each in chart.transitions[transition].descriptors)


def unknown_event(charts: Iterable[Chart], name: str) -> UsageError:
    """Return the error for an event that none of these revisions of a kind knows; the last one is the newest."""
    loaded = tuple(charts)
    newest, shown = loaded[-1], name[:_NAME_LENGTH_MAX]
    known = tuple(dict.fromkeys(each for chart in reversed(loaded) for each in event_names(chart)))
    direction = next((each.direction for each in newest.events or () if each.name == name), None)
    if direction is not None:
        message = f"the event `{shown}` of chart `{newest.kind}` cannot be sent: its direction is `{direction}`"
        return UsageError(message, code=UNKNOWN_EVENT, hint="send an event of the direction `in`")
    hint = suggestion(name, known) or f"its events are {listed(known) or 'none'}"
    return UsageError(f"chart `{newest.kind}` has no event `{shown}`", code=UNKNOWN_EVENT, hint=hint)


def payload_mistake(chart: Chart, name: str, data: Any) -> UsageError | None:
    """Return the error for a payload that the chart's declaration of an event refuses; None if it accepts it."""
    declared = next((each for each in chart.events or () if each.name == name and each.payload is not None), None)
    fields = () if declared is None or declared.payload is None else declared.payload
    problem = None if declared is None else complete_payload(data, fields)[1]
    if problem is None:
        return None
    names = [each.name for each in fields]
    unknown = next((str(key) for key in data if key not in names), None) if type(data) is dict else None
    needed = ", ".join(f"`{each.name}` ({each.type})" for each in fields if each.required)
    hint = None if unknown is None else suggestion(unknown, names)
    if hint is None and needed:
        hint = f"the event needs {needed}"
    message = f"the payload of `{name}` does not fit chart `{chart.kind}`: {problem}"
    return UsageError(message, code="event.payload", hint=hint)


def listed(names: tuple[str, ...], *, limit: int = LISTED_EVENTS_MAX) -> str:
    """Return names as a list, and the number of those that are left out."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(f"`{each[:_NAME_LENGTH_MAX]}`" for each in names[:limit]) + more
