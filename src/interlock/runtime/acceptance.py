"""Which events an entity accepts now, and why not the others: for each event of its chart one answer.

Rule 1: it answers from the snapshot alone; a guard that reads the payload may still say no when the event comes.
Rule 2: who may not send an event learns that, and no more: not where it would be accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel
from interlock.model.chart import Chart
from interlock.model.document.field import UNSET, Field
from interlock.model.event import Event, is_reserved
from interlock.model.snapshot import Snapshot
from interlock.trust.authorization import Authorizer

Why = Literal["guard", "roles", "elsewhere", "ended"]


class Refused(Struct, frozen=True):
    """A guard that says no now: as it is written, and what it read."""

    state: str
    guard: str
    values: dict[str, Any]
    error: str | None = None


class Acceptance(Struct, frozen=True):
    """One event: whether it is accepted now and where it would lead; else why not, by which guards, and where it would.

    `payload` is the JSON Schema of its payload; None: anything. `roles`: who may send it; None: anybody.
    """

    event: str
    accepted: bool
    why: Why | None = None
    targets: tuple[str, ...] = ()
    guards: tuple[Refused, ...] = ()
    states: tuple[str, ...] = ()
    roles: tuple[str, ...] | None = None
    payload: dict[str, Any] | None = None
    description: str | None = None


def acceptances(kernel: Kernel, snapshot: Snapshot, principal: Mapping[str, Any] | None) -> tuple[Acceptance, ...]:
    """Every event that a sender can give the chart of an entity, accepted ones first."""
    policy = Authorizer(kernel.chart)
    candidates = () if snapshot.ended is not None else kernel.candidates(snapshot)
    found = [_acceptance(kernel.chart, policy, snapshot, candidates, each, principal) for each in names(kernel.chart)]
    return tuple(sorted(found, key=lambda each: (not each.accepted, each.why == "elsewhere")))


def names(chart: Chart) -> tuple[str, ...]:
    """The events that a sender can give a chart: the declared ones, else those that its transitions name."""
    if chart.events is not None:
        return tuple(each.name for each in chart.events if each.direction == "in")
    texts = (each.text for transition in chart.transitions for each in transition.descriptors)
    return tuple(dict.fromkeys(each for each in texts if "*" not in each and not is_reserved(each)))


def _acceptance(
    chart: Chart,
    policy: Authorizer,
    snapshot: Snapshot,
    candidates: tuple[Candidate, ...],
    name: str,
    principal: Mapping[str, Any] | None,
) -> Acceptance:
    declared = policy.events.get(name)
    roles = None if declared is None else declared.roles
    payload = None if declared is None or declared.payload is None else payload_schema(declared.payload)
    description = None if declared is None else declared.description
    if snapshot.ended is not None:
        return Acceptance(name, False, "ended", roles=roles)
    if policy.role_refusal(Event(name, principal=None if principal is None else dict(principal))) is not None:
        return Acceptance(name, False, "roles", roles=roles or ())
    mine = [each for each in candidates if _takes(chart, each.transition, name)]
    taken = next((each for each in mine if each.accepted), None)
    if taken is not None:
        transition = chart.transitions[taken.transition]
        targets = tuple(chart.states[each].id for each in transition.targets)
        return Acceptance(name, True, None, targets, roles=roles, payload=payload, description=description)
    if mine:
        guards = tuple(Refused(each.state, each.guard or "", each.values, each.error) for each in mine)
        # Its payload may make a guard hold that reads it: the form is still of use.
        return Acceptance(name, False, "guard", guards=guards, roles=roles, payload=payload, description=description)
    states = tuple(dict.fromkeys(_taking(chart, name)))
    return Acceptance(name, False, "elsewhere", states=states, roles=roles, payload=payload, description=description)


def _taking(chart: Chart, name: str) -> Iterator[str]:
    for each in chart.transitions:
        if _takes(chart, each.index, name):
            yield chart.states[each.source].id


def _takes(chart: Chart, transition: int, name: str) -> bool:
    return any(each.matches(name) or each.text == name for each in chart.transitions[transition].descriptors)


def payload_schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    """The JSON Schema of a payload, or of a context, with exactly these fields."""
    required = [each.name for each in fields if each.required]
    schema: dict[str, Any] = {"type": "object", "properties": {each.name: _schema(each) for each in fields}}
    return {**schema, **({"required": required} if required else {}), "additionalProperties": False}


def _schema(spec: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if spec.type != "any":
        schema["type"] = [spec.type, "null"] if spec.nullable else spec.type
    said = {
        "enum": None if spec.enum is None else list(spec.enum),
        "minimum": spec.min,
        "maximum": spec.max,
        "maxLength": spec.length_max if spec.type == "string" else None,
        "maxItems": spec.length_max if spec.type == "array" else None,
        "description": spec.description,
        "items": None if spec.items is None else _schema(spec.items),
    }
    schema |= {key: value for key, value in said.items() if value is not None}
    if spec.default is not UNSET:
        schema["default"] = spec.default
    return {**schema, **payload_schema(spec.fields)} if spec.fields is not None else schema
