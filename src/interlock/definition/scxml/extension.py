r"""Keys that SCXML does not have, as attributes of our namespace: JSON by field name (`extension_json.py`), or text.

Rule 1: a column of the vocabulary's table decides which fields of the model are written here: every key that is not
        native to SCXML is an attribute, as its text if it is a plain text or a choice, otherwise as JSON.
Rule 2: a value is written as in YAML: a text that starts with `=` is an expression, a literal one is written `\=`.
Rule 3: reading checks types; an invalid value is reported and counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from interlock.definition import extension_json
from interlock.definition.codec import read_value, write_value
from interlock.definition.extension_json import Leaves, WrongValueError
from interlock.definition.scxml.structure import INTERLOCK
from interlock.definition.shapes import Choice, Key, Record, Ref, Scope, ShapeChecker, Text, extras, extras_of
from interlock.definition.source.node import Node
from interlock.definition.source.xml import Element
from interlock.definition.vocabulary.chart import CODECS, SHAPES
from interlock.errors import SourceLocation
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.actions import Guard, Value
from interlock.model.document.document import EventType
from interlock.model.document.field import Field, type_name
from interlock.model.encoding.codec import UNDECODABLE

T = TypeVar("T")
_GUARD = CODECS.named("guard")


def plain_json(plain: Any) -> str:
    """Plain JSON as text."""
    return msgspec.json.encode(plain).decode()


def value_json(value: Value) -> str:
    """The value as JSON text."""
    return plain_json(write_value(value))


def guard_json(guard: Guard | None) -> str:
    """The guard as JSON text, written as in YAML."""
    return plain_json(None if guard is None else _GUARD.write(guard, Scope()))


def model_json(value: Any) -> str:
    """A value of the model, or a tuple of them, as JSON text by field name."""
    return plain_json(extension_json.write(value, _LEAVES))


def field_json(field: Field) -> str:
    """A field of the context as JSON text, without its name."""
    tree = extension_json.write(field, _LEAVES)
    return plain_json({key: each for key, each in tree.items() if key != "name"})


_LEAVES = Leaves(plain=frozenset({"enum", "properties"}), mappings=True)


def attribute_name(key: Key) -> str:
    """The attribute of our namespace that a key is written as."""
    return key.scxml or key.attribute


def extra_attributes(record: Record, value: Any) -> Iterator[tuple[str, str]]:
    """The attributes of a value, without their prefix, that differ from the defaults of its fields."""
    for key in extras_of(record, value, "scxml"):
        written = extension_json.write_field(value, key.attribute, _LEAVES)
        yield attribute_name(key), written if _is_text(key) else plain_json(written)


def _is_text(key: Key) -> bool:
    shape = key.shape
    return isinstance(shape, Text | Choice) and not shape.expression


class Extension:
    """Reads the attributes of our namespace; an invalid one is reported and counts as absent."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics

    def text(self, element: Element, name: str) -> str | None:
        """The text of an attribute."""
        return element.get(name, INTERLOCK)

    def choice(self, element: Element, name: str, known: tuple[str, ...], default: Any, space: str = INTERLOCK) -> Any:
        """The value of an attribute with few known values, else the default."""
        text = element.get(name, space)
        if text is None or text in known:
            return default if text is None else text
        message = f'{name} must be {" or ".join(known)}, not "{text}"'
        self.diagnostics.error("scxml.value", message, element.at(name, space), suggestion(text, known))
        return default

    def extras(self, element: Element, record: Record) -> dict[str, Any]:
        """The fields of the model that the attributes of an element fill."""
        assert record.makes is not None
        found = {}
        for key in extras(record, "scxml"):
            name = attribute_name(key)
            if element.get(name, INTERLOCK) is None:
                continue
            if isinstance(key.shape, Choice):
                value = self.choice(element, name, tuple(map(str, key.shape.options)), None)
            elif _is_text(key):
                value = self.text(element, name)
            else:
                value = self._model(element, name, record.makes, key.attribute)
            if value is not None:
                found[key.attribute] = value
        return found

    def model(self, element: Element, name: str, owner: type[Any]) -> Any:
        """The value of a field of a class in an attribute of the same name; None if it is absent or invalid."""
        return self._model(element, name, owner, name)

    def _model(self, element: Element, name: str, owner: type[Any], field: str) -> Any:
        plain, location = self.plain(element, name), element.at(name, INTERLOCK)
        if plain is None:
            return None
        node = Node.within(plain, location)
        return self._checked(location, lambda: extension_json.read_field(node, owner, field, _LEAVES))

    def _record(self, plain: Any, location: SourceLocation, made: type[Any]) -> Any:
        return self._checked(location, lambda: extension_json.read(Node.within(plain, location), made, _LEAVES))

    def _checked(self, location: SourceLocation, read: Callable[[], Any]) -> Any:
        """The value; None, and a diagnostic, if its JSON is of another type."""
        try:
            return read()
        except WrongValueError as wrong:
            message = f"expected {wrong.expected}, got {type_name(wrong.node.plain())}"
            self.diagnostics.error("scxml.extension", message, location)
            return None

    def plain(self, element: Element, name: str, shape: type[T] | Any = Any) -> T | Any:
        """The JSON of an attribute, checked against a type; None if it is absent or invalid."""
        text = element.get(name, INTERLOCK)
        return None if text is None else self._decoded(text, element.at(name, INTERLOCK), shape)

    def _decoded(self, text: str, location: SourceLocation, shape: type[T] | Any = Any) -> T | Any:
        try:
            return msgspec.json.decode(text, type=shape)
        except UNDECODABLE as error:
            self.diagnostics.error("scxml.extension", f"invalid JSON: {error}", location)
            return None

    def value(self, element: Element, name: str) -> Value:
        """The value in an attribute."""
        return read_value(Node.within(self.plain(element, name), element.at(name, INTERLOCK)))

    def guard(self, element: Element, name: str) -> Guard | None:
        """The guard in an attribute."""
        plain, location = self.plain(element, name), element.at(name, INTERLOCK)
        if plain is None:
            return None
        checker = ShapeChecker(shapes=SHAPES, foreign={}, diagnostics=Diagnostics())
        node = checker.check(Node.within(_escaped_names(plain), location), Ref(name="guard"))
        if node is None or checker.diagnostics.has_errors:
            self.diagnostics.error("scxml.extension", "expected a guard", location)
            return None
        guard: Guard = _GUARD.read(node, Scope())
        return guard

    def field(self, name: str, element: Element) -> Field:
        """A field of the context; its attribute `field` has everything except the name and the default."""
        plain = self.plain(element, "field", dict[str, Any]) or {}
        made = self._record({**plain, "name": name}, element.location, Field)
        return Field(name=name, location=element.location) if made is None else made

    def events(self, element: Element) -> tuple[EventType, ...]:
        """The declared events, from the JSON inside an element."""
        found = self._decoded(element.text, element.location, list[dict[str, Any]]) or ()
        made = [self._record(each, element.location, EventType) for each in found]
        return tuple(each for each in made if each is not None)


def _escaped_names(plain: Any) -> Any:
    """The guard with a literal leading `=` of a name escaped: older files write `{"name": "=x"}` as it is."""
    if isinstance(plain, list):
        return [_escaped_names(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    name = plain.get("name")
    if isinstance(name, str) and name.startswith("="):
        return {**plain, "name": f"\\{name}"}
    return {key: each if key == "with" else _escaped_names(each) for key, each in plain.items()}
