"""Who may send which event: the roles and the `permit` of a chart's `events` block.

Rule 1: once any event of a chart has roles, an event without roles is denied to everyone. A chart without any roles is
open to local callers.
Rule 2: permissions are not pinned: an entity of an older revision follows the newest one (ADR 0076), so that a revoked
role reaches it.
Rule 3: a refusal is `denied`, never `rejected`, and does not say which states would have accepted the event.
Rule 4: roles need only the kind and the event, so they are checked before an entity is loaded. A caller without the
role gets the same answer whether the entity exists or not (ADR 0127).
Rule 5: an outsider, who has none of the roles that the chart names, gets that answer for every event, also for one that
the chart does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from interlock.expression.builtins import NAMES
from interlock.expression.codegen import EvaluationError, Function, Meter, compile_parsed
from interlock.expression.parser import parse
from interlock.model.chart import Chart
from interlock.model.document.document import EventType
from interlock.model.event import Event
from interlock.model.limits import PERMITS_COMPILED_MAX, WORK_MAX
from interlock.model.snapshot import Snapshot

PERMIT_NAMES = NAMES | {"principal"}
"""The roots that a permit may read."""

SYSTEM = "system"
"""The role of timers, results, children and the sends of other entities."""


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
        self.is_open = not self.is_restricted and all(each.permit is None for each in self.events.values())
        self._named = frozenset(role for each in self.events.values() for role in each.roles or ()) | {SYSTEM}
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
        """Return why the event's `permit` denies it for this principal and entity; None when it allows it."""
        permit = self._permits.get(event.name)
        if permit is None:
            return None
        entity = _Entity(snapshot.entity, snapshot.kind, snapshot.version)
        return evaluate_permit(permit, snapshot.context, event, entity, event.principal)


@lru_cache(maxsize=PERMITS_COMPILED_MAX)
def compile_permit(text: str) -> Function:
    """Return the function of a permit, compiled once for all policies with this text. It knows no active state."""
    parsed = parse(text, names=PERMIT_NAMES)
    return compile_parsed(parsed, inside={name: name for name, _ in parsed.inside}).function


def evaluate_permit(permit: Function, context: Mapping[str, Any], event: Event, entity: Any, who: Any) -> str | None:
    """Return why a permit denies; None when it allows. A permit that fails allows nothing."""
    principal = dict(who) if isinstance(who, Mapping) else {}
    try:
        held = permit(context, event, entity, frozenset(), Meter(WORK_MAX), principal)
    except (EvaluationError, LookupError, TypeError, ArithmeticError, AttributeError):
        return "permit.error"
    return None if held else "permit"


def roles_of(principal: Any) -> frozenset[str]:
    """Return the roles of a principal; none for a sender without one."""
    return frozenset(principal.get("roles") or ()) if isinstance(principal, Mapping) else frozenset()
