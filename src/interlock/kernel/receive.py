"""What an event means to an entity: a sender's, a result, a timer, or our own (S9, S30-S39).

Rule 1: what the driver brings back (results, timers) is matched with the snapshot; what is no longer there is
`ignored`. The name alone proves nothing: an event named like a result that the driver did not create is `rejected`,
reason `reserved`.
Rule 2: a step either is whole or did not happen.
Rule 3: after the end nothing changes any more; but a saga that the end cut short turns back (`unwinder`), and a deed
of a saga that turns out to be done is still answered.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler, references
from interlock.kernel.errors import StepFailed
from interlock.kernel.microsteps import MicrostepResult, Microsteps
from interlock.kernel.outcome import Outcomes
from interlock.kernel.plan import Configuration, Planner
from interlock.kernel.run import OTHER_REVISION_HINT, StepRun, complete_payload, run_from
from interlock.kernel.saga_unwind import SagaUnwinder
from interlock.model.chart import Chart, LateCompensation, State
from interlock.model.driver_events import TIMER_SOURCE, is_result
from interlock.model.event import INVOKE_RESULTS, RESULT_NAMES, Event
from interlock.model.snapshot import Ended, Invocation, Snapshot, Timer
from interlock.model.step import Fault, Outcome, Step


class Receiver:
    """Takes events for entities of one chart by the general path: every feature, with plans."""

    def __init__(
        self, chart: Chart, planner: Planner, actions: ActionCompiler, loop: Microsteps, judge: Outcomes
    ) -> None:
        self.chart = chart
        self.planner = planner
        self.actions = actions
        self.microsteps = loop
        self.outcomes = judge
        self.unwinder = SagaUnwinder(chart, actions)
        self.events = None if chart.events is None else {each.name: each for each in chart.events}
        self.raises = chart.dialect.errors == "raise"
        self.late = {
            invoke.id: (state.id, invoke.late)
            for state in chart.states
            for invoke in state.invokes
            if invoke.id is not None and invoke.late is not None
        }

    def take(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """The step of one event."""
        if event.name[:1] == "_":
            return self._reserved(snapshot, configuration, event)
        if event.name.startswith(RESULT_NAMES) and not self._is_genuine(snapshot, event):
            return Step(snapshot, (), "rejected", "reserved")
        if event.source is not None or event.invokeid is not None:
            return self._returned(snapshot, configuration, event)
        if self.events is not None and event.type != "platform":  # the driver's own errors are nobody's to declare
            checked = self._declared(snapshot, event)
            if isinstance(checked, Step):
                return checked
            event = checked
        return self._finished(snapshot, configuration, event, self._run(snapshot, event))

    def receive_after_end(self, snapshot: Snapshot, event: Event) -> Step:
        """The step of one event that comes after the end: only a saga still has something to answer (S10, S30)."""
        turned = self.unwinder.take(snapshot, event) if snapshot.invokes else None
        if turned is not None:
            return turned
        late = self._late_deed(event)
        if late is not None:
            return self._compensated(snapshot, frozenset(), event, *late)  # no state is active after the end
        return Step(snapshot, (), "ignored" if event.source is not None else "rejected", "ended")

    def _is_genuine(self, snapshot: Snapshot, event: Event) -> bool:
        """Whether an event with the name of a result, an error or a timer comes from the driver.

        An imported chart may also send such a name to itself, as written text: it then means only itself. What another
        entity sends or forwards never counts.
        """
        if event.forwarded:
            return False
        if event.type == "platform":
            return not event.name.startswith(INVOKE_RESULTS) or is_result(event, event.invokeid)
        if (event.source or "").startswith(TIMER_SOURCE):
            return True
        sent = event.origin == f"#_scxml_{snapshot.entity}" and event.source is None and event.invokeid is None
        return sent and self.actions.imported

    def _declared(self, snapshot: Snapshot, event: Event) -> Event | Step:
        """The event with its payload checked and completed, or the refusal."""
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
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=self.raises)
        run.event, run.clock_ms = event, event.clock_ms
        return run

    def _finished(
        self,
        snapshot: Snapshot,
        configuration: Configuration,
        event: Event,
        run: StepRun,
        timer: Timer | None = None,
        over: Invocation | None = None,
    ) -> Step:
        """Runs the step. A timer that fired and an invoke that is `over` change the snapshot in any case."""
        ours = timer is not None or over is not None
        try:
            handled = self._before(run, configuration, event, over) if configuration.invoking else False
            plan = self.microsteps.plan_for(run, configuration, event)
            if plan is None:
                self.microsteps.record_unhandled_error(run, event)
                if self.raises and over is not None and event.name.startswith("error."):
                    return self._ended_as(snapshot, configuration, run, "failed", over)
            if plan is None and not handled and not run.queue and configuration.has_no_eventless:
                return self.outcomes.unhandled(snapshot, configuration, event, run, ours=ours)
            carried = MicrostepResult(configuration) if plan is None else self.microsteps.apply(run, plan)
            result = self.microsteps.run_until_stable(run, carried)
            result.handled |= handled
            deferred = snapshot.deferred
            if deferred and result.configuration.names != snapshot.configuration and result.ended is None:
                deferred = self.outcomes.resend_deferred(snapshot, run)
        except StepFailed as failure:
            return self.outcomes.failed(snapshot, failure.fault, timer, over)
        if not run.transitions and not result.handled:
            return self.outcomes.unhandled(snapshot, configuration, event, run, ours=ours)
        outcome: Outcome = "applied" if result.handled else "ignored"
        if outcome == "ignored" and not ours:
            return Step(snapshot, (), outcome, "no_content", tuple(run.transitions), tuple(run.faults))
        after = self.outcomes.snapshot(run, result, run.version, deferred)
        reason = None if outcome == "applied" else "no_content"
        return Step(after, tuple(run.effects), outcome, reason, tuple(run.transitions), tuple(run.faults))

    def _before(self, run: StepRun, configuration: Configuration, event: Event, over: Invocation | None) -> bool:
        """Finalize and autoforward, in document order (S9); whether either did something."""
        done = False
        run.active = configuration.ids
        for state in configuration.invoking:
            mine = [each for each in run.invokes if each.state == state.id]
            for each in sorted(mine, key=lambda each: each.position):
                done |= self._before_invoke(run, state, each, event, over)
        if over is not None:
            run.invokes = tuple(each for each in run.invokes if each is not over)
        return done

    def _before_invoke(
        self, run: StepRun, state: State, each: Invocation, event: Event, over: Invocation | None
    ) -> bool:
        if not 0 <= each.position < len(state.invokes):
            message = f"`{run.id}` has an invoke `{each.id}` that state `{state.id}` of its chart does not have"
            raise CorruptionError(message, code="snapshot.invokes", hint=OTHER_REVISION_HINT)
        invoke = state.invokes[each.position]
        done = False
        if invoke.finalize and _is_from(event, each) and not event.forwarded:
            function, _ = self.planner.function(invoke.finalize, ("finalize", state.index, each.position))
            run.attempt(function, f"{state.id}.finalize")
            done = True
        if invoke.autoforward and each is not over:
            run.effect("forward", {"id": each.id, "event": _plain_event(event)}, 1)
            done = True
        return done

    def _returned(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        source = event.source or ""
        if source.startswith(TIMER_SOURCE):
            return self._fired(snapshot, configuration, event, source)
        if event.invokeid is None or event.forwarded:
            return self._finished(snapshot, configuration, event, self._run(snapshot, event))
        found = next((each for each in snapshot.invokes if _is_from(event, each)), None)
        if found is None:
            taken = is_result(event, event.invokeid) and any(each.id == event.invokeid for each in snapshot.invokes)
            if event.last and not taken:  # an invoke of the same id is active: this is not its result
                return self._finished(snapshot, configuration, event, self._run(snapshot, event))
            return self._gone(snapshot, configuration, event, source)
        run = self._run(snapshot, event)
        if not is_result(event, found.id):
            return self._finished(snapshot, configuration, event, run)
        run.matched = event
        return self._finished(snapshot, configuration, event, run, None, found)

    def _gone(self, snapshot: Snapshot, configuration: Configuration, event: Event, source: str) -> Step:
        """The result of an invoke that was left: journaled and ignored, but a saga's deed is answered (S30)."""
        if not source:
            return Step(snapshot, (), "ignored", "invoke_gone")
        late = self._late_deed(event)
        if late is None:
            return Step(self.outcomes.next_version(snapshot), (), "ignored", "invoke_gone")
        return self._compensated(snapshot, configuration.ids, event, *late)

    def _late_deed(self, event: Event) -> tuple[str, LateCompensation] | None:
        """The saga step that an event says was done, or perhaps was, with what answers it; None for any other event."""
        found = self.late.get(event.invokeid or "")
        if found is None or not event.source or not is_result(event, event.invokeid):
            return None
        done = event.name == f"done.invoke.{event.invokeid}"
        perhaps = isinstance(event.data, dict) and event.data.get("done") == "unknown"
        return found if done or perhaps else None

    def _compensated(
        self, snapshot: Snapshot, active: frozenset[str], event: Event, state: str, late: LateCompensation
    ) -> Step:
        """The step that answers a deed which nobody waits for: its compensation is called, and nothing else changes."""
        after = self.outcomes.next_version(snapshot)
        run = self._run(snapshot, event)
        run.active = active
        version = (event.source or "").rpartition("/")[0].rpartition("/")[2]
        result = event.data if event.name == f"done.invoke.{event.invokeid}" else None
        try:
            given = self._late_input(run, late, result, state, version)
            run.effect("call", {"name": late.name, "input": given}, references(late.input) + 1)
        except StepFailed as failure:
            return Step(after, (), "rejected", "failed", (), (failure.fault,))
        for error in run.queue:
            self.microsteps.record_unhandled_error(run, error, run.pop_error_place(error))
        return Step(after, tuple(run.effects), "applied", "compensated", (), tuple(run.faults))

    def _late_input(self, run: StepRun, late: LateCompensation, result: Any, state: str, version: str) -> Any:
        """The input of a late compensation. The result stands in its field for it, and for nothing else."""
        place = f"{state}.compensation"
        if late.output is not None:
            path = tuple(late.output.split("."))
            run.attempt(lambda run: run.assign_unchecked(path, result), place)
        value = run.attempt(self.actions.value(late.input), place)
        key = run.attempt(self.actions.value(late.key), place)
        if late.input is not None and not isinstance(late.input, dict):
            return value  # as in the saga itself: what is no mapping cannot carry the key
        return {"compensates": f"{run.id}/{version}/{state}" if key is None else key, **(value or {})}

    def _fired(self, snapshot: Snapshot, configuration: Configuration, event: Event, source: str) -> Step:
        name, _, version = source.removeprefix(TIMER_SOURCE).rpartition("/")
        timer = next((each for each in snapshot.timers if each.name == name and str(each.version) == version), None)
        if timer is None or timer.event != event.name:
            return Step(snapshot, (), "ignored", "timer_gone")
        run = self._run(snapshot, event)
        run.timers = tuple(each for each in run.timers if each is not timer)
        if timer.to is not None:
            run.send_timer(timer)
            after = self.outcomes.snapshot(run, MicrostepResult(configuration), run.version, snapshot.deferred)
            return Step(after, tuple(run.effects), "applied", "sent")
        if timer.state is not None:
            run.matched = event
        return self._finished(snapshot, configuration, event, run, timer)

    def _reserved(self, snapshot: Snapshot, configuration: Configuration, event: Event) -> Step:
        """Our own events, from the driver only: a parent's cancel (S10), a timer moved after downtime (S39)."""
        if event.type != "platform":
            return Step(snapshot, (), "rejected", "reserved")
        if event.name == "_cancel":
            return self._ended_as(snapshot, configuration, self._run(snapshot, event), "cancelled")
        due_ms = event.data.get("due_ms") if isinstance(event.data, dict) else None
        if event.name == "_timer.moved" and type(due_ms) is int:
            return self._timer_moved(snapshot, event.data, due_ms)
        return Step(snapshot, (), "rejected", "undeclared")

    def _timer_moved(self, snapshot: Snapshot, data: dict[str, Any], due_ms: int) -> Step:
        wanted = (data.get("name"), data.get("version"))
        timer = next((each for each in snapshot.timers if (each.name, each.version) == wanted), None)
        if timer is None:
            return Step(snapshot, (), "ignored", "timer_gone")
        since_ms = data.get("since_ms", timer.since_ms)
        if since_ms is not None and type(since_ms) is not int:
            return Step(snapshot, (), "rejected", "undeclared")
        moved = replace(timer, due_ms=due_ms, since_ms=since_ms)
        timers = tuple(moved if each is timer else each for each in snapshot.timers)
        return Step(self.outcomes.next_version(snapshot, timers=timers), (), "applied", "moved")

    def _ended_as(
        self,
        snapshot: Snapshot,
        configuration: Configuration,
        run: StepRun,
        ended: Ended,
        over: Invocation | None = None,
    ) -> Step:
        """The entity ends without reaching a final state: cancelled by its parent, or failed with an invoke (S34)."""
        result = MicrostepResult(configuration, ended)
        going_back = self.unwinder.take_running(run)
        try:
            self.microsteps.end(run, result, ended)
            self.unwinder.begin(run, configuration, going_back)
        except StepFailed as failure:
            return self.outcomes.failed(snapshot, failure.fault, None, over)
        after = self.outcomes.snapshot(run, result, run.version, ())
        return Step(after, tuple(run.effects), "applied", ended, (), tuple(run.faults))


def _is_from(event: Event, invocation: Invocation) -> bool:
    """Whether an event came from this very invoke; two may have the same id, one after the other or at once."""
    return event.invokeid == invocation.id and event.source in (None, f"invoke/{invocation.key}")


def _plain_event(event: Event) -> dict[str, Any]:
    """An event as an effect carries it on to a child."""
    fields = {"name": event.name, "data": event.data, "sendid": event.sendid, "origin": event.origin}
    fields |= {"origintype": event.origintype, "invokeid": event.invokeid}
    return {name: value for name, value in fields.items() if value is not None}
