"""The vocabulary as JSON Schema (draft-07), for editors and for checkers in other languages.

Rule 1: generated from the tables in `vocabulary/`; no key is named here.
Rule 2: the schema refuses a definition for its shape if and only if the reader does. Where the schema is weaker (it
        counts bytes as characters), the reader decides.
"""

from __future__ import annotations

from typing import Any

from interlock.definition.shapes import (
    Boolean,
    Choice,
    Json,
    Key,
    ListOf,
    MapOf,
    NoValue,
    Number,
    OneOf,
    OneOrMore,
    Record,
    Ref,
    Shape,
    Text,
    Value,
)
from interlock.definition.vocabulary.chart import SHAPES


def json_schema() -> dict[str, Any]:
    """The schema of a whole definition, as plain JSON."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Interlock definition",
        "description": "A statechart in the vocabulary `interlock: 1`.",
        "$ref": "#/definitions/chart",
        "definitions": {name: _schema(shape) for name, shape in SHAPES.items()},
    }


def _schema(shape: Shape) -> dict[str, Any]:
    match shape:
        case Json() | Value():
            return {}
        case Ref():
            return {"$ref": f"#/definitions/{shape.name}"}
        case Boolean():
            return {"type": "boolean"}
        case NoValue():
            return {"not": {}}
        case Number():
            kind = "integer" if shape.whole else "number"
            return {"type": kind} if shape.min is None else {"type": kind, "minimum": shape.min}
        case Choice():
            options: dict[str, Any] = {"enum": list(shape.options)}
            return {"anyOf": [options, {"type": "string", "pattern": "^="}]} if shape.expression else options
        case Text():
            return _text(shape)
        case ListOf():
            return {"type": "array", "items": _schema(shape.item), **({"minItems": shape.min} if shape.min else {})}
        case MapOf():
            return _map(shape)
        case Record():
            return _record(shape)
        case OneOrMore():
            several = ListOf(item=shape.item, what=shape.list_what, min=shape.min)
            return {"anyOf": [*_options(shape.item), _schema(several)]}
        case _:
            return {"anyOf": _options(shape)}


def _options(shape: Shape) -> list[dict[str, Any]]:
    """The schemas of which one must match."""
    return [_schema(each.shape) for each in shape.options] if isinstance(shape, OneOf) else [_schema(shape)]


def _text(shape: Text) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if shape.pattern is not None:
        schema["pattern"] = f"^(?:=|(?:{shape.pattern})$)" if shape.expression else f"^(?:{shape.pattern})$"
    if shape.bytes_max is not None and not shape.expression:
        schema["maxLength"] = shape.bytes_max
    return schema


def _map(shape: MapOf) -> dict[str, Any]:
    names = {key: value for key, value in _text(shape.key).items() if key != "type"}
    return {
        "type": "object",
        **({"propertyNames": names} if names else {}),
        "additionalProperties": _schema(shape.value),
        **({"minProperties": shape.min} if shape.min else {}),
    }


def _record(shape: Record) -> dict[str, Any]:
    required = [each.name for each in shape.keys if each.required]
    return {
        "type": "object",
        "description": f"{shape.what[:1].upper()}{shape.what[1:]}.",
        "properties": {each.name: _property(each) for each in shape.keys},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(key: Key) -> dict[str, Any]:
    """The schema of a key with its tooltip. Draft-07 ignores the neighbours of a `$ref`, hence the `allOf`."""
    schema = _schema(key.shape)
    if "$ref" in schema:
        schema = {"allOf": [schema]}
    return {"description": key.description, **schema}
