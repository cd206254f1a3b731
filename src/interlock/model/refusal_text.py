"""Why an event was refused, as text: one place for receipts, the command line and the console.

Rule 1: an explanation names the event, the state, and what decides: the guard with the values that it read, the role,
the fault, or the states that accept the event.
Rule 2: it may be logged, so it is short, sensitive values are masked, and hidden states are not named. A chart with
anything sensitive shows only context fields that it does not list: a payload or an error may repeat the others.
Rule 3: a denial does not say in which states the event would be accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock.model.approvals import count_approvals
from interlock.model.charts.chart import Chart
from interlock.model.charts.sendable_events import accepting_states, listed, matches_event
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.model.limits import EXPLANATION_LENGTH_MAX
from interlock.model.personal_token import ERASED, is_token
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault

MASKED = "•••"

ENDED = "the entity has ended and accepts no events"
EXISTS = "the entity already exists: send it an event, or use another id"

_VALUE_LENGTH_MAX = 80
_STATES_MAX = 10
_FIRST_NAMES = re.compile(r"(\w+)(?:\.(\w+)|\[['\"](\w+)['\"]\])?")


def explain_refusal(
    chart: Chart,
    snapshot: Snapshot,
    event: Event,
    *,
    outcome: str,
    reason: str | None,
    failed_guards: Iterable[FailedGuard] = (),
    faults: Iterable[Fault] = (),
) -> str:
    """Return one sentence that says which event an entity refused, in which state, and why."""
    head = f"`{snapshot.entity}` {outcome} `{event.name[:_VALUE_LENGTH_MAX]}`"
    if outcome == "denied":
        text = f"{head}: {_denial(chart, snapshot, event, reason)}"
    elif reason == "ended":
        text = f"{head}: {ENDED}"
    else:
        hidden = _hidden_states(chart)
        states = tuple(each for each in snapshot.configuration if each not in hidden)
        why = _rejection(chart, event.name, reason, failed_guards, faults, hidden)
        text = f"{head} in state {listed(states, limit=_STATES_MAX)}: {why}" if states else f"{head}: {why}"
    return _cut(text)


def _rejection(
    chart: Chart,
    name: str,
    reason: str | None,
    failed_guards: Iterable[FailedGuard],
    faults: Iterable[Fault],
    hidden: frozenset[str],
) -> str:
    masked = any(each.sensitive is not None for each in chart.states)
    guards = [
        f"guard {guard_text(each.guard, _shown(chart, each.values), _error(each, masked=masked))}"
        for each in failed_guards
    ]
    found = [fault_text(each, masked=masked) for each in faults]
    return "; ".join(guards or found) or elsewhere_text(chart, name, reason, hidden) or str(reason)


def _error(guard: FailedGuard, *, masked: bool) -> str | None:
    return MASKED if masked and guard.error is not None else guard.error


def _shown(chart: Chart, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a guard read, those that may be sensitive masked."""
    sensitive = [each.sensitive for each in chart.states if each.sensitive is not None]
    if not sensitive:
        return dict(values)
    fields = {name for each in sensitive for name in each.fields}
    return {path: value if _is_plain_field(path, fields) else MASKED for path, value in values.items()}


def _is_plain_field(path: str, sensitive: set[str]) -> bool:
    found = _FIRST_NAMES.match(path)
    return found is not None and found[1] == "context" and (found[2] or found[3] or "") not in {"", *sensitive}


def _hidden_states(chart: Chart) -> frozenset[str]:
    tops = [each for each in chart.states if each.sensitive is not None and each.sensitive.hidden]
    return frozenset(chart.states[index].id for each in tops for index in range(each.index, each.last + 1))


def _denial(chart: Chart, snapshot: Snapshot, event: Event, reason: str | None) -> str:
    if reason == "permit":
        return f"the `permit` of the event does not allow it to {_sender(event)}"
    if reason == "permit.error":
        return "the `permit` of the event failed, so it allows the event to no sender"
    if reason == "approvals":
        return _missing_approvals(chart, snapshot, event)
    if reason != "roles":
        return str(reason)
    declared = next((each.roles for each in chart.events or () if each.name == event.name and each.roles), None)
    roles = declared or _transition_roles(chart, snapshot, event.name)
    return f"{roles_text(roles)}; {_sender(event)} has {_roles_of(event)}"


