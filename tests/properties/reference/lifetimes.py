"""What lives as long as a state: its own context fields, its `after` timers and its invokes (S5, S8, S30, S38)."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.model import limits
from interlock.model.charts.chart import State
from interlock.model.document.field import UNSET, Field, field_problem
from interlock.model.snapshot import Invocation, Timer
from tests.properties.reference.content import after_delay, assign, set_timer
from tests.properties.reference.evaluator import Failure
from tests.properties.reference.progress import Progress, StepFailed, fresh


def set_after_timers(progress: Progress, state: State) -> None:
    """S38: each `after` is a separate block at the end of entry."""
    for after in state.after:
        try:
            delay = after_delay(after.delay, progress)
        except Failure as failure:
            progress.platform_error("error.execution", failure)
            continue
        timer = Timer(
            name=after.event,
            event=after.event,
            due_ms=progress.time_ms + delay,
            version=progress.version,
            ordinal=progress.ordinal,
            id=after.event,
            restore=after.restore,
            state=state.id,
        )
        set_timer(progress, timer)


def bind_late_fields(progress: Progress, index: int) -> None:
    """S5: with late binding a state's own fields get their values when it is entered for the first time."""
    fields = progress.structure.state(index).context
    if progress.chart.binding == "late" and fields and index not in (0, *progress.entered):
        progress.entered.append(index)
        bind_fields(progress, fields, given={})


def bind_fields(progress: Progress, fields: Iterable[Field], given: dict[str, object]) -> None:
    """S5: give fields their first values, in order; one that fails stays unbound and queues an error."""
    for field in fields:
        try:
            if field.name in given:
                value = fresh(given[field.name])
            else:
                value = None if field.default is UNSET else progress.evaluator().value(field.default)
            if field_problem(value, field) is not None:
                raise Failure("context.refused", f"{field.name} refuses its first value")
            progress.context[field.name] = value
        except Failure as failure:
            progress.platform_error("error.execution", failure)


def start_invokes(progress: Progress) -> None:
    """S8: the invokes of states entered and not left since the last settling."""
    waiting = sorted(progress.states_to_invoke)
    progress.states_to_invoke = []
    for index in waiting:
        invoke_state(progress, index)


def invoke_state(progress: Progress, index: int) -> None:
    """Start each invoke of a state, in document order. One with failing arguments is not started (554)."""
    state = progress.structure.state(index)
    for position, invoke in enumerate(state.invokes):
        value = progress.evaluator().value
        try:
            said = {"src": invoke.src, "type": invoke.type, "input": invoke.input, "key": invoke.key}
            payload = {key: value(each) for key, each in said.items() if each is not None}
            name = invoke.id or f"{state.id}.{progress.version}.{progress.ordinal}"
            if invoke.id_location is not None:
                assign(progress, invoke.id_location, name)
        except Failure as failure:
            progress.platform_error("error.execution", failure)
            continue
        if len(progress.invokes) >= limits.INVOKES_MAX:
            raise StepFailed("step.invokes_max")
        payload |= {"id": name, "state": state.id} | ({"autoforward": True} if invoke.autoforward else {})
        payload |= {} if invoke.timeout_ms is None else {"timeout_ms": invoke.timeout_ms}
        effect = progress.add_effect("invoke", payload)
        child = payload.get("type") in ("chart", "scxml", *(f"http://www.w3.org/TR/scxml{end}" for end in ("", "/")))
        progress.invokes.append(Invocation(id=name, state=state.id, position=position, key=effect.key, child=child))


def cancel_invoke(progress: Progress, invocation: Invocation) -> None:
    """Cancel the invokes of a state. The effect of one that this step started is removed instead."""
    progress.invokes.remove(invocation)
    started = [each for each in progress.effects if each.type == "invoke" and each.key == invocation.key]
    if started:
        progress.effects = [each for each in progress.effects if each not in started]
    else:
        progress.add_effect("invoke_cancel", {"id": invocation.id, "key": invocation.key})
