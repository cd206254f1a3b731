"""Executable content for the reference interpreter: guards, blocks and their actions (S23 to S25, S33, S36)."""

from __future__ import annotations

from typing import Any

from interlock.model import limits
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Block,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
)
from interlock.model.document.field import Field, refusal
from interlock.model.duration import parse_css_duration, parse_duration
from interlock.model.event import SCXML_PROCESSOR, Event
from interlock.model.snapshot import Timer
from tests.properties.reference.evaluator import Failure
from tests.properties.reference.progress import Function, Progress, StepFailed, fresh

SEND_TYPES = (None, "scxml", SCXML_PROCESSOR)


class Undeliverable(Failure):
    """S25: the addressee of a send is visibly not there; the chart sees `error.communication`."""


def call(function: Function, progress: Progress, arguments: Any) -> Any:
    """The answer of a registered function; whatever it raises is an error of the chart's."""
    context = fresh(progress.context)
    given = () if arguments is None else (progress.evaluator().value(arguments),)
    try:
        return function(context, progress.event, *given)
    except Exception as error:
        raise Failure("function.failed", str(error)) from error


def holds(guard: Guard, progress: Progress) -> bool:
    """Return whether a guard holds. Raises Failure if it cannot be evaluated."""
    match guard:
        case GuardName():
            return bool(call(progress.guards[guard.name], progress, guard.arguments))
        case GuardExpression():
            return bool(progress.evaluator().expression(guard.expression))
        case GuardAll():
            return all(holds(each, progress) for each in guard.guards)
        case GuardAny():
            return any(holds(each, progress) for each in guard.guards)
        case GuardNot():
            return not holds(guard.guard, progress)
        case GuardIn():
            return guard.state in progress.evaluator().active


def condition_match(guard: Guard | None, progress: Progress) -> bool:
    """S33: a guard in error counts as false and queues `error.execution`."""
    if guard is None:
        return True
    try:
        return holds(guard, progress)
    except Failure as failure:
        progress.platform_error("error.execution", failure)
        return False


def execute_content(block: Block, progress: Progress) -> None:
    """S23: run one block. An error skips the remaining actions and is queued."""
    try:
        for action in block:
            execute(action, progress)
    except Failure as failure:
        name = "error.communication" if isinstance(failure, Undeliverable) else "error.execution"
        progress.platform_error(name, failure, sendid=failure.sendid)


def execute(action: Action, progress: Progress) -> None:
    """Run one action. Raises Failure."""
    value = progress.evaluator().value
    match action:
        case Do():
            given = {} if action.arguments is None else {"input": value(action.arguments)}
            progress.add_effect("call", {"name": action.name, **given})
        case Assign():
            for path, each in action.values:
                assign(progress, path, progress.evaluator().value(each))
        case AssignCall():
            found = call(progress.assigns[action.name], progress, action.arguments)
            if not isinstance(found, dict):
                raise Failure("assign.function", "an assign function returns a mapping")
            for path, each in found.items():
                assign(progress, path, each)
        case Raise():
            name = event_name(value(action.event), "raise.event")
            refuse_reserved(action, name)
            progress.enqueue(Event(name, data=value(action.data), time_ms=progress.time_ms, type="internal"))
        case Send():
            send(action, progress)
        case Cancel():
            sendid = value(action.id)
            cancel_timers(progress, [each for each in progress.timers if each.id == sendid])
        case Emit():
            progress.add_effect("message", {"type": value(action.type), "data": value(action.data)})
        case Log():
            progress.add_effect("log", {"label": action.label, "value": value(action.value)})
        case If():
            execute_if(action, progress)
        case Foreach():
            execute_foreach(action, progress)
        case Script():
            raise Failure("script.untrusted", "scripts need a trusted language")


def execute_if(action: If, progress: Progress) -> None:
    """Run the first branch whose guard holds."""
    taken = next((block for guard, block in action.branches if condition_match(guard, progress)), action.otherwise)
    for each in taken:
        execute(each, progress)


def execute_foreach(action: Foreach, progress: Progress) -> None:
    """S25: walk a shallow copy; `item` and `index` become fields if they are none."""
    found = progress.evaluator().value(action.items)
    if not isinstance(found, list):
        raise Failure("foreach.items", "foreach walks a list")
    if len(found) > limits.FOREACH_ITEMS_MAX:
        raise StepFailed("step.foreach_items_max")
    for index, each in enumerate(list(found)):
        declare(progress, action.item, each)
        if action.index is not None:
            declare(progress, action.index, index)
        for inner in action.block:
            execute(inner, progress)


def field_of(progress: Progress, name: str) -> Field | None:
    """The declaration of a context field, wherever it stands."""
    return next((each for state in progress.chart.states for each in state.context if each.name == name), None)


def declare(progress: Progress, name: str, value: Any) -> None:
    """Set a field, making it if there is none of that name."""
    if field_of(progress, name) is None and name not in progress.context:
        progress.writes += 1
        progress.context[name] = value
    else:
        assign(progress, name, value)


def assign(progress: Progress, path: str, value: Any) -> None:
    """S25: write into a declared field; nested parts are reached through mappings."""
    progress.writes += 1
    name, *keys = path.split(".")
    field = field_of(progress, name)
    if field is None and name not in progress.context:
        raise Failure("assign.unknown_field", f"{name} is not a field")
    whole = written(progress.context.get(name), keys, fresh(value))
    if field is not None and refusal(whole, field) is not None:
        raise Failure("assign.refused", f"{name} refuses the value")
    progress.context[name] = whole


