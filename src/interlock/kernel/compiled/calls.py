"""The functions that compiled steps call, for what is rare or too long to be written out in each of them.

Rule 1: they change only what belongs to the step: its copy of the context, and its list of effects.
Rule 2: whatever is not plainly right raises FallBack or another exception. The general step then runs and reports it.
Rule 3: they have no meter, so they accept only short values and few timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.expression.metering import SHORT_TEXT, Meter, measure_value
from interlock.kernel.driver_events import find_fired_timer, forwarded_event
from interlock.kernel.errors import name_of, text_of
from interlock.kernel.run import replace_at
from interlock.model.document.field import Field, complete_payload, field_problem, fields_problem, json_problem
from interlock.model.driver_events import TIMER_SOURCE
from interlock.model.effect import Effect, EffectType
from interlock.model.event import Event, is_reserved
from interlock.model.limits import EFFECTS_MAX, INVOKES_MAX, NAME_BYTES_MAX, TIMERS_MAX
from interlock.model.snapshot import Invocation, Snapshot, Timer

SHORT_BYTES_MAX = 16_384
"""Bytes of a value that a compiled step stores: so few that it cannot reach the limit of a step."""

TIMERS_LISTED_MAX = 64
"""Pending timers that a compiled step searches: more of them are charged, by the general step."""

ITEMS_MAX = 16
"""Items of a `foreach` in a compiled step."""

COPIED_MAX = 1_000
"""Items of the containers along a path, which one write copies."""

_SMALL = 2**63
"""Integers below this are far below the limit of bits."""


class FallBack(Exception):
    """This step needs the general path."""


class Entity(Struct, frozen=True, gc=False):
    """The entity as expressions read it."""

    id: str
    kind: str
    version: int
    epoch: int = 0


# Values


def need_short(value: Any) -> None:
    """Fall back for a long string or a large tree, which the general step measures."""
    is_short = len(value) < SHORT_TEXT if type(value) is str else measure_value(value, None) <= SHORT_BYTES_MAX
    if not is_short:
        raise FallBack


def need_short_payloads(effects: list[Effect]) -> None:
    """Fall back if the payload of an effect is large."""
    for each in effects:
        need_short(each.payload)


def is_plain(data: Any) -> bool:
    """Return whether a payload is plain JSON. Small ones, which are the rule, take one look at each value."""
    for value in data.values() if data.__class__ is dict else (data,):
        kind = value.__class__
        if kind is str:
            if len(value) >= SHORT_TEXT or not value.isascii():
                return json_problem(data) is None
        elif kind is int:
            if not -_SMALL < value < _SMALL:
                return json_problem(data) is None
        elif value is not None and kind is not bool:
            return json_problem(data) is None
    if data.__class__ is dict:
        for key in data:
            if key.__class__ is not str or not key.isascii():
                return json_problem(data) is None
    return True


def does_not_fit(data: Any, fields: tuple[Field, ...]) -> bool:
    """Return whether a payload does not fit as it is. The general step then completes or rejects it."""
    return type(data) is not dict or fields_problem(data, fields) is not None


def with_defaults(event: Event, fields: tuple[Field, ...]) -> Event:
    """Return an event with the defaults of its declared payload."""
    data, problem = complete_payload(event.data, fields)
    if problem is not None or event.type == "platform" or event.source is not None:  # the driver's are not completed
        raise FallBack
    return event if data is event.data else replace(event, data=data)


def assign_all(context: dict[str, Any], result: Any, fields: Mapping[str, Field]) -> None:
    """Write the result of a registered function."""
    if type(result) is not dict or json_problem(result) is not None:
        raise FallBack
    for name, value in result.items():
        if field_problem(value, fields[name]) is not None:
            raise FallBack
        need_short_if_large(value)
        context[name] = value


def assign_path(context: dict[str, Any], path: tuple[str, ...], value: Any, field: Field | None) -> None:
    """Write a short value at a path, copying the containers along it."""
    name = path[0]
    whole = replace_at(context[name], path, 1, value, Meter(COPIED_MAX))
    if field is not None and not field.accepts_any and field_problem(whole, field) is not None:
        raise FallBack
    context[name] = whole


def need_scalar(value: Any) -> None:
    """Fall back for a long string, a list or a mapping."""
    kind = value.__class__
    if kind is not int and value is not None and kind is not bool and kind is not float:
        raise FallBack


def short_tree(value: Any, meter: None) -> Any:  # noqa: ARG001  # the signature of `x_tree`, which this replaces
    """Return a new list or mapping of an expression. One that is not short falls back."""
    if len(value) > ITEMS_MAX:
        need_short(value)
        return value
    for each in value if value.__class__ is list else value.values():
        kind = each.__class__
        if kind is str:
            if len(each) >= SHORT_TEXT:
                raise FallBack
        elif kind is not int and each is not None and kind is not bool:
            need_short(value)
            break
    return value


def need_short_if_large(value: Any) -> None:
    """Fall back for a long string or a large tree. Other values are short."""
    kind = type(value)
    if kind is list or kind is dict or (kind is str and len(value) >= SHORT_TEXT):
        need_short(value)


def checked_name(name: Any) -> str:
    """Return a computed event name that may be sent."""
    if is_reserved(name_of(name, "", "", length_max=NAME_BYTES_MAX)):
        raise FallBack
    return str(name)


def checked_type(type: Any) -> str:
    """Return the computed type of a message."""
    return name_of(type, "", "")


def checked_key(key: Any) -> Any:
    """Return the computed key of an invoke."""
    if key is None or type(key) is int or type(key) is str:
        return key
    raise FallBack


def short_list(value: Any) -> list[Any]:
    """Return a copy of the list of a `foreach`."""
    if type(value) is not list or len(value) > ITEMS_MAX:
        raise FallBack
    return value.copy()


# Effects


def add_effect(effects: list[Effect], base: str, type: EffectType, payload: dict[str, Any]) -> Effect:
    """Add an effect to a list. `base` is the key without its ordinal."""
    ordinal = len(effects)
    if ordinal >= EFFECTS_MAX:
        raise FallBack
    effect = Effect(type, ordinal, f"{base}{ordinal}", payload)
    effects.append(effect)
    return effect


def without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    """Return these timers or invocations without one of them."""
    return tuple(each for each in items if each is not item)


# Timers


def fired_timer(snapshot: Snapshot, event: Event) -> Timer:
    """Return the timer that fired with an event for the entity itself."""
    source = event.source
    if source is None or not source.startswith(TIMER_SOURCE) or event.forwarded or event.invokeid is not None:
        raise FallBack
    timer = find_fired_timer(snapshot, event)
    if timer is None or timer.to is not None:
        raise FallBack
    return timer


def cancel_after(timers: tuple[Timer, ...], effects: list[Effect], base: str, state: str) -> tuple[Timer, ...]:
    """Cancel the timers of a state's `after`, and return the others."""
    return drop_timers(timers, effects, base, tuple(each for each in timers if each.state == state))