def role_denial_text(entity: str, event: Event, roles: Iterable[str] | None, *, creates: bool = False) -> str:
    """Return one sentence that says that a sender lacks the roles of an event, without anything of the entity."""
    found = tuple(roles or ())
    if creates:
        what = "creation"
        why = roles_text(found) if found else "the chart has no `create`, and its events have roles"
    else:
        what, why = f"`{event.name[:_VALUE_LENGTH_MAX]}`", roles_text(found)
    return _cut(f"`{entity}` denied {what}: {why}; {_sender(event)} has {_roles_of(event)}")


def denial_text(entity: str, event: Event, reason: str) -> str:
    """Return one sentence that says that an event was denied before its entity was loaded, without anything of it."""
    what = "creation" if event.name == CREATE else f"`{event.name[:_VALUE_LENGTH_MAX]}`"
    texts = {
        "permit": f"the `permit` does not allow it to {_sender(event)}",
        "permit.error": "the `permit` failed, so it allows it to no principal",
    }
    return _cut(f"`{entity}` denied {what}: {texts.get(reason, reason)}")


def _cut(text: str) -> str:
    return text if len(text) <= EXPLANATION_LENGTH_MAX else text[: EXPLANATION_LENGTH_MAX - 1] + "…"


def _missing_approvals(chart: Chart, snapshot: Snapshot, event: Event) -> str:
    found = next((each.approvals for each in chart.events or () if each.name == event.name and each.approvals), None)
    if found is None:  # the newest revision needs them, and that of the entity does not record them
        return "it needs approvals, which the revision of the entity does not record"
    has = count_approvals(found, snapshot.context, event.time_ms)
    return f"it needs {found.count} approvals by `{found.of}`, and has {has} that count"


def _transition_roles(chart: Chart, snapshot: Snapshot, name: str) -> tuple[str, ...]:
    """Return the roles of the active states' transitions for an event."""
    active = {index for each in chart.states if each.id in snapshot.configuration for index in chart.path(each.index)}
    found = (
        each.roles or ()
        for each in chart.transitions
        if each.source in active and matches_event(chart, each.index, name)
    )
    return tuple(sorted({role for roles in found for role in roles}))


def _sender(event: Event) -> str:
    name = event.principal.get("id") if isinstance(event.principal, dict) else None
    return "the sender" if name is None else f"the sender `{str(name)[:_VALUE_LENGTH_MAX]}`"


def _roles_of(event: Event) -> str:
    roles = event.principal.get("roles") if isinstance(event.principal, dict) else None
    if not isinstance(roles, list) or not roles:
        return "no role"
    return f"the roles {listed(tuple(str(each) for each in roles), limit=_STATES_MAX)}"


# Parts, which the command line prints on separate lines


def guard_text(guard: str, values: Mapping[str, Any], error: str | None) -> str:
    """Return that a guard is false, with the values that it read; or its error."""
    if error is not None:
        return f"failed: {guard}: {error}"
    read = ", ".join(f"{path} = {value_text(value, _VALUE_LENGTH_MAX)}" for path, value in values.items())
    return f"is false: {guard} ({read})" if read else f"is false: {guard}"


def fault_text(fault: Fault, *, masked: bool = False) -> str:
    """Return the message of a fault and its place; its code if the message may repeat a sensitive value."""
    place = f" at {fault.place}" if fault.place else ""
    return f"{fault.code if masked else fault.message}{place}"


def roles_text(roles: Sequence[str] | None) -> str:
    """Return which roles may send an event."""
    return f"needs the role {' or '.join(roles)}" if roles else "no role may send it"


def elsewhere_text(
    chart: Chart, name: str, reason: str | None, hidden: frozenset[str] = frozenset(), hint: str | None = None
) -> str | None:
    """Return where a chart accepts an event that has no transition now; None for any other reason."""
    if reason == "entity.exists":
        return EXISTS
    if reason == "ended":
        return ENDED
    states = tuple(each for each in accepting_states(chart, name) if each not in hidden)
    if reason == "no_transition" and states:
        more = f" and {len(states) - _STATES_MAX} more" if len(states) > _STATES_MAX else ""
        return f"not accepted in this state; accepted in {', '.join(states[:_STATES_MAX])}{more}"
    if reason in ("no_transition", "undeclared"):
        return f"not accepted in any state{f'; {hint}' if hint else ''}"
    return None


def value_text(value: Any, length_max: int) -> str:
    """Return a value as JSON on one line, shortened if it is long."""
    if value == MASKED:
        return MASKED
    if is_token(value):
        return "(erased)" if value == ERASED else "(sealed)"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
