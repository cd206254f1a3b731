"""Turning back after the end: a saga that its entity's end cuts short still answers for what it has done (S10).

Rule 1: an entity that ends by nobody's transition (cancelled by its parent, failed) has no say in what follows. So the
sagas it was in go back behind its end: one compensation after the other, the last step's first, each an invoke of the
ended snapshot; or all at once where the saga says so. A compensation that was under way goes on.
Rule 2: what is done is what the saga's field lists. A good answer takes its step off the list and begins the next one.
Rule 3: a compensation that failed for good is refused, and stays: its work is a dead letter, which a person sees and
can try again; what comes before it waits for that, as in a saga that is blocked.
Rule 4: a compensation that cannot even be asked for is told as a fault, stays listed, and the next one begins.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler, Operation
from interlock.kernel.errors import StepFailed
from interlock.kernel.operations import begin_invoke
from interlock.kernel.plan import Configuration
from interlock.kernel.run import OTHER_REVISION_HINT, StepRun, run_from
from interlock.model.chart import Chart, Compensation, SagaUnwind
from interlock.model.driver_events import COMPENSATION_FAILED, is_result
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Snapshot
from interlock.model.step import Fault, Step


class SagaUnwinder:
    """Goes back for the sagas of one chart."""

    def __init__(self, chart: Chart, actions: ActionCompiler) -> None:
        self.chart = chart
        self.actions = actions
        self.sagas = {each.index: each.saga_unwind for each in chart.states if each.saga_unwind is not None}
        self._by_state = {
            chart.states[one.state].id: (saga, one) for saga in self.sagas.values() for one in saga.compensations
        }
        self._begins: dict[int, Operation] = {}

    def take_running(self, run: StepRun) -> tuple[Invocation, ...]:
        """The compensations that have begun, taken out of the run: leaving their states does not call them off."""
        found = tuple(each for each in run.invokes if each.state in self._by_state)
        if found:
            run.invokes = tuple(each for each in run.invokes if each not in found)
        return found

    def begin(self, run: StepRun, configuration: Configuration, under_way: tuple[Invocation, ...]) -> None:
        """Behind the end of an entity: begin what its sagas have to answer for."""
        run.invokes = under_way  # nothing else is waited for, nor what another revision had begun
        run.active = frozenset()  # no state is active after the end
        for index, saga in self.sagas.items():
            if index in configuration.active and saga.completed not in configuration.active:
                self._go_on(run, saga)

    def take(self, snapshot: Snapshot, event: Event) -> Step | None:
        """The step of a compensation's answer after the end; None when the event is no such answer."""
        found = next((each for each in snapshot.invokes if _is_answer(event, each)), None)
        if found is None:
            return None
        if event.name != f"done.invoke.{found.id}":
            return Step(snapshot, (), "rejected", COMPENSATION_FAILED)
        if found.state not in self._by_state:
            message = f"`{snapshot.entity}` waits for the compensation `{found.state}`, which its chart does not have"
            raise CorruptionError(message, code="snapshot.invokes", hint=OTHER_REVISION_HINT)
        saga, answered = self._by_state[found.state]
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=False)
        run.event = event
        run.invokes = tuple(each for each in run.invokes if each is not found)
        self._take_off(run, saga, answered)
        self._go_on(run, saga)
        version, revision = snapshot.version + 1, self.chart.revision
        after = replace(snapshot, version=version, revision=revision, invokes=run.invokes, context=run.context)
        return Step(after, tuple(run.effects), "applied", "compensated", (), tuple(run.faults))

    def _take_off(self, run: StepRun, saga: SagaUnwind, answered: Compensation) -> None:
        place = f"{self.chart.states[answered.state].id}.invoke"
        run.attempt(lambda run: run.assign_unchecked((saga.field, "done", answered.step), None), place)
        output = answered.output
        if output is not None:
            run.attempt(lambda run: run.assign(tuple(output.split(".")), None), place)
        _tell(run)

    def _go_on(self, run: StepRun, saga: SagaUnwind) -> None:
        """Begin the next compensation of a saga, or all of them."""
        for each in saga.compensations:
            state = self.chart.states[each.state]
            busy = any(one.state == state.id for one in run.invokes)
            if not busy and _listed(run.context, saga, each):
                busy = self._began(run, each)
            if busy and not saga.parallel:
                return

    def _began(self, run: StepRun, compensation: Compensation) -> bool:
        state, count = self.chart.states[compensation.state], len(run.invokes)
        begin = self._begins.get(state.index)
        if begin is None:
            begin = self._begins[state.index] = begin_invoke(state, 0, self.actions)
        try:
            run.attempt(begin, f"{state.id}.invoke")
        except StepFailed as failure:  # the entity ends all the same
            run.faults.append(failure.fault)
        _tell(run)
        return len(run.invokes) > count


def _is_answer(event: Event, invocation: Invocation) -> bool:
    return is_result(event, invocation.id) and event.source == f"invoke/{invocation.key}"


def _listed(context: dict[str, Any], saga: SagaUnwind, compensation: Compensation) -> bool:
    """Whether a step counts as done. The field is the compiler's own, but a context may be migrated by hand."""
    memory = context.get(saga.field)
    done = memory.get("done") if isinstance(memory, dict) else None
    return isinstance(done, dict) and done.get(compensation.step) is not None


def _tell(run: StepRun) -> None:
    """Nobody takes the errors of an ended entity: they are told as faults."""
    while run.queue:
        event = run.queue.popleft()
        data = event.data if isinstance(event.data, dict) else {}
        run.faults.append(
            Fault(str(data.get("code", event.name)), str(data.get("message", "")), run.pop_error_place(event))
        )
