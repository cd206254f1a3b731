r"""What SCXML has no words for, as JSON in attributes of our namespace: values, guards, fields, declared events.

Rule 1: a value is written as in YAML: a text that begins with `=` is an expression, a literal one is written `\=`.
Rule 2: what the dataclasses of `model/` say is what is written; defaults and places are left out.
Rule 3: reading checks types; a wrong one is a finding, never an exception.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, TypeVar

import msgspec

from interlock.definition.scxml.structure import INTERLOCK
from interlock.definition.source.xml import Element
from interlock.errors import Place
from interlock.model.diagnostics import Findings, suggestion
from interlock.model.document.actions import (
    Expression,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    Value,
)
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field

T = TypeVar("T")


def value_json(value: Value) -> str:
    """The value as JSON text."""
    return plain_json(plain_value(value))


def plain_json(plain: Any) -> str:
    """Plain JSON as text."""
    return msgspec.json.encode(plain).decode()


def plain_value(value: Value) -> Any:
    """The value as plain JSON, expressions as texts with a leading `=`."""
    if isinstance(value, str):
        return f"\\{value}" if value.lstrip("\\").startswith("=") else value
    if isinstance(value, Expression):
        return f"= {value.text}"
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    return value


def value_from(plain: Any, place: Place) -> Value:
    """The value that plain JSON means."""
    if isinstance(plain, str):
        if plain.startswith("="):
            return Expression(plain[1:].strip(), place)
        return plain[1:] if plain.startswith("\\") and plain.lstrip("\\").startswith("=") else plain
    if isinstance(plain, dict):
        return {key: value_from(each, place) for key, each in plain.items()}
    if isinstance(plain, list):
        return [value_from(each, place) for each in plain]
    return plain


def guard_plain(guard: Guard) -> Any:
    """The guard as YAML writes it."""
    match guard:
        case GuardName(arguments=None):
            return plain_value(guard.name)
        case GuardName():
            return {"name": guard.name, "with": plain_value(guard.arguments)}
        case GuardExpression():
            return f"= {guard.expression.text}"
        case GuardAll():
            return {"all": [guard_plain(each) for each in guard.guards]}
        case GuardAny():
            return {"any": [guard_plain(each) for each in guard.guards]}
        case GuardNot():
            return {"not": guard_plain(guard.guard)}
        case _:
            return {"in": guard.state}


def guard_from(plain: Any, place: Place) -> Guard:
    """The guard that plain JSON means. Raises ValueError when it means none."""
    match plain:
        case str() if plain.startswith("="):
            return GuardExpression(expression=Expression(plain[1:].strip(), place), place=place)
        case str():
            return GuardName(name=value_from(plain, place), place=place)
        case {"name": str() as name, **rest} if set(rest) <= {"with"}:
            return GuardName(name=name, arguments=value_from(rest.get("with"), place), place=place)
        case {"all": list() as inner}:
            return GuardAll(guards=tuple(guard_from(each, place) for each in inner), place=place)
        case {"any": list() as inner}:
            return GuardAny(guards=tuple(guard_from(each, place) for each in inner), place=place)
        case {"not": inner}:
            return GuardNot(guard=guard_from(inner, place), place=place)
        case {"in": str() as state}:
            return GuardIn(state=state, place=place)
        case _:
            raise ValueError("this is no guard")


_VALUES = ("default", "dedupe")


def said(value: Any) -> Any:
    """What a value of the model says, as plain JSON: no places, no defaults."""
    if isinstance(value, Expression):
        return plain_value(value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in fields(value) if each.name != "place"}
        unsaid = {each.name for each in fields(value) if found.get(each.name) is _default(each)}
        return {
            name: plain_value(each) if name in _VALUES else said(each)
            for name, each in found.items()
            if name not in unsaid
        }
    return [said(each) for each in value] if isinstance(value, tuple) else value


def _default(field: Any) -> Any:
    return None if field.default is MISSING else field.default


class Extension:
    """Reads the attributes of our namespace; a wrong one becomes a finding and counts as absent."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def text(self, element: Element, name: str) -> str | None:
        """The text of an attribute."""
        return element.get(name, INTERLOCK)

    def choice(self, element: Element, name: str, known: tuple[str, ...], default: Any, space: str = INTERLOCK) -> Any:
        """The text of an attribute that has a few known values, else the default."""
        text = element.get(name, space)
        if text is None or text in known:
            return default if text is None else text
        message = f'{name} is "{text}"; it may be {" or ".join(known)}'
        self.findings.error("scxml.value", message, element.at(name, space), suggestion(text, known))
        return default

    def plain(self, element: Element, name: str, shape: type[T] | Any = Any) -> T | Any:
        """The JSON of an attribute, checked to have a shape; None when it is absent or wrong."""
        text = element.get(name, INTERLOCK)
        return None if text is None else self.decoded(text, element.at(name, INTERLOCK), shape)

    def decoded(self, text: str, place: Place, shape: type[T] | Any = Any) -> T | Any:
        """The JSON of a text, checked to have a shape."""
        try:
            return msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            self.findings.error("scxml.extension", f"the JSON is wrong: {error}", place)
            return None

    def value(self, element: Element, name: str) -> Value:
        """The value an attribute holds."""
        return value_from(self.plain(element, name), element.at(name, INTERLOCK))

    def guard(self, element: Element, name: str) -> Guard | None:
        """The guard an attribute holds."""
        plain = self.plain(element, name)
        try:
            return None if plain is None else guard_from(plain, element.at(name, INTERLOCK))
        except ValueError as error:
            self.findings.error("scxml.extension", str(error), element.at(name, INTERLOCK))
            return None

    def field(self, name: str, plain: dict[str, Any], place: Place) -> Field:
        """A field of the context, from what `said` wrote."""
        plain = {**plain, "name": name}
        try:
            return _field(msgspec.convert(plain, type=Field), plain, place)
        except msgspec.ValidationError as error:
            self.findings.error("scxml.extension", f"the field is wrong: {error}", place)
            return Field(name=name, place=place)

    def events(self, element: Element) -> tuple[EventType, ...]:
        """The declared events, from the JSON inside an element."""
        place = element.place
        made = []
        for plain in self.decoded(element.text, place, list[dict[str, Any]]) or ():
            values = {name: value_from(plain.pop(name, None), place) for name in ("permit", "dedupe")}
            try:
                event = msgspec.convert(plain, type=EventType)
            except msgspec.ValidationError as error:
                self.findings.error("scxml.extension", f"the event is wrong: {error}", place)
                continue
            payload = None
            if event.payload is not None:
                pairs = zip(event.payload, plain["payload"], strict=True)
                payload = tuple(_field(spec, each, place) for spec, each in pairs)
            made.append(replace(event, payload=payload, place=place, **values))
        return tuple(made)


def _field(spec: Field, plain: dict[str, Any], place: Place) -> Field:
    """The field with its values read, and its bounds as written: decoding makes every bound a float."""
    items, inner = spec.items, spec.fields
    return replace(
        spec,
        default=UNSET if spec.default is UNSET else value_from(spec.default, place),
        min=plain.get("min"),
        max=plain.get("max"),
        items=None if items is None else _field(items, plain["items"], place),
        fields=None if inner is None else tuple(map(_field, inner, plain["fields"], [place] * len(inner))),
        place=place,
    )
