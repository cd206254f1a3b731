"""A mapping: answers for the entities of an old definition that a new one cannot take over as they are.

    interlock-mapping: 1
    kind: order
    from: [b1.6f0c2a]            # revisions or labels; without it, every earlier revision
    states: {review: approval, packing: [{if: "= context.urgent", to: express}, {to: standard}], lost: {stay: true}}
    timers: {review: {2d: 3d, 5d: drop, 9d: {to: 10d, count: restart}}}
    invokes: {review: {check: cancel}}
    entered: {approval: {entry: skip, timers: {1d: restart}, invokes: {audit: start}}}
    history: {packing.past: drop}
    events: {reminder: drop}     # delayed sends and deferred events
    context: {total: "= context.net + context.tax", note: none yet}

Rule 1: keys of `states`, `timers`, `invokes` and `history` are states of the old definition, those of `entered` are of
        the new one. `context` has fields of the new one; its expressions read the old entity.
Rule 2: an unknown key, name or value is an error, with its place. Whether everything is answered is checked with both
        definitions (`check`).
Rule 3: functions in Python get a copy of the entity as plain values. What they raise stops that entity only.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Lookup
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock.definition.codec import read_value, text_or_expression
from interlock.definition.source.node import Node
from interlock.definition.yaml.parse import parse_yaml
from interlock.errors import NO_LOCATION, DefinitionError, SourceLocation
from interlock.evolve.identity import collapse_space
from interlock.expression.language import SAFE
from interlock.expression.parser import ExpressionError
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Expression, Value
from interlock.model.document.walk import value_expressions
from interlock.model.limits import MAPPING_PLACES_MAX

VERSION = 1
Count = Literal["elapsed", "restart", "deadline"]
StatesFunction = Callable[[dict[str, Any]], list[str] | str | None]
ContextFunction = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entity goes: the new states, and the condition; without states it leaves a region."""

    targets: tuple[str, ...]
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class TimerAnswer:
    """The delay of the new timer (None: it is dropped), and from when it counts."""

    to: str | None
    count: Count = "elapsed"


