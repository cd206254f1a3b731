"""The run of one step: working copies of the snapshot's fields, and every change that actions can make to them.

Rule 1: a run exists for one step and never leaves the kernel. The values it was made from are not changed in place.
Rule 2: the context is copied once, at the first write. Values inside it are never mutated: writes copy their path (P7).
Rule 3: an error in an action raises. The caller (block, guard or step) decides what it means (S23, S33, S34).
Rule 4: everything that actions store is measured in bytes, and a shared value counts each time. Values in the context
        are measured when they are written, all others in groups. A step that stores too much fails early.
Rule 5: a target that cannot be an address is an error of the chart (`error.execution`). An address that does not exist
        is an error of delivery (`error.communication`) (S24).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from sys import maxsize
from typing import Any

from msgspec import Struct, field

from interlock.expression.codegen import Meter
from interlock.expression.metering import SHORT_TEXT, VALUE_BYTES, EvaluationError, measure_value, text_bytes
from interlock.kernel.errors import ActionError, StepFailed, describe_error, name_of, reserved_name, text_of
from interlock.model.charts.chart import After, Invoke, State
from interlock.model.document.field import Field, field_problem, json_problem
from interlock.model.duration import format_duration, parse_duration
from interlock.model.effect import CHART_TYPES, Effect, EffectType
from interlock.model.event import SCXML_PROCESSOR, Event, is_reserved
from interlock.model.journal.work import key_base
from interlock.model.limits import (
    DELAY_MS_MAX,
    EFFECTS_MAX,
    ENTITY_ID_BYTES_MAX,
    FOREACH_ITEMS_MAX,
    INTERNAL_EVENTS_MAX,
    INVOKES_MAX,
    NAME_BYTES_MAX,
    STEP_BYTES_MAX,
    TIMERS_MAX,
    UNMEASURED_MAX,
    WORK_MAX,
)
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from interlock.model.step import Fault

OTHER_REVISION_HINT = "the snapshot was written by another revision; migrate it, or load that revision"
"""The hint for a snapshot with names that the chart does not have."""

ADDRESS_LENGTH_MAX = NAME_BYTES_MAX + ENTITY_ID_BYTES_MAX + len("#_scxml_/")
"""Characters of a target: the longest kind and id in the notation of SCXML."""

_RECOUNT_BYTES = STEP_BYTES_MAX // 2
"""Bytes stored before everything in the step is measured again: overwritten values no longer count then."""

_RELEASING = frozenset({"timer_cancel", "invoke_cancel", "done"})
"""Effects that only release something. They are bounded by what exists, and must not prevent an exit or the end."""


class StepRun(Struct, gc=False):
    """The state of one step. With `id`, `kind` and `version` it is the `entity` that expressions read."""

    kind: str
    id: str
    version: int
    time_ms: int
    context: dict[str, Any]
    history: dict[str, tuple[str, ...]] | None
    timers: tuple[Timer, ...]
    invokes: tuple[Invocation, ...]
    entered: tuple[str, ...]
    parent: Parent | None
    fields: Mapping[str, Field]
    raises: bool
    event: Event | None = None
    owns_context: bool = False
    writes: int = 0
    queue: deque[Event] = field(default_factory=deque)
    queued: int = 0
    effects: list[Effect] = field(default_factory=list)
    ordinal: int = 0
    faults: list[Fault] = field(default_factory=list)
    transitions: list[int] = field(default_factory=list)
    invokes_to_start: dict[int, State] = field(default_factory=dict)
    """States whose invokes start when the step is stable, by number."""
    places: dict[int, str] = field(default_factory=dict)
    """The place of each queued error event, by identity. Charts see code and message; faults also have the place."""
    meter: Meter = field(default_factory=partial(Meter, WORK_MAX))
    stored: int = 0
    """Bytes stored since everything in the step was measured last."""
    unmeasured: tuple[Any, ...] = ()
    """Stored values that are not measured yet. They contain about `references` results of expressions."""
    references: int = 0
    active: frozenset[str] = frozenset()
    sendid: str | None = None
    """The id of the send whose arguments are being evaluated, if it has one."""
    clock_ms: int | None = None
    """The driver's clock if it is behind `time_ms`: timers count from it."""
    moved: int = 0
    """The version of the last move of the entity to another revision."""
    matched: Event | None = None
    """The event of this step, if it is the result of an active invoke or comes from an `after` timer."""
    epoch: int = 0
    """The restore epoch of the event of this step."""

    # Errors

    def attempt(self, operation: Callable[[StepRun], Any], place: str, failed: Any = None) -> Any:
        """Return the result of an operation. If it raises, report the error and return `failed` (S23)."""
        try:
            return operation(self)
        except Exception as error:  # noqa: BLE001  # actions and registered functions may raise anything
            self.report_error(error, place)
            return failed

    def report_error(self, error: Exception, place: str) -> None:
        """Queue the error event of an operation; under `errors: raise`, raise StepFailed instead."""
        if isinstance(error, StepFailed):
            raise error
        code, message, name, sendid = describe_error(error)
        sendid, self.sendid = sendid or self.sendid, None
        if code == "expression.evaluations" or self.raises:
            raise StepFailed(code, message, place) from error
        data = {"code": code, "message": message}
        event = Event(name, data, None, None, None, self.time_ms, "platform", sendid)
        self.places[id(event)] = place
        self.enqueue(event)

    def pop_error_place(self, event: Event) -> str:
        """Return the place of an error event, and forget it: a later event may get the same identity."""
        return self.places.pop(id(event), "")

    def enqueue(self, event: Event) -> None:
        """Add an event to the internal queue. Raises StepFailed beyond the limit: an error can queue itself again."""
        self.queued += 1
        if self.queued > INTERNAL_EVENTS_MAX:
            raise StepFailed(
                "step.internal_events_max", f"more than {INTERNAL_EVENTS_MAX:,} internal events in one step"
            )
        self.queue.append(event)

    def charge(self, work: int) -> None:
        """Charge work of the step itself, outside of actions. Raises StepFailed when the budget is used up."""
        try:
            self.meter.charge(work)
        except EvaluationError as error:
            raise StepFailed(error.code, error.message) from error

    # Bytes

    def measure_later(self, value: Any, references: int) -> None:
        """Note a value of an effect, an event or a timer, to be measured soon. Raises StepFailed beyond the limit."""
        references += self.references
        if references <= UNMEASURED_MAX:
            self.unmeasured += (value,)
            self.references = references
        else:
            fresh, self.unmeasured, self.references = [*self.unmeasured, value], (), 0
            self._store(self._bytes(fresh, maxsize), value)

    def measure_stored(self, value: Any) -> None:
        """Measure a value for the context. Raises EvaluationError beyond the limits of a value."""
        kind = type(value)
        if kind is list or kind is dict:
            self.stored += measure_value(value, self.meter)
            if self.stored > _RECOUNT_BYTES:
                self._recount(value)
        elif kind is str and len(value) >= SHORT_TEXT:
            self._store(text_bytes(value), value)

    def _store(self, size: int, value: Any) -> None:
        self.stored += size
        if self.stored > _RECOUNT_BYTES:
            self._recount(value)

    def _recount(self, value: Any) -> None:
        """Measure everything in the step, and a value that is about to be stored."""
        self.stored = 0
        held = [value, self.context, *(each.payload for each in self.effects), *(each.data for each in self.queue)]
        self._bytes(held + [each.data for each in self.timers], STEP_BYTES_MAX)

    def _bytes(self, values: list[Any], bytes_max: int) -> int:
        """Return the bytes of these values. Raises StepFailed beyond the limit of a step."""
        try:
            most = STEP_BYTES_MAX // VALUE_BYTES
            return measure_value(values, self.meter, values_max=most, depth_max=most, bytes_max=bytes_max)
        except EvaluationError as error:
            if error.code != "expression.limit":
                raise StepFailed(error.code, error.message) from error
            message = f"the context, events and effects of the step have more than {STEP_BYTES_MAX:,} bytes"
            raise StepFailed("step.bytes_max", message) from error

    # Context

    def writable_context(self) -> dict[str, Any]:
        """Return this step's own copy of the context, for writing."""
        self.writes += 1
        if not self.owns_context:
            self.context = self.context.copy()
            self.owns_context = True
        return self.context

    def assign(self, path: tuple[str, ...], value: Any) -> None:
        """Write a value at a path, copying the containers along it (S25)."""
        context = self.writable_context()
        name = path[0]
        field = self.fields.get(name)
        if field is None and name not in context:
            raise ActionError("assign.unknown_field", f"unknown field `{name}`")
        self.measure_stored(value)
        value = replace_at(context.get(name), path, 1, value, self.meter)
        if field is not None and not field.accepts_any:
            problem = field_problem(value, field, charge=self.meter.charge)
            if problem is not None:
                raise ActionError("assign.refused", problem)
        context[name] = value

    def assign_unchecked(self, path: tuple[str, ...], value: Any) -> None:
        """Write a value at a path without checking it against its field."""
        context = self.writable_context()
        context[path[0]] = replace_at(context.get(path[0]), path, 1, value, self.meter)

    def assign_all(self, result: Any, function: str) -> None:
        """Write the result of a registered function: a mapping of fields to values."""
        if type(result) is not dict:
            raise ActionError("assign.function", f"`{function}` must return a mapping of fields to values")
        problem = json_problem(result)
        if problem is not None:
            raise ActionError("assign.function", f"the result of `{function}` cannot be stored: {problem}")
        for name, value in result.items():
            self.assign((name,), value)

    def items(self, value: Any, item: str, index: str | None) -> list[Any]:
        """Return a copy of the list of a `foreach`. Raises ActionError for other values and for invalid names."""
        for name in (item, index):
            if name is not None and not name.isidentifier():
                raise ActionError("foreach.name", f"`{name}` is not a valid name for a field")
        if type(value) is not list:
            raise ActionError("foreach.items", "foreach requires a list")
        if len(value) > FOREACH_ITEMS_MAX:
            raise StepFailed("step.foreach_items_max", f"foreach over more than {FOREACH_ITEMS_MAX:,} items")
        return value.copy()

    def set_first_value(self, field: Field, value: Any) -> None:
        """Give a field its first value. Raises ActionError when it does not fit the field."""
        self.measure_stored(value)
        problem = field_problem(value, field, charge=self.meter.charge)
        if problem is not None:
            raise ActionError("context.refused", problem)
        self.writable_context()[field.name] = value

    # Effects

    def effect(self, type: EffectType, payload: dict[str, Any], references: int = 0) -> Effect:
        """Add an effect, with the key entity/version/ordinal. `references`: how many expression results it contains."""
        ordinal = self.ordinal
        if ordinal >= EFFECTS_MAX and type not in _RELEASING:
            raise StepFailed("step.effects_max", f"more than {EFFECTS_MAX:,} effects in one step")
        if references:
            self.measure_later(payload, references)
        self.ordinal = ordinal + 1
        base = f"{self.id}/{self.version}" if not self.epoch else key_base(self.id, self.version, self.epoch)
        effect = Effect(type, ordinal, f"{base}/{ordinal}", payload)
        self.effects.append(effect)
        return effect

    def emit(self, message: Any, data: Any, references: int) -> None:
        """Run the action `emit`: a message of this type."""
        payload = {"type": name_of(message, "emit.type", "the type of a message"), "data": data}
        self.effect("message", payload, references)

    def raise_event(self, name: Any, data: Any, references: int, *, literal_reserved: bool = False) -> None:
        """Run the action `raise`. `literal_reserved`: an imported chart spells this reserved name out."""
        name_of(name, "raise.event", "the name of a raised event", length_max=NAME_BYTES_MAX)
        if not literal_reserved and is_reserved(name):
            raise reserved_name(name)
        if references:
            self.measure_later(data, references)
        self.enqueue(Event(name, data, None, None, None, self.time_ms, "internal"))

    def send(
        self,
        event: Any,
        to: Any,
        delay: Any,
        id: Any,
        location: str | None,
        data: Any,
        type_: Any,
        restore: str = "deadline",
        references: int = 1,
        *,
        literal_reserved: bool = False,
    ) -> None:
        """Run the action `send`: an internal event, an effect, or a timer (S24, S25, S36).

        `literal_reserved`: an imported chart spells this reserved name out. Such an event stays inside the entity.
        """
        self.sendid = None
        sendid = id if location is None else f"send.{self.version}.{self.ordinal}"
        if location is not None:
            self.assign(tuple(location.split(".")), sendid)
        if sendid is not None:
            text_of(sendid, "send.id", "the id of a send", length_max=NAME_BYTES_MAX)
        name_of(event, "send.event", "the name of an event", sendid, length_max=NAME_BYTES_MAX)
        if type_ not in (None, "", "scxml", SCXML_PROCESSOR):
            text_of(type_, "send.type", "the type of a send", sendid)
            raise ActionError("send.type", f"no event processor for {type_[:80]!r}", sendid=sendid)
        delay_ms = delay_of(delay, sendid)
        address = send_address(to, self.id, self.parent, self.invokes, sendid)
        if is_reserved(event) and not (literal_reserved and address in (self.id, "#_internal")):
            raise reserved_name(event, sendid)
        if address == "#_internal":
            if references:
                self.measure_later(data, references)
            self.enqueue(Event(event, data, None, None, None, self.time_ms, "internal", sendid))
        elif delay_ms:
            where = None if address == self.id else address
            if references:
                self.measure_later(data, references)
            self.set_timer(sendid, event, data, delay_ms, where, type_=type_, restore=restore)
        else:
            self._send_effect(event, data, address, sendid, references)

    def _send_effect(self, event: str, data: Any, address: str, sendid: str | None, references: int) -> None:
        payload: dict[str, Any] = {"event": event, "to": address}
        if data is not None:
            payload["data"] = data
        if sendid is not None:
            payload["sendid"] = sendid
        self.effect("send", payload, references)

    def send_timer(self, timer: Timer) -> None:
        """Send the event of a due timer to another entity (S37)."""
        self._send_effect(timer.event, timer.data, timer.to or self.id, timer.id, 1)

    # Timers

    def set_timer(
        self,
        id: str | None,
        event: str,
        data: Any,
        delay_ms: int,
        to: str | None,
        *,
        type_: str | None = None,
        restore: str = "deadline",
        state: str | None = None,
    ) -> None:
        """Add a timer to the snapshot, with the effect for the driver (S36)."""
        if len(self.timers) >= TIMERS_MAX:
            raise StepFailed("step.timers_max", f"more than {TIMERS_MAX:,} pending timers")
        if self.timers:
            self.meter.charge(len(self.timers))
        ordinal = self.ordinal
        name = id if id is not None else f"send.{self.version}.{ordinal}"
        while any(each.name == name for each in self.timers):  # at most once for each pending timer
            name = f"{name}~{self.version}.{ordinal}"
        since_ms = self.clock_ms
        due = (self.time_ms if since_ms is None else since_ms) + delay_ms
        self.timers = (
            *self.timers,
            Timer(name, event, due, self.version, ordinal, id, data, to, type_, restore, state, since_ms),
        )
        self.effect("timer", {"name": name, "event": event, "due_ms": due, "version": self.version})

    def set_after(self, after: After, delay: Any, state: str) -> None:
        """Set the timer of an `after` whose state is entered (S38)."""
        delay_ms = after.delay if isinstance(after.delay, int) else delay_of(delay, None)
        self.set_timer(after.event, after.event, None, delay_ms, None, restore=after.restore, state=state)

    def drop_timers(self, dropped: tuple[Timer, ...]) -> None:
        """Remove timers from the snapshot, with the effects for the driver."""
        if dropped:
            if len(dropped) == len(self.timers):
                self.timers = ()
            else:
                identities = {id(each) for each in dropped}
                self.timers = tuple(each for each in self.timers if id(each) not in identities)
            for timer in dropped:
                self.effect("timer_cancel", {"name": timer.name, "version": timer.version})

    def cancel(self, id: Any) -> None:
        """Run the action `cancel`: remove every pending timer of this send id."""
        text_of(id, "cancel.id", "the id to cancel")
        self.meter.charge(len(self.timers))
        self.drop_timers(tuple(each for each in self.timers if each.id == id))

    # Invokes

    def start_invoke(self, state: State, position: int, values: dict[str, Any], references: int) -> None:
        """Start an invoke: add an effect, and an invocation to the snapshot (S8, S30)."""
        invoke: Invoke = state.invokes[position]
        if len(self.invokes) >= INVOKES_MAX:
            raise StepFailed("step.invokes_max", f"more than {INVOKES_MAX:,} active invokes")
        _check_invoke(values)
        name = invoke.id if invoke.id is not None else f"{state.id}.{self.version}.{self.ordinal}"
        if invoke.id_location is not None:
            self.assign(tuple(invoke.id_location.split(".")), name)
        payload: dict[str, Any] = {"id": name, "state": state.id, **values}
        if invoke.autoforward:
            payload["autoforward"] = True
        if invoke.retry is not None:
            retry = invoke.retry
            payload["retry"] = {
                "max": retry.max,
                "backoff": retry.backoff,
                "jitter": retry.jitter,
                "on": retry.on and list(retry.on),
            }
        if invoke.timeout_ms is not None:
            payload["timeout_ms"] = invoke.timeout_ms
        if invoke.restore != "keep":
            payload["restore"] = invoke.restore
        if invoke.late is not None:
            payload["late"] = True
        effect = self.effect("invoke", payload, references)
        self.invokes = (*self.invokes, Invocation(name, state.id, position, effect.key, values["type"] in CHART_TYPES))

    def cancel_invokes(self, state: State) -> None:
        """Cancel the invokes of a state. The effect of one that this step started is removed instead."""
        self.invokes_to_start.pop(state.index, None)
        self.meter.charge(len(self.invokes))
        mine = tuple(each for each in self.invokes if each.state == state.id)
        if mine:
            self.invokes = tuple(each for each in self.invokes if each.state != state.id)
            for each in mine:
                started = next((one for one in self.effects if one.key == each.key), None)
                if started is not None:
                    self.effects.remove(started)
                else:
                    self.effect("invoke_cancel", {"id": each.id, "key": each.key})


