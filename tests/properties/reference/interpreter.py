"""The reference interpreter: a slow, plain reading of the semantics, against which the kernel is checked.

Rule 1: it imports nothing of `interlock.kernel` and shares no code with it: what agrees was written twice.
Rule 2: no cache, no plan, no index: each function reads like the sentence of `semantics.md` that it names.
Rule 3: where the kernel differs, `semantics.md` and SCXML's appendix D decide, never the other program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from interlock.errors import RejectedError
from interlock.model import limits
from interlock.model.charts.chart import Chart
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from interlock.model.step import Fault, Outcome, Step
from tests.properties.reference.algorithm import (
    EntrySet,
    add_descendant_states_to_enter,
    enter_states,
    exit_interpreter,
    main_event_loop,
    note_fault,
    select_transitions,
)
from tests.properties.reference.content import add_send, execute_content
from tests.properties.reference.lifetimes import bind_fields
from tests.properties.reference.progress import Function, Progress, StepFailed
from tests.properties.reference.structure import Structure


class Interpreter:
    """One chart with its registered functions."""

    def __init__(
        self,
        chart: Chart,
        *,
        guards: Mapping[str, Function] | None = None,
        assigns: Mapping[str, Function] | None = None,
    ) -> None:
        self.chart = chart
        self.guards = guards or {}
        self.assigns = assigns or {}

    def start(
        self, context: Mapping[str, Any] | None = None, *, entity: str, time_ms: int, parent: Parent | None = None
    ) -> Step:
        """S5, S6: build the context, enter the root's initial states, run to completion. Raises RejectedError."""
        progress = Progress(
            chart=self.chart,
            structure=Structure(self.chart),
            guards=self.guards,
            assigns=self.assigns,
            kind=self.chart.kind,
            entity=entity,
            version=1,
            time_ms=time_ms,
            context={},
            parent=parent,
        )
        try:
            bind_fields(progress, self.chart.states[0].context, dict(context or {}))
            if self.chart.binding == "early":
                for state in self.chart.states[1:]:
                    bind_fields(progress, state.context, {})
            if self.chart.dialect.name == "xstate":
                progress.event = Event("xstate.init", type="internal")
            entry = EntrySet()
            add_descendant_states_to_enter(progress, 0, entry)
            enter_states(progress, entry)
            main_event_loop(progress)
        except StepFailed as failed:
            raise RejectedError("the first step failed", code=failed.code) from failed
        return self._step(progress, outcome="applied")

    def step(self, snapshot: Snapshot, event: Event) -> Step:
        """Section 1: one external event run to completion."""
        source = (event.source or "").split("/", 1)
        if snapshot.ended is not None:
            return Step(snapshot=snapshot, outcome="ignored" if event.source else "rejected", reason="ended")
        if not is_allowed(self.chart, snapshot, event):
            return Step(snapshot=snapshot, outcome="rejected", reason="reserved")
        if event.name == "_timer.moved":
            return self._move_timer(snapshot, event)
        progress = self._progress(snapshot, event)
        timer = invocation = None
        if source[0] == "timer":
            name, version = source[1].rsplit("/", 1)
            timer = next((each for each in snapshot.timers if (each.name, str(each.version)) == (name, version)), None)
            if timer is None or timer.event != event.name:
                return Step(snapshot=snapshot, outcome="ignored", reason="timer_gone")
            progress.timers.remove(timer)
        elif source[0] == "invoke":
            invocation = next((each for each in snapshot.invokes if each.key == source[1]), None)
            replaced = is_result(event) and any(each.id == event.invokeid for each in snapshot.invokes)
            if invocation is None and (replaced or not event.last):
                return self._step(progress, outcome="ignored", reason="invoke_gone")
        elif event.name != "_cancel" and not self._declared(event):
            return Step(snapshot=snapshot, outcome="rejected", reason="undeclared")
        try:
            return self._run(snapshot, progress, event, timer, invocation)
        except StepFailed as failed:
            return self._failed(snapshot, timer, invocation if is_result(event) else None, failed)

    def _run(
        self, snapshot: Snapshot, progress: Progress, event: Event, timer: Timer | None, invocation: Invocation | None
    ) -> Step:
        if timer is not None and timer.to is not None:
            add_send(progress, timer.event, timer.data, to=timer.to, sendid=timer.id)
            return self._step(progress, outcome="applied", reason="sent")
        progress.event = progress.outside = event
        if (timer is not None and timer.state is not None) or (invocation is not None and is_result(event)):
            progress.matched = event
        if event.name == "_cancel":
            progress.ended = "cancelled"
            exit_interpreter(progress)
            return self._step(progress, outcome="applied", reason="cancelled")
        self._finalize_and_forward(progress, event, invocation)
        selected = select_transitions(progress, event)
        if not selected:
            note_fault(progress, event)
            if invocation and event.name == f"error.invoke.{invocation.id}" and self.chart.dialect.errors == "raise":
                progress.ended = "failed"
                exit_interpreter(progress)
                return self._step(progress, outcome="applied", reason="failed")
        main_event_loop(progress, selected=selected)
        return self._answer(snapshot, progress, event, ours=event.source is not None)

    def _finalize_and_forward(self, progress: Progress, event: Event, invocation: Invocation | None) -> None:
        """S9: for each active state and each of its invokes, in document order."""
        over = invocation is not None and is_result(event)
        order = sorted(progress.invokes, key=lambda each: (progress.structure.number(each.state), each.position))
        for each in order:
            invoke = progress.invoke_of(each)
            if each == invocation and invoke.finalize and not event.forwarded:
                execute_content(invoke.finalize, progress)
                progress.busy = True
            if invoke.autoforward and not (over and each == invocation):
                progress.add_effect("forward", {"id": each.id, "event": forwarded(event)})
                progress.busy = True
        if over and invocation is not None:
            progress.invokes.remove(invocation)

    def _answer(self, snapshot: Snapshot, progress: Progress, event: Event, *, ours: bool) -> Step:
        """Section 5: how the event was taken."""
        chosen = [self.chart.transitions[each] for each in progress.chosen]
        if progress.busy or any(each.targets or each.block for each in chosen):
            return self._step(progress, outcome="applied", before=snapshot)
        reason = "guard" if progress.refused else "no_transition"
        if chosen:
            return self._unapplied(snapshot, progress, "ignored", "no_content")
        if ours or self.chart.unhandled == "ignore":
            return self._unapplied(snapshot, progress, "ignored", "no_transition")
        if self.chart.unhandled == "defer":
            if len(progress.deferred) >= limits.DEFERRED_MAX:
                raise StepFailed("step.deferred_max")
            progress.deferred.append(event)
            return self._step(progress, outcome="applied", reason="deferred", before=snapshot)
        return self._unapplied(snapshot, progress, "rejected", reason)

    def _unapplied(self, before: Snapshot, progress: Progress, outcome: Outcome, reason: str | None) -> Step:
        """Nothing happened, except perhaps that a timer or an invoke of ours is over."""
        step = self._step(progress, outcome=outcome, reason=reason)
        if step.snapshot.timers == before.timers and step.snapshot.invokes == before.invokes:
            step = Step(before, (), outcome, reason, step.transitions, step.faults)
        return step

    def _step(
        self, progress: Progress, *, outcome: Outcome, reason: str | None = None, before: Snapshot | None = None
    ) -> Step:
        ended: Literal["done", "cancelled", "failed"] | None = progress.ended
        configuration = progress.last if ended else progress.atomic_ids()
        if before is not None and configuration != before.configuration and not ended:
            return_deferred(progress)
        snapshot = Snapshot(
            kind=progress.kind,
            entity=progress.entity,
            version=progress.version,
            revision=self.chart.revision,
            configuration=configuration,
            context=progress.context,
            history=progress.history or None,
            timers=tuple(progress.timers),
            invokes=tuple(progress.invokes),
            deferred=() if ended else tuple(progress.deferred),
            entered=tuple(self.chart.states[each].id for each in progress.entered),
            ended=ended,
            output=progress.output,
            parent=progress.parent,
        )
        return Step(snapshot, tuple(progress.effects), outcome, reason, tuple(progress.chosen), tuple(progress.faults))

    def _failed(
        self, snapshot: Snapshot, timer: Timer | None, invocation: Invocation | None, failed: StepFailed
    ) -> Step:
        """Section 1: nothing is committed, but the timer or invoke whose event it was is taken out."""
        faults = (Fault(failed.code, ""),)
        if timer is None and invocation is None:
            return Step(snapshot=snapshot, outcome="rejected", reason="failed", faults=faults)
        progress = self._progress(snapshot, Event(""))
        progress.timers = [each for each in progress.timers if each != timer]
        progress.invokes = [each for each in progress.invokes if each != invocation]
        step = self._step(progress, outcome="rejected", reason="failed")
        return Step(step.snapshot, (), "rejected", "failed", (), faults)

    def _move_timer(self, snapshot: Snapshot, event: Event) -> Step:
        """S39: the reserved event that changes when one timer is due and from when it counts, and nothing else."""
        progress = self._progress(snapshot, event)
        for position, timer in enumerate(progress.timers):
            if (timer.name, timer.version) == (event.data["name"], event.data["version"]):
                fields = {each: getattr(timer, each) for each in Timer.__struct_fields__}
                moved = {name: event.data[name] for name in ("due_ms", "since_ms") if name in event.data}
                progress.timers[position] = Timer(**{**fields, **moved})
                return self._step(progress, outcome="applied", reason="moved")
        return Step(snapshot=snapshot, outcome="ignored", reason="timer_gone")

    def _declared(self, event: Event) -> bool:
        events = self.chart.events
        return events is None or any(each.name == event.name and each.direction == "in" for each in events)

    def _progress(self, snapshot: Snapshot, event: Event) -> Progress:
        return Progress.of(self.chart, snapshot, time_ms=event.time_ms, guards=self.guards, assigns=self.assigns)


