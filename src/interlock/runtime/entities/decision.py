"""What the chart and its policy say to an event of an entity: a step, a denial or a refusal; and the receipt for it.

Rule 1: roles come first: a caller without the role is denied, whatever it expects. So it cannot learn anything by
guessing a key or a version. The sender checks them before it loads the entity; here they are checked again, because
only the revision of the entity has the roles of an event that newer revisions no longer declare.
Rule 2: the permit comes after `expected`: it is evaluated on the snapshot, which must be the one that the caller meant.
Rule 3: for a sender who may not see hidden states, version and permit are those of the cover; and a permit must hold on
the truth, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from interlock.errors import RejectedError, UnavailableError
from interlock.kernel.step import Kernel
from interlock.model.charts.chart import Chart
from interlock.model.charts.sendable_events import UNKNOWN_EVENT, knows_event
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.refusal_text import explain_refusal, role_denial_text
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.request_checks import unknown_entity
from interlock.trust.authorization import ChartPolicy
from interlock.trust.visibility import lens_for


class Denied(Struct, frozen=True):
    """The policy of the chart denies the event. By role: then the key is not looked up either.

    `roles` are those of the event, for the explanation. `is_open`: the sender may know it, because it does not depend
    on a hidden state.
    """

    reason: str
    by_role: bool
    roles: tuple[str, ...] = ()
    is_open: bool = True


class WrongVersion(Struct, frozen=True):
    """The entity is not at the version that the caller expects, but at this one, as far as the caller sees."""

    version: int


class Stopped(Struct, frozen=True):
    """The error that the sender gets instead: the entry is too large to store, or the entity is held."""

    error: RejectedError | UnavailableError


class Decided(Struct, frozen=True):
    """The policy of an authorizer of the program, which has decided already."""

    refusal: str | None
    hidden_refusal: str | None = None

    def role_refusal(self, event: Event) -> None:
        """Return None: a denial that needs no snapshot was given before the load."""

    def permit_refusal(self, event: Event, snapshot: Snapshot) -> str | None:
        """Return why the authorizer denies the event; None if it allows it."""
        del event, snapshot
        return self.refusal

    def roles(self, name: str) -> tuple[str, ...]:
        """Return no roles."""
        del name
        return ()


EventPolicy = ChartPolicy | Decided
Decision = Step | Denied | WrongVersion
Refusal = Decision | Stopped
"""A decision by which nothing is written."""


def decide(
    kernel: Kernel, snapshot: Snapshot, event: Event, request: SendRequest, policy: EventPolicy | None
) -> Decision:
    """Return the step, or why there is none. Without a policy every sender is allowed."""
    if policy is not None and (reason := policy.role_refusal(event)) is not None:
        return Denied(reason, by_role=True, roles=policy.roles(event.name))
    shown = snapshot if request.reader is None else shown_to(kernel.chart, snapshot, request.reader)
    if request.expected is not None and shown.version != request.expected:
        return WrongVersion(shown.version)
    if policy is not None:
        if (reason := policy.permit_refusal(event, shown)) is not None:
            return Denied(reason, by_role=False)
        if shown is not snapshot:
            decided = policy if isinstance(policy, Decided) else None
            reason = policy.permit_refusal(event, snapshot) if decided is None else decided.hidden_refusal
            if reason is not None:
                return Denied(reason, by_role=False, is_open=False)
    refusal = request.refusal
    if refusal is not None and not (refusal.code == UNKNOWN_EVENT and knows_event(kernel.chart, event.name)):
        reason = "payload" if refusal.code == "event.payload" else refusal.code
        return Step(snapshot, (), "rejected", reason, faults=(refusal,))
    return kernel.step(snapshot, event)


def shown_to(chart: Chart, snapshot: Snapshot, reader: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot that a reader sees instead. Raises NotFoundError if they see no such entity."""
    shown = lens_for(chart, reader).shown(snapshot)
    if shown is None:
        raise unknown_entity(snapshot.entity)
    return shown


def is_denied_by_role(decision: Refusal) -> bool:
    """Whether the caller lacks the role for the event."""
    return isinstance(decision, Denied) and decision.by_role


def build_receipt(chart: Chart, snapshot: Snapshot, event: Event, decision: Step | Denied) -> Receipt:
    """Return the receipt when nothing is written: a denial, a refusal, or what a step would do."""
    entity = snapshot.entity
    if isinstance(decision, Denied):
        if decision.by_role:
            return build_denial(entity, event, decision)
        text = explain_refusal(chart, snapshot, event, outcome="denied", reason=decision.reason)
        hidden = None if decision.is_open else snapshot  # a denial with a snapshot depends on the state
        return Receipt(entity, "denied", snapshot.version, decision.reason, hidden, explanation=text)
    after, explanation = decision.snapshot, None
    if decision.outcome in ("rejected", "denied"):
        explanation = explain_refusal(
            chart,
            snapshot,
            event,
            outcome=decision.outcome,
            reason=decision.reason,
            failed_guards=decision.failed_guards,
            faults=decision.faults,
        )
    return Receipt(
        entity,
        decision.outcome,
        after.version,
        decision.reason,
        after,
        decision.effects,
        decision.faults,
        decision.failed_guards,
        explanation,
    )


def build_denial(entity: str, event: Event, denied: Denied) -> Receipt:
    """Return the receipt of a sender without the role: the same whether the entity exists or not, without a version."""
    return Receipt(entity, "denied", 0, denied.reason, explanation=role_denial_text(entity, event, denied.roles))
