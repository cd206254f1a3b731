"""Shapes: what each part of a definition may look like, and the check of located values against them.

One truth for two readers: `vocabulary.py` says the shapes once, this file checks texts against them, and `schema.py`
tells them to editors as JSON Schema.

Rule 1: checking never stops at the first problem. What is wrong is told and left out; what is left fits the shape.
Rule 2: which of several shapes is meant is decided before checking, by the kind of value or by a key, so that a problem
is told about the shape that the author meant.
Rule 3: a pattern is written for JSON Schema, and always means the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from interlock.definition.source.node import Located
from interlock.errors import Place
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.field import same_value, type_name

Kind = Literal["text", "list", "mapping", "scalar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string that matches `pattern` as a whole; `expression`: or begins with `=`; `bytes_max`: of its UTF-8."""

    what: str = "a string"
    pattern: str | None = None
    code: str = "value.text"
    hint: str | None = None
    expression: bool = False
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few literals; `expression`: or a text that begins with `=`."""

    options: tuple[str | int | bool, ...]
    expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number; `whole`: an integer; `min`: the least."""

    whole: bool = False
    min: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anything:
    """Any JSON value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list of one shape, with at least `min` items."""

    item: Shape
    what: str
    min: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping with free keys of one shape, at least `min` of them.

    `keep`: a value that does not fit counts as an empty mapping, so that its key can still be referred to.
    """

    key: Text
    value: Shape
    what: str
    min: int = 0
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a record: its shape, and what editors say about it."""

    name: str
    shape: Shape
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A mapping with fixed keys."""

    what: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One of several shapes, meant when the value is of this kind and has this key (with this text, or of this kind).

    `first` looks at the kind of a list's first item instead.
    """

    kind: Kind
    shape: Shape
    key: str | None = None
    equals: str | None = None
    inner: Kind | None = None
    first: Kind | None = None

    def meant(self, node: Located) -> bool:
        """Whether the author means this one."""
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
class Cases:
    """Several shapes; the first that is meant counts."""

    what: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Never:
    """No value fits: the key stands here only to say what would. `hints`: value -> what to do instead."""

    options: tuple[str, ...]
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A shape by name: shapes may hold themselves."""

    name: str


Refusing = Text | Choice | Boolean | Number | ListOf | MapOf | Record | Cases | Never
Shape = Refusing | Anything | Ref


def kind_of(node: Located) -> Kind:
    """What sort of value this is, as far as shapes tell them apart."""
    if isinstance(node.value, str):
        return "text"
    if isinstance(node.value, list):
        return "list"
    return "mapping" if isinstance(node.value, dict) else "scalar"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of JSON Schema as Python's, which has a class of its own for letters and digits of any script."""
    return re.compile(pattern.replace(r"\p{L}\p{N}_", r"\w"))


def what_fits(shape: Refusing) -> str:
    """A few words for the values that fit a shape."""
    match shape:
        case Choice():
            words = [str(each).lower() if isinstance(each, bool) else str(each) for each in shape.options]
            return " or ".join(words + ["an expression"] * shape.expression)
        case Boolean():
            return "true or false"
        case Number():
            return "an integer" if shape.whole else "a number"
        case Never():
            return " or ".join(shape.options)
        case _:
            return shape.what


