"""The loop of a step: microsteps until it settles (S7), invokes then (S8), the end of an entity (S10).

Rule 1: this file changes a run and nothing else; it chooses through `select` and carries out what `plan` worked out.
Rule 2: an error of content goes to `StepRun.fail`, which queues its event or ends the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import StepFailed
from interlock.kernel.operations import begin_invoke, output_of
from interlock.kernel.plan import Configuration, Plan, Planner
from interlock.kernel.run import StepRun
from interlock.kernel.select import Selector
from interlock.model.chart import Chart, State
from interlock.model.event import Event
from interlock.model.limits import MICROSTEPS_MAX
from interlock.model.snapshot import Ended
from interlock.model.step import Fault


@dataclass(slots=True)
class MicrostepResult:
    """Where a run stands: its configuration, how the entity ended, if it did, and its output.

    `handled`: a transition with target or content was taken.
    """

    configuration: Configuration
    ended: Ended | None = None
    output: Any = None
    handled: bool = False


class Microsteps:
    """Runs the microsteps of one chart."""

    def __init__(self, chart: Chart, planner: Planner, selector: Selector, actions: ActionCompiler) -> None:
        self.chart = chart
        self.planner = planner
        self.selector = selector
        self.actions = actions
        self._made: dict[tuple[str, int, int], Operation] = {}

    def plan_for(self, run: StepRun, configuration: Configuration, event: Event | None) -> Plan | None:
        enabled = self.selector.enabled(configuration, event, run)
        if not enabled:
            return None
        return self.planner.plan(configuration, enabled, run.history)

    def apply(self, run: StepRun, plan: Plan) -> MicrostepResult:
        """One microstep: the plan's operations over the run."""
        if plan.work:
            run.charge(plan.work)
        run.transitions += plan.chosen
        if plan.records:
            run.history = {**(run.history or {}), **plan.records}
        for operation, place in plan.operations:
            run.attempt(operation, place)
        return MicrostepResult(plan.next, "done" if plan.ended else None, None, plan.content)

    def run_until_stable(self, run: StepRun, result: MicrostepResult) -> MicrostepResult:
        """Microsteps until no eventless transition is enabled and the internal queue is empty; then the invokes."""
        until_unchanged = self.chart.dialect.eventless == "until_unchanged"
        eventless = True
        microsteps = 1
        while result.ended is None:
            configuration = result.configuration
            plan = None if configuration.has_no_eventless or not eventless else self.plan_for(run, configuration, None)
            from_eventless = plan is not None
            if plan is None:
                if not run.queue:
                    if run.invokes_to_start:
                        run.active = configuration.ids
                        self._begin_invokes(run)
                        if run.queue:
                            continue
                    break
                event = run.queue.popleft()
                place = run.pop_error_place(event) if run.places else ""
                run.event = event
                eventless = True
                plan = self.plan_for(run, configuration, event)
                if plan is None:
                    self.record_unhandled_error(run, event, place)
                    continue
            microsteps += 1
            if microsteps > MICROSTEPS_MAX:
                raise StepFailed("step.microsteps_max", self._cycle(run), self.chart.states[0].id)
            writes = run.writes
            following = self.apply(run, plan)
            following.handled |= result.handled
            if from_eventless and until_unchanged:
                eventless = (
                    following.configuration.names != configuration.names or run.writes != writes or bool(plan.records)
                )
            result = following
        if result.ended is not None:
            self.end(run, result, result.ended)
        return result

    def _begin_invokes(self, run: StepRun) -> None:
        """Start the invokes of states entered and not exited since the last settling (S8)."""
        states, run.invokes_to_start = sorted(run.invokes_to_start.items()), {}
        for _, state in states:
            for position in range(len(state.invokes)):
                key = ("invoke", state.index, position)
                begin = self._made.get(key)
                if begin is None:
                    begin = self._made[key] = begin_invoke(state, position, self.actions)
                run.attempt(begin, f"{state.id}.invoke")

    def record_unhandled_error(self, run: StepRun, event: Event, place: str = "") -> None:
        """An internal event that no transition takes is dropped; an error among them is told (S33)."""
        if event.name.startswith("error."):
            data = event.data if isinstance(event.data, dict) else {}
            run.faults.append(Fault(str(data.get("code", event.name)), str(data.get("message", "")), place))

    def _cycle(self, run: StepRun) -> str:
        numbers = run.transitions[-8:]
        names = [self.chart.states[self.chart.transitions[each].source].id or "root" for each in numbers]
        loop = " -> ".join(dict.fromkeys(names))
        return f"more than {MICROSTEPS_MAX:,} microsteps in one step; it goes round in {loop}"

    def end(self, run: StepRun, result: MicrostepResult, ended: Ended) -> None:
        """The entity ends: every active state is left, timers are dropped, the parent hears last of all (S10)."""
        for event in run.queue:
            self.record_unhandled_error(run, event, run.pop_error_place(event))
        run.queue.clear()
        run.invokes_to_start.clear()
        for state, operations in self.planner.ending(result.configuration):
            for operation, place in operations:
                run.attempt(operation, place)
            if ended == "done" and state.type == "final" and state.parent == self.chart.top:
                run.active = frozenset(self.chart.states[each].id for each in self.chart.path(state.parent))
                result.output = self._output(run, state)
        for event in run.queue:
            self.record_unhandled_error(run, event, run.pop_error_place(event))
        run.drop_timers(run.timers)
        if run.parent is not None and ended == "done":
            run.effect("done", {"data": result.output}, 1)

    def _output(self, run: StepRun, state: State) -> Any:
        if state.output is None:
            return None
        key = ("output", state.index, 0)
        output = self._made.get(key)
        if output is None:
            output = self._made[key] = output_of(state, self.actions)
        return output(run)
