"""Who may send which event: roles and the `permit` policy of the chart's `events` block.

Rule 1: once any event of a chart has roles, an event without roles is denied to everyone. A chart without any roles is
open to local callers.
Rule 2: permissions are not pinned: an entity of an older revision follows the newest one (ADR 0076), so that a revoked
role reaches it.
Rule 3: a refusal is `denied`, never `rejected`, and does not say which states would have accepted the event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from interlock.expression.builtins import NAMES
from interlock.expression.codegen import EvaluationError, Meter, compile_parsed
from interlock.expression.parser import parse
from interlock.model.chart import Chart
from interlock.model.document.document import EventType
from interlock.model.event import Event
from interlock.model.limits import WORK_MAX
from interlock.model.snapshot import Snapshot


class _Entity(NamedTuple):
    id: str
    kind: str
    version: int
    epoch: int = 0


class Authorizer:
    """The roles and policies of one chart, for an entity that may be of an older revision.

    `older` is the chart of that revision. Its roles and policies count for events that only it declares.
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
        self.is_open = not any(self._restricted.values()) and all(each.permit is None for each in self.events.values())

    def role_refusal(self, event: Event) -> str | None:
        """Return why the principal lacks the role for this event; None when it has one."""
        known = self.events.get(event.name)
        if known is None or not self._restricted[event.name]:
            return None  # the chart rejects undeclared events
        held = set(_mapping(event.principal).get("roles") or ())
        return None if held & set(known.roles or ()) else "roles"

    def permit_refusal(self, event: Event, snapshot: Snapshot) -> str | None:
        """Return why the event's `permit` denies it for this principal and entity; None when it allows it."""
        known = self.events.get(event.name)
        if known is None or known.permit is None:
            return None
        policy = compile_parsed(parse(known.permit.text, names=NAMES | {"principal"}), inside={})
        entity = _Entity(snapshot.entity, snapshot.kind, snapshot.version)
        principal = dict(_mapping(event.principal))
        try:
            held = policy.function(snapshot.context, event, entity, frozenset(), Meter(WORK_MAX), principal)
        except (EvaluationError, LookupError, TypeError, ArithmeticError, AttributeError):
            return "permit.error"
        return None if held else "permit"


def _mapping(principal: Any) -> Mapping[str, Any]:
    return principal if isinstance(principal, dict) else {}