def _check_invoke(values: dict[str, Any]) -> None:
    """Raise ActionError when a computed value of an invoke has the wrong type."""
    if "src" in values:
        text_of(values["src"], "invoke.src", "the src of an invoke")
    text_of(values["type"], "invoke.type", "the type of an invoke")
    key = values.get("key")
    if key is not None and type(key) is not int:
        text_of(key, "invoke.key", "the key of an invoke")


def run_from(snapshot: Snapshot, time_ms: int, fields: Mapping[str, Field], *, raises: bool, epoch: int = 0) -> StepRun:
    """Return the run of a step from a snapshot to its next version."""
    return StepRun(
        snapshot.kind,
        snapshot.entity,
        snapshot.version + 1,
        time_ms,
        snapshot.context,
        snapshot.history,
        snapshot.timers,
        snapshot.invokes,
        snapshot.entered,
        snapshot.parent,
        fields,
        raises,
        epoch=epoch,
        moved=snapshot.moved,
    )


def replace_at(value: Any, path: tuple[str, ...], position: int, new: Any, meter: Meter) -> Any:
    """Return a copy of `value` with `new` at the end of the path, which is followed from `position`."""
    if position == len(path):
        return new
    key = path[position]
    if type(value) is dict:
        if key not in value and position < len(path) - 1:
            raise ActionError("assign.path", f"`{'.'.join(path[: position + 1])}` does not exist")
        meter.charge(len(value))
        return {**value, key: replace_at(value.get(key), path, position + 1, new, meter)}
    if type(value) is list and key.isdecimal() and int(key) < len(value):
        index = int(key)
        meter.charge(len(value))
        return [*value[:index], replace_at(value[index], path, position + 1, new, meter), *value[index + 1 :]]
    raise ActionError("assign.path", f"`{'.'.join(path[:position])}` has no `{key}`")