def cancel_id(timers: tuple[Timer, ...], effects: list[Effect], base: str, id: Any) -> tuple[Timer, ...]:
    """Cancel the timers of a send id, and return the others."""
    text_of(id, "", "")
    return drop_timers(timers, effects, base, tuple(each for each in timers if each.id == id))


def drop_timers(
    timers: tuple[Timer, ...], effects: list[Effect], base: str, dropped: tuple[Timer, ...]
) -> tuple[Timer, ...]:
    """Cancel some of the timers, and return the others."""
    if not dropped:
        return timers
    for each in dropped:
        add_effect(effects, base, "timer_cancel", {"name": each.name, "version": each.version})
    identities = {id(each) for each in dropped}
    return tuple(each for each in timers if id(each) not in identities)


def set_timer(
    timers: tuple[Timer, ...],
    effects: list[Effect],
    base: str,
    version: int,
    id: str | None,
    event: str,
    data: Any,
    due_ms: int,
    to: str | None,
    type: str | None,
    restore: str,
    state: str | None,
) -> tuple[Timer, ...]:
    """Set a timer, and return all of them. A name that is pending needs another one, which the general step finds."""
    ordinal = len(effects)
    name = f"send.{version}.{ordinal}" if id is None else id
    if len(timers) >= TIMERS_MAX or any(each.name == name for each in timers):
        raise FallBack
    add_effect(effects, base, "timer", {"name": name, "event": event, "due_ms": due_ms, "version": version})
    return (*timers, Timer(name, event, due_ms, version, ordinal, id, data, to, type, restore, state))


# Invokes


def check_invokes(invokes: tuple[Invocation, ...], counts: Mapping[str, int]) -> None:
    """Fall back if an active state has an invoke that the chart does not have, or if more might not be allowed."""
    if len(invokes) >= INVOKES_MAX // 2:
        raise FallBack
    for each in invokes:
        if each.state in counts and not 0 <= each.position < counts[each.state]:
            raise FallBack


def cancel_invokes(
    invokes: tuple[Invocation, ...], effects: list[Effect], base: str, state: str
) -> tuple[Invocation, ...]:
    """Cancel the invokes of a state, and return the others. One of this step would be withdrawn instead."""
    for each in invokes:
        if each.state == state:
            if each.key.startswith(base):
                raise FallBack
            add_effect(effects, base, "invoke_cancel", {"id": each.id, "key": each.key})
    return tuple(each for each in invokes if each.state != state)


def forward(
    invokes: tuple[Invocation, ...],
    effects: list[Effect],
    base: str,
    event: Event,
    forwarding: Mapping[str, list[bool]],
) -> bool:
    """Forward an event to the invokes that take every event, in document order. Return whether there are any."""
    order = list(forwarding)
    receivers = [each for each in invokes if each.state in forwarding and forwarding[each.state][each.position]]
    for each in sorted(receivers, key=lambda each: (order.index(each.state), each.position)):
        add_effect(effects, base, "forward", {"id": each.id, "event": forwarded_event(event)})
    return bool(receivers)
