"""What a plan does besides content, each as a small function of the run: timers, invokes, fields, done events.

Rule 1: an operation raises on error; `StepRun.carry` says what that means.
"""

from __future__ import annotations

from typing import Any

from interlock.kernel.codegen import ActionCompiler, Operation, references
from interlock.kernel.run import StepRun
from interlock.model.chart import After, State
from interlock.model.document.field import UNSET, Field
from interlock.model.event import Event

FEW = 8
"""Timers or states that an operation looks through without being charged for."""


def see(ids: frozenset[str]) -> Operation:
    """From here on `In()` sees these states."""

    def seen(run: StepRun) -> None:
        run.active = ids

    return seen


def set_after(after: After, actions: ActionCompiler, state: str) -> Operation:
    """Set the timer of an `after`."""
    delay = None if isinstance(after.delay, int) else actions.value(after.delay)

    def timed(run: StepRun) -> None:
        run.set_after(after, None if delay is None else delay(run), state)

    return timed


def cancel_after(state: str) -> Operation:
    """Drop the timers that a state's `after` set."""

    def cancelled(run: StepRun) -> None:
        if len(run.timers) > FEW:
            run.meter.charge(len(run.timers))
        run.drop_timers(tuple(each for each in run.timers if each.state == state))

    return cancelled


def wait_to_invoke(state: State) -> Operation:
    """Begin the state's invokes on settling, if it is still active then (S8)."""

    def waiting(run: StepRun) -> None:
        run.invokes_to_start[state.index] = state

    return waiting


def begin_invoke(state: State, position: int, actions: ActionCompiler) -> Operation:
    """Evaluate an invoke's arguments and begin it."""
    invoke = state.invokes[position]
    values = (("src", invoke.src), ("type", invoke.type), ("input", invoke.input), ("key", invoke.key))
    parts = {name: actions.value(value) for name, value in values if value is not None}
    count = sum(references(value) for _, value in values)

    def begun(run: StepRun) -> None:
        run.start_invoke(state, position, {name: value(run) for name, value in parts.items()}, count)

    return begun


def end_invokes(state: State) -> Operation:
    """Cancel or withdraw the invokes of a state that is left."""

    def ended(run: StepRun) -> None:
        run.cancel_invokes(state)

    return ended


def queue_done(name: str, output: Operation | None) -> Operation:
    """Queue a done event, with the output of the final state that completed it."""

    def done(run: StepRun) -> None:
        data = None if output is None else output(run)
        run.enqueue(Event(name, data, None, None, None, run.time_ms, "platform"))

    return done


def output_of(state: State, actions: ActionCompiler) -> Operation:
    """The output of a final state; what fails of it is left out, with an error event before the done event."""
    place, count = f"{state.id}.output", references(state.output)
    if not isinstance(state.output, dict):
        whole = actions.value(state.output)

        def value(run: StepRun) -> Any:
            found = run.attempt(whole, place)
            run.measure_later(found, count)
            return found

        return value
    parts = {name: actions.value(value) for name, value in state.output.items()}

    def output(run: StepRun) -> Any:
        found: dict[str, Any] = {}
        for name, part in parts.items():
            value = run.attempt(part, f"{place}.{name}", UNSET)
            if value is not UNSET:
                found[name] = value
        run.measure_later(found, count)
        return found if found or not parts else None

    return output


def first_value(field: Field, actions: ActionCompiler) -> Operation:
    """Give a field its first value; when that fails it stays unbound (S5)."""
    value = actions.value(None if field.default is UNSET else field.default)

    def initialised(run: StepRun) -> None:
        run.set_first_value(field, value(run))

    return initialised


def late_fields(state: State, actions: ActionCompiler) -> Operation:
    """A state's own fields get their values at its first entry (late binding)."""
    made = [(first_value(each, actions), f"{state.id}.context.{each.name}") for each in state.context]

    def bound(run: StepRun) -> None:
        if len(run.entered) > FEW:
            run.meter.charge(len(run.entered))
        if state.id not in run.entered:
            run.entered = (*run.entered, state.id)
            for operation, place in made:
                run.attempt(operation, place)

    return bound
