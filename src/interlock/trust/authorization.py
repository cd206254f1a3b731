"""Who may send which event, create and read: the roles and permits of a chart.

Rule 1: once any event of a chart has roles, an event without roles is denied to everyone. A chart without any roles is
open to local callers.
Rule 2: permissions are not pinned: an entity of an older revision follows the newest one (ADR 0076), so that a revoked
role reaches it.
Rule 3: a refusal is `denied`, never `rejected`, and does not say which states would have accepted the event.
Rule 4: roles need only the kind and the event, so they are checked before an entity is loaded. A caller without the
role gets the same answer whether the entity exists or not (ADR 0127).
Rule 5: `approvals` of an event are part of its policy, and are checked after its `permit`.
Rule 6: `create` and `read` are those of the newest revision, too. Once any event has roles, a chart without `create`
denies every principal to create; a chart without `read` lets every reader read. A creation without a principal is the
program's own.
Rule 7: with `owner`, a principal with a role reads every entity, and any principal reads the entities with its id in
that field. To that principal other entities do not exist, and the index of the field limits lists to its own.
Rule 8: an outsider, who has none of the roles that the chart names, gets that answer for every event, also for one that
the chart does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from interlock.expression.builtins import NAMES
from interlock.expression.codegen import Compiled, EvaluationError, Meter, compile_parsed
from interlock.expression.parser import parse
from interlock.model.approvals import count_approvals
from interlock.model.charts.chart import Chart
from interlock.model.document.document import EventType
from interlock.model.event import Event
from interlock.model.limits import PERMITS_COMPILED_MAX, WORK_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.trust.authorizer import ALLOWED, Allow, AuthorizationRequest, Decision, Deny

PERMIT_NAMES = NAMES | {"principal"}
"""The roots that a permit may read."""

SYSTEM = "system"
"""The role of timers, results, children and the sends of other entities."""

_NOT_SYSTEM = frozenset({"user", "service", "person", "bus"})


class _Entity(NamedTuple):
    id: str
    kind: str
    version: int
    epoch: int = 0


class ChartPolicy:
    """The roles and permits of one chart, for an entity that may be of an older revision.

    `older` is the chart of that revision. Its roles and permits count for events that only it declares.
    """

    def __init__(self, chart: Chart, older: Chart | None = None) -> None:
        charts = [chart] if older is None or older is chart else [older, chart]
        self.events: dict[str, EventType] = {}
        self._restricted: dict[str, bool] = {}
        for each in charts:
            events = each.events or ()
            restricted = any(event.roles is not None for event in events)
            self.events.update({event.name: event for event in events})
            self._restricted.update({event.name: restricted for event in events})
        self.is_restricted = any(self._restricted.values())
        self.is_open = not self.is_restricted and all(
            each.permit is None and each.approvals is None for each in self.events.values()
        )
        self._named = frozenset(role for each in self.events.values() for role in each.roles or ()) | {SYSTEM}
        self._create, self._read = chart.create, chart.read
        self._permits = {
            name: compile_permit(each.permit.text) for name, each in self.events.items() if each.permit is not None
        }

    def role_refusal(self, event: Event) -> str | None:
        """Return why the principal lacks the role for this event; None when it has one."""
        known = self.events.get(event.name)
        if known is None:  # the chart rejects undeclared events, but not to outsiders
            return "roles" if self.is_restricted and self._named.isdisjoint(roles_of(event.principal)) else None
        if not self._restricted[event.name]:
            return None
        return None if not roles_of(event.principal).isdisjoint(known.roles or ()) else "roles"

    def roles(self, name: str) -> tuple[str, ...]:
        """Return the roles that may send an event."""
        known = self.events.get(name)
        return () if known is None else known.roles or ()

    def declares(self, name: str) -> bool:
        """Whether the chart declares an event."""
        return name in self.events

    def permit_refusal(self, event: Event, snapshot: Snapshot) -> str | None:
        """Return why the event's `permit` or its approvals deny it for this principal and entity, at the time of the
        event; None if they allow it.
        """
        permit = self._permits.get(event.name)
        if permit is not None:
            entity = _Entity(snapshot.entity, snapshot.kind, snapshot.version)
            refusal = evaluate_permit(permit, snapshot.context, event, entity, event.principal)
            if refusal is not None:
                return refusal
        return self.approvals_refusal(event.name, snapshot, event.time_ms)

    def create_refusal(self, principal: Mapping[str, Any], event: Event, entity: str) -> str | None:
        """Return why a principal may not create an entity with the context in the event; None when it may."""
        access = self._create
        if access is None:
            return "roles" if self.is_restricted else None
        if access.roles is not None and roles_of(principal).isdisjoint(access.roles):
            return "roles"
        if access.permit is None:
            return None
        place = _Entity(entity, entity.partition("/")[0], 0)
        return evaluate_permit(compile_permit(access.permit.text), {}, event, place, principal)

    @property
    def create_roles(self) -> tuple[str, ...]:
        """The roles that may create entities."""
        return () if self._create is None else self._create.roles or ()

    def read_decision(self, principal: Any, entity: str | None, snapshot: Snapshot | None) -> Decision:
        """Return whether a reader may read an entity, decided on its snapshot; without an entity, lists of the kind.

        A permit cannot be checked for each row of a list, so a reader who needs one gets no lists.
        """
        access = self._read
        if access is None:
            return ALLOWED
        has_role = access.roles is not None and not roles_of(principal).isdisjoint(access.roles)
        if access.owner is not None and not has_role:
            return self._decide_owner(access.owner, principal, snapshot)
        if access.roles is not None and not has_role:
            return Deny("roles")
        if access.permit is not None and entity is None:
            return Deny("permit")
        if access.permit is None or snapshot is None:
            return ALLOWED
        place = _Entity(snapshot.entity, snapshot.kind, snapshot.version)
        refusal = evaluate_permit(compile_permit(access.permit.text), snapshot.context, None, place, principal)
        return ALLOWED if refusal is None else Deny(refusal)

    def reads_by_entity(self, principal: Any) -> bool:
        """Whether it depends on the entity whether a principal may read it."""
        access = self._read
        if access is None:
            return False
        has_role = access.roles is not None and not roles_of(principal).isdisjoint(access.roles)
        return access.permit is not None or (access.owner is not None and not has_role)

    def _decide_owner(self, owner: str, principal: Any, snapshot: Snapshot | None) -> Decision:
        found = principal.get("id") if isinstance(principal, Mapping) else None
        if not isinstance(found, str) or not found:
            return Deny("owner")
        if snapshot is None:
            return Allow({owner: found})
        return ALLOWED if snapshot.context.get(owner) == found else Deny("owner")

    def decide(self, request: AuthorizationRequest, /) -> Decision:
        """Return the decision of the chart: by roles without a snapshot, else by permits and approvals."""
        event, snapshot = request.event, request.snapshot
        if request.action == "read" or event is None:
            return self.read_decision(request.principal, request.entity, snapshot)
        reason: str | None
        if request.action == "create":
            who = request.principal
            reason = None if who is None else self.create_refusal(who, event, request.entity or "")
        else:
            reason = self.role_refusal(event)
            if reason is None and snapshot is not None:
                reason = self.permit_refusal(event, snapshot)
        return ALLOWED if reason is None else Deny(reason)

    def refusal_by_entity(self, name: str, principal: Any, snapshot: Snapshot, time_ms: int | None) -> str | None:
        """Return what `permit_refusal` would return for an event at a time, as far as its payload does not matter."""
        permit = self._permits.get(name)
        has_id = isinstance(principal, Mapping) and principal.get("id") is not None
        if permit is not None and has_id and "event" not in permit.uses:
            entity = _Entity(snapshot.entity, snapshot.kind, snapshot.version)
            refusal = evaluate_permit(permit, snapshot.context, None, entity, principal)
            if refusal is not None:
                return refusal
        return self.approvals_refusal(name, snapshot, time_ms)

    def approvals_refusal(self, name: str, snapshot: Snapshot, time_ms: int | None) -> str | None:
        """Return "approvals" if an event needs more approvals than the entity has at a time; None if it has enough."""
        known = self.events.get(name)
        if known is None or known.approvals is None:
            return None
        has_enough = count_approvals(known.approvals, snapshot.context, time_ms) >= known.approvals.count
        return None if has_enough else "approvals"


@lru_cache(maxsize=PERMITS_COMPILED_MAX)
def compile_permit(text: str) -> Compiled:
    """Return the code of a permit, compiled once for all policies with this text. It knows no active state."""
    parsed = parse(text, names=PERMIT_NAMES)
    return compile_parsed(parsed, inside={name: name for name, _ in parsed.inside})


def evaluate_permit(
    permit: Compiled, context: Mapping[str, Any], event: Event | None, entity: Any, who: Any
) -> str | None:
    """Return why a permit denies; None when it allows. A permit that fails allows nothing."""
    principal = dict(who) if isinstance(who, Mapping) else {}
    try:
        held = permit.function(context, event, entity, frozenset(), Meter(WORK_MAX), principal)
    except (EvaluationError, LookupError, TypeError, ArithmeticError, AttributeError):
        return "permit.error"
    return None if held else "permit"


def roles_of(principal: Any) -> frozenset[str]:
    """Return the roles of a principal; none for a sender without one. No user and no service has the role `system`."""
    if not isinstance(principal, Mapping):
        return frozenset()
    found = frozenset(principal.get("roles") or ())
    return found - {SYSTEM} if SYSTEM in found and principal.get("kind") in _NOT_SYSTEM else found


class ChartAuthorizer:
    """Decides by the roles, permits and approvals of the charts: what a runtime without an `authorizer` does."""

    is_async = False

    def decide(self, request: AuthorizationRequest, /) -> Decision:
        """Return the decision of the chart."""
        return request.by_chart()
