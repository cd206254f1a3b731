"""A chart being played: one entity on a virtual clock, driven by lines of text.

Rule 1: the same lines always give the same play; `back` plays all lines but the last once more.
Rule 2: handlers are the player: calls and invokes wait until they are answered by hand.
Rule 3: code that a chart names and that is not here is assumed: a guard is true until told otherwise, an assign writes
nothing. The player may do everything: the sender has every role the chart names.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.assemble.charts import BoundChart
from interlock.errors import InterlockError, UsageError
from interlock.kernel.explain import Candidate
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.model.duration import format_duration, parse_duration
from interlock.model.effect import Effect
from interlock.model.event import is_reserved
from interlock.model.snapshot import Snapshot
from interlock.testing.simulation import Simulation, SimulationRecord

CHANGING = ("advance", "done", "fail", "guard", "send")
LOOKING = ("context", "effects", "events", "timers", "tree")
COMMANDS = (*CHANGING, *LOOKING, "back", "help", "quit")

STEPS_MAX = 10_000
"""Steps that one line may lead to, timers and all: a year of hours, and no long wait for who plays."""

NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeError)
"""What decoding raises: for other text, for nesting without end, for bytes that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingItem:
    """Something the clock will set off: a timer, or the timeout of an invoke."""

    entity: str
    text: str
    due_ms: int


class Playback:
    """One entity of a chart, the lines given so far, and what they led to."""

    def __init__(self, bound: BoundChart, context: Mapping[str, Any] | None = None) -> None:
        self.chart = bound.chart
        self.entity = f"{bound.chart.kind}/1"
        self.lines: list[str] = []
        self.verdicts: dict[str, bool] = {}
        self._bound = bound
        self._context = context
        self._roles = sorted({role for each in bound.chart.transitions for role in each.roles or ()})
        self._assume(bound.chart)
        self.simulation = self._begun()

    def _assume(self, chart: Chart) -> None:
        """Stand in for the functions that code would bring, those of inline charts too."""
        for name in chart.guards:
            self.verdicts.setdefault(name, True)
            self._bound.guards[name] = lambda *_, name=name: self.verdicts[name]
        for name in chart.assigns:
            self._bound.assigns[name] = lambda *_: {}
        for _, inline in chart.inline:
            self._assume(inline)

    def _begun(self) -> Simulation:
        simulation = Simulation(self._bound.kernel, steps_max=STEPS_MAX)
        simulation.create(self.entity, self._context, kind=self.chart.kind)
        simulation.settle()
        return simulation

    # What there is to see

    @property
    def snapshot(self) -> Snapshot:
        """The entity as it is now."""
        return self.simulation.snapshots[self.entity]

    @property
    def assumed_assigns(self) -> list[str]:
        """The assign functions that code would bring and that write nothing here."""
        return sorted(self._bound.assigns)

    def candidates(self) -> list[Candidate]:
        """The transitions in question now whose event a sender can give."""
        return sendable(self._bound.candidates(self.snapshot))

    def events(self) -> list[str]:
        """Every event that a sender can give this chart: the declared ones, else those its transitions name."""
        return event_names(self.chart)

    def waiting(self) -> list[PendingItem]:
        """What the clock will set off, soonest first."""
        found = [
            PendingItem(entity=entity, text=f"timer {timer.event}", due_ms=timer.due_ms)
            for entity, snapshot in self.simulation.snapshots.items()
            for timer in snapshot.timers
        ]
        for entity, effect in self.pending():
            timeout = effect.payload.get("timeout_ms")
            if timeout is not None:
                text = f"timeout of invoke {effect.payload['id']}"
                found.append(PendingItem(entity=entity, text=text, due_ms=self._made(effect.key) + timeout))
        return sorted(found, key=lambda each: each.due_ms)

    def _made(self, key: str) -> int:
        """When an effect was made."""
        return next(
            record.time_ms for record in self.simulation.trace for effect in record.step.effects if effect.key == key
        )

    def pending(self) -> list[tuple[str, Effect]]:
        """The calls and invokes that nobody has answered yet; a call needs no answer."""
        return list(self.simulation.pending)

    def visited(self) -> set[str]:
        """Every state that was part of a configuration so far, with its ancestors."""
        records = (record for record in self.simulation.trace if record.entity == self.entity)
        return {name for record in records for name in active_ids(self.chart, record.step.snapshot)}

    # What there is to do

    def change(self, line: str) -> list[SimulationRecord]:
        """Do what a line says, and give the steps it led to.

        Raises UsageError when the line makes no sense now; nothing has changed then.
        """
        before = len(self.simulation.trace)
        try:
            self._do(line)
            self.simulation.settle()
        except InterlockError:
            self._replay(self.lines)
            raise
        self.lines.append(line)
        return self.simulation.trace[before:]

    def back(self) -> str:
        """Take the last line back, by playing all lines before it anew; gives that line.

        Raises UsageError when there is none.
        """
        if not self.lines:
            raise UsageError("this is the beginning; there is nothing to take back", code="play.beginning")
        last = self.lines.pop()
        self._replay(self.lines)
        return last

    def _replay(self, lines: list[str]) -> None:
        self.verdicts = dict.fromkeys(self.verdicts, True)
        self.simulation = self._begun()
        for line in lines:
            self._do(line)
            self.simulation.settle()

    def _do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        match word:
            case "advance":
                self.simulation.advance(self._duration(rest))
            case "done":
                name, _, text = rest.partition(" ")
                key = self._pending_key(name)
                self.simulation.complete(key, payload(text))
            case "fail":
                name, _, code = rest.partition(" ")
                code, _, message = code.strip().partition(" ")
                self.simulation.fail(self._pending_key(name), code or "failed", message.strip())
            case "guard":
                self._decide(rest)
            case "send":
                name, _, text = rest.partition(" ")
                if not name:
                    raise UsageError("name the event to send, as in: send order.paid", code="play.event")
                self._send(name, text)
            case _:
                self._send(word, rest)

    def _send(self, name: str, text: str) -> None:
        principal = {"id": "player", "kind": "user", "roles": self._roles}
        declared = next((each.payload for each in self.chart.events or () if each.name == name), None)
        texts = frozenset(field.name for field in declared or () if field.type == "string")
        self.simulation.send(self.entity, name, payload(text, texts), principal=principal)

    def _duration(self, text: str) -> int:
        if not text:
            waiting = self.waiting()
            if not waiting:
                raise UsageError("nothing waits for time; say how far, as in: advance 30s", code="play.advance")
            return max(0, waiting[0].due_ms - self.simulation.time_ms)
        ms = parse_duration(text)
        if ms is None:
            raise UsageError(f'"{text}" is not a duration; write it like 30s or 1h30m', code="duration.syntax")
        return ms

    def _pending_key(self, name: str) -> str:
        for _, effect in self.pending():
            if name in (effect.payload.get("id"), effect.key, effect.name):
                return effect.key
        ending = [each for _, each in self.pending() if str(each.payload.get("id")).endswith(f".{name}")]
        if len(ending) == 1:
            return ending[0].key
        known = ", ".join(str(effect.payload.get("id") or effect.name) for _, effect in self.pending())
        wish = f"pending are {known}" if known else "nothing is pending"
        raise UsageError(f'no pending invoke or call "{name}"; {wish}', code="play.pending")

    def _decide(self, text: str) -> None:
        name, _, verdict = text.partition(" ")
        if name not in self.verdicts or verdict.strip() not in {"true", "false"}:
            known = ", ".join(self.verdicts) or "none"
            raise UsageError(f"write: guard NAME true|false; the guards are {known}", code="play.guard")
        self.verdicts[name] = verdict.strip() == "true"

    def meant(self, name: str) -> str | None:
        """What a sender of an unknown event may have meant: a near event or command."""
        if name in self.events():
            return None
        return suggestion(name, [*self.events(), *COMMANDS])