_KEYS_SHOWN_MAX = 8
"""A record with more keys than this does not list them all in a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks located values; `shapes` are the named ones, `foreign` other tools' words for our keys."""

    shapes: Mapping[str, Shape]
    foreign: Mapping[str, str]
    findings: Findings

    def check(self, node: Located, shape: Shape) -> Located | None:
        """The part of the value that fits; None, with a finding, when there is none."""
        match shape:
            case Anything():
                return node
            case Ref():
                return self.check(node, self.shapes[shape.name])
            case Cases():
                return self._cases(node, shape)
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
                return self._never(node, shape)

    def _cases(self, node: Located, shape: Cases) -> Located | None:
        for case in shape.cases:
            if case.meant(node):
                return self.check(node, case.shape)
        marks = list(dict.fromkeys(case.key for case in shape.cases if case.key is not None))
        if marks and isinstance(node.value, dict):
            near = (suggestion(key, marks) for key in node.value)
            hint = next((each for each in near if each is not None), None)
            self.findings.error("key.missing", f"{shape.what} has one of the keys {', '.join(marks)}", node.place, hint)
            return None
        return self._wrong(node, shape)

    def _record(self, node: Located, shape: Record) -> Located | None:
        if not isinstance(node.value, dict):
            return self._wrong(node, shape)
        known = {each.name: each for each in shape.keys}
        fitting: dict[str, Located] = {}
        for name, value in node.value.items():
            if name not in known:
                hint = self._unknown_hint(name, known, shape)
                self.findings.error("key.unknown", f'{shape.what} has no key "{name[:60]}"', node.keys[name], hint)
            elif (fits := self.check(value, known[name].shape)) is not None:
                fitting[name] = fits
        required = [each.name for each in shape.keys if each.required]
        for name in required:
            if name not in node.value:
                self.findings.error("key.missing", f'{shape.what} needs the key "{name}"', node.place)
        if any(name not in fitting for name in required):
            return None
        return Located(fitting, node.place, node.keys)

    def _unknown_hint(self, name: str, known: Mapping[str, Key], shape: Record) -> str | None:
        foreign = self.foreign.get(name)
        if foreign is not None and foreign in known:
            return f'here it is called "{foreign}"'
        owners = [
            each.what for each in self._records() if each is not shape and any(name == key.name for key in each.keys)
        ]
        # A slip of the pen is likelier than a key at the wrong place only where the word is known nowhere else.
        if owners:
            return f'"{name}" is a key of {" or ".join(owners[:3])}'
        few = f"its keys are {', '.join(known)}" if 0 < len(known) <= _KEYS_SHOWN_MAX else None
        return suggestion(name, known) or few

    def _records(self) -> Iterator[Record]:
        return (each for each in self.shapes.values() if isinstance(each, Record))

    def _map(self, node: Located, shape: MapOf) -> Located | None:
        if not isinstance(node.value, dict):
            return self._wrong(node, shape)
        fitting: dict[str, Located] = {}
        for name, value in node.value.items():
            named = self._fits_text(name, shape.key, node.keys[name])
            fits = self.check(value, shape.value)
            if fits is None and shape.keep:
                fits = Located({}, value.place)
            if named and fits is not None:
                fitting[name] = fits
        return self._enough(Located(fitting, node.place, node.keys), len(node.value), shape)

    def _list(self, node: Located, shape: ListOf) -> Located | None:
        if not isinstance(node.value, list):
            return self._wrong(node, shape)
        fitting = [fits for each in node.value if (fits := self.check(each, shape.item)) is not None]
        return self._enough(Located(fitting, node.place), len(node.value), shape)

    def _enough(self, node: Located, count: int, shape: ListOf | MapOf) -> Located | None:
        if count >= shape.min:
            return node
        self.findings.error("value.empty", f"{shape.what} must not be empty", node.place)
        return None

    def _text(self, node: Located, shape: Text) -> Located | None:
        if not isinstance(node.value, str):
            return self._wrong(node, shape)
        return node if self._fits_text(node.value, shape, node.place) else None

    def _fits_text(self, text: str, shape: Text, place: Place) -> bool:
        if shape.expression and text.startswith("="):
            return True
        if shape.pattern is not None and not compiled(shape.pattern).fullmatch(text):
            self.findings.error(shape.code, f'"{text[:60]}" is not {shape.what}', place, shape.hint)
            return False
        if shape.bytes_max is not None and len(text.encode()) > shape.bytes_max:
            self.findings.error(shape.code, f"{shape.what} may have at most {shape.bytes_max} bytes", place)
            return False
        return True

    def _choice(self, node: Located, shape: Choice) -> Located | None:
        value = node.value
        if shape.expression and isinstance(value, str) and value.startswith("="):
            return node
        if any(same_value(value, each) for each in shape.options):
            return node
        if not isinstance(value, str):
            return self._wrong(node, shape)
        words = [each for each in shape.options if isinstance(each, str)]
        message = f'"{value[:60]}" is not {what_fits(shape)}'
        self.findings.error("value.choice", message, node.place, suggestion(value, words))
        return None

    def _number(self, node: Located, shape: Number) -> Located | None:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int if shape.whole else int | float):
            return self._wrong(node, shape)
        if shape.min is not None and value < shape.min:
            self.findings.error("value.range", f"{value} is less than {shape.min}", node.place)
            return None
        return node

    def _never(self, node: Located, shape: Never) -> Located | None:
        if not isinstance(node.value, str):
            return self._wrong(node, shape)
        hint = dict(shape.hints).get(node.value) or suggestion(node.value, shape.options)
        message = f'"{node.value[:60]}" is not {what_fits(shape)}'
        self.findings.error("value.choice", message, node.place, hint)
        return None

    def _wrong(self, node: Located, shape: Refusing) -> Located | None:
        hint = None
        if isinstance(shape, Text):
            hint = shape.hint or ("quote it to make it a string" if kind_of(node) == "scalar" else None)
        elif node.value is None and isinstance(shape, Record | MapOf | Cases):
            hint = "write {} for an empty one"
        elif isinstance(shape, ListOf) and kind_of(node) != "list":
            hint = "write it as a list: [ ... ]"
        # Where the values are listed, the type of the wrong one says nothing: `interlock: 2` is an integer, too.
        listed = isinstance(shape, Choice | Never) and isinstance(node.value, int)
        found = str(node.value).lower()[:60] if listed else type_name(node.value)
        message = f"expected {what_fits(shape)}, found {found}"
        self.findings.error("value.type", message, node.place, hint)
        return None
