"""Reads checked text as values of the model, and writes them back, by the tables of the vocabulary.

Rule 1: a codec reads a checked node and writes a plain value; `write(read(node))` is the shortest form of the node.
Rule 2: a key is not written if its value is the default of its field. A required key is always written.
Rule 3: no key is known by name here; the tables are in `vocabulary/`.
Rule 4: in a scope with `identity`, a codec writes what is hashed: keys that are `out` are left out, a mapping whose
order counts is a list of pairs, and a list whose order does not count is sorted.
Rule 5: a string that starts with `=` is an expression wherever a value may be written; a backslash before it makes it
literal. White space around an expression is not kept. The place of an expression is that of its first character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

from interlock.definition.shapes import (
    Choice,
    Codec,
    Key,
    ListOf,
    MapOf,
    OneOf,
    OneOrMore,
    Record,
    Ref,
    Scope,
    Shape,
    Text,
    Value,
)
from interlock.definition.source.node import Node
from interlock.errors import SourceLocation
from interlock.model.document.actions import Expression
from interlock.model.document.actions import Value as ModelValue

_ESCAPED = re.compile(r"\\+=")
_NEEDS_ESCAPE = re.compile(r"\\*=")


@dataclass(frozen=True, slots=True)
class FunctionCodec:
    """A codec of two functions."""

    read: Callable[..., Any]
    write: Callable[[Any, Scope], Any]


def text_or_expression(text: str, location: SourceLocation) -> str | Expression:
    """A string in a place where an expression is allowed, as a text or an expression."""
    if not text.startswith("="):
        return text[1:] if _ESCAPED.match(text) else text
    inner = text[1:].strip()
    offset = len(text) - len(text[1:].lstrip())
    if location.line == location.end_line and location.end_column - location.column != len(text):
        # A quoted text is longer than its content by the quotes; the content starts after the first one.
        offset += 1
    return Expression(inner, location.shift(offset, offset + len(inner)))


def read_value(node: Node) -> ModelValue:
    """A JSON value in which every string that starts with `=` is an expression."""
    match node.value:
        case str():
            if not node.is_exact and node.value.startswith("="):
                return Expression(node.value[1:].strip(), node.location)
            return text_or_expression(node.value, node.location)
        case dict():
            return {key: read_value(each) for key, each in node.value.items()}
        case list():
            return [read_value(each) for each in node.value]
        case _:
            return node.value


def write_value(value: ModelValue) -> Any:
    """The value as plain JSON, with its expressions as strings."""
    match value:
        case Expression():
            return f"= {value.text}" if value.text else "="
        case str():
            return f"\\{value}" if _NEEDS_ESCAPE.match(value) else value
        case dict():
            return {key: write_value(each) for key, each in value.items()}
        case list() | tuple():
            return [write_value(each) for each in value]
        case _:
            return value


def _write_value(value: ModelValue, scope: Scope) -> Any:
    return _pairs(write_value(value)) if scope.identity else write_value(value)


def _pairs(value: Any) -> Any:
    """A plain value with every mapping as a list of pairs, marked so that no list is equal to it."""
    if isinstance(value, dict):
        return {"": [[key, _pairs(each)] for key, each in value.items()]}
    return [_pairs(each) for each in value] if isinstance(value, list) else value


def write_mapping(tree: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """A mapping with free keys; as a list of pairs where its order is hashed."""
    return {"": [[*each] for each in tree.items()]} if scope.identity and scope.order == "kept" else tree


def write_list(items: list[Any], scope: Scope) -> list[Any]:
    """A list; sorted where its order is not hashed."""
    return sorted(items) if scope.identity and scope.order == "free" else items


def _read_list_or_true(node: Node, scope: Scope) -> Any:
    del scope
    return True if node.value is True else tuple(node.plain())


LIST_OR_TRUE = FunctionCodec(
    _read_list_or_true, lambda value, scope: value if value is True else write_list(list(value), scope)
)
"""A list of texts, or `true` for all of them."""

PLAIN = FunctionCodec(lambda node, scope: node.plain(), lambda value, scope: value)
VALUE = FunctionCodec(lambda node, scope: read_value(node), _write_value)


def tuple_codec(item: Codec) -> Codec:
    """A codec of lists, which are tuples in the model."""
    return FunctionCodec(
        lambda node, scope: tuple([item.read(each, scope) for each in _items(node)]),
        lambda value, scope: write_list([item.write(each, scope) for each in value], scope),
    )


def _items(node: Node) -> list[Node]:
    assert isinstance(node.value, list)
    return node.value


def _mapping(node: Node) -> dict[str, Node]:
    assert isinstance(node.value, dict)
    return node.value


class Codecs:
    """The codecs of all shapes. Each is created at its first use, because shapes refer to each other in cycles."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = shapes
        self._made: dict[int, Codec] = {}

    def of(self, shape: Shape) -> Codec:
        """The codec of a shape."""
        if isinstance(shape, Ref):
            return self.of(self.shapes[shape.name])
        made = self._made.get(id(shape))
        if made is None:
            made = self._made[id(shape)] = self._make(shape)
        return made

    def named(self, name: str) -> Codec:
        """The codec of a named shape."""
        return self.of(self.shapes[name])

    def _make(self, shape: Shape) -> Codec:
        match shape:
            case Text():
                return VALUE if shape.value or shape.expression else PLAIN
            case Choice():
                return VALUE if shape.expression else PLAIN
            case Value():
                return VALUE
            case ListOf():
                return tuple_codec(_Later(self, shape.item))
            case OneOrMore():
                return _one_or_more(_Later(self, shape.item))
            case MapOf():
                return self._map(shape)
            case Record() | OneOf() if shape.codec is not None:
                special: Codec = shape.codec(self, shape)
                return special
            case Record():
                return RecordCodec(self, shape) if shape.inner is None else _InnerCodec(self, shape)
            case OneOf():
                return OneOfCodec(self, shape)
            case _:
                return PLAIN

    def _map(self, shape: MapOf) -> Codec:
        codec, name = _Later(self, shape.value), shape.name
        if name is None:
            return FunctionCodec(
                lambda node, scope: tuple([(key, codec.read(each, scope)) for key, each in _mapping(node).items()]),
                lambda value, scope: write_mapping({key: codec.write(each, scope) for key, each in value}, scope),
            )
        return FunctionCodec(
            lambda node, scope: tuple(
                [
                    codec.read(each, scope, **{name: key}, location=node.keys[key])
                    for key, each in _mapping(node).items()
                ]
            ),
            lambda value, scope: write_mapping(
                {getattr(each, name): codec.write(each, scope) for each in value}, scope
            ),
        )

    def makes(self, shape: Shape) -> type[Any] | None:
        """The class of the model that a shape is read as; None if it is read as no class, or as one of several."""
        match shape:
            case Ref():
                return self.makes(self.shapes[shape.name])
            case Record() if shape.inner is not None:
                return self.makes(shape.keys[0].shape)
            case Record():
                return shape.makes
            case OneOf():
                return next((made for each in shape.options if (made := self.makes(each.shape)) is not None), None)
            case _:
                return None

    def has_short_form(self, shape: Shape) -> bool:
        """Whether this record may be written as a bare text."""
        resolved = self.shapes[shape.name] if isinstance(shape, Ref) else shape
        return isinstance(resolved, Record) and resolved.short is not None


