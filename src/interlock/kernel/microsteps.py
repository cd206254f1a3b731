"""Run microsteps until a step is stable (S7), then start invokes (S8); end an entity (S10).

Rule 1: only the run changes. `select` chooses the transitions and `plan` works out the operations.
Rule 2: an error in an action goes to `StepRun.report_error`, which queues its event or fails the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import StepFailed
from interlock.kernel.parts import output_of, start_invoke
from interlock.kernel.plan import Configuration, Plan, Planner
from interlock.kernel.run import StepRun
from interlock.kernel.select import Selector
from interlock.model.charts.chart import Chart, State
from interlock.model.event import Event
from interlock.model.limits import MICROSTEPS_MAX
from interlock.model.snapshot import Ended
from interlock.model.step import Fault


@dataclass(slots=True)
class MicrostepResult:
    """The configuration of a run after some microsteps, and how the entity ended and its output, if it did.

    `handled`: a transition with a target or with actions was taken.
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
        self._operations: dict[tuple[str, int, int], Operation] = {}

    def plan_for(self, run: StepRun, configuration: Configuration, event: Event | None) -> Plan | None:
        """Return the plan of the transitions enabled for an event, or of the eventless ones; None if there are none."""
        enabled = self.selector.enabled(configuration, event, run)
        if not enabled:
            return None
        return self.planner.plan(configuration, enabled, run.history)

    def apply(self, run: StepRun, plan: Plan) -> MicrostepResult:
        """Run one microstep: the operations of a plan."""
        if plan.work:
            run.charge(plan.work)
        run.transitions += plan.chosen
        if plan.records:
            run.history = {**(run.history or {}), **plan.records}
        for operation, place in plan.operations:
            run.attempt(operation, place)
        return MicrostepResult(plan.next, "done" if plan.ended else None, None, plan.content)

    def run_until_stable(self, run: StepRun, result: MicrostepResult) -> MicrostepResult:
        """Run microsteps until none is enabled and the internal queue is empty, then start the invokes."""
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
                        self._start_invokes(run)
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

    def _start_invokes(self, run: StepRun) -> None:
        """Start the invokes of the states that were entered and not exited (S8)."""
        states, run.invokes_to_start = sorted(run.invokes_to_start.items()), {}
        for _, state in states:
            for position in range(len(state.invokes)):
                key = ("invoke", state.index, position)
                start = self._operations.get(key)
                if start is None:
                    start = self._operations[key] = start_invoke(state, position, self.actions)
                run.attempt(start, f"{state.id}.invoke")

    def record_unhandled_error(self, run: StepRun, event: Event, place: str = "") -> None:
        """Record an error event that no transition took as a fault (S33). Other internal events are dropped."""
        if event.name.startswith("error."):
            data = event.data if isinstance(event.data, dict) else {}
            run.faults.append(Fault(str(data.get("code", event.name)), str(data.get("message", "")), place))

    def _cycle(self, run: StepRun) -> str:
        numbers = run.transitions[-8:]
        names = [self.chart.states[self.chart.transitions[each].source].id or "root" for each in numbers]
        loop = " -> ".join(dict.fromkeys(names))
        return f"more than {MICROSTEPS_MAX:,} microsteps in one step; it loops through {loop}"

    def end(self, run: StepRun, result: MicrostepResult, ended: Ended) -> None:
        """End the entity: exit every active state, drop its timers, then notify its parent (S10)."""
        for event in run.queue:
            self.record_unhandled_error(run, event, run.pop_error_place(event))
        run.queue.clear()
        run.invokes_to_start.clear()
        for state, parts in self.planner.ending(result.configuration):
            for part in parts:
                run.attempt(self.planner.operations.operation(part), part.place)
            if ended == "done" and state.type == "final" and state.parent == self.chart.completion_root:
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
        output = self._operations.get(key)
        if output is None:
            output = self._operations[key] = output_of(state, self.actions)
        return output(run)
