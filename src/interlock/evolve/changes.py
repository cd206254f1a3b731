"""The kinds of change between two definitions: how a reviewer should look at each, why, and which entities it stops.

Rule 1: this table is the only place that classifies a change; `diff.py` finds changes and names them by code.
Rule 2: `safe`: every journal of the old definition replays on the new one with the same entries. `care`: the new one
        answers some later event differently, or an outside system notices. `breaking`: some entity cannot be carried
        over, or a sender that was right is refused.
Rule 3: `carry` says which entities of the old revision can be carried over; empty: all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interlock.model.charts.chart import Descriptor

Review = Literal["none", "safe", "care", "breaking"]

REVIEWS: tuple[Review, ...] = ("none", "safe", "care", "breaking")
"""From harmless to grave."""


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """How a kind of change is classified."""

    review: Review
    reason: str
    carry: str = ""


_OUTSIDE_STATE = "entities that are not in the state, and do not remember it in a history"
_NOT_ACTIVE = "entities in which the state is not active"
_NOT_RUNNING = "entities in which the invoke is not running"
_OUTSIDE_SAGA = "entities outside the saga that do not list the step as done"

RULES: dict[str, ChangeRule] = {
    # The chart
    "text.changed": ChangeRule(
        "none", "texts, spelling, labels, monitoring and lint settings are not part of a revision"
    ),
    "chart.dialect": ChangeRule("breaking", "other rules select transitions and enter states", "none"),
    "chart.unhandled": ChangeRule(
        "care",
        "events that no transition takes are answered differently",
        "entities without deferred events, if `defer` is no longer used",
    ),
    "chart.errors": ChangeRule("care", "an error in a guard or an action has another effect"),
    "chart.binding": ChangeRule("care", "fields of states get their first value at another time"),
    "chart.personal": ChangeRule("breaking", "entities of the old definition have no data key", "none"),
    "chart.script": ChangeRule("care", "new entities start with another script"),
    "chart.create": ChangeRule("care", "other senders may create entities; applies immediately"),
    "chart.read": ChangeRule(
        "care", "other readers may read entities; applies immediately to entities of every revision"
    ),
    "retention.shorter": ChangeRule("care", "entities or entries are removed earlier, or without a copy", "all"),
    "retention.longer": ChangeRule("safe", "nothing is removed earlier"),
    "monotonic.order": ChangeRule(
        "breaking", "the order of states that are never left backwards differs", "none without a mapping"
    ),
    # States
    "state.added_final": ChangeRule("safe", "a new end changes no path that exists"),
    "state.added": ChangeRule("safe", "no old state leads to it"),
    "state.added_on_path": ChangeRule("care", "entities on old paths can now reach it"),
    "state.removed": ChangeRule("breaking", "entities may be in the state", _OUTSIDE_STATE),
    "state.renamed": ChangeRule(
        "care",
        "senders, dashboards and messages see the new name",
        "entities without a running invoke whose id contains the old name",
    ),
    "state.rename_conflict": ChangeRule("breaking", "the old definition already has a state with the new id", "none"),
    "state.moved": ChangeRule("breaking", "another state contains it now, which may not be active", _OUTSIDE_STATE),
    "state.split": ChangeRule(
        "care",
        "the state has child states now; entities in it enter the initial one",
        "entities outside it; or all, if the way to the initial state has no entry action, timer or invoke",
    ),
    "state.flattened": ChangeRule("breaking", "its child states no longer exist", _OUTSIDE_STATE),
    "state.final": ChangeRule("breaking", "the state ends its parent now, or no longer does", _NOT_ACTIVE),
    "state.parallel": ChangeRule("breaking", "its child states are active together now, or no longer", _NOT_ACTIVE),
    "state.kind": ChangeRule("breaking", "a history is not a state that entities are in", _OUTSIDE_STATE),
    "region.added": ChangeRule("breaking", "entities in the parallel state are not in the new region", _NOT_ACTIVE),
    "region.removed": ChangeRule("breaking", "entities in the parallel state are in the removed region", _NOT_ACTIVE),
    "state.order": ChangeRule("care", "document order decides entry order, and the initial state by default"),
    "state.initial": ChangeRule("care", "the state starts elsewhere, or with other actions"),
    "history.changed": ChangeRule("care", "its kind, its default or the actions of the default differ"),
    "history.removed": ChangeRule("care", "what it remembers is dropped"),
    "state.entry": ChangeRule(
        "care", "entering the state does something else", f"{_NOT_ACTIVE}, or all if only `log` differs"
    ),
    "state.exit": ChangeRule("care", "leaving the state does something else"),
    "state.output": ChangeRule("care", "the result of the state differs"),
    "state.sensitive": ChangeRule("care", "other data is hidden while the state is active"),
    # Transitions
    "transition.added": ChangeRule("safe", "no sender could send the event before"),
    "transition.added_answer": ChangeRule("care", "an event that no transition took is taken now"),
    "transition.added_overlap": ChangeRule("care", "an event that an old transition takes can be taken by this one"),
    "transition.removed": ChangeRule("care", "another transition takes the event instead"),
    "transition.removed_last": ChangeRule(
        "breaking",
        "no other transition takes the event in this state",
        "entities for which the event is not pending: no timer, delayed send or running invoke produces it",
    ),
    "transition.target": ChangeRule("care", "the event leads elsewhere"),
    "transition.guard": ChangeRule("care", "the event is taken under another condition"),
    "transition.actions": ChangeRule("care", "taking the transition does something else"),
    "transition.reenter": ChangeRule("care", "the state is left and entered again, or no longer"),
    "transition.roles": ChangeRule("care", "other senders may cause the transition"),
    "transition.order": ChangeRule("care", "transitions that one event can match are tried in another order"),
    "always.added": ChangeRule("care", "entities that wait in the state may leave it immediately"),
    "always.changed": ChangeRule("care", "entities that wait in the state may leave it immediately"),
    "always.removed": ChangeRule("care", "entities now stay in a state that they used to leave immediately"),
    # Timers
    "timer.added": ChangeRule("care", "entities in the state get a deadline, counted from their entry"),
    "timer.removed": ChangeRule("care", "pending deadlines of the state are cancelled"),
    "timer.delay": ChangeRule("care", "the deadline changes; pending timers are moved by the difference"),
    "timer.restore": ChangeRule("care", "downtime affects the timer in another way"),
    "timer.ambiguous": ChangeRule(
        "care", "several timers changed, and which one replaces which is not clear", _NOT_ACTIVE
    ),
    # Invokes
    "invoke.added": ChangeRule("care", "entities that are in the state have not started it", _NOT_ACTIVE),
    "invoke.removed": ChangeRule("breaking", "no transition takes the result of a running invoke", _NOT_RUNNING),
    "invoke.source": ChangeRule(
        "breaking",
        "the result of a running invoke is that of another handler or chart; invokes without id are named by position",
        _NOT_RUNNING,
    ),
    "invoke.options": ChangeRule("care", "invokes that start later have other options"),
    "invoke.child": ChangeRule("care", "children that start later follow another chart"),
    "invoke.personal": ChangeRule(
        "breaking", "results were stored plain before, which an erasure does not reach", "none"
    ),
    "invoke.declassified": ChangeRule("breaking", "results are no longer sealed, so they cannot be erased", "none"),
    "invoke.order": ChangeRule("care", "the invokes of the state start in another order"),
    # Sagas
    "saga.added": ChangeRule("breaking", "entities in the state have started no step", _NOT_ACTIVE),
    "saga.removed": ChangeRule("breaking", "completed steps could no longer be compensated", _OUTSIDE_SAGA),
    "saga.step_appended": ChangeRule("care", "the saga has one more step at its end"),
    "saga.step_inserted": ChangeRule("breaking", "entities past this step would skip it", _OUTSIDE_SAGA),
    "saga.step_removed": ChangeRule("breaking", "entities may be in the step, or have completed it", _OUTSIDE_SAGA),
    "saga.steps_reordered": ChangeRule("breaking", "entities in the saga would skip or repeat steps", _OUTSIDE_SAGA),
    "saga.mode": ChangeRule("breaking", "completed steps are compensated in another way", _OUTSIDE_SAGA),
    "saga.call": ChangeRule("breaking", "the result of a running step is that of another call", _OUTSIDE_SAGA),
    "saga.options": ChangeRule("care", "steps that start later have other options"),
    "saga.compensation": ChangeRule("care", "steps that are done use the new compensation"),
    "saga.compensation_removed": ChangeRule(
        "breaking", "a step that is done could no longer be compensated", _OUTSIDE_SAGA
    ),
    # Data
    "field.added": ChangeRule("safe", "existing entities get its default"),
    "field.added_required": ChangeRule("breaking", "existing entities have no value for it", "none without a mapping"),
    "field.removed": ChangeRule("care", "its value is dropped from the context; the journal keeps it"),
    "field.widened": ChangeRule("safe", "every old value is valid"),
    "field.narrowed": ChangeRule("breaking", "old values may be invalid", "entities whose value is valid now"),
    "field.default": ChangeRule("care", "new entities start with another value"),
    "field.creation": ChangeRule("care", "callers that create an entity must pass the field now, or no longer have to"),
    "field.personal": ChangeRule(
        "breaking", "values were stored plain before, which an erasure does not reach", "none"
    ),
    "field.declassified": ChangeRule("breaking", "values are no longer sealed, so they cannot be erased", "none"),
    "field.moved": ChangeRule("care", "another state owns the field, so it gets its first value at another time"),
    # Events
    "events.declared": ChangeRule("breaking", "events that are not listed are rejected now"),
    "events.open": ChangeRule("safe", "every event is accepted as before"),
    "event.added": ChangeRule("safe", "no sender could send it before"),
    "event.removed": ChangeRule(
        "breaking", "senders of the event are rejected", "entities without a deferred or delayed event of this name"
    ),
    "event.direction": ChangeRule("care", "the event comes from elsewhere"),
    "event.closed": ChangeRule("breaking", "senders of the event are rejected"),
    "event.roles": ChangeRule("care", "other senders may send it; applies immediately to entities of every revision"),
    "event.permit": ChangeRule("care", "its policy differs; applies immediately to entities of every revision"),
    "event.approvals": ChangeRule(
        "care", "other users must approve it; approvals that the old definition did not record do not count"
    ),
    "event.dedupe": ChangeRule("care", "a retry that crosses the change has another key and is applied twice"),
    "payload.personal": ChangeRule(
        "breaking", "values were stored plain before, which an erasure does not reach", "none"
    ),
    "payload.declassified": ChangeRule("breaking", "values are no longer sealed, so they cannot be erased", "none"),
    "payload.added": ChangeRule("safe", "senders may leave it out"),
    "payload.widened": ChangeRule("safe", "every old payload is valid"),
    "payload.required": ChangeRule(
        "breaking", "senders that leave it out are rejected", "entities without a pending event that is refused"
    ),
    "payload.narrowed": ChangeRule(
        "breaking", "payloads that were valid are rejected", "entities without a pending event that is refused"
    ),
    "payload.removed": ChangeRule(
        "breaking", "senders that include it are rejected", "entities without a pending event that is refused"
    ),
    "payload.default": ChangeRule("care", "senders that leave it out mean another value"),
}
"""Every kind of change by code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: its code, what changed, a detail, and the states of the old definition whose entities it affects.

    `event`: the events whose senders it affects, if a sender can notice it.
    """

    code: str
    subject: str
    detail: str = ""
    states: tuple[str, ...] = ()
    hint: str | None = None
    event: Descriptor | None = None

    @property
    def rule(self) -> ChangeRule:
        """How this kind of change is classified."""
        return RULES[self.code]

    @property
    def review(self) -> Review:
        """The class of the change."""
        return self.rule.review


def worst(changes: tuple[Change, ...]) -> Review:
    """Return the gravest class among changes; `none` if there are none."""
    return max((each.review for each in changes), key=REVIEWS.index, default="none")
