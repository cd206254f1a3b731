"""Compare recorded steps of one definition with the steps that another definition gives for the same events.

Rule 1: the recorded snapshot before the event is carried to the new definition, which then gets the recorded event.
Rule 2: while both agree, the new definition continues from its own snapshot. After a difference, the next recorded
        snapshot is carried again, so that one difference does not become many.
Rule 3: names that the change pairs are equal: renamed states, the fields of their sagas, timers, invokes without id.
        Revisions, versions and keys do not count. A field that only one definition has is not compared.
Rule 4: a timer or a result that the recorded entity waited for, and the new one does not, is a difference of its own.
Rule 5: effects are compared by value, in order, and never performed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.evolve.carry import Carrier
from interlock.evolve.identity import collapse_space
from interlock.kernel.driver_events import find_fired_timer, find_invocation, find_moved_timer
from interlock.model.driver_events import TIMER_SOURCE, is_result
from interlock.model.effect import Effect
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.model.snapshot import Parent, Snapshot, Timer
from interlock.model.step import Step

CARRY, EVENT, ERROR = "carry", "event", "error"
"""Differences without a step of the new definition: the entity cannot be carried; the timer or invoke has no
counterpart; the new definition raises."""

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of a step that differs, such as `context.total`, with the recorded value and the new one."""

    part: str
    recorded: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One recorded step next to the new one, which is None if there is no such step.

    `next` is the snapshot from which the comparison of the next event continues; None: carry the recorded one.
    `is_compared` is False for an event after an end that the new definition did not reach.
    """

    recorded: Step
    new: Step | None = None
    differences: tuple[Difference, ...] = ()
    next: Snapshot | None = None
    is_compared: bool = True


class StepComparer:
    """Compares steps of one old definition with those of a new one; made once for a pair."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.kernel = carrier.kernel
        self._states = carrier.names
        self.field_names = {old: new for new, old in carrier.saga_fields().items() if old != new}
        self.only_old, self.only_new = self._unshared_fields()
        self._timers = dict(self._paired_timers())
        self._invokes = dict(self._paired_invokes())
        self._is_renamed = bool(self._states or self._timers)

    def _unshared_fields(self) -> tuple[frozenset[str], frozenset[str]]:
        old = {self.field_names.get(each, each) for each in self.carrier.old_fields}
        new = frozenset(self.carrier.new_fields)
        return frozenset(each for each in old if each not in new), frozenset(each for each in new if each not in old)

    def _paired_timers(self) -> Iterator[tuple[str, str]]:
        """The event of each old timer whose new one has another name, and that name."""
        for name, pairs in self.carrier.timers.items():
            new_state = self.carrier.new_states[self._states.get(name, name)]
            new = {collapse_space(each.label): each.event for each in new_state.after}
            partners = dict(pairs.pairs)
            for each in self.carrier.old_states[name].after:
                event = new.get(partners.get(collapse_space(each.label), ""))
                if event is not None and event != each.event:
                    yield each.event, event

    def _paired_invokes(self) -> Iterator[tuple[str, str]]:
        """The id of each old invoke that contains the id of its state, and the id under the new name of the state."""
        for old, new in self._states.items():
            before, after = self.carrier.old_states[old], self.carrier.new_states.get(new)
            for one, other in zip(before.invokes, () if after is None else after.invokes, strict=False):
                if one.id and other.id and one.id.startswith(old) and other.id == new + one.id[len(old) :]:
                    yield one.id, other.id

    def compare(self, new: Snapshot | None, before: Snapshot | None, event: Event, recorded: Step) -> Comparison:
        """Compare one recorded step with the new one.

        `before` is the recorded snapshot before the event, None for a creation. `new` is `next` of the comparison
        before, or None.
        """
        if event.name == CREATE or before is None:
            return self._creation(event, recorded)
        if new is None:
            if before.ended is not None:
                return Comparison(recorded=recorded, is_compared=False)
            carried = self.carried(before, event.time_ms)
            if not isinstance(carried, Snapshot):
                return _without_step(recorded, CARRY, "; ".join(carried))
            new = carried
        translated = self._translated(event, before, new)
        if translated is None:
            return _without_step(recorded, EVENT, f"`{event.name}` has no counterpart")
        try:
            step = self.kernel.step(new, translated)
        except InterlockError as error:
            return _without_step(recorded, ERROR, error.message)
        return self._compared(before, new, recorded, step)

    def _creation(self, event: Event, recorded: Step) -> Comparison:
        data = event.data if isinstance(event.data, dict) else {}
        parent = None if data.get("parent") is None else msgspec.convert(data["parent"], Parent)
        entity = recorded.snapshot.entity
        try:
            step = self.kernel.start(
                data.get("context"), entity=entity, time_ms=event.time_ms, parent=parent, epoch=event.epoch
            )
        except InterlockError as error:
            return _without_step(recorded, ERROR, error.message)
        return self._compared(None, None, recorded, step)

    def carried(
        self, before: Snapshot, time_ms: int, entered_ms: Mapping[str, int] | None = None
    ) -> Snapshot | tuple[str, ...]:
        """Return the recorded entity on the new definition, at the recorded version, or why it cannot be carried there.

        `entered_ms` is that of `Carrier.carry`.
        """
        result = self.carrier.carry(before, time_ms=time_ms, entered_ms=entered_ms)
        if result.step is None:
            return result.reasons
        found = result.step.snapshot
        timers = tuple(
            replace(each, version=before.version) if each.version == found.version else each for each in found.timers
        )
        undeclared = {name: value for name, value in before.context.items() if name not in self.carrier.old_fields}
        context = {**undeclared, **found.context} if undeclared else found.context
        return replace(found, version=before.version, timers=timers, context=context)

    # Events of the driver

    def _translated(self, event: Event, before: Snapshot, new: Snapshot) -> Event | None:
        """The event as the new definition gets it; None if it waits for no such timer or result."""
        if event.name == "_timer.moved" and isinstance(event.data, dict):
            return self._moved_timer(event, event.data, before, new)
        if (event.source or "").startswith(TIMER_SOURCE):
            return self._fired_timer(event, before, new)
        pending = None if event.invokeid is None else find_invocation(before, event)
        if pending is None:
            return event
        found = next((each for each in new.invokes if each.key == pending.key), None)
        if found is None:
            return None
        if found.id == pending.id:
            return event
        name = f"{event.name.removesuffix(pending.id)}{found.id}" if is_result(event, pending.id) else event.name
        return replace(event, name=name, invokeid=found.id)

    def _fired_timer(self, event: Event, before: Snapshot, new: Snapshot) -> Event | None:
        pending = find_fired_timer(before, event)
        if pending is None:
            return event
        found = self._counterpart(pending, new)
        if found is None:
            return None
        source = f"{TIMER_SOURCE}{found.name}/{found.version}"
        return event if source == event.source else replace(event, name=found.event, id=source, source=source)

    def _moved_timer(self, event: Event, data: dict[str, Any], before: Snapshot, new: Snapshot) -> Event | None:
        pending = find_moved_timer(before, data)
        if pending is None:
            return event
        found = self._counterpart(pending, new)
        if found is None:
            return None
        return replace(event, data={**data, "name": found.name, "version": found.version})

    def _counterpart(self, timer: Timer, new: Snapshot) -> Timer | None:
        name, event = self._timer_name(timer.name), self._timers.get(timer.event, timer.event)
        alike = [each for each in new.timers if each.event == event and (each.state is None) == (timer.state is None)]
        return next((each for each in alike if each.name == name), alike[0] if timer.state and alike else None)

    # Comparing

    def _compared(self, before: Snapshot | None, start: Snapshot | None, recorded: Step, new: Step) -> Comparison:
        found = tuple(self._differences(before, start, recorded, new))
        after = None
        if not found:
            version = recorded.snapshot.version
            after = new.snapshot if new.snapshot.version == version else replace(new.snapshot, version=version)
        return Comparison(recorded=recorded, new=new, differences=found, next=after)

    def _differences(
        self, before: Snapshot | None, start: Snapshot | None, recorded: Step, new: Step
    ) -> Iterator[Difference]:
        old, now = recorded.snapshot, new.snapshot
        if recorded.outcome != new.outcome:
            yield Difference("outcome", recorded.outcome, new.outcome)
        elif recorded.reason != new.reason:
            yield Difference("reason", recorded.reason, new.reason)
        configuration = self.renamed(old.configuration)
        if configuration != now.configuration:
            yield Difference("configuration", configuration, now.configuration)
        if old.ended != now.ended:
            yield Difference("ended", old.ended, now.ended)
        if encode(old.output) != encode(now.output):
            yield Difference("output", old.output, now.output)
        yield from self.context_differences(old.context, now.context)
        yield from self._history_differences(before, start, old, now)
        changed = tuple(self._effect_differences(recorded.effects, new.effects))
        yield from changed
        if not changed:
            yield from self._timer_differences(old, now)

    def renamed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return states of the old definition under their new ids."""
        return tuple(self._states.get(each, each) for each in names) if self._states else names

    def context_differences(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
        """Yield the fields that both definitions have and whose values differ; `old` is a recorded context."""
        if old is new or encode(old) == encode(new):
            return
        old = {self.field_names.get(name, name): self._record(name, value) for name, value in old.items()}
        for name in sorted({*old, *new} - self.only_old - self.only_new):
            is_in_both = name in old and name in new
            # What a loop leaves in the context is declared by neither.
            is_other = encode(old[name]) != encode(new[name]) if is_in_both else name in self.carrier.new_fields
            if is_other:
                yield Difference(f"context.{name}", old.get(name, _ABSENT), new.get(name, _ABSENT))

    def _record(self, name: str, value: Any) -> Any:
        """A value of the context; the record of a saga has the keys of steps, which name their states."""
        if name not in self.field_names or not isinstance(value, dict):
            return value
        done = value.get("done")
        if isinstance(done, dict):
            value = {**value, "done": {step: self._with_key(each) for step, each in done.items()}}
        return self._with_key(value)

    def _with_key(self, value: Any, name: str = "key") -> Any:
        """A mapping in which the key of a saga's step, which ends with the id of a state, has the new one."""
        if not isinstance(value, dict) or not isinstance(value.get(name), str):
            return value
        before, slash, state = value[name].rpartition("/")
        return {**value, name: f"{before}{slash}{self._states.get(state, state)}"}

    def _history_differences(
        self, before: Snapshot | None, start: Snapshot | None, old: Snapshot, new: Snapshot
    ) -> Iterator[Difference]:
        """What the histories that both definitions have remember since this step."""
        if not old.history and not new.history:
            return
        mapped = {self._states.get(name, name): self.renamed(states) for name, states in (old.history or {}).items()}
        changed = {self._states.get(each, each) for each in _changed_history(before, old)}
        changed |= _changed_history(start, new)
        shared = self.carrier.new_states.keys() & {self._states.get(each, each) for each in self.carrier.old_states}
        known = new.history or {}
        for name in sorted(shared & changed):
            if mapped.get(name) != known.get(name):
                yield Difference(f"history.{name}", mapped.get(name, _ABSENT), known.get(name, _ABSENT))

    def _effect_differences(self, recorded: tuple[Effect, ...], new: tuple[Effect, ...]) -> Iterator[Difference]:
        if recorded is new or encode(recorded) == encode(new):
            return
        old = [_compared_part(replace(each, payload=self._payload(each))) for each in recorded]
        now = [_compared_part(replace(each, payload=_without_version(each))) for each in new]
        if [key for _, key in old] == [key for _, key in now]:
            return
        gone, come = _unmatched(old, now), _unmatched(now, old)
        if not gone and not come:
            order = [[_effect_name(each) for each, _ in side] for side in (old, now)]
            yield Difference("effects.order", *order)
        names = dict.fromkeys(_effect_name(each) for each in (*gone, *come))
        for name in names:
            sides = [[each.payload for each in side if _effect_name(each) == name] for side in (gone, come)]
            one, other = (each[0] if len(each) == 1 else each or _ABSENT for each in sides)
            yield Difference(f"effects.{name}", one, other)

    def _payload(self, effect: Effect) -> dict[str, Any]:
        """The payload of a recorded effect with the names of the new definition."""
        payload = _without_version(effect)
        if not self._is_renamed:
            return payload
        if "input" in payload:
            payload["input"] = self._with_key(payload["input"], "compensates")
        if effect.type in ("timer", "timer_cancel"):
            payload["name"] = self._timer_name(payload["name"])
            if effect.type == "timer":
                payload["event"] = self._timers.get(payload["event"], payload["event"])
        elif effect.type in ("invoke", "invoke_cancel", "forward"):
            payload["id"] = self._invokes.get(payload["id"], payload["id"])
            if "state" in payload:
                payload["state"] = self._states.get(payload["state"], payload["state"])
            payload = self._with_key(payload)
        return payload

    def _timer_name(self, name: str) -> str:
        """The name of a timer: its event, and marks that make it unique."""
        event, mark, rest = name.partition("~")
        return f"{self._timers.get(event, event)}{mark}{rest}"

    def _timer_differences(self, old: Snapshot, new: Snapshot) -> Iterator[Difference]:
        """What the effects of the timers that this step set do not show: data, address and policy."""
        if not old.timers and not new.timers:
            return
        sides = [[each for each in side.timers if each.version == side.version] for side in (old, new)]
        keys = [
            [(each.event, each.data, each.to, each.type, each.restore, each.since_ms) for each in side]
            for side in ([replace(each, event=self._timers.get(each.event, each.event)) for each in sides[0]], sides[1])
        ]
        if encode(keys[0]) != encode(keys[1]):
            yield Difference("timers", *keys)