@dataclass(frozen=True, slots=True)
class EnteredAnswer:
    """What happens in a new state that entities are put into: its entry actions, timers and invokes."""

    entry: Literal["run", "skip"] | None = None
    timers: Lookup[str, Literal["elapsed", "restart", "skip"]] = field(default_factory=dict)
    invokes: Lookup[str, Literal["start", "skip"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """The answers of a mapping. An empty tuple of places means that entities in the state stay."""

    kind: str
    revisions: tuple[str, ...] | None = None
    states: Lookup[str, tuple[Place, ...]] = field(default_factory=dict)
    timers: Lookup[str, Lookup[str, TimerAnswer]] = field(default_factory=dict)
    invokes: Lookup[str, frozenset[str]] = field(default_factory=dict)
    entered: Lookup[str, EnteredAnswer] = field(default_factory=dict)
    histories: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    context: Lookup[str, Value] = field(default_factory=dict)
    states_function: StatesFunction | None = None
    context_function: ContextFunction | None = None
    source: str = "<mapping>"
    text: str = ""
    locations: Lookup[tuple[str, ...], SourceLocation] = field(default_factory=dict, compare=False)

    def location(self, *path: str) -> SourceLocation:
        """Return the place of an answer."""
        return self.locations.get(path) or self.locations.get(path[:2]) or NO_LOCATION


class _State(Struct, forbid_unknown_fields=True):
    to: str | list[str] | msgspec.UnsetType = msgspec.UNSET
    condition: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="if")
    stay: bool = False


class _Timer(Struct, forbid_unknown_fields=True):
    to: str
    count: Count = "elapsed"


class _Entered(Struct, forbid_unknown_fields=True):
    entry: Literal["run", "skip"] | None = None
    timers: dict[str, Literal["elapsed", "restart", "skip"]] = {}
    invokes: dict[str, Literal["start", "skip"]] = {}


_STATE: Any = str | _State | list[_State]
_KEYS = ("interlock-mapping", "kind", "from", "states", "timers", "invokes", "entered", "history", "events", "context")


def read_mapping(text: str | bytes, *, source: str = "<mapping>") -> Mapping:
    """Return the mapping of a YAML text. Raises DefinitionError with every problem and its place."""
    diagnostics = Diagnostics()
    node = parse_yaml(text, source=source, diagnostics=diagnostics)
    return replace(_read(node, source, diagnostics), text=text if isinstance(text, str) else text.decode())


def mapping_of(
    value: object,
    *,
    source: str = "<mapping>",
    text: str = "",
    states: StatesFunction | None = None,
    context: ContextFunction | None = None,
) -> Mapping:
    """Return the mapping of plain values with the same keys, and functions that answer for states and the context.

    Raises DefinitionError as `read_mapping` does.
    """
    location = SourceLocation(source)
    found = _read(Node.within(value, location), source, Diagnostics())
    return replace(found, text=text, states_function=states, context_function=context)


def _read(node: Node | None, source: str, diagnostics: Diagnostics) -> Mapping:
    found = None if node is None else _Reader(node, source, diagnostics).mapping()
    if found is None or diagnostics.has_errors:
        raise DefinitionError(diagnostics.sorted(), what="mapping")
    return found


class _Reader:
    def __init__(self, node: Node, source: str, diagnostics: Diagnostics) -> None:
        self.node = node
        self.source = source
        self.diagnostics = diagnostics
        self.locations: dict[tuple[str, ...], SourceLocation] = {}

    def mapping(self) -> Mapping | None:
        if not isinstance(self.node.value, dict):
            self._error("a mapping of keys is expected", self.node.location)
            return None
        for name in self.node.value:
            if name not in _KEYS:
                self._error(f"unknown key `{name[:80]}`", self.node.keys[name], suggestion(name, _KEYS))
        if self._one("interlock-mapping", int, None) != VERSION:
            hint = f"write `interlock-mapping: {VERSION}`"
            self._error("the version of the mapping is unknown or missing", self._location("interlock-mapping"), hint)
        kind = self._one("kind", str, "")
        if not kind:
            self._error("`kind` is missing", self._location("kind"), "name the kind of the entities")
        revisions = self._one("from", list[str] | str | None, None)
        return Mapping(
            kind=kind,
            revisions=None if revisions is None else (revisions,) if isinstance(revisions, str) else tuple(revisions),
            states={name: self._places(name, each) for name, each in self._many("states", _STATE).items()},
            timers=self._timers(),
            invokes={
                name: frozenset(each) for name, each in self._many("invokes", dict[str, Literal["cancel"]]).items()
            },
            entered=self._entered(),
            histories=frozenset(self._many("history", Literal["drop"])),
            events=frozenset(self._many("events", Literal["drop"])),
            context=self._context(),
            source=self.source,
            locations=self.locations,
        )

    def _timers(self) -> dict[str, dict[str, TimerAnswer]]:
        found: dict[str, dict[str, TimerAnswer]] = {}
        for name, answers in self._many("timers", dict[str, str | _Timer]).items():
            made: dict[str, TimerAnswer] = {}
            found[name] = made
            for delay, answer in answers.items():
                if isinstance(answer, _Timer):
                    made[_label(delay)] = TimerAnswer(_label(answer.to), answer.count)
                else:
                    made[_label(delay)] = TimerAnswer(None if answer == "drop" else _label(answer))
        return found

    def _entered(self) -> dict[str, EnteredAnswer]:
        return {
            name: EnteredAnswer(each.entry, {_label(delay): how for delay, how in each.timers.items()}, each.invokes)
            for name, each in self._many("entered", _Entered).items()
        }

    def _places(self, name: str, answer: str | _State | list[_State]) -> tuple[Place, ...]:
        """The places of a state. Only the last one may be without condition, and only alone it may say `stay`."""
        location = self.locations["states", name]
        if isinstance(answer, str):
            return (Place((answer,)),)
        answers = answer if isinstance(answer, list) else [answer]
        if len(answers) == 1 and answers[0] == _State(stay=True):
            return ()
        if not 0 < len(answers) <= MAPPING_PLACES_MAX:
            self._error(f"expected 1 to {MAPPING_PLACES_MAX} places, got {len(answers)}", location)
        found = []
        for number, each in enumerate(answers):
            if each.stay or each.to is msgspec.UNSET:
                self._error("expected `to`, or `stay: true` alone", location)
                continue
            if each.condition is msgspec.UNSET and number < len(answers) - 1:
                self._error("a place without `if` must be the last one", location)
            targets = (each.to,) if isinstance(each.to, str) else tuple(each.to)
            condition = None
            if each.condition is not msgspec.UNSET:
                value = self._checked(text_or_expression(each.condition, location))
                if isinstance(value, Expression):
                    condition = value
                else:
                    self._error("`if` must be an expression", location, 'such as "= context.urgent"')
            found.append(Place(targets, condition))
        return tuple(found)

    def _context(self) -> dict[str, Value]:
        assert isinstance(self.node.value, dict)
        names, node = self._many("context", Any), self.node.value.get("context")
        fields = node.value if node is not None and isinstance(node.value, dict) else {}
        return {name: self._checked(read_value(fields[name])) for name in names}

    def _checked(self, value: Value) -> Value:
        """A value whose expressions are valid, or reported."""
        for each in value_expressions(value):
            try:
                SAFE.check(each.text)
            except ExpressionError as error:
                self._error(f"`{each.text[:80]}` is not an expression: {error.message}", each.location, error.hint)
        return value

    def _one(self, name: str, expected: Any, default: Any) -> Any:
        """The value of a key of the mapping, if it has the expected type."""
        assert isinstance(self.node.value, dict)
        node = self.node.value.get(name)
        return default if node is None else self._converted(node, expected, name, default)

    def _many(self, name: str, expected: Any) -> dict[str, Any]:
        """The values of a section by name; those that have not the expected type are reported."""
        assert isinstance(self.node.value, dict)
        node = self.node.value.get(name)
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self._error(f"`{name}` must be a mapping", node.location)
            return {}
        found: dict[str, Any] = {}
        for key, each in node.value.items():
            self.locations[name, key] = node.keys[key]
            for inner in each.keys if isinstance(each.value, dict) else ():
                self.locations[name, key, inner] = each.keys[inner]
            value = self._converted(each, expected, f"{name}.{key}", msgspec.UNSET)
            if value is not msgspec.UNSET:
                found[key] = value
        return found

    def _converted(self, node: Node, expected: Any, path: str, default: Any) -> Any:
        try:
            return msgspec.convert(node.plain(), expected)
        except msgspec.ValidationError as error:
            self._error(f"`{path[:120]}` is invalid: {error}", node.location)
            return default

    def _location(self, name: str) -> SourceLocation:
        return self.node.keys.get(name, self.node.location)

    def _error(self, message: str, location: SourceLocation, hint: str | None = None) -> None:
        self.diagnostics.error("mapping.invalid", message, location, hint)


def _label(delay: str) -> str:
    """A delay as charts name it: without the sign of an expression."""
    return collapse_space(delay.removeprefix("="))
