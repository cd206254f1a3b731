"""Which events an entity accepts now, and why it does not accept the others.

There is one answer for each event that a sender can send to the chart, wildcards such as `payment.*` included.

Rule 1: the answer depends on the snapshot and the principal. A guard that reads the payload may still be false when the
event is sent.
Rule 2: a principal that may not send an event learns only that, not in which states the event is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from interlock.kernel.explain import Candidate
from interlock.kernel.step import Kernel
from interlock.model.approvals import count_approvals
from interlock.model.charts.chart import Chart
from interlock.model.charts.sendable_events import accepting_states, matches_event
from interlock.model.charts.sites import event_names
from interlock.model.document.field import UNSET, Field
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.trust.authorization import ChartPolicy

Why = Literal["guard", "roles", "permit", "approvals", "elsewhere", "ended"]


class Refused(Struct, frozen=True):
    """A guard that is false now: its text, the values it read, and where its transition leads."""

    state: str
    guard: str
    values: dict[str, Any]
    error: str | None = None
    targets: tuple[str, ...] = ()

    @property
    def needs_event(self) -> bool:
        """Whether the guard failed because it reads the event, which is not there yet."""
        return self.error is not None and "event" in self.guard


class ApprovalCount(Struct, frozen=True):
    """The approvals that an event needs: by which event, how many, and how many there are."""

    of: str
    count: int
    has: int


class Acceptance(Struct, frozen=True):
    """One event: where it leads if it is accepted now; otherwise why it is not.

    `why` is `guard` (see `guards`), `roles` or `permit` (the principal may not send it), `approvals` (see there),
    `elsewhere` (accepted in `states`) or `ended`. A permit is evaluated for a principal with an id, if it does not read
    the event. `payload` is the JSON Schema of the payload, None if there is no declaration. `roles` may send the event;
    None if the chart does not restrict it.
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
    approvals: ApprovalCount | None = None


def acceptances(
    kernel: Kernel,
    snapshot: Snapshot,
    principal: Mapping[str, Any] | None,
    policy: ChartPolicy | None = None,
    *,
    time_ms: int | None = None,
) -> tuple[Acceptance, ...]:
    """Return an answer for each event of `event_names`, accepted events first.

    `policy` has the roles of the newest revision, `Revisions.policy`; by default they are those of the chart.
    Approvals are counted for `time_ms`; without it, expired ones count, too.
    """
    policy = policy or ChartPolicy(kernel.chart)
    candidates = () if snapshot.ended is not None else kernel.candidates(snapshot)
    found = [
        _acceptance(kernel.chart, policy, snapshot, candidates, each, principal, time_ms)
        for each in event_names(kernel.chart)
    ]
    return tuple(sorted(found, key=lambda each: (not each.accepted, each.why == "elsewhere")))


def masked_acceptance(found: Acceptance, names: Callable[[Iterable[str]], tuple[str, ...]]) -> Acceptance:
    """Return an acceptance without the values that guards read; `names` leaves out the states that are hidden."""
    return replace(
        found,
        states=names(found.states),
        targets=names(found.targets),
        guards=tuple(Refused(each.state, each.guard, {}, None, names(each.targets)) for each in found.guards),
    )


def every_role(chart: Chart) -> list[str]:
    """Return all roles that a chart names, sorted."""
    named = [*(each.roles for each in chart.transitions), *(each.roles for each in chart.events or ())]
    return sorted({role for roles in named for role in roles or ()})


def _acceptance(
    chart: Chart,
    policy: ChartPolicy,
    snapshot: Snapshot,
    candidates: tuple[Candidate, ...],
    name: str,
    principal: Mapping[str, Any] | None,
    time_ms: int | None,
) -> Acceptance:
    declared = policy.events.get(name)
    roles = None if declared is None else declared.roles
    declared = next((each for each in chart.events or () if each.name == name), None)
    payload = None if declared is None or declared.payload is None else payload_schema(declared.payload)
    description = None if declared is None else declared.description
    if snapshot.ended is not None:
        return Acceptance(name, False, "ended", roles=roles)
    if policy.role_refusal(Event(name, principal=None if principal is None else dict(principal))) is not None:
        return Acceptance(name, False, "roles", roles=roles or ())
    matching = [each for each in candidates if matches_event(chart, each.transition, name)]
    accepted = next((each for each in matching if each.accepted), None)
    if accepted is not None:
        targets = _targets(chart, accepted)
        match policy.refusal_by_entity(name, principal, snapshot, time_ms):
            case None:
                pass
            case "approvals":
                count = _count_of(policy, name, snapshot, time_ms)
                return Acceptance(name, False, "approvals", targets, roles=roles, payload=payload, approvals=count)
            case _:
                return Acceptance(name, False, "permit", roles=roles, payload=payload, description=description)
        return Acceptance(name, True, None, targets, roles=roles, payload=payload, description=description)
    if matching:
        guards = tuple(
            Refused(each.state, each.guard or "", each.values, each.error, _targets(chart, each)) for each in matching
        )
        # A payload may make the guard true, so the schema is given.
        return Acceptance(name, False, "guard", guards=guards, roles=roles, payload=payload, description=description)
    states = accepting_states(chart, name)
    return Acceptance(name, False, "elsewhere", states=states, roles=roles, payload=payload, description=description)


def _count_of(policy: ChartPolicy, name: str, snapshot: Snapshot, time_ms: int | None) -> ApprovalCount | None:
    needed = policy.events[name].approvals
    if needed is None:
        return None
    return ApprovalCount(needed.of, needed.count, count_approvals(needed, snapshot.context, time_ms))


def _targets(chart: Chart, candidate: Candidate) -> tuple[str, ...]:
    return tuple(chart.states[each].id for each in chart.transitions[candidate.transition].targets)


def payload_schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these fields."""
    required = [each.name for each in fields if each.required]
    schema: dict[str, Any] = {"type": "object", "properties": {each.name: _schema(each) for each in fields}}
    return {**schema, **({"required": required} if required else {}), "additionalProperties": False}


def _schema(spec: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if spec.type != "any":
        schema["type"] = [spec.type, "null"] if spec.nullable else spec.type
    keywords = {
        "enum": None if spec.enum is None else list(spec.enum),
        "minimum": spec.min,
        "maximum": spec.max,
        "maxLength": spec.length_max if spec.type == "string" else None,
        "maxItems": spec.length_max if spec.type == "array" else None,
        "format": spec.format,
        "contentEncoding": "base64" if spec.format == "byte" else None,
        "description": spec.description,
        "items": None if spec.items is None else _schema(spec.items),
    }
    schema |= {key: value for key, value in keywords.items() if value is not None}
    if spec.default is not UNSET:
        schema["default"] = spec.default
    return {**schema, **payload_schema(spec.fields)} if spec.fields is not None else schema