def is_allowed(chart: Chart, snapshot: Snapshot, event: Event) -> bool:
    """S31: a reserved name comes from the driver, or an imported chart has sent it to itself."""
    if event.name.startswith("_"):
        return event.type == "platform"
    if "." not in event.name or event.name.split(".")[0] not in ("done", "error", "after"):
        return True
    if event.forwarded:
        return False
    if event.type == "platform":
        return not is_result(event) or event.name.split(".", 2)[2] == event.invokeid
    if event.source is not None or event.invokeid is not None:
        return (event.source or "").startswith("timer/")
    return event.origin == f"#_scxml_{snapshot.entity}" and chart.dialect.name != "interlock"


def is_result(event: Event) -> bool:
    """Whether an invoke's event is its last: the result, or the error that it ended with (S31)."""
    return event.name.split(".")[:2] in (["done", "invoke"], ["error", "invoke"])


def return_deferred(progress: Progress) -> None:
    """S32: after a step that changed the configuration every kept event comes back as a send to itself."""
    for event in progress.deferred:
        fresh = {
            name: None if old is None else f"{old}/{progress.version}"
            for name, old in (("id", event.id), ("key", event.key))
        }
        add_send(progress, event.name, event.data, to=progress.entity, principal=event.principal, **fresh)
    progress.deferred = []


def forwarded(event: Event) -> dict[str, Any]:
    """An event as it is forwarded to a child; what is null is left out."""
    names = ("name", "data", "sendid", "origin", "origintype", "invokeid")
    return {name: each for name in names if (each := getattr(event, name)) is not None}
