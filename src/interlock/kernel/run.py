"""One step under way: the working copies of what a snapshot holds, and every way in which content may change them.

Rule 1: a run lives for one step and is never seen outside it. Nothing it was made from is changed in place.
Rule 2: the context is copied once, at the first write; values inside it are never mutated, writes copy their path (P7).
Rule 3: an error of content raises; who catches it (a block, a guard, the step) decides what it means (S23, S33, S34).
Rule 4: everything that content stores is counted in bytes, and a shared value counts each time. Values in the context
        are counted when they are written, all others in groups. A step that holds too much fails early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from sys import maxsize
from typing import Any

from msgspec import Struct, field

from interlock.expression.codegen import Meter
from interlock.expression.metering import SHORT_TEXT, VALUE_BYTES, EvaluationError, text_bytes, weigh
from interlock.kernel.errors import ActionError, StepFailed, describe_error, name_of, reserved_name, text_of
from interlock.kernel.send_address import delay_of, send_address
from interlock.model.chart import After, Invoke, State
from interlock.model.document.field import UNSET, Field, fields_refusal, plain_refusal, refusal
from interlock.model.effect import CHART_TYPES, Effect, EffectType
from interlock.model.event import SCXML_PROCESSOR, Event, is_reserved
from interlock.model.limits import (
    EFFECTS_MAX,
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
"""The hint for a snapshot that names what the chart does not have."""


_RECOUNT_BYTES = STEP_BYTES_MAX // 2
"""Bytes stored between two counts of all that the step holds: what was overwritten meanwhile is not held any more."""

_ENDINGS = frozenset({"timer_cancel", "invoke_cancel", "done"})
"""Effects that only let go of something: bounded by what is held, and never in the way of leaving or ending."""


class StepRun(Struct, gc=False):
    """The state of one step. `id`, `kind` and `version` make it the `entity` that expressions read."""

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
    """States whose invokes start when the step settles, by number."""
    places: dict[int, str] = field(default_factory=dict)
    """Where each queued error event comes from, by identity: charts see code and message, people also this."""
    meter: Meter = field(default_factory=partial(Meter, WORK_MAX))
    stored: int = 0
    """Bytes stored since all that the step holds was counted last."""
    unmeasured: tuple[Any, ...] = ()
    """What was stored and not yet counted, with about `references` values in it that an expression gave."""
    references: int = 0
    active: frozenset[str] = frozenset()
    sendid: str | None = None
    """The id of the send whose arguments are being evaluated, if it has one."""
    clock_ms: int | None = None
    """The driver's clock, where it is behind `time_ms`: timers count from it."""
    matched: Event | None = None
    """The event of this step, when it is the result of an active invoke or the firing of an `after` timer."""

    # Errors

    def attempt(self, operation: Callable[[StepRun], Any], place: str, failed: Any = None) -> Any:
        """Do one operation. An error ends that operation only (S23), which then gives `failed`; `report_error` tells it."""
        try:
            return operation(self)
        except Exception as error:  # noqa: BLE001  # content and registered functions may raise anything
            self.report_error(error, place)
            return failed

    def report_error(self, error: Exception, place: str) -> None:
        """What an error in a block means: an internal event, or under `errors: raise` the end of the step."""
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
        """Where an event that leaves the queue comes from. Forgotten with it: another may get its identity."""
        return self.places.pop(id(event), "")

    def enqueue(self, event: Event) -> None:
        """Put an event into the internal queue. All of a step count: an error can queue itself for ever."""
        self.queued += 1
        if self.queued > INTERNAL_EVENTS_MAX:
            raise StepFailed(
                "step.internal_events_max", f"more than {INTERNAL_EVENTS_MAX:,} internal events in one step"
            )
        self.queue.append(event)

    # Work

    def charge(self, work: int) -> None:
        """Charge the step itself, outside of its content. Raises StepFailed when its work is used up."""
        try:
            self.meter.charge(work)
        except EvaluationError as error:
            raise StepFailed(error.code, error.message) from error

    # Bytes

    def measure_later(self, value: Any, references: int) -> None:
        """Note a value that leaves the step or waits in it, to be counted soon. Raises StepFailed beyond the limit."""
        references += self.references
        if references <= UNMEASURED_MAX:
            self.unmeasured += (value,)
            self.references = references
        else:
            fresh, self.unmeasured, self.references = [*self.unmeasured, value], (), 0
            self._store(self._bytes(fresh, maxsize), value)

    def measure_stored(self, value: Any) -> None:
        """Count a value that goes into the context. Raises EvaluationError when it is beyond the limits of a value."""
        kind = type(value)
        if kind is list or kind is dict:
            self.stored += weigh(value, self.meter)
            if self.stored > _RECOUNT_BYTES:
                self._recount(value)
        elif kind is str and len(value) >= SHORT_TEXT:
            self._store(text_bytes(value), value)

    def _store(self, size: int, value: Any) -> None:
        self.stored += size
        if self.stored > _RECOUNT_BYTES:
            self._recount(value)

    def _recount(self, value: Any) -> None:
        """Count all that the step holds, and a value that is about to be stored."""
        self.stored = 0
        held = [value, self.context, *(each.payload for each in self.effects), *(each.data for each in self.queue)]
        self._bytes(held + [each.data for each in self.timers], STEP_BYTES_MAX)

    def _bytes(self, values: list[Any], bytes_max: int) -> int:
        """The bytes of all these values. Raises StepFailed when they are more than a step may hold."""
        try:
            most = STEP_BYTES_MAX // VALUE_BYTES
            return weigh(values, self.meter, values_max=most, depth_max=most, bytes_max=bytes_max)
        except EvaluationError as error:
            if error.code != "expression.limit":
                raise StepFailed(error.code, error.message) from error
            message = f"the step holds more than {STEP_BYTES_MAX:,} bytes in its context, events and effects"
            raise StepFailed("step.bytes_max", message) from error

    # Context

    def writable_context(self) -> dict[str, Any]:
        """The context for writing: this step's own copy."""
        self.writes += 1
        if not self.owns_context:
            self.context = self.context.copy()
            self.owns_context = True
        return self.context

    def assign(self, path: tuple[str, ...], value: Any) -> None:
        """Write a value at a path, copying what lies on the way (S25)."""
        context = self.writable_context()
        name = path[0]
        field = self.fields.get(name)
        if field is None and name not in context:
            raise ActionError("assign.unknown_field", f"`{name}` is no field of the context")
        self.measure_stored(value)
        value = _written(context.get(name), path, 1, value, self.meter)
        if field is not None and not field.plain:
            problem = refusal(value, field, charge=self.meter.charge)
            if problem is not None:
                raise ActionError("assign.refused", problem)
        context[name] = value

    def assign_unchecked(self, path: tuple[str, ...], value: Any) -> None:
        """Write a value at a path, whatever its field takes."""
        context = self.writable_context()
        context[path[0]] = _written(context.get(path[0]), path, 1, value, self.meter)

    def assign_all(self, result: Any, function: str) -> None:
        """Write what a registered function returned: a mapping of fields."""
        if type(result) is not dict:
            raise ActionError("assign.function", f"`{function}` must return a mapping of fields to values")
        problem = plain_refusal(result)
        if problem is not None:
            raise ActionError("assign.function", f"what `{function}` returned cannot be kept: {problem}")
        for name, value in result.items():
            self.assign((name,), value)

    def items(self, value: Any, item: str, index: str | None) -> list[Any]:
        """The items a `foreach` walks: a shallow copy of a list, once the names are known to be usable."""
        for name in (item, index):
            if name is not None and not name.isidentifier():
                raise ActionError("foreach.name", f"`{name}` cannot be a field of the context")
        if type(value) is not list:
            raise ActionError("foreach.items", "foreach needs a list")
        if len(value) > FOREACH_ITEMS_MAX:
            raise StepFailed("step.foreach_items_max", f"foreach over more than {FOREACH_ITEMS_MAX:,} items")
        return value.copy()

    def set_first_value(self, field: Field, value: Any) -> None:
        """Give a field its first value; raises when its own type refuses it."""
        self.measure_stored(value)
        problem = refusal(value, field, charge=self.meter.charge)
        if problem is not None:
            raise ActionError("context.refused", problem)
        self.writable_context()[field.name] = value

    # Effects

    def effect(self, type: EffectType, payload: dict[str, Any], references: int = 0) -> Effect:
        """Add an effect, keyed by entity, version and ordinal. `references`: how many values of content it carries."""
        ordinal = self.ordinal
        if ordinal >= EFFECTS_MAX and type not in _ENDINGS:
            raise StepFailed("step.effects_max", f"more than {EFFECTS_MAX:,} effects in one step")
        if references:
            self.measure_later(payload, references)
        self.ordinal = ordinal + 1
        effect = Effect(type, ordinal, f"{self.id}/{self.version}/{ordinal}", payload)
        self.effects.append(effect)
        return effect

    def emit(self, message: Any, data: Any, references: int) -> None:
        """The action `emit`: a message of this type."""
        payload = {"type": name_of(message, "emit.type", "the type of a message"), "data": data}
        self.effect("message", payload, references)

    def raise_event(self, name: Any, data: Any, references: int, *, written: bool = False) -> None:
        """The action `raise`. `written`: the name is reserved, and is text of an imported chart."""
        name_of(name, "raise.event", "the name of a raised event", length_max=NAME_BYTES_MAX)
        if not written and is_reserved(name):
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
        written: bool = False,
    ) -> None:
        """The action `send`: the internal queue, an effect, or a timer (S24, S25, S36).

        `written`: the name is reserved, and is text of an imported chart; such an event stays inside the entity.
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
        if is_reserved(event) and not (written and address in (self.id, "#_internal")):
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
        """A timer whose event goes elsewhere came due: now it is sent (S37)."""
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
        """Add a timer to the snapshot, with the effect that tells the driver (S36)."""
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
        """The timer of an `after`, set when its state is entered (S38)."""
        delay_ms = after.delay if isinstance(after.delay, int) else delay_of(delay, None)
        self.set_timer(after.event, after.event, None, delay_ms, None, restore=after.restore, state=state)

    def drop_timers(self, dropped: tuple[Timer, ...]) -> None:
        """Take timers out of the snapshot, with the effects that tell the driver."""
        if dropped:
            if len(dropped) == len(self.timers):
                self.timers = ()
            else:
                identities = {id(each) for each in dropped}
                self.timers = tuple(each for each in self.timers if id(each) not in identities)
            for timer in dropped:
                self.effect("timer_cancel", {"name": timer.name, "version": timer.version})

    def cancel(self, id: Any) -> None:
        """The action `cancel`: every pending timer of this send id."""
        text_of(id, "cancel.id", "the id to cancel")
        self.meter.charge(len(self.timers))
        self.drop_timers(tuple(each for each in self.timers if each.id == id))

    # Invokes

    def start_invoke(self, state: State, position: int, values: dict[str, Any], references: int) -> None:
        """Start an invoke: an effect, and an entry in the snapshot (S8, S30)."""
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
        """The state is left: its invokes are cancelled; one that began in this very step is withdrawn."""
        self.invokes_to_start.pop(state.index, None)
        self.meter.charge(len(self.invokes))
        mine = tuple(each for each in self.invokes if each.state == state.id)
        if mine:
            self.invokes = tuple(each for each in self.invokes if each.state != state.id)
            for each in mine:
                begun = next((one for one in self.effects if one.key == each.key), None)
                if begun is not None:
                    self.effects.remove(begun)
                else:
                    self.effect("invoke_cancel", {"id": each.id, "key": each.key})


def _check_invoke(values: dict[str, Any]) -> None:
    """Raise ContentError when a value of an invoke that may be computed has the wrong type."""
    if "src" in values:
        text_of(values["src"], "invoke.src", "the src of an invoke")
    text_of(values["type"], "invoke.type", "the type of an invoke")
    key = values.get("key")
    if key is not None and type(key) is not int:
        text_of(key, "invoke.key", "the key of an invoke")


def run_from(snapshot: Snapshot, time_ms: int, fields: Mapping[str, Field], *, raises: bool) -> StepRun:
    """A run that begins at a snapshot and will write its next version."""
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
    )


def _written(value: Any, path: tuple[str, ...], position: int, new: Any, meter: Meter) -> Any:
    """A copy of `value` in which `new` stands at the rest of the path."""
    if position == len(path):
        return new
    key = path[position]
    if type(value) is dict:
        if key not in value and position < len(path) - 1:
            raise ActionError("assign.path", f"there is no `{'.'.join(path[: position + 1])}`")
        meter.charge(len(value))
        return {**value, key: _written(value.get(key), path, position + 1, new, meter)}
    if type(value) is list and key.isdecimal() and int(key) < len(value):
        index = int(key)
        meter.charge(len(value))
        return [*value[:index], _written(value[index], path, position + 1, new, meter), *value[index + 1 :]]
    raise ActionError("assign.path", f"`{'.'.join(path[:position])}` has no `{key}`")


def complete_payload(data: Any, fields: tuple[Field, ...]) -> tuple[Any, str | None]:
    """The payload with defaults filled in, and why it is refused, if it is."""
    if data is None:
        data = {}
    if type(data) is not dict:
        return data, "the payload must be an object"
    defaults = {each.name: each.default for each in fields if each.name not in data and each.default is not UNSET}
    if defaults:
        data = {**data, **defaults}
    return data, fields_refusal(data, fields)
