"""Compare Python models with the fields of a chart, when a chart is loaded with them.

Rule 1: a difference that would lose or refuse a value at run time is an error, at the place of the field in the chart,
with the name of the field in the model.
Rule 2: a model is reduced to the field tree of the chart by its JSON Schema, which msgspec and pydantic both write.
What the tree cannot express, such as a union of two objects, is `any`, with a warning.
Rule 3: a context is written and read, so both sides have the same fields. A payload is only written: the model may
leave out a field that the chart does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from interlock.errors import Diagnostic, SourceLocation, UsageError
from interlock.model.charts.chart import Chart
from interlock.model.charts.sendable_events import knows_event, unknown_event
from interlock.model.charts.sites import declared_fields
from interlock.model.diagnostics import Diagnostics, suggestion
from interlock.model.document.field import UNSET, Field, FieldType, same_value
from interlock.model.document.formats import Format
from interlock.model.encoding.convert import is_model_class, is_pydantic_class, is_typed_dict

CONTEXT = "context"
"""The key of `models` for the context of a chart."""

_TYPES: Mapping[str, FieldType] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "object": "object",
    "array": "array",
}
_FORMATS: Mapping[str, Format] = {
    "date-time": "date-time",
    "date": "date",
    "time": "time",
    "decimal": "decimal",
    "uuid": "uuid",
    "duration": "duration",
    "binary": "byte",
    "byte": "byte",
}


@dataclass(slots=True)
class _Reduction:
    """A JSON Schema while it is reduced: its definitions, and what could not be expressed."""

    definitions: Mapping[str, Any]
    inexact: list[str] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)
    open: tuple[str, ...] = ()


def check_models(chart: Chart, models: Mapping[str, type]) -> tuple[Diagnostic, ...]:
    """Return the differences of a chart and its models: `context`, and events by name.

    Raises UsageError for a name that is not an event of the chart, and for what is not a model.
    """
    found = Diagnostics()
    for name, cls in models.items():
        if not (is_model_class(cls) or is_typed_dict(cls)):
            hint = "use a dataclass, a msgspec Struct, a pydantic model or a TypedDict"
            raise UsageError(f"the model of `{name}` is {cls!r:.80}", code="model.malformed", hint=hint)
        if name == CONTEXT:
            fields = declared_fields(chart)
            visible = tuple(each for each in fields.values() if each.name not in chart.hidden_fields)
            _Comparison(found, cls, "the context").compare(visible, both=True)
            continue
        if not knows_event(chart, name):
            raise unknown_event((chart,), name)
        declared = next((each for each in chart.events or () if each.name == name), None)
        if declared is not None and declared.payload is not None:
            comparison = _Comparison(found, cls, f"the payload of `{name}`", declared.location)
            comparison.compare(declared.payload, both=False)
    return found.sorted()


class _Comparison:
    """One model and the fields of the chart that it describes."""

    def __init__(self, found: Diagnostics, cls: type, what: str, location: SourceLocation | None = None) -> None:
        self.found = found
        self.name = f"{cls.__module__}.{cls.__qualname__}"
        self.cls = cls
        self.what = what
        self.location = location or SourceLocation()

    def compare(self, fields: tuple[Field, ...], *, both: bool) -> None:
        """Report every difference. `both`: the model is also read from the chart's fields."""
        try:
            model, reduction = model_fields(self.cls)
        except TypeError as error:
            hint = "use types that have a JSON form: see the table of `interlock.load`"
            location = fields[0].location if fields else self.location
            self.found.error("model.type", f"`{self.name}` has a field without a JSON form: {error}", location, hint)
            return
        for path in reduction.sets:
            message = f"`{self.name}.{path}` is a set, whose order differs from process to process"
            self.found.error("model.type", message, self._place(fields, path), "use a list, and sort it")
        for path in reduction.inexact:
            message = f"`{self.name}.{path}` has a type that a field cannot express; it is not compared"
            self.found.warning("model.inexact", message, self._place(fields, path))
        self._objects(fields, model, "", both=both)

    def _place(self, fields: tuple[Field, ...], path: str) -> SourceLocation:
        name = path.partition(".")[0].partition("[")[0]
        return next((each.location for each in fields if each.name == name), self.location)

    def _objects(self, fields: tuple[Field, ...], model: tuple[Field, ...], prefix: str, *, both: bool) -> None:
        written = {each.name: each for each in model}
        known = {each.name for each in fields}
        for each in fields:
            path = f"{prefix}{each.name}"
            if each.name in written:
                self._field(each, written[each.name], path, both=both, top=not prefix)
                if both and prefix and written[each.name].required and not each.required:
                    message = f"`{path}` of {self.what} may be absent, and `{self.name}.{path}` has no default"
                    hint = "write `required: true`, or give the model's field a default"
                    self.found.error("model.missing_field", message, each.location, hint)
            elif both or (each.required and each.default is UNSET):
                message = f"`{path}` of {self.what} is not a field of `{self.name}`"
                hint = f"add `{each.name}` to the model, or remove it from the chart"
                self.found.error("model.missing_field", message, each.location, hint)
        for each in model:
            if each.name not in known:
                message = f"`{self.name}.{prefix}{each.name}` is not a field of {self.what}"
                hint = suggestion(each.name, known) or f"add `{each.name}` to the chart, or remove it from the model"
                location = fields[0].location if fields else self.location
                self.found.error("model.unknown_field", message, location, hint)

    def _field(self, chart: Field, model: Field, path: str, *, both: bool, top: bool = False) -> None:
        if "any" in (chart.type, model.type):
            return
        place, at = f"`{self.name}.{path}`", chart.location
        reads_integer = both and (chart.type, model.type) == ("number", "integer")
        if chart.type != model.type and (reads_integer or (chart.type, model.type) != ("number", "integer")):
            message = f"`{path}` is of type {chart.type} in the chart, and of type {model.type} in {place}"
            self.found.error("model.type", message, at, "make the types equal")
            return
        if chart.format is not None and model.format is not None and chart.format != model.format:
            message = f"`{path}` has the format {chart.format} in the chart, and {model.format} in {place}"
            self.found.error("model.type", message, at, "make the formats equal")
        if model.nullable and not chart.nullable:
            message = f"{place} may be None, and `{path}` of {self.what} may not be null"
            self.found.error("model.nullable", message, at, "write `nullable: true`, or a type without None")
        unset = top and chart.default is UNSET and not chart.required  # it has no initial value
        if both and (chart.nullable or unset) and not model.nullable:
            message = f"`{path}` of {self.what} may be null, and {place} may not be None"
            self.found.error("model.nullable", message, at, f"write `{path}: ... | None` in the model, or a `default`")
        if model.enum is not None or chart.enum is not None:
            self._enum(chart, model, path, both=both)
        if chart.items is not None and model.items is not None:
            self._field(replace(chart.items, location=at), model.items, f"{path}[]", both=both)
        if chart.fields is not None and model.fields is not None:
            self._objects(chart.fields, model.fields, f"{path}.", both=both)

    def _enum(self, chart: Field, model: Field, path: str, *, both: bool) -> None:
        chart_only = _difference(chart.enum, model.enum)
        model_only = _difference(model.enum, chart.enum)
        if model_only or (both and chart_only):
            message = f"`{path}` has other values in the chart than in `{self.name}.{path}`"
            one_side = ", ".join(repr(each) for each in (*chart_only, *model_only)[:5])
            self.found.error(
                "model.enum", message, chart.location, f"only one side has {one_side or 'a list of values'}"
            )


