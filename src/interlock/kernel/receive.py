"""Decide which step an event means for an entity, and run it by the general path (S9, S30-S39).

Rule 1: results and timers that the driver sends back are matched with the snapshot (`driver_events`). A result that the
        snapshot no longer waits for is `ignored`; an event with a reserved name that the driver did not create is
        `rejected`, reason `reserved`.
Rule 2: a step is applied as a whole or not at all.
Rule 3: after the end nothing changes, except that sagas which the end interrupted are compensated (`saga_unwind`).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler
from interlock.kernel.driver_events import (
    NO_CAUSE,
    Cause,
    find_fired_timer,
    find_invocation,
    find_moved_timer,
    forwarded_event,
    is_from,
    is_genuine,
)
from interlock.kernel.errors import StepFailed
from interlock.kernel.microsteps import MicrostepResult, Microsteps
from interlock.kernel.outcome import Outcomes
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.run import OTHER_REVISION_HINT, StepRun, run_from
from interlock.kernel.saga_unwind import SagaUnwinder
from interlock.model.charts.chart import Chart, State
from interlock.model.document.field import complete_payload
from interlock.model.driver_events import TIMER_SOURCE, is_result
from interlock.model.effect import Effect
from interlock.model.event import RESULT_NAMES, Event
from interlock.model.held import HELD_FIELD, HOLD, RESUME
from interlock.model.journal.entry import ERASE
from interlock.model.journal.work import ERASE_WORK, key_base
from interlock.model.personal_token import KEY_FIELD
from interlock.model.snapshot import Ended, Invocation, Snapshot
from interlock.model.step import Fault, Step


class Receiver:
    """Runs the general step of entities of one chart: every feature, with cached plans."""

    def __init__(
        self, chart: Chart, planner: Planner, actions: ActionCompiler, microsteps: Microsteps, outcomes: Outcomes
    ) -> None:
        self.planner = planner
        self.actions = actions
        self.microsteps = microsteps
        self.outcomes = outcomes
        self.unwinder = SagaUnwinder(chart, actions)
        self.events = None if chart.events is None else {each.name: each for each in chart.events}
        self.raises = chart.dialect.errors == "raise"

    def receive(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """Return the step of one event."""
        if event.name[:1] == "_":
            return self._control(snapshot, configuration, event)
        if event.name.startswith(RESULT_NAMES) and not is_genuine(snapshot, event, imported=self.actions.imported):
            return Step(snapshot, (), "rejected", "reserved")
        if event.source is not None or event.invokeid is not None:
            return self._from_driver(snapshot, configuration, event)
        if self.events is not None and event.type != "platform":  # a chart does not declare the driver's own errors
            checked = self._declared(snapshot, event)
            if isinstance(checked, Step):
                return checked
            event = checked
        return self._general_step(snapshot, configuration, event, self._run(snapshot, event))

    def receive_after_end(self, snapshot: Snapshot, event: Event) -> Step:
        """Return the step of an event that arrives after the end: only sagas still react to it (S10, S30).

        Personal data can be erased after the end, too, and a hold ends.
        """
        if event.name in (ERASE, RESUME) and event.type == "platform":
            return self._erase(snapshot, event) if event.name == ERASE else self._resume(snapshot, event)
        compensated = self.unwinder.receive(snapshot, event) if snapshot.invokes else None
        if compensated is None:  # no state is active after the end
            compensated = self.unwinder.compensate_late(snapshot, event, frozenset(), raises=self.raises)
        if compensated is not None:
            return compensated
        return Step(snapshot, (), "ignored" if event.source is not None else "rejected", "ended")

    def _declared(self, snapshot: Snapshot, event: Event) -> Event | Step:
        """Return the event with its payload checked and completed, or the step that rejects it."""
        assert self.events is not None
        known = self.events.get(event.name)
        if known is None or known.direction == "out":
            return Step(snapshot, (), "rejected", "undeclared")
        if known.direction == "internal" and event.origin != f"#_scxml_{snapshot.entity}":
            return Step(snapshot, (), "rejected", "undeclared")
        if known.payload is None:
            return event
        data, problem = complete_payload(event.data, known.payload)
        if problem is not None:
            return Step(snapshot, (), "rejected", "payload", (), (Fault("event.payload", problem, event.name),))
        return event if data is event.data else replace(event, data=data)

    def _run(self, snapshot: Snapshot, event: Event) -> StepRun:
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=self.raises, epoch=event.epoch)
        run.event, run.clock_ms = event, event.clock_ms
        return run

    # The general step

    def _general_step(
        self, snapshot: Snapshot, configuration: Configuration, event: Event, run: StepRun, cause: Cause = NO_CAUSE
    ) -> Step:
        try:
            handled = bool(configuration.invoking) and self._finalize_and_forward(run, configuration, event, cause)
            plan = self.microsteps.plan_for(run, configuration, event)
            if plan is None:
                self.microsteps.record_unhandled_error(run, event)
                if self.raises and cause.invoke is not None and event.name.startswith("error."):
                    return self._end_as(snapshot, configuration, run, "failed", cause)
            started = MicrostepResult(configuration) if plan is None else self.microsteps.apply(run, plan)
            result = self.microsteps.run_until_stable(run, started)
            result.handled |= handled
            return self.outcomes.settled(snapshot, configuration, event, run, result, cause)
        except StepFailed as failure:
            return self.outcomes.failed(snapshot, failure.fault, cause)

    def _finalize_and_forward(self, run: StepRun, configuration: Configuration, event: Event, cause: Cause) -> bool:
        """Finalize and autoforward in document order (S9), and remove a finished invoke. Return whether any acted."""
        acted = False
        run.active = configuration.ids
        for state in configuration.invoking:
            of_state = [each for each in run.invokes if each.state == state.id]
            for each in sorted(of_state, key=lambda each: each.position):
                acted |= self._finalize_and_forward_one(run, state, each, event, cause)
        if cause.invoke is not None:
            run.invokes = tuple(each for each in run.invokes if each is not cause.invoke)
        return acted

    def _finalize_and_forward_one(
        self, run: StepRun, state: State, each: Invocation, event: Event, cause: Cause
    ) -> bool:
        if not 0 <= each.position < len(state.invokes):
            message = f"`{run.id}` has an invoke `{each.id}` that state `{state.id}` of its chart does not have"
            raise CorruptionError(message, code="snapshot.invokes", hint=OTHER_REVISION_HINT)
        invoke = state.invokes[each.position]
        acted = False
        if invoke.finalize and is_from(event, each) and not event.forwarded:
            function, _ = self.planner.operations.block(invoke.finalize, ("finalize", state.index, each.position))
            run.attempt(function, f"{state.id}.finalize")
            acted = True
        if invoke.autoforward and each is not cause.invoke:
            run.effect("forward", {"id": each.id, "event": forwarded_event(event)}, 1)
            acted = True
        return acted

    # Events of the driver

    def _from_driver(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        if (event.source or "").startswith(TIMER_SOURCE):
            return self._timer_fired(snapshot, configuration, event)
        run = self._run(snapshot, event)
        if event.invokeid is None or event.forwarded:
            return self._general_step(snapshot, configuration, event, run)
        found = find_invocation(snapshot, event)
        if found is None:
            # The last event of a child that ended still counts. But while another invoke of the same id is active, it
            # would pass for the result of that one.
            same_id = any(each.id == event.invokeid for each in snapshot.invokes)
            if event.last and not (same_id and is_result(event, event.invokeid)):
                return self._general_step(snapshot, configuration, event, run)
            return self._stale_result(snapshot, configuration, event)
        if not is_result(event, found.id):
            return self._general_step(snapshot, configuration, event, run)
        run.matched = event
        return self._general_step(snapshot, configuration, event, run, Cause(invoke=found))

    def _stale_result(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """The result of an invoke whose state was left. Ignored, unless it is a saga's step to be compensated (S30)."""
        if not event.source:
            return Step(snapshot, (), "ignored", "invoke_gone")
        compensated = self.unwinder.compensate_late(snapshot, event, configuration.ids, raises=self.raises)
        if compensated is not None:
            return compensated
        return Step(self.outcomes.next_version(snapshot), (), "ignored", "invoke_gone")

    def _timer_fired(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        timer = find_fired_timer(snapshot, event)
        if timer is None:
            return Step(snapshot, (), "ignored", "timer_gone")
        run = self._run(snapshot, event)
        run.timers = tuple(each for each in run.timers if each is not timer)
        if timer.to is not None:
            run.send_timer(timer)
            after = self.outcomes.snapshot(run, MicrostepResult(configuration), run.version, snapshot.deferred)
            return Step(after, tuple(run.effects), "applied", "sent")
        if timer.state is not None:
            run.matched = event
        return self._general_step(snapshot, configuration, event, run, Cause(timer=timer))

    def _control(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """Our own events, accepted from the driver only: cancelled by the parent (S10), timer moved (S39), and the acts
        of operators: erased, held, resumed.
        """
        if event.type != "platform":
            return Step(snapshot, (), "rejected", "reserved")
        if event.name == "_cancel":
            return self._end_as(snapshot, configuration, self._run(snapshot, event), "cancelled", NO_CAUSE)
        if event.name == ERASE:
            return self._erase(snapshot, event)
        if event.name == HOLD:
            return self._hold(snapshot, event)
        if event.name == RESUME:
            return self._resume(snapshot, event)
        due_ms = event.data.get("due_ms") if isinstance(event.data, dict) else None
        if event.name == "_timer.moved" and type(due_ms) is int:
            return self._timer_moved(snapshot, event.data, due_ms)
        return Step(snapshot, (), "rejected", "undeclared")

    def _erase(self, snapshot: Snapshot, event: Event) -> Step:
        """Forget the data key. What was sealed under it stays as it is; the effect destroys the key itself."""
        kid = snapshot.context.get(KEY_FIELD)
        if not isinstance(kid, str):
            return Step(snapshot, (), "rejected", "personal.none" if kid is None else "personal.erased")
        context = {**snapshot.context, KEY_FIELD: {"kid": kid, "erased_ms": event.time_ms}}
        after = self.outcomes.next_version(snapshot, context=context)
        key = f"{key_base(snapshot.entity, after.version, event.epoch)}/0"
        effect = Effect("call", 0, key, {"name": ERASE_WORK, "input": {"kid": kid}})
        return Step(after, (effect,), "applied", "erased")

    def _hold(self, snapshot: Snapshot, event: Event) -> Step:
        """Remember that an operator holds the entity. What that means is decided by the driver."""
        if HELD_FIELD in snapshot.context:
            return Step(snapshot, (), "ignored", "held")
        given = event.data if isinstance(event.data, dict) else {}
        named = {name: given[name] for name in ("by", "reason") if isinstance(given.get(name), str)}
        context = {**snapshot.context, HELD_FIELD: {"at_ms": event.at_ms, **named}}
        return Step(self.outcomes.next_version(snapshot, context=context), (), "applied", "held")

    def _resume(self, snapshot: Snapshot, event: Event) -> Step:
        """End a hold. The timers that are later because of it are due at the times in the event."""
        if HELD_FIELD not in snapshot.context:
            return Step(snapshot, (), "ignored", "not_held")
        given = event.data.get("timers", ()) if isinstance(event.data, dict) else ()
        moved = {(each["name"], each["version"]): each for each in given}
        timers = tuple(
            each
            if (new := moved.get((each.name, each.version))) is None
            else replace(each, due_ms=new["due_ms"], since_ms=new["since_ms"])
            for each in snapshot.timers
        )
        context = {name: value for name, value in snapshot.context.items() if name != HELD_FIELD}
        after = self.outcomes.next_version(snapshot, context=context, timers=timers)
        return Step(after, (), "applied", "resumed")

    def _timer_moved(self, snapshot: Snapshot, data: dict[str, Any], due_ms: int) -> Step:
        timer = find_moved_timer(snapshot, data)
        if timer is None:
            return Step(snapshot, (), "ignored", "timer_gone")
        since_ms = data.get("since_ms", timer.since_ms)
        if since_ms is not None and type(since_ms) is not int:
            return Step(snapshot, (), "rejected", "undeclared")
        moved = replace(timer, due_ms=due_ms, since_ms=since_ms)
        timers = tuple(moved if each is timer else each for each in snapshot.timers)
        return Step(self.outcomes.next_version(snapshot, timers=timers), (), "applied", "moved")

    def _end_as(
        self, snapshot: Snapshot, configuration: Configuration, run: StepRun, ended: Ended, cause: Cause
    ) -> Step:
        """End the entity without a final state: cancelled by its parent, or failed with an invoke (S34)."""
        result = MicrostepResult(configuration, ended)
        compensating = self.unwinder.take_running(run)
        try:
            self.microsteps.end(run, result, ended)
            self.unwinder.start(run, configuration, compensating)
        except StepFailed as failure:
            return self.outcomes.failed(snapshot, failure.fault, cause)
        after = self.outcomes.snapshot(run, result, run.version, ())
        return Step(after, tuple(run.effects), "applied", ended, (), tuple(run.faults))
