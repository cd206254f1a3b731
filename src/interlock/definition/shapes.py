"""The shapes of the vocabulary: what each part of a definition may look like, and the check of parsed text.

The tables in `vocabulary/` are written in these classes. This module checks parsed text against them, `codec.py` reads
checked text as values of the model and writes it back, and `schema.py` turns them into JSON Schema.

Rule 1: checking does not stop at the first problem. A part that does not fit is reported and left out; the rest fits.
Rule 2: which of several shapes an author means is decided before checking, by the kind of value or by a key. So a
problem is reported for the shape that the author means.
Rule 3: a pattern is written for JSON Schema and always matches the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, Protocol

from interlock.definition.source.node import Node
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.field import same_value, type_name
from interlock.model.limits import SUGGESTIONS_MAX

Kind = Literal["text", "list", "mapping", "scalar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    r"""A string that matches `pattern` as a whole; `bytes_max` limits its UTF-8.

    `expression`: a text that starts with `=` fits as well. `value`: the text is read as a value, in which `=` starts an
    expression and `\=` a literal; without it the text is kept as written.
    """

    what: str = "a string"
    pattern: str | None = None
    code: str = "value.text"
    hint: str | None = None
    expression: bool = False
    value: bool = False
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few literals; `expression`: or a text that starts with `=`."""

    options: tuple[str | int | bool, ...]
    expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number; `whole`: an integer; `min`: the smallest one allowed."""

    whole: bool = False
    min: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Any JSON value, kept as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Any JSON value in which every string that starts with `=` is an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list of one shape, with at least `min` items."""

    item: Shape
    what: str
    min: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOrMore:
    """One value of a shape, or a list of at least `min` of them; always read as a tuple."""

    item: Shape
    what: str
    list_what: str
    min: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping with free keys and values of one shape, at least `min` of them.

    It is read as pairs. With `name`, its values are records that take their key in the field of this name.
    `keep`: a value that does not fit counts as an empty mapping, so that its key can still be referred to.
    """

    key: Text
    value: Shape
    what: str
    min: int = 0
    keep: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a record: its shape, its tooltip, and the field of the model that it fills.

    `field`: the name of that field where it differs from the key. `native`: the formats that have their own way to
    write it; every other format puts it into its extension (`extras`) or loses it. `scxml`: its attribute in our
    namespace of SCXML, where that differs from the field. `codec`: how it is read and written, where that does not
    follow from its shape. `payload`: whether fields in it are those of a payload, where that changes.

    `identity`: whether a change of it makes another revision. It is `in` if it can change a step or what a step writes.
    `order`: whether the order of the mapping or list counts, too. Both have no default, so a new key declares them.
    `default`: the documented default of a field that is None in the model; writing it makes no other revision.
    """

    name: str
    shape: Shape
    identity: Literal["in", "out"]
    order: Literal["kept", "free"]
    description: str
    required: bool = False
    field: str | None = None
    native: frozenset[str] = frozenset()
    scxml: str | None = None
    codec: Codec | None = None
    payload: bool | None = None
    default: Any = None

    @property
    def attribute(self) -> str:
        """The name of the field of the model that this key fills."""
        return self.field or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A mapping with fixed keys, in the order in which they are written.

    `makes`: the class of the model that it is read as. `short`: a bare text is the value of this key.
    `inner`: the value is that of this key, its only one. `whole`: this record only limits which keys an author may
    write; all keys of `whole` are read and written. `codec` makes another codec than the usual one.
    """

    what: str
    keys: tuple[Key, ...]
    makes: type[Any] | None = None
    short: str | None = None
    inner: str | None = None
    whole: Record | None = None
    codec: Callable[..., Any] | None = None

    def select(self, what: str, names: str, *replaced: Key) -> Record:
        """A record for authors with some of these keys; `replaced` are keys that differ there."""
        different = {each.name: each for each in replaced}
        known = {each.name: each for each in self.keys} | different
        assert set(names.split()) <= known.keys()
        chosen = [known[each.name] for each in self.keys if each.name in names.split()]
        chosen = [each for each in replaced if each not in chosen] + chosen
        return replace(self, what=what, keys=tuple(chosen), whole=self.whole or self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of several shapes, meant if the value is of this kind and has this key (with this text, or of this kind).

    `first` looks at the kind of a list's first item instead.
    """

    kind: Kind
    shape: Shape
    key: str | None = None
    equals: str | None = None
    inner: Kind | None = None
    first: Kind | None = None

    def matches(self, node: Node) -> bool:
        """Whether the author means this shape."""
        if kind_of(node) != self.kind:
            return False
        if self.first is not None:
            assert isinstance(node.value, list)
            return bool(node.value) and kind_of(node.value[0]) == self.first
        if self.key is None:
            return True
        assert isinstance(node.value, dict)
        value = node.value.get(self.key)
        if value is None or (self.inner is not None and kind_of(value) != self.inner):
            return False
        return self.equals is None or value.value == self.equals


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """Several shapes; the first option that matches counts. `codec` makes another codec than the usual one."""

    what: str
    options: tuple[Option, ...]
    codec: Callable[..., Any] | None = None