class _Later:
    """The codec of a shape, looked up when it is used."""

    __slots__ = ("codecs", "shape")

    def __init__(self, codecs: Codecs, shape: Shape) -> None:
        self.codecs, self.shape = codecs, shape

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        return self.codecs.of(self.shape).read(node, scope, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        return self.codecs.of(self.shape).write(value, scope)


def _one_or_more(item: Codec) -> Codec:
    def read(node: Node, scope: Scope) -> Any:
        written = node.value if isinstance(node.value, list) else [node]
        return tuple([item.read(each, scope) for each in written])

    def write(value: Any, scope: Scope) -> Any:
        trees = [item.write(each, scope) for each in value]
        return trees[0] if len(trees) == 1 else trees

    return FunctionCodec(read, write)


class RecordCodec:
    """A mapping with fixed keys that is one class of the model; `defaults` replace those of its fields."""

    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, codecs: Codecs, record: Record) -> None:
        whole = record.whole or record
        assert whole.makes is not None
        self.codecs, self.makes, self.short = codecs, whole.makes, whole.short
        defaults = {each.name: None if each.default is MISSING else each.default for each in fields(whole.makes)}
        defaults |= self.defaults
        self.has_location = "location" in defaults
        self.rows: list[tuple[Key, Codec, Any]] = [
            (key, _key_codec(codecs, key), defaults[key.attribute]) for key in whole.keys
        ]

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        """The value of a checked node; `given` are fields that no key of it fills."""
        if self.has_location:
            given.setdefault("location", node.location)
        parts = node.value if isinstance(node.value, dict) else {self.short: node}
        for key, codec, _ in self.rows:
            part = parts.get(key.name)
            if part is not None:
                given[key.attribute] = codec.read(part, scope)
        return self.makes(**given)

    def write(self, value: Any, scope: Scope) -> Any:
        """The shortest form: a bare text if the short key is the only one."""
        tree = self.tree(value, scope)
        if self.short is not None and tree.keys() == {self.short} and isinstance(tree[self.short], str):
            return tree[self.short]
        return tree

    def tree(self, value: Any, scope: Scope) -> dict[str, Any]:
        """The mapping of every key whose value differs from its default."""
        tree = {}
        for key, codec, default in self.rows:
            found = getattr(value, key.attribute)
            if not key.required and (found is default or found == default):
                continue
            if not scope.identity:
                tree[key.name] = codec.write(found, scope)
            elif key.identity == "in" and (key.default is None or found != key.default):
                tree[key.name] = codec.write(found, replace(scope, order=key.order))
        return tree