def written(whole: Any, keys: list[str], value: Any) -> Any:
    """Return a copy with the value at these keys. Nothing is changed in place."""
    if not keys:
        return value
    if not isinstance(whole, dict) or (len(keys) > 1 and keys[0] not in whole):
        raise Failure("assign.path", "the path leads nowhere")
    return {**whole, keys[0]: written(whole.get(keys[0]), keys[1:], value)}


def event_name(value: Any, code: str) -> str:
    """The name of an event to be made."""
    if not isinstance(value, str) or not value:
        raise Failure(code, "an event's name is a string")
    return value


def milliseconds(value: Any) -> int:
    """A computed delay: whole milliseconds, or a duration text."""
    if type(value) is int and value >= 0:
        return value
    found = (parse_duration(value) or parse_css_duration(value)) if isinstance(value, str) else None
    if found is None:
        raise Failure("send.delay", "a delay is a duration or whole milliseconds")
    return found


def refuse_reserved(action: Raise | Send, name: str) -> None:
    """S31: a computed name is never one of the kernel's."""
    if isinstance(action.event, Expression) and (
        name[0] == "_" or name.partition(".")[0] in ("done", "error", "after")
    ):
        raise Failure("event.reserved", "the event name is reserved")


def send(action: Send, progress: Progress) -> None:
    """S24, S25, S36: a send is an internal event, a timer or an effect. Errors carry the send id."""
    sendid: str | None = None
    try:
        value = progress.evaluator().value
        sendid = value(action.id)
        name, to, delay = value(action.event), value(action.to), value(action.delay)
        data, processor = value(action.data), value(action.type)
        if action.id_location is not None:
            sendid = f"send.{progress.version}.{progress.ordinal}"
            assign(progress, action.id_location, sendid)
        name = event_name(name, "send.event")
        refuse_reserved(action, name)
        if processor not in SEND_TYPES:
            raise Failure("send.type", "unknown send type")
        delay_ms = 0 if delay is None else milliseconds(delay)
        address = addressee(to, progress)
    except Failure as failure:
        failure.sendid = sendid
        raise
    if address == "#_internal":
        progress.enqueue(Event(name, data=data, time_ms=progress.time_ms, type="internal", sendid=sendid))
    elif delay_ms:
        timer = Timer(
            name=sendid or f"send.{progress.version}.{progress.ordinal}",
            event=name,
            due_ms=progress.time_ms + delay_ms,
            version=progress.version,
            ordinal=progress.ordinal,
            id=sendid,
            data=data,
            to=None if address == progress.entity else address,
            type=processor,
            restore=action.restore or "deadline",
        )
        set_timer(progress, timer)
    else:
        add_send(progress, name, data, to=address, sendid=sendid)


def add_send(progress: Progress, name: str, data: Any, **fields: Any) -> None:
    """Return the effect that sends an event; null fields are left out."""
    said = {key: each for key, each in {"data": data, **fields}.items() if each is not None}
    progress.add_effect("send", {"event": name, **said})


def addressee(to: Any, progress: Progress) -> str:
    """Who a send is for, in one spelling: an entity, `#_internal`, `#_parent` or `#_<invoke id>`."""
    if to is None or to in ("self", progress.entity, f"#_scxml_{progress.entity}"):
        return progress.entity
    if not isinstance(to, str) or not to:
        raise Failure("send.target", "malformed target")
    if to in ("internal", "#_internal"):
        return "#_internal"
    if to in ("parent", "#_parent"):
        if progress.parent is None:
            raise Undeliverable("send.undeliverable", "this entity has no parent")
        return "#_parent"
    if to.startswith("#_scxml_") or "/" in to:
        entity = to.removeprefix("#_scxml_")
        if "/" not in entity:
            raise Undeliverable("send.undeliverable", "no such entity")
        return entity
    invokeid = to.removeprefix("#_")
    if all(each.id != invokeid for each in progress.invokes):
        raise Undeliverable("send.undeliverable", "no such invoke")
    return f"#_{invokeid}"


def set_timer(progress: Progress, timer: Timer) -> None:
    """S36: the name is the id, made unique while another of that id is pending."""
    if len(progress.timers) >= limits.TIMERS_MAX:
        raise StepFailed("step.timers_max")
    name = timer.name
    if any(each.name == name for each in progress.timers):
        name = f"{name}~{timer.version}.{timer.ordinal}"
    made = Timer(
        name=name,
        event=timer.event,
        due_ms=timer.due_ms,
        version=timer.version,
        ordinal=timer.ordinal,
        id=timer.id,
        data=fresh(timer.data),
        to=timer.to,
        type=timer.type,
        restore=timer.restore,
        state=timer.state,
    )
    progress.timers.append(made)
    progress.add_effect(
        "timer", {"name": made.name, "event": made.event, "due_ms": made.due_ms, "version": made.version}
    )


def cancel_timers(progress: Progress, timers: list[Timer]) -> None:
    """Drop pending timers, in the order in which they were set."""
    for timer in timers:
        progress.timers.remove(timer)
        progress.add_effect("timer_cancel", {"name": timer.name, "version": timer.version})


def after_delay(delay: int | Expression, progress: Progress) -> int:
    """The delay of an `after`, in milliseconds."""
    return delay if isinstance(delay, int) else milliseconds(progress.evaluator().value(delay))