def list_or_true(item: Shape, what: str) -> OneOf:
    """Return the shape of a list, or `true` for everything that it could list; its codec is `LIST_OR_TRUE`."""
    options = (
        Option(kind="list", shape=ListOf(item=item, min=1, what=what)),
        Option(kind="scalar", shape=Choice(options=(True,))),
    )
    return OneOf(what=f"{what} or true", options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoValue:
    """No value fits: the key is listed only for its hints: value -> what to write instead."""

    options: tuple[str, ...]
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A shape by its name, because shapes may contain themselves."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What surrounds a value while it is read or written.

    `kind` is the chart's, `key` its state's, or the id of its invoke; `payload`: fields are those of a payload.
    `identity`: only what makes a revision is written, in a form for hashing; `order` is then that of the nearest key.
    """

    kind: str = ""
    key: str = ""
    source: str = ""
    payload: bool = False
    identity: bool = False
    order: Literal["kept", "free"] = "kept"


class Codec(Protocol):
    """Reads a checked node as a value of the model, and writes such a value as plain YAML."""

    def read(self, node: Node, scope: Scope, **given: Any) -> Any: ...

    def write(self, value: Any, scope: Scope) -> Any: ...


CheckableShape = Text | Choice | Boolean | Number | ListOf | OneOrMore | MapOf | Record | OneOf | NoValue
Shape = CheckableShape | Json | Value | Ref


def extras(record: Record, format: str) -> tuple[Key, ...]:
    """The keys of a record that a format cannot write natively."""
    return tuple(each for each in record.keys if format not in each.native)


def extras_of(record: Record, value: Any, format: str) -> Iterator[Key]:
    """Those of `extras` whose field differs from its default in a value of the model."""
    defaults = {each.name: each.default for each in fields(value)}
    yield from (each for each in extras(record, format) if getattr(value, each.attribute) != defaults[each.attribute])


def kind_of(node: Node) -> Kind:
    """The kind of a value, as far as shapes distinguish them."""
    if isinstance(node.value, str):
        return "text"
    if isinstance(node.value, list):
        return "list"
    return "mapping" if isinstance(node.value, dict) else "scalar"


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern of JSON Schema as a Python pattern, with Python's own class for letters and digits of any script."""
    return re.compile(pattern.replace(r"\p{L}\p{N}_", r"\w"))


def describe(shape: CheckableShape) -> str:
    """A short description of the values that fit a shape."""
    match shape:
        case Choice():
            words = [str(each).lower() if isinstance(each, bool) else str(each) for each in shape.options]
            return " or ".join(words + ["an expression"] * shape.expression)
        case Boolean():
            return "true or false"
        case Number():
            return "an integer" if shape.whole else "a number"
        case NoValue():
            return " or ".join(shape.options)
        case _:
            return shape.what


_KEYS_SHOWN_MAX = 8
"""A record with more keys than this does not list them all in a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeChecker:
    """Checks nodes; `shapes` are the named ones, `foreign` maps other tools' words to our keys."""

    shapes: Mapping[str, Shape]
    foreign: Mapping[str, str]
    diagnostics: Diagnostics

    def check(self, node: Node, shape: Shape) -> Node | None:
        """The part of the value that fits; None, with a diagnostic, if there is none."""
        match shape:
            case Json() | Value():
                return node
            case Ref():
                return self.check(node, self.shapes[shape.name])
            case OneOf():
                return self._one_of(node, shape)
            case OneOrMore():
                return self._one_or_more(node, shape)
            case Record():
                return self._record(node, shape)
            case MapOf():
                return self._map(node, shape)
            case ListOf():
                return self._list(node, shape)
            case Text():
                return self._text(node, shape)
            case Choice():
                return self._choice(node, shape)
            case Boolean():
                return node if isinstance(node.value, bool) else self._wrong(node, shape)
            case Number():
                return self._number(node, shape)
            case _:
                return self._no_value(node, shape)

    def _one_of(self, node: Node, shape: OneOf) -> Node | None:
        for option in shape.options:
            if option.matches(node):
                return self.check(node, option.shape)
        marks = list(dict.fromkeys(option.key for option in shape.options if option.key is not None))
        if marks and isinstance(node.value, dict):
            near = (suggestion(key, marks) for key in node.value)
            hint = next((each for each in near if each is not None), None)
            self.diagnostics.error(
                "key.missing", f"{shape.what} must have one of the keys {', '.join(marks)}", node.location, hint
            )
            return None
        return self._wrong(node, shape)

    def _one_or_more(self, node: Node, shape: OneOrMore) -> Node | None:
        if isinstance(node.value, list):
            return self._list(node, ListOf(item=shape.item, what=shape.list_what, min=shape.min))
        return self.check(node, shape.item) if kind_of(node) in self._kinds(shape.item) else self._wrong(node, shape)

    def _kinds(self, shape: Shape) -> set[Kind]:
        """The kinds of value that the item of a `OneOrMore` may be."""
        if isinstance(shape, Ref):
            shape = self.shapes[shape.name]
        if isinstance(shape, OneOf):
            return {each.kind for each in shape.options}
        return {"mapping"} if isinstance(shape, Record) else {"text"}

    def _record(self, node: Node, shape: Record) -> Node | None:
        if not isinstance(node.value, dict):
            return self._wrong(node, shape)
        known = {each.name: each for each in shape.keys}
        fitting: dict[str, Node] = {}
        for name, value in node.value.items():
            if name not in known:
                hint = self._unknown_hint(name, known, shape)
                self.diagnostics.error(
                    "key.unknown", f'unknown key "{name[:60]}" in {shape.what}', node.keys[name], hint
                )
            elif (fits := self.check(value, known[name].shape)) is not None:
                fitting[name] = fits
        required = [each.name for each in shape.keys if each.required]
        for name in required:
            if name not in node.value:
                self.diagnostics.error("key.missing", f'the key "{name}" is missing in {shape.what}', node.location)
        if any(name not in fitting for name in required):
            return None
        return Node(fitting, node.location, node.keys)

    def _unknown_hint(self, name: str, known: Mapping[str, Key], shape: Record) -> str | None:
        foreign = self.foreign.get(name)
        if foreign is not None and foreign in known:
            return f'the key is called "{foreign}" here'
        owners = [
            each.what for each in self._records() if each is not shape and any(name == key.name for key in each.keys)
        ]
        # A typing mistake is likelier than a misplaced key only if the word is not a key of another record.
        if owners:
            return f'"{name}" is a key of {" or ".join(owners[:3])}'
        if len(self.diagnostics.items) >= SUGGESTIONS_MAX:
            return None
        few = f"its keys are {', '.join(known)}" if 0 < len(known) <= _KEYS_SHOWN_MAX else None
        return suggestion(name, known) or few

    def _records(self) -> Iterator[Record]:
        return (each for each in self.shapes.values() if isinstance(each, Record))

    def _map(self, node: Node, shape: MapOf) -> Node | None:
        if not isinstance(node.value, dict):
            return self._wrong(node, shape)
        fitting: dict[str, Node] = {}
        for name, value in node.value.items():
            named = self._fits_text(name, shape.key, node.keys[name])
            fits = self.check(value, shape.value)
            if fits is None and shape.keep:
                fits = Node({}, value.location)
            if named and fits is not None:
                fitting[name] = fits
        return self._enough(Node(fitting, node.location, node.keys), len(node.value), shape)

    def _list(self, node: Node, shape: ListOf) -> Node | None:
        if not isinstance(node.value, list):
            return self._wrong(node, shape)
        fitting = [fits for each in node.value if (fits := self.check(each, shape.item)) is not None]
        return self._enough(Node(fitting, node.location), len(node.value), shape)

    def _enough(self, node: Node, count: int, shape: ListOf | MapOf) -> Node | None:
        if count >= shape.min:
            return node
        self.diagnostics.error("value.empty", f"{shape.what} must not be empty", node.location)
        return None

    def _text(self, node: Node, shape: Text) -> Node | None:
        if not isinstance(node.value, str):
            return self._wrong(node, shape)
        return node if self._fits_text(node.value, shape, node.location) else None

    def _fits_text(self, text: str, shape: Text, location: SourceLocation) -> bool:
        if shape.expression and text.startswith("="):
            return True
        if shape.pattern is not None and not compile_pattern(shape.pattern).fullmatch(text):
            self.diagnostics.error(shape.code, f'"{text[:60]}" is not {shape.what}', location, shape.hint)
            return False
        if shape.bytes_max is not None and len(text.encode()) > shape.bytes_max:
            self.diagnostics.error(shape.code, f"{shape.what} has more than {shape.bytes_max} bytes", location)
            return False
        return True

    def _choice(self, node: Node, shape: Choice) -> Node | None:
        value = node.value
        if shape.expression and isinstance(value, str) and value.startswith("="):
            return node
        if any(same_value(value, each) for each in shape.options):
            return node
        if not isinstance(value, str):
            return self._wrong(node, shape)
        words = [each for each in shape.options if isinstance(each, str)]
        message = f'"{value[:60]}" is not {describe(shape)}'
        self.diagnostics.error("value.choice", message, node.location, suggestion(value, words))
        return None

    def _number(self, node: Node, shape: Number) -> Node | None:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int if shape.whole else int | float):
            return self._wrong(node, shape)
        if shape.min is not None and value < shape.min:
            self.diagnostics.error("value.range", f"{value} is less than {shape.min}", node.location)
            return None
        return node

    def _no_value(self, node: Node, shape: NoValue) -> Node | None:
        if not isinstance(node.value, str):
            return self._wrong(node, shape)
        hint = dict(shape.hints).get(node.value) or suggestion(node.value, shape.options)
        message = f'"{node.value[:60]}" is not {describe(shape)}'
        self.diagnostics.error("value.choice", message, node.location, hint)
        return None

    def _wrong(self, node: Node, shape: CheckableShape) -> Node | None:
        hint = None
        if isinstance(shape, Text):
            hint = shape.hint or ("quote it to make it a string" if kind_of(node) == "scalar" else None)
        elif node.value is None and isinstance(shape, Record | MapOf | OneOf | OneOrMore):
            hint = "write {} for an empty one"
        elif isinstance(shape, ListOf) and kind_of(node) != "list":
            hint = "write it as a list: [ ... ]"
        # If the valid values are listed, the type of the invalid one says nothing: `interlock: 2` is an integer, too.
        listed = isinstance(shape, Choice | NoValue) and isinstance(node.value, int)
        found = str(node.value).lower()[:60] if listed else type_name(node.value)
        message = f"expected {describe(shape)}, got {found}"
        self.diagnostics.error("value.type", message, node.location, hint)
        return None