def _difference(left: tuple[Any, ...] | None, right: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Return the values of one list that another one lacks; None is a list of all values."""
    if right is None:
        return ()
    if left is None:
        return ("any other value",)
    return tuple(each for each in left if each is not None and not any(same_value(each, other) for other in right))


# From a model to fields


def model_fields(cls: type) -> tuple[tuple[Field, ...], _Reduction]:
    """Return the fields of a model. Raises TypeError when a type of it has no JSON form."""
    schema = _schema_of(cls)
    reduction = _Reduction(schema.get("$defs", {}))
    reduced = _reduce(schema, cls.__name__, "", reduction)
    return reduced.fields or (), reduction


def _schema_of(cls: type) -> dict[str, Any]:
    if is_pydantic_class(cls):
        schema: dict[str, Any] = cls.model_json_schema(mode="serialization")  # type: ignore[attr-defined]  # pydantic's
        return schema
    return msgspec.json.schema(cls, schema_hook=_nested_schema)


def _nested_schema(cls: type) -> dict[str, Any]:
    """Return the schema of a pydantic model inside another model, without references."""
    if not is_pydantic_class(cls):
        raise NotImplementedError  # so msgspec knows that the type has no schema
    schema = _schema_of(cls)
    inlined: dict[str, Any] = _inline(schema, schema.get("$defs", {}), ())
    return inlined


def _inline(schema: Any, definitions: Mapping[str, Any], open_names: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inline(each, definitions, open_names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        return {} if name in open_names else _inline(definitions.get(name, {}), definitions, (*open_names, name))
    return {key: _inline(each, definitions, open_names) for key, each in schema.items() if key != "$defs"}


def _reduce(schema: Mapping[str, Any], name: str, path: str, reduction: _Reduction) -> Field:
    """Return the field that accepts what a schema accepts, or more."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = reference.rpartition("/")[2]
        if target in reduction.open:  # a model that contains itself
            return Field(name=name)
        before, reduction.open = reduction.open, (*reduction.open, target)
        found = _reduce(reduction.definitions.get(target, {}), name, path, reduction)
        reduction.open = before
        return found
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if isinstance(options, list):
        return _reduce_union([each for each in options if isinstance(each, dict)], name, path, reduction)
    if "const" in schema or "enum" in schema:
        return _reduce_enum(tuple(schema["enum"] if "enum" in schema else [schema["const"]]), name)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _reduce_union([{**schema, "type": each} for each in kinds], name, path, reduction)
    kind = _TYPES.get(str(kinds))
    if kind is None:
        return Field(name=name, nullable=kinds == "null")
    if kind == "object" and "properties" in schema:
        return Field(name=name, type=kind, fields=tuple(_properties(schema, path, reduction)))
    if kind == "array":
        if schema.get("uniqueItems"):
            reduction.sets.append(path)
        items = schema.get("items")
        inner = _reduce(items, "items", f"{path}[]", reduction) if isinstance(items, dict) else None
        return Field(name=name, type=kind, items=inner)
    if kind == "string":
        written = "byte" if schema.get("contentEncoding") == "base64" else str(schema.get("format"))
        return Field(name=name, type=kind, format=_FORMATS.get(written))
    return Field(name=name, type=kind)


def _properties(schema: Mapping[str, Any], path: str, reduction: _Reduction) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, each in schema["properties"].items():
        inner = _reduce(each, name, f"{path}.{name}" if path else name, reduction)
        yield replace(inner, name=name, required=name in required)


def _reduce_union(options: list[dict[str, Any]], name: str, path: str, reduction: _Reduction) -> Field:
    found = [_reduce(each, name, path, reduction) for each in options if each.get("type") != "null"]
    nullable = len(found) < len(options) or any(each.nullable for each in found)
    if not found:
        return Field(name=name, nullable=True)
    first = found[0]
    if all(replace(each, nullable=False) == replace(first, nullable=False) for each in found):
        return replace(first, nullable=nullable)
    if {each.type for each in found} <= {"integer", "number"}:
        return Field(name=name, type="number", nullable=nullable)
    if all(each.enum is not None and each.type == first.type for each in found):
        values = tuple(value for each in found for value in each.enum or ())
        return replace(first, enum=values, nullable=nullable)
    reduction.inexact.append(path)
    return Field(name=name, nullable=nullable)


def _reduce_enum(values: tuple[Any, ...], name: str) -> Field:
    kinds = {type(each) for each in values if each is not None}
    types: Mapping[type, FieldType] = {str: "string", int: "integer", float: "number", bool: "boolean"}
    kind = types.get(kinds.pop(), "any") if len(kinds) == 1 else "any"
    shown = tuple(each for each in values if each is not None)
    return Field(name=name, type=kind, enum=shown, nullable=None in values)
