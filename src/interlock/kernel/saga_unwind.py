"""Compensate the steps of a saga that the states of its entity can no longer compensate (S10, S30).

Two cases: the entity ended while a saga was in progress, or the result of a saga step arrived after its state was left.

Rule 1: when an entity is cancelled or fails, each saga it was in is unwound after the end: one compensation after the
        other, that of the last step first, each an invoke of the ended snapshot; or all at the same time if the saga is
        parallel. A compensation that was running continues.
Rule 2: the saga's field lists the steps that are done. The result of a compensation removes its step from the list and
        starts the next compensation.
Rule 3: the final failure of a compensation is rejected and changes nothing. Its work is a dead letter, which an
        operator can retry; the compensations before it wait for that.
Rule 4: a compensation that cannot be started is recorded as a fault, its step stays listed, and the next one starts.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.kernel.codegen import ActionCompiler, Operation, references
from interlock.kernel.errors import StepFailed
from interlock.kernel.parts import start_invoke
from interlock.kernel.plan import Configuration
from interlock.kernel.run import OTHER_REVISION_HINT, StepRun, run_from
from interlock.model.charts.chart import Chart, Compensation, LateCompensation, SagaUnwind
from interlock.model.driver_events import COMPENSATION_FAILED, is_result
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Snapshot
from interlock.model.step import Fault, Step


class SagaUnwinder:
    """Runs the compensations of one chart's sagas outside of its states."""

    def __init__(self, chart: Chart, actions: ActionCompiler) -> None:
        self.chart = chart
        self.actions = actions
        self.sagas = {each.index: each.saga_unwind for each in chart.states if each.saga_unwind is not None}
        self._by_state = {
            chart.states[one.state].id: (saga, one) for saga in self.sagas.values() for one in saga.compensations
        }
        self._late = {
            invoke.id: (state.id, invoke.late)
            for state in chart.states
            for invoke in state.invokes
            if invoke.id is not None and invoke.late is not None
        }
        self._starts: dict[int, Operation] = {}

    # After the end of the entity

    def take_running(self, run: StepRun) -> tuple[Invocation, ...]:
        """Remove the running compensations from the run and return them: exiting their states must not cancel them."""
        found = tuple(each for each in run.invokes if each.state in self._by_state)
        if found:
            run.invokes = tuple(each for each in run.invokes if each not in found)
        return found

    def start(self, run: StepRun, configuration: Configuration, running: tuple[Invocation, ...]) -> None:
        """Start the compensations of an entity that has just ended."""
        run.invokes = running  # the ended entity waits for nothing else, nor for what another revision started
        run.active = frozenset()  # no state is active after the end
        for index, saga in self.sagas.items():
            if index in configuration.active and saga.completed not in configuration.active:
                self._start_next(run, saga)

    def receive(self, snapshot: Snapshot, event: Event) -> Step | None:
        """Return the step of a compensation's result after the end; None for any other event."""
        found = next((each for each in snapshot.invokes if _is_result_of(event, each)), None)
        if found is None:
            return None
        if event.name != f"done.invoke.{found.id}":
            return Step(snapshot, (), "rejected", COMPENSATION_FAILED)
        if found.state not in self._by_state:
            message = f"`{snapshot.entity}` waits for the compensation `{found.state}`, which its chart does not have"
            raise CorruptionError(message, code="snapshot.invokes", hint=OTHER_REVISION_HINT)
        saga, compensation = self._by_state[found.state]
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=False)
        run.event = event
        run.invokes = tuple(each for each in run.invokes if each is not found)
        self._remove_from_done(run, saga, compensation)
        self._start_next(run, saga)
        after = replace(self._next_version(snapshot), invokes=run.invokes, context=run.context)
        return Step(after, tuple(run.effects), "applied", "compensated", (), tuple(run.faults))

    def _next_version(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, version=snapshot.version + 1, revision=self.chart.revision)

    def _remove_from_done(self, run: StepRun, saga: SagaUnwind, compensation: Compensation) -> None:
        place = f"{self.chart.states[compensation.state].id}.invoke"
        run.attempt(lambda run: run.assign_unchecked((saga.field, "done", compensation.step), None), place)
        output = compensation.output
        if output is not None:
            run.attempt(lambda run: run.assign(tuple(output.split(".")), None), place)
        _move_errors_to_faults(run)

    def _start_next(self, run: StepRun, saga: SagaUnwind) -> None:
        """Start the next compensation of a saga, or all of them."""
        for each in saga.compensations:
            state = self.chart.states[each.state]
            running = any(one.state == state.id for one in run.invokes)
            if not running and _is_done(run.context, saga, each):
                running = self._start(run, each)
            if running and not saga.parallel:
                return

    def _start(self, run: StepRun, compensation: Compensation) -> bool:
        """Start one compensation. Return whether it is running now."""
        state, count = self.chart.states[compensation.state], len(run.invokes)
        start = self._starts.get(state.index)
        if start is None:
            start = self._starts[state.index] = start_invoke(state, 0, self.actions)
        try:
            run.attempt(start, f"{state.id}.invoke")
        except StepFailed as failure:  # the entity ends all the same
            run.faults.append(failure.fault)
        _move_errors_to_faults(run)
        return len(run.invokes) > count

    # Results that arrive after the state was left

    def compensate_late(self, snapshot: Snapshot, event: Event, active: frozenset[str], *, raises: bool) -> Step | None:
        """Return the step that calls the compensation of a saga step whose result arrived too late.

        Nothing else changes. None for any event that does not say that a saga step was done, or perhaps done.
        """
        late = self._late.get(event.invokeid or "")
        if late is None or not event.source or not is_result(event, event.invokeid):
            return None
        done = event.name == f"done.invoke.{event.invokeid}"
        perhaps = isinstance(event.data, dict) and event.data.get("done") == "unknown"
        if not done and not perhaps:
            return None
        state, compensation = late
        after = self._next_version(snapshot)
        run = run_from(snapshot, event.time_ms, self.actions.fields, raises=raises, epoch=event.epoch)
        run.event, run.active = event, active
        version = event.source.rpartition("/")[0].rpartition("/")[2]
        try:
            given = self._late_input(run, compensation, event.data if done else None, state, version)
            run.effect("call", {"name": compensation.name, "input": given}, references(compensation.input) + 1)
        except StepFailed as failure:
            return Step(after, (), "rejected", "failed", (), (failure.fault,))
        _move_errors_to_faults(run)
        return Step(after, tuple(run.effects), "applied", "compensated", (), tuple(run.faults))

    def _late_input(self, run: StepRun, late: LateCompensation, result: Any, state: str, version: str) -> Any:
        """Return the input of a late compensation. The result is in its field only while the input is evaluated."""
        place = f"{state}.compensation"
        if late.output is not None:
            path = tuple(late.output.split("."))
            run.attempt(lambda run: run.assign_unchecked(path, result), place)
        value = run.attempt(self.actions.value(late.input), place)
        key = run.attempt(self.actions.value(late.key), place)
        if late.input is not None and not isinstance(late.input, dict):
            return value  # as in the saga itself: only a mapping can carry the key
        return {"compensates": f"{run.id}/{version}/{state}" if key is None else key, **(value or {})}


def _is_result_of(event: Event, invocation: Invocation) -> bool:
    return is_result(event, invocation.id) and event.source == f"invoke/{invocation.key}"


def _is_done(context: dict[str, Any], saga: SagaUnwind, compensation: Compensation) -> bool:
    """Return whether a step is listed as done. The field is the compiler's, but a migration may have changed it."""
    memory = context.get(saga.field)
    done = memory.get("done") if isinstance(memory, dict) else None
    return isinstance(done, dict) and done.get(compensation.step) is not None


def _move_errors_to_faults(run: StepRun) -> None:
    """Record the queued errors as faults: no transition can handle them."""
    while run.queue:
        event = run.queue.popleft()
        data = event.data if isinstance(event.data, dict) else {}
        fault = Fault(str(data.get("code", event.name)), str(data.get("message", "")), run.pop_error_place(event))
        run.faults.append(fault)