def _key_codec(codecs: Codecs, key: Key) -> Codec:
    codec: Codec = key.codec or _Later(codecs, key.shape)
    if key.payload is None:
        return codec
    payload = key.payload
    return FunctionCodec(
        lambda node, scope: codec.read(node, replace(scope, payload=payload)),
        lambda value, scope: codec.write(value, replace(scope, payload=payload)),
    )


class _InnerCodec:
    """A mapping with a single key, read as the value of that key: `{raise: event}`."""

    def __init__(self, codecs: Codecs, record: Record) -> None:
        (key,) = record.keys
        self.name, self.codec = key.name, _Later(codecs, key.shape)

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        return self.codec.read(_mapping(node)[self.name], scope, location=node.location, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        return {self.name: self.codec.write(value, scope)}


class OneOfCodec:
    """One of several classes of the model. A bare text belongs to the class whose record has a short form."""

    def __init__(self, codecs: Codecs, shape: OneOf) -> None:
        self.codecs, self.shape = codecs, shape
        mappings = [each.shape for each in shape.options if each.kind == "mapping"]
        self.by_class = {codecs.makes(each): _Later(codecs, each) for each in mappings}
        self.short = next((each for each in mappings if codecs.has_short_form(each)), None)

    def read(self, node: Node, scope: Scope, **given: Any) -> Any:
        """The value of a checked node."""
        if isinstance(node.value, str) and self.short is not None:
            return self.codecs.of(self.short).read(node, scope, **given)
        found = next(each for each in self.shape.options if each.matches(node))
        return self.codecs.of(found.shape).read(node, scope, **given)

    def write(self, value: Any, scope: Scope) -> Any:
        """The shortest form."""
        return self.by_class[type(value)].write(value, scope)