# Addresses and delays of sends


def send_address(
    to: Any, entity: str, parent: Parent | None, invokes: tuple[Invocation, ...], sendid: str | None
) -> str:
    """Return the address of a target: this entity, `#_internal`, `#_parent`, `#_<active invoke>`, or another entity."""
    if to is None:
        return entity
    name_of(to, "send.target", "the target of a send", sendid, length_max=ADDRESS_LENGTH_MAX)
    if to in ("self", entity, f"#_scxml_{entity}"):
        return entity
    if to in ("internal", "#_internal"):
        return "#_internal"
    if to in ("parent", "#_parent"):
        if parent is None:
            raise _undeliverable("this entity has no parent", sendid)
        return "#_parent"
    if to.startswith("#_scxml_"):
        other: str = to.removeprefix("#_scxml_")
        if "/" not in other:
            raise _undeliverable(f"unknown entity {other[:80]!r}", sendid)
        return other
    return _entity_or_invoke(to, invokes, sendid)


def _entity_or_invoke(to: str, invokes: tuple[Invocation, ...], sendid: str | None) -> str:
    if "/" in to and not to.startswith(("#", "!")):
        return to
    name = to.removeprefix("#_")
    if to.startswith("#_") or _is_name(to):
        if not any(each.id == name for each in invokes):
            raise _undeliverable(f"no active invoke {name[:80]!r}", sendid)
        return f"#_{name}"
    raise ActionError("send.target", f"{to[:80]!r} is not a valid target", sendid=sendid)


def delay_of(delay: Any, sendid: str | None) -> int:
    """Return the milliseconds of a delay: None, whole milliseconds, or a duration such as `30s`."""
    if delay is None:
        return 0
    ms = parse_duration(delay) if type(delay) is str else delay
    if type(ms) is not int or ms < 0:
        raise ActionError("send.delay", "expected a delay such as '30s', or whole milliseconds", sendid=sendid)
    if ms > DELAY_MS_MAX:
        raise ActionError("send.delay", f"the delay is longer than {format_duration(DELAY_MS_MAX)}", sendid=sendid)
    return ms


def _undeliverable(message: str, sendid: str | None) -> ActionError:
    return ActionError("send.undeliverable", message, event="error.communication", sendid=sendid)


def _is_name(text: str) -> bool:
    return all(part.replace("-", "_").isidentifier() or part.isdigit() for part in text.split("."))
