"""The meaning of `saga:`: sagas become ordinary states (ADR 0008).

    setup:                              setup:
      saga:                               context: {saga_setup: {step, key, done: {address, volume}}}
        steps: [address, volume]    ->    states: address -> volume -> completed
                                                  volume_compensation -> address_compensation -> compensated | blocked

Rule 1: the kernel does not know sagas; it runs states, invokes and assigns.
Rule 2: completed steps are recorded in the context. Only recorded steps are compensated; entering the state again
        clears the record.
Rule 3: a step that may have had an effect counts as done, so its compensation must accept that there is nothing to do.
Rule 4: every generated value has the place of the saga line that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from interlock.errors import SourceLocation
from interlock.model.charts.chart import Compensation, SagaInfo, SagaStepInfo, SagaUnwind
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.actions import (
    Assign,
    Block,
    Expression,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    If,
    Value,
)
from interlock.model.document.document import Document, Invoke, Saga, SagaCall, SagaStep, State, Transition
from interlock.model.document.field import Field
from interlock.model.document.walk import states

RESERVED = ("completed", "compensated", "blocked", "compensation")
"""Names of generated states, which no step may have."""

NOT_DONE = "event.data != null and get(event.data, 'done') == 'no'"
"""The condition on the error of a step that certainly had no effect."""


class _FieldNames(NamedTuple):
    """Fields of the context: those of the author, and those generated for sagas so far."""

    written: set[str]
    made: set[str]


def expand_sagas(document: Document, diagnostics: Diagnostics) -> Document:
    """The document with child states for every saga. The sagas themselves stay, because checks read them."""
    if all(state.saga is None for state in states(document.root)):
        return document
    names = _FieldNames({field.name for state in states(document.root) for field in state.context}, set())
    if document.root.saga is not None:
        message = "the root cannot have a saga, because the end of the saga would be the end of the entity"
        diagnostics.error("saga.misplaced", message, document.root.saga.location, "move the saga into a state")
        return document
    return replace(document, root=_expand(document.root, "", names, diagnostics))


def saga_info(state: State, path: str, indexes: Mapping[str, int]) -> SagaInfo | None:
    """The expanded saga of a state, with the numbers of its states; None if the state has no valid saga."""
    if state.saga is None or not state.context:
        return None
    writer = _writer(state, path)
    try:
        steps = tuple(
            SagaStepInfo(
                id=step.id,
                state=indexes[f"{path}.{step.id}"],
                compensation=indexes[f"{path}.{writer.compensation_path(step)}"]
                if step in writer.compensable
                else None,
            )
            for step in writer.steps
        )
        completed, blocked = indexes[f"{path}.completed"], indexes[f"{path}.blocked"]
    except KeyError:  # the saga was invalid and not expanded
        return None
    compensated = indexes.get(f"{path}.compensated")
    return SagaInfo(field=writer.field, steps=steps, completed=completed, blocked=blocked, compensated=compensated)


def unwind_of(state: State, path: str, indexes: Mapping[str, int]) -> SagaUnwind | None:
    """How the saga of a state is compensated when its entity ends; None if there is nothing to compensate."""
    saga = saga_info(state, path, indexes)
    if saga is None:
        return None
    writer = _writer(state, path)
    inner = "{}.pending" if writer.is_parallel else "{}"
    found = tuple(
        Compensation(
            step=step.id,
            state=indexes[f"{path}.{inner.format(writer.compensation_path(step))}"],
            output=step.do.output,
        )
        for step in reversed(writer.compensable)
    )
    if not found:
        return None
    return SagaUnwind(field=saga.field, completed=saga.completed, compensations=found, parallel=writer.is_parallel)


def generated_guards(saga: SagaInfo) -> dict[str, str]:
    """The guards of the transitions between the states of a saga: their text, and words for a reader."""
    words = {NOT_DONE: "surely not done", _skipped_guard(saga.field): "skipped"}
    return words | {_not_done_guard(saga.field, each.id): f"{each.id} not done" for each in saga.steps}


def _skipped_guard(field: str) -> str:
    return f"context.{field}.step == null"


def _not_done_guard(field: str, step: str) -> str:
    return f"context.{field}.done[{step!r}] == null"


def _writer(state: State, path: str) -> SagaStates:
    """What generated the states of an expanded saga."""
    assert state.saga is not None
    return SagaStates(state.saga, path, state.context[-1].name)  # the generated field follows the author's own


def _expand(state: State, path: str, names: _FieldNames, diagnostics: Diagnostics) -> State:
    if state.saga is not None:
        return _expand_saga(state, state.saga, path, names, diagnostics)
    children = []
    for child in state.states:
        inner = f"{path}.{child.key}" if path else child.key
        children.append(_expand(child, inner, names, diagnostics))
    return replace(state, states=tuple(children))


def _expand_saga(state: State, saga: Saga, path: str, names: _FieldNames, diagnostics: Diagnostics) -> State:
    if not _is_valid(state, saga, diagnostics):
        return state
    field = _field_name(path, names, saga.location, diagnostics)
    writer = SagaStates(saga, path, field)
    first_listener = next(
        (position for position, each in enumerate(state.transitions) if each.origin in ("on", "transitions")),
        len(state.transitions),
    )
    before, after = state.transitions[:first_listener], state.transitions[first_listener:]
    default = writer.initial_memory()
    return replace(
        state,
        context=(*state.context, Field(name=field, type="object", default=default, location=saga.location)),
        entry=((writer.assign(saga.location, (field, default)),), *state.entry),
        states=tuple(writer.states()),
        transitions=(*before, *writer.results(), *after),
    )


def _is_valid(state: State, saga: Saga, diagnostics: Diagnostics) -> bool:
    """Whether the saga can be expanded here; reports the reasons if not."""
    count = len(diagnostics.items)
    if state.type != "state" or state.states or any(each.origin == "onDone" for each in state.transitions):
        message = f'"{state.key}" has a saga, so it cannot have `type`, `states` or `onDone`'
        diagnostics.error(
            "saga.misplaced", message, saga.location, "move them into another state; a saga has its own `onDone`"
        )
    if not saga.steps:
        diagnostics.error("saga.no_steps", "the saga has no steps", saga.location, "add at least one under `steps`")
    if saga.compensation == "none" and saga.compensated:
        message = "`onCompensated` never happens with `compensation: none`"
        diagnostics.error("saga.compensated", message, saga.compensated[0].location, "use `onError`")
    states = set(RESERVED)
    for step in saga.steps:
        made = {step.id, f"{step.id}_compensation"}
        if states & made:
            message = f'the state name "{min(states & made)}" is already used by this saga'
            diagnostics.error("saga.duplicate_step", message, step.location, "give the step another id")
        states |= made
    return len(diagnostics.items) == count


def _field_name(path: str, names: _FieldNames, location: SourceLocation, diagnostics: Diagnostics) -> str:
    """The field in which a saga records its steps: `saga_<state>`, in characters that every expression can read."""
    wanted = name = "saga_" + re.sub(r"[^A-Za-z0-9_]", "_", path)
    if name in names.written:
        message = f"the field `{name}` is reserved for the record of the saga"
        diagnostics.error("saga.field", message, location, "rename your field")
    number = 1
    while name in names.made:
        number += 1
        name = f"{wanted}_{number}"
    names.made.add(name)
    return name


class SagaStates:
    """Generates the states of one saga."""

    def __init__(self, saga: Saga, path: str, field: str) -> None:
        self.saga = saga
        self.path = path
        self.field = field
        self.steps = saga.steps
        self.compensable = [] if saga.compensation == "none" else [each for each in saga.steps if each.compensate]

    @property
    def is_parallel(self) -> bool:
        """Whether compensations run in parallel; with fewer than two they run in sequence."""
        return self.saga.compensation == "parallel" and len(self.compensable) > 1

    def states(self) -> Iterator[State]:
        for position, step in enumerate(self.steps):
            following = self.steps[position + 1].id if position + 1 < len(self.steps) else "completed"
            yield self.step(step, position, following)
        if self.is_parallel:
            yield self.parallel_compensations()
        else:
            yield from self.sequential_compensations()
        location = self.saga.location
        yield State(key="completed", type="final", location=location)
        if self.saga.compensation != "none":
            yield State(key="compensated", type="final", location=location)
        yield State(key="blocked", type="final", location=location)

    # Steps

    def step(self, step: SagaStep, position: int, following: str) -> State:
        """The state of a step. It is exited immediately if the step's `if` is false on entry."""
        location = step.location
        start = self.assign(
            location,
            (f"{self.field}.step", step.id),
            (f"{self.field}.key", None),
            (f"{self.field}.key", self.key(step)),
        )
        entry: Block = (start,)
        skip: tuple[Transition, ...] = ()
        if step.guard is not None:
            # The guard is evaluated once, on entry, so that its answer cannot change while the step runs.
            entry = (
                self.assign(location, (f"{self.field}.step", None)),
                If(branches=((step.guard, (start,)),), location=location),
            )
            skip = (self.always(_skipped_guard(self.field), following, location),)
        done: list[tuple[str, Value]] = [self.done_record(step)]
        if step.do.output is not None:
            done.append((step.do.output, Expression("event.data", step.do.location)))
        invoke = Invoke(
            id=f"{self.path}.{step.id}",
            src=step.do.src,
            input=step.do.input,
            key=Expression(f"context.{self.field}.key", step.do.location),
            retry=step.retry,
            timeout=step.timeout,
            done=(self.to(following, step.do.location, self.assign(step.do.location, *done)),),
            error=self.errors(step, position),
            location=step.location,
        )
        return State(key=step.id, entry=(entry,), transitions=skip, invokes=(invoke,), location=location)

    def key(self, step: SagaStep) -> Value:
        """The idempotency key of a step, new for each entry. The step's compensation receives it as `compensates`."""
        if step.do.key is not None:
            return step.do.key
        epoch = "('.' + str(entity.epoch) if entity.epoch else '')"
        text = f"entity.id + '/' + str(entity.version) + {epoch} + {f'/{self.path}.{step.id}'!r}"
        return Expression(text, step.do.location)

    def done_record(self, step: SagaStep) -> tuple[str, Value]:
        record = Expression(f"{{'step': {step.id!r}, 'key': context.{self.field}.key}}", step.do.location)
        return f"{self.field}.done.{step.id}", record

    def errors(self, step: SagaStep, position: int) -> tuple[Transition, ...]:
        """Transitions for a failed step: it is compensated unless it certainly had no effect."""
        location = step.do.location
        without = replace(self.to(self.compensate_from(position), location), guard=self.guard(NOT_DONE, location))
        perhaps = self.to(self.compensate_from(position + 1), location, self.assign(location, self.done_record(step)))
        return (without, perhaps)

    def compensate_from(self, count: int) -> str:
        """The state to enter if the first `count` steps may be done and the others are not."""
        if self.saga.compensation == "none":
            return "blocked"
        last = next((each for each in reversed(self.steps[:count]) if each.compensate is not None), None)
        if last is None:
            return "compensated"
        return "compensation" if self.is_parallel else f"{last.id}_compensation"

    # Compensations

    def sequential_compensations(self) -> Iterator[State]:
        for position in reversed(range(len(self.compensable))):
            step = self.compensable[position]
            following = f"{self.compensable[position - 1].id}_compensation" if position else "compensated"
            yield self.compensation(step, f"{step.id}_compensation", self.ref(following), self.ref("blocked"))

    def parallel_compensations(self) -> State:
        """A region for each step. After all regions ended, a step that is still recorded could not be compensated."""
        location = self.saga.location
        regions = []
        for step in self.compensable:
            region = self.compensation_path(step)
            inner = (
                self.compensation(step, "pending", self.ref(f"{region}.done"), self.ref(f"{region}.failed")),
                State(key="done", type="final", location=step.location),
                State(key="failed", type="final", location=step.location),
            )
            regions.append(State(key=f"{step.id}_compensation", states=inner, location=step.location))
        none_done = GuardAll(
            guards=tuple(self.guard(self.not_done_guard(each), location) for each in self.compensable),
            location=location,
        )
        ends = (
            replace(self.to("compensated", location), origin="onDone", guard=none_done),
            replace(self.to("blocked", location), origin="onDone"),
        )
        return State(key="compensation", type="parallel", states=tuple(regions), transitions=ends, location=location)

    def compensation(self, step: SagaStep, key: str, following: str, failed: str) -> State:
        """The state that compensates a step; it is exited immediately if the step is not recorded as done."""
        call = step.compensate
        assert call is not None
        off: list[tuple[str, Value]] = [(f"{self.field}.done.{step.id}", None)]
        if step.do.output is not None:
            off.append((step.do.output, None))
        invoke = Invoke(
            id=f"{self.path}.{step.id}_compensation",
            src=call.src,
            input=self.input(step, call),
            key=call.key,
            retry=step.retry,
            timeout=step.timeout,
            done=(
                Transition(targets=(following,), actions=(self.assign(call.location, *off),), location=call.location),
            ),
            error=(Transition(targets=(failed,), location=call.location),),
            location=step.location,
        )
        skip = replace(self.always(self.not_done_guard(step), "", step.location), targets=(following,))
        return State(key=key, transitions=(skip,), invokes=(invoke,), location=step.location)

    def input(self, step: SagaStep, call: SagaCall) -> Value:
        """The compensation's input with the key of the step, so that a service can reject a late request."""
        if call.input is not None and not isinstance(call.input, dict):
            return call.input
        key = Expression(f"context.{self.field}.done[{step.id!r}].key", call.location)
        return {"compensates": key, **(call.input or {})}

    # Results

    def results(self) -> Iterator[Transition]:
        """The saga's `onDone`, `onCompensated` and `onError` as transitions on the completion of its state."""
        yield from self.result(self.saga.done, ["completed"])
        yield from self.result(self.saga.compensated, ["compensated"])
        both = not self.saga.compensated and self.saga.compensation != "none"
        yield from self.result(self.saga.error, ["compensated", "blocked"] if both else ["blocked"])

    def result(self, transitions: tuple[Transition, ...], finals: list[str]) -> Iterator[Transition]:
        for each in transitions:
            ends: list[Guard] = [GuardIn(state=f".{final}", location=each.location) for final in finals]
            guard = ends[0] if len(ends) == 1 else GuardAny(guards=tuple(ends), location=each.location)
            if each.guard is not None:
                guard = GuardAll(guards=(guard, each.guard), location=each.location)
            yield replace(each, origin="onDone", events=(), guard=guard)

    # Parts

    def initial_memory(self) -> dict[str, Value]:
        return {"step": None, "key": None, "done": {each.id: None for each in self.steps}}

    def not_done_guard(self, step: SagaStep) -> str:
        return _not_done_guard(self.field, step.id)

    def compensation_path(self, step: SagaStep) -> str:
        """The path of the state that compensates a step, below the state of the saga."""
        return f"compensation.{step.id}_compensation" if self.is_parallel else f"{step.id}_compensation"

    def ref(self, name: str) -> str:
        return f"#{self.path}.{name}"

    def to(self, name: str, location: SourceLocation, *actions: Assign) -> Transition:
        return Transition(targets=(self.ref(name),), actions=actions, location=location)

    def always(self, guard: str, name: str, location: SourceLocation) -> Transition:
        return replace(self.to(name, location), origin="always", guard=self.guard(guard, location))

    def guard(self, text: str, location: SourceLocation) -> GuardExpression:
        return GuardExpression(expression=Expression(text, location), location=location)

    def assign(self, location: SourceLocation, *values: tuple[str, Value]) -> Assign:
        return Assign(values=values, location=location)