def _without_step(recorded: Step, part: str, text: str) -> Comparison:
    return Comparison(recorded=recorded, differences=(Difference(part, recorded.outcome, text),))


def _without_version(effect: Effect) -> dict[str, Any]:
    """The payload of an effect; the version of a timer says when it was set, which carrying changes."""
    if effect.type not in ("timer", "timer_cancel"):
        return dict(effect.payload)
    return {name: value for name, value in effect.payload.items() if name != "version"}


def _compared_part(effect: Effect) -> tuple[Effect, bytes]:
    """An effect, and what is compared of it."""
    return effect, encode((effect.type, effect.payload))


def _unmatched(one: list[tuple[Effect, bytes]], other: list[tuple[Effect, bytes]]) -> list[Effect]:
    """The effects of one list that the other does not have, counting equal ones."""
    rest = [key for _, key in other]
    found = []
    for effect, key in one:
        if key in rest:
            rest.remove(key)
        else:
            found.append(effect)
    return found


def _effect_name(effect: Effect) -> str:
    named = {"send": "event", "timer": "event", "timer_cancel": "name", "message": "type", "log": "label"}
    name = effect.name or effect.payload.get(named.get(effect.type, "id"))
    return f"{effect.type} {name}" if isinstance(name, str) and name else effect.type


def _changed_history(before: Snapshot | None, after: Snapshot) -> set[str]:
    """The histories that remember something else than before."""
    known = {} if before is None else before.history or {}
    return {name for name, states in (after.history or {}).items() if known.get(name) != states}