def payload(text: str, texts: frozenset[str] = frozenset()) -> Any:
    """The payload of an event as typed: JSON, or `name=value` pairs, or nothing; `texts` are the string fields.

    Raises UsageError when it is neither.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        pairs = _pairs(text, texts)
        if pairs is None:
            problem = str(error).removeprefix("JSON is malformed: ")
            message = f"the payload is neither JSON ({problem}) nor name=value pairs: {text[:60]}"
            raise UsageError(message, code="play.payload") from None
        return pairs


def _pairs(text: str, texts: frozenset[str]) -> dict[str, Any] | None:
    """`id=p1 amount=3` as a mapping; a value that reads as JSON is that value, else it is a string. None: no pairs."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            return None
        found[name] = value if name in texts else _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return text


def sendable(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The transitions in question whose event a sender can give."""
    return [each for each in candidates if not is_reserved(each.event)]


def event_names(chart: Chart) -> list[str]:
    """Every event that a sender can give a chart: the declared ones, else those its transitions name."""
    if chart.events is not None:
        return [each.name for each in chart.events if each.direction == "in"]
    texts = (each.text for transition in chart.transitions for each in transition.descriptors)
    return list(dict.fromkeys(text for text in texts if text != "*" and not is_reserved(text)))


def active_ids(chart: Chart, snapshot: Snapshot) -> set[str]:
    """The ids of all active states: the atomic ones of a snapshot and their ancestors, the root left out."""
    by_id = {state.id: state for state in chart.states}
    found = set()
    for name in snapshot.configuration:
        for state in _upward(chart, by_id[name].index):
            found.add(chart.states[state].id)
    return found


def _upward(chart: Chart, index: int) -> Iterator[int]:
    while index > 0:
        yield index
        index = chart.states[index].parent


def instant(ms: int) -> str:
    """A time of the virtual clock: how long after its beginning."""
    return format_duration(ms)
