"""The parts of a plan: what one microstep does, in order, as data.

Rule 1: a part says what happens, not how. `operation` makes the function that the general step runs, and
        `compiled.part_writer` writes the source of the same part for a compiled step.
Rule 2: a part has the place in the definition that an error in it is reported with.
Rule 3: an operation raises on error; `StepRun.attempt` decides what that means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.kernel.codegen import ActionCompiler, Operation, references
from interlock.kernel.run import StepRun
from interlock.model.charts.chart import After, State
from interlock.model.document.actions import Block
from interlock.model.document.field import UNSET, Field
from interlock.model.event import Event

FREE_ITEMS = 8
"""Timers or states that an operation searches without being charged."""


@dataclass(frozen=True, slots=True)
class RunBlock:
    """Run a block of actions. `key` identifies the block in the chart."""

    place: str
    block: Block
    key: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class SetActive:
    """Let `In()` see the states that are active at this point, until the next part of this kind (S17, S22)."""

    place: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class CancelAfter:
    """Cancel the timers of a state's `after`."""

    place: str
    state: State


@dataclass(frozen=True, slots=True)
class SetAfter:
    """Set the timer of an `after`."""

    place: str
    state: State
    after: After


@dataclass(frozen=True, slots=True)
class CancelInvokes:
    """Cancel the invokes of a state."""

    place: str
    state: State


@dataclass(frozen=True, slots=True)
class WaitToInvoke:
    """Start the invokes of a state when the step is stable, if it is still active (S8)."""

    place: str
    state: State


@dataclass(frozen=True, slots=True)
class StartInvoke:
    """Evaluate the arguments of an invoke and start it."""

    place: str
    state: State
    position: int


@dataclass(frozen=True, slots=True)
class BindLateFields:
    """Give a state's own fields their values at its first entry (late binding)."""

    place: str
    state: State


@dataclass(frozen=True, slots=True)
class QueueDone:
    """Queue the done event of a state, with the output of the final state that completed it, if it has one."""

    place: str
    name: str
    final: State | None


Part = (
    RunBlock
    | SetActive
    | CancelAfter
    | SetAfter
    | CancelInvokes
    | WaitToInvoke
    | StartInvoke
    | BindLateFields
    | QueueDone
)


class Operations:
    """Makes the operations of one chart's parts. The function of a block is made once."""

    def __init__(self, actions: ActionCompiler) -> None:
        self.actions = actions
        self._blocks: dict[tuple[str, int, int], tuple[Operation, bool]] = {}

    def block(self, block: Block, key: tuple[str, int, int]) -> tuple[Operation, bool]:
        """Return the function of a block, made on first use, and whether it uses `In()`."""
        found = self._blocks.get(key)
        if found is None:
            found = self._blocks[key] = self.actions.block(block)
        return found

    def operation(self, part: Part) -> Operation:
        """Return the function of a part."""
        match part:
            case RunBlock():
                return self.block(part.block, part.key)[0]
            case SetActive():
                return set_active(part.ids)
            case CancelAfter():
                return cancel_after(part.state.id)
            case SetAfter():
                return set_after(part.after, self.actions, part.state.id)
            case CancelInvokes():
                return cancel_invokes(part.state)
            case WaitToInvoke():
                return wait_to_invoke(part.state)
            case StartInvoke():
                return start_invoke(part.state, part.position, self.actions)
            case BindLateFields():
                return late_fields(part.state, self.actions)
            case _:
                return queue_done(part.name, part.final, self.actions)


def set_active(ids: frozenset[str]) -> Operation:
    """Return the operation that lets `In()` see these states from now on."""

    def operation(run: StepRun) -> None:
        run.active = ids

    return operation


def set_after(after: After, actions: ActionCompiler, state: str) -> Operation:
    """Return the operation that sets the timer of an `after`."""
    delay = None if isinstance(after.delay, int) else actions.value(after.delay)

    def operation(run: StepRun) -> None:
        run.set_after(after, None if delay is None else delay(run), state)

    return operation


def cancel_after(state: str) -> Operation:
    """Return the operation that cancels the timers of a state's `after`."""

    def operation(run: StepRun) -> None:
        if len(run.timers) > FREE_ITEMS:
            run.meter.charge(len(run.timers))
        run.drop_timers(tuple(each for each in run.timers if each.state == state))

    return operation


def wait_to_invoke(state: State) -> Operation:
    """Return the operation that starts a state's invokes when the step has settled, if it is still active (S8)."""

    def operation(run: StepRun) -> None:
        run.invokes_to_start[state.index] = state

    return operation


def start_invoke(state: State, position: int, actions: ActionCompiler) -> Operation:
    """Return the operation that evaluates the arguments of an invoke and starts it."""
    invoke = state.invokes[position]
    values = (("src", invoke.src), ("type", invoke.type), ("input", invoke.input), ("key", invoke.key))
    parts = {name: actions.value(value) for name, value in values if value is not None}
    count = sum(references(value) for _, value in values)

    def operation(run: StepRun) -> None:
        run.start_invoke(state, position, {name: value(run) for name, value in parts.items()}, count)

    return operation


def cancel_invokes(state: State) -> Operation:
    """Return the operation that cancels the invokes of a state."""

    def operation(run: StepRun) -> None:
        run.cancel_invokes(state)

    return operation


def queue_done(name: str, final: State | None, actions: ActionCompiler) -> Operation:
    """Return the operation that queues a done event, with the output of the final state that completed it."""
    output = None if final is None or final.output is None else output_of(final, actions)

    def operation(run: StepRun) -> None:
        data = None if output is None else output(run)
        run.enqueue(Event(name, data, None, None, None, run.time_ms, "platform"))

    return operation


def output_of(state: State, actions: ActionCompiler) -> Operation:
    """Return the operation that evaluates the output of a final state.

    A part that fails is left out, and its error event is queued before the done event.
    """
    place, count = f"{state.id}.output", references(state.output)
    if not isinstance(state.output, dict):
        whole = actions.value(state.output)

        def evaluate(run: StepRun) -> Any:
            found = run.attempt(whole, place)
            run.measure_later(found, count)
            return found

        return evaluate
    parts = {name: actions.value(value) for name, value in state.output.items()}

    def evaluate_parts(run: StepRun) -> Any:
        found: dict[str, Any] = {}
        for name, part in parts.items():
            value = run.attempt(part, f"{place}.{name}", UNSET)
            if value is not UNSET:
                found[name] = value
        run.measure_later(found, count)
        return found if found or not parts else None

    return evaluate_parts


def first_value(field: Field, actions: ActionCompiler) -> Operation:
    """Return the operation that gives a field its first value. If that fails, the field stays unbound (S5)."""
    value = actions.value(None if field.default is UNSET else field.default)

    def operation(run: StepRun) -> None:
        run.set_first_value(field, value(run))

    return operation


def late_fields(state: State, actions: ActionCompiler) -> Operation:
    """Return the operation that gives a state's own fields their values at its first entry (late binding)."""
    values = [(first_value(each, actions), f"{state.id}.context.{each.name}") for each in state.context]

    def operation(run: StepRun) -> None:
        if len(run.entered) > FREE_ITEMS:
            run.meter.charge(len(run.entered))
        if state.id not in run.entered:
            run.entered = (*run.entered, state.id)
            for value, place in values:
                run.attempt(value, place)

    return operation
