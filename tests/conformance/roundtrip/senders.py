"""Random events for an entity of any chart: what its chart names, foreign names, timers firing, invokes answering.

Rule 1: everything is drawn from one `random.Random`, so a seed repeats a sequence.
Rule 2: nothing here knows how a chart behaves; names, payloads and first contexts come from what the chart says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any

from interlock.model.charts.chart import Chart, State
from interlock.model.document.actions import Expression, Raise, Send
from interlock.model.document.field import UNSET, Field
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Snapshot, Timer

FOREIGN = ("unheard.of", "error.execution", "x")
_DATA = re.compile(r"event\.data\.(\w+)|event\.data, '(\w+)'")


class Vocabulary:
    """What a chart speaks about: event names, payload fields, roles."""

    def __init__(self, chart: Chart) -> None:
        self.events = {each.name: each for each in chart.events or ()}
        names = [each.name for each in chart.events or ()]
        data: list[str] = []
        roles: list[str] = []
        for part in _parts((chart.transitions, chart.states, chart.events)):
            if isinstance(part, Raise | Send) and isinstance(part.event, str):
                names.append(part.event)
            elif isinstance(part, Expression):
                data += [one or other for one, other in _DATA.findall(part.text)]
        for transition in chart.transitions:
            names += [".".join(each.tokens) for each in transition.descriptors if each.tokens]
            roles += transition.roles or ()
        for event in chart.events or ():
            roles += event.roles or ()
        self.names = list(dict.fromkeys(names)) or ["x"]
        self.data = list(dict.fromkeys(data))
        self.roles = list(dict.fromkeys(roles))
        self.near = {each.id: _heard(chart, each) for each in chart.states}
        self.required = [each for each in chart.states[0].context if each.required]


def _heard(chart: Chart, state: State) -> list[str]:
    """The events that a state and those around it have transitions for."""
    names, index = [], state.index
    while index >= 0:
        found = [chart.transitions[each] for each in chart.states[index].transitions]
        names += [".".join(one.tokens) for each in found for one in each.descriptors if one.tokens]
        index = chart.states[index].parent
    return [each for each in names if not each.startswith(("done.", "error.", "after."))]


def _parts(value: Any) -> Iterator[Any]:
    """Everything inside a value of the model, itself first."""
    stack = [value]
    while stack:
        each = stack.pop()
        yield each
        if is_dataclass(each):
            stack += [getattr(each, one.name) for one in fields(each)]
        elif isinstance(each, dict):
            stack += each.values()
        elif isinstance(each, tuple | list):
            stack += each


class ChartSender:
    """Draws the next event for an entity, and remembers timers and invokes it has seen, so that it can also be late."""

    def __init__(self, vocabulary: Vocabulary, random: Random) -> None:
        self.vocabulary = vocabulary
        self.random = random
        self.count = 0
        self.time_ms = 1_000
        self.timers: list[Timer] = []
        self.invokes: list[Invocation] = []

    def context(self) -> dict[str, Any]:
        """What an entity must be given when it is created."""
        return {each.name: self.value(each) for each in self.vocabulary.required}

    def event(self, snapshot: Snapshot) -> Event:
        """The next event for an entity that is here."""
        self.count += 1
        self.time_ms += self.random.choice((0, 1, 10, 500))
        self.timers += [each for each in snapshot.timers if each not in self.timers]
        self.invokes += [each for each in snapshot.invokes if each not in self.invokes]
        chance = self.random.random()
        if chance < 0.25 and snapshot.timers:
            return self.firing(self.random.choice(snapshot.timers))
        if chance < 0.5 and snapshot.invokes:
            return self.result(self.random.choice(snapshot.invokes))
        if chance < 0.54 and self.timers:
            return self.firing(self.random.choice(self.timers))
        if chance < 0.58 and self.invokes:
            return self.result(self.random.choice(self.invokes))
        return self.plain(snapshot)

    def plain(self, snapshot: Snapshot) -> Event:
        """An event from outside: mostly one that is waited for here, or named elsewhere, or longer, or foreign."""
        random, words = self.random, self.vocabulary
        heard = [name for each in snapshot.configuration for name in words.near[each]]
        chance = random.random()
        name = random.choice(heard if heard and chance < 0.7 else words.names)
        if chance < 0.06:
            name = random.choice(FOREIGN)
        elif chance < 0.14:
            name = f"{name}.more"
        roles = random.choice((words.roles, words.roles, [], ["system"]))
        principal = {"id": "p1", "kind": "user", "roles": list(roles)} if random.random() < 0.8 else None
        key = random.choice((None, f"k{self.count}"))
        return Event(name, self.payload(name), id=f"e{self.count}", key=key, principal=principal, time_ms=self.time_ms)

    def payload(self, name: str) -> Any:
        """Data for an event: what is declared, now and then with something missing; else what expressions ask for."""
        declared = self.vocabulary.events.get(name)
        if declared is not None and declared.payload is not None:
            return {each.name: self.value(each) for each in declared.payload if self.random.random() < 0.95}
        known = {each: self.random.choice((1, 2, 5, "text", True, None)) for each in self.vocabulary.data}
        return self.random.choice((None, known or {"v": 2}, {"v": self.random.choice((1, 2, 5))} | known))

    def value(self, field: Field) -> Any:
        """A value that a field takes, mostly."""
        random = self.random
        if field.enum is not None:
            return random.choice(field.enum)
        if field.default is not UNSET and random.random() < 0.2 and not isinstance(field.default, Expression):
            return field.default
        low = int(field.min or 0)
        match field.type:
            case "integer" | "number":
                return low + random.choice((0, 1, 2, 3, 50))
            case "boolean":
                return random.random() < 0.5
            case "object":
                return {each.name: self.value(each) for each in field.fields or ()}
            case "array":
                return [] if field.items is None else [self.value(field.items) for _ in range(random.choice((0, 1, 3)))]
            case _:
                return random.choice(("a", "b", "Größe"))

    def firing(self, timer: Timer) -> Event:
        """A timer becomes due, perhaps one that no longer exists."""
        self.time_ms = max(self.time_ms, timer.due_ms)
        source = f"timer/{timer.name}/{timer.version}"
        return Event(timer.event, timer.data, sendid=timer.id, time_ms=timer.due_ms, source=source)

    def result(self, invocation: Invocation) -> Event:
        """An invoke answers: with its result, with an error, or with a separate event."""
        random = self.random
        name = random.choice((f"done.invoke.{invocation.id}", f"error.invoke.{invocation.id}"))
        if random.random() < 0.2:
            name = random.choice(self.vocabulary.names)
        data: Any = {each: random.choice((1, "text")) for each in self.vocabulary.data} | {"v": random.choice((1, 3))}
        if name.startswith("error."):
            data = {"code": "gone", "message": "no", "attempts": 1, "done": random.choice(("no", "unknown"))}
        elif random.random() < 0.3:
            data = random.choice((None, "text", 7))
        return Event(
            name,
            data,
            invokeid=invocation.id,
            source=f"invoke/{invocation.key}",
            last=random.random() < 0.1,
            time_ms=self.time_ms,
        )
