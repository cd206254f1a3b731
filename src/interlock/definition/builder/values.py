"""Values of the Python builder: expressions, JSON values, names, fields, and the caller's place.

Rule 1: a string is a literal, even if it starts with `=`; an expression is created with `expr`.
Rule 2: an invalid argument raises at the call: `UsageError` for a Python value of the wrong type, `DefinitionError` for
        a text that the vocabulary refuses, with the caller's file and line.
Rule 3: names match the same patterns as in YAML (`vocabulary.names`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeAlias, TypeVar, cast

from interlock.definition.shapes import Text, compile_pattern
from interlock.definition.vocabulary.names import FIELD, NAME
from interlock.errors import DefinitionError, Diagnostic, SourceLocation, UsageError
from interlock.model.diagnostics import suggestion
from interlock.model.document.actions import Expression, Value
from interlock.model.document.field import FIELD_TYPES, UNSET, Field, FieldType, is_text, type_name
from interlock.model.document.formats import FORMATS, Format
from interlock.model.limits import INTEGER_BITS_MAX, VALUE_DEPTH_MAX

Json: TypeAlias = "bool | int | float | str | Expression | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value that may contain an expression anywhere. Tuples are lists."""

Texts: TypeAlias = str | Sequence[str]
"""One text or several."""

OMITTED = cast("Json", UNSET)
"""No default: typed as a value, so that a signature shows what can be given."""

_ROOM = "interlock.definition.builder"
T = TypeVar("T")


def caller_location() -> SourceLocation:
    """The place of the nearest caller outside the builder."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to know the caller's line without building a stack trace
    while str(frame.f_globals.get("__name__", "")).startswith(_ROOM) and frame.f_back is not None:
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, 1, frame.f_lineno, 1)


def definition_error(code: str, message: str, hint: str | None = None) -> DefinitionError:
    """An error with one problem at the caller's place."""
    return DefinitionError([Diagnostic(code=code, message=message, location=caller_location(), hint=hint)])


def usage_error(what: str, expected: str, found: object) -> UsageError:
    """An error about a value of the wrong Python type."""
    return UsageError(f"{what} must be {expected}, not {type_name(found)}", hint=f"see {caller_location()}")


def text(value: object, shape: Text, what: str) -> str:
    """The value if it is a valid text."""
    if not isinstance(value, str):
        raise usage_error(what, shape.what, value)
    _whole(value, what)
    if shape.pattern is not None and not compile_pattern(shape.pattern).fullmatch(value):
        hint = f'write expr("{value[1:].strip()}")' if value.startswith("=") else shape.hint
        raise definition_error(shape.code, f'{what} "{value[:60]}" is not {shape.what}', hint)
    if shape.bytes_max is not None and len(value.encode()) > shape.bytes_max:
        raise definition_error(shape.code, f"{what} has more than {shape.bytes_max} bytes")
    return value


def optional_text(value: object, shape: Text, what: str) -> str | None:
    """The value if it is None or a valid text."""
    return None if value is None else text(value, shape, what)


def texts(value: object, shape: Text, what: str) -> tuple[str, ...]:
    """The value as valid texts; a single one counts as a list of one."""
    if isinstance(value, str):
        return (text(value, shape, what),)
    return tuple(text(each, shape, what) for each in items(value, what))


def optional_texts(value: object, shape: Text, what: str) -> tuple[str, ...] | None:
    """The value as valid texts; None if it is None."""
    return None if value is None else texts(value, shape, what)


def items(value: object, what: str) -> list[object]:
    """The items of a list or another sequence; a string, a mapping or a single value is refused."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise usage_error(what, "a list", value)
    return list(value)


def choice(value: T, options: Sequence[T], what: str) -> T:
    """The value if it is one of the options."""
    if isinstance(value, str) and value not in options:
        words = [str(each) for each in options if each is not None]
        raise definition_error(
            "value.choice", f'{what} "{value}" is not {" or ".join(words)}', suggestion(value, words)
        )
    if value not in options:
        raise usage_error(what, " or ".join(str(each) for each in options if each is not None), value)
    return value


def expr(text: str) -> Expression:
    """Return an expression, for guards and values.

    >>> expr("event.data.amount > context.limit").text
    'event.data.amount > context.limit'

    Raises DefinitionError for an empty text and for one with YAML's leading `=`.
    """
    if not isinstance(text, str):
        raise usage_error("an expression", "a string", text)
    stripped = _whole(text, "an expression").strip()
    if not stripped or stripped.startswith("="):
        hint = "remove the leading `=`, which belongs to YAML" if stripped else None
        raise definition_error(
            "expression.syntax", "this is not an expression" if stripped else "the expression is empty", hint
        )
    return Expression(stripped, caller_location())


def value(given: Json, what: str) -> Value:
    """A copy of the plain value, so that later changes to the caller's lists have no effect."""
    return _value(given, what, 0)


def _whole(given: str, what: str) -> str:
    if not is_text(given):
        raise definition_error("value.text", f"{what} contains a lone surrogate")
    return given


def _value(given: object, what: str, depth: int) -> Value:
    if depth > VALUE_DEPTH_MAX:
        raise definition_error("value.depth", f"{what} is more than {VALUE_DEPTH_MAX} levels deep")
    match given:
        case None | bool() | Expression():
            return given
        case int():
            if given.bit_length() > INTEGER_BITS_MAX:
                raise definition_error(
                    "value.number", f"{what} contains an integer of more than {INTEGER_BITS_MAX} bits"
                )
            return given
        case str():
            return _whole(given, what)
        case float():
            if not isfinite(given):
                raise definition_error("value.number", f"{what} contains {given}, which is not a JSON number")
            return given
        case Mapping():
            for key in given:
                if not isinstance(key, str):
                    raise usage_error(f"a key in {what}", "a string", key)
            return {_whole(key, what): _value(each, what, depth + 1) for key, each in given.items()}
        case bytes() | bytearray():
            raise usage_error(what, "a JSON value", given)
        case Sequence():
            return [_value(each, what, depth + 1) for each in given]
        case _:
            raise usage_error(what, "a JSON value or an expression", given)


def literal(given: Json, what: str) -> Value:
    """The plain value, without expressions."""
    found = value(given, what)
    stack = [found]
    while stack:
        each = stack.pop()
        if isinstance(each, Expression):
            raise definition_error("value.expression", f"{what} cannot contain an expression")
        stack.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
    return found


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A field of the context or a payload. The default of `required` depends on which of the two it is."""

    field: Field
    required: bool | None
    items: FieldPart | None
    fields: tuple[FieldPart, ...] | None


def field(
    name: str,
    type: FieldType = "any",
    *,
    default: Json = OMITTED,
    required: bool | None = None,
    nullable: bool = False,
    enum: Sequence[Json] | None = None,
    min: float | None = None,
    max: float | None = None,
    length_max: int | None = None,
    format: Format | None = None,
    items: FieldType | FieldPart | None = None,
    fields: Sequence[FieldPart] | None = None,
    index: bool = False,
    personal: bool = False,
    description: str | None = None,
) -> FieldPart:
    """Return a field of the context or of an event's payload.

    A field of the context needs one of `default`, `required` and `nullable`. A field of a payload is required unless it
    has a default or `required=False`. `items` is the field of each item of an array, `fields` are those of an object.
    With `index`, entities are found by it; only for fields of the root's context. The value of a `personal` field is
    stored sealed, and can be erased.
    """
    made = Field(
        name=text(name, FIELD, "a field's name"),
        type=choice(type, FIELD_TYPES, "a field's type"),
        default=UNSET if default is OMITTED else _value(default, f"the default of {name}", 0),
        nullable=nullable,
        enum=None if enum is None else tuple(literal(enum, f"the enum of {name}")),
        min=min,
        max=max,
        length_max=length_max,
        format=None if format is None else choice(format, FORMATS, "a field's format"),
        index=index,
        personal=personal,
        description=description,
        location=caller_location(),
    )
    inner = field("items", items) if isinstance(items, str) else items
    return FieldPart(made, required, inner, None if fields is None else field_parts(fields, f"the fields of {name}"))


def string(
    name: str,
    *,
    default: Json = OMITTED,
    required: bool | None = None,
    nullable: bool = False,
    enum: Sequence[str] | None = None,
    length_max: int | None = None,
    format: Format | None = None,
    index: bool = False,
    personal: bool = False,
    description: str | None = None,
) -> FieldPart:
    """Return a field that contains a string."""
    return field(
        name,
        "string",
        default=default,
        required=required,
        nullable=nullable,
        enum=enum,
        length_max=length_max,
        format=format,
        index=index,
        personal=personal,
        description=description,
    )


def integer(
    name: str,
    *,
    default: Json = OMITTED,
    required: bool | None = None,
    nullable: bool = False,
    enum: Sequence[int] | None = None,
    min: int | None = None,
    max: int | None = None,
    index: bool = False,
    personal: bool = False,
    description: str | None = None,
) -> FieldPart:
    """Return a field that contains a whole number."""
    return field(
        name,
        "integer",
        default=default,
        required=required,
        nullable=nullable,
        enum=enum,
        min=min,
        max=max,
        index=index,
        personal=personal,
        description=description,
    )


def number(
    name: str,
    *,
    default: Json = OMITTED,
    required: bool | None = None,
    nullable: bool = False,
    enum: Sequence[float] | None = None,
    min: float | None = None,
    max: float | None = None,
    index: bool = False,
    personal: bool = False,
    description: str | None = None,
) -> FieldPart:
    """Return a field that contains a number."""
    return field(
        name,
        "number",
        default=default,
        required=required,
        nullable=nullable,
        enum=enum,
        min=min,
        max=max,
        index=index,
        personal=personal,
        description=description,
    )


def boolean(
    name: str,
    *,
    default: Json = OMITTED,
    required: bool | None = None,
    nullable: bool = False,
    index: bool = False,
    personal: bool = False,
    description: str | None = None,
) -> FieldPart:
    """Return a field that contains true or false."""
    return field(
        name,
        "boolean",
        default=default,
        required=required,
        nullable=nullable,
        index=index,
        personal=personal,
        description=description,
    )


def field_parts(given: object, what: str) -> tuple[FieldPart, ...]:
    """The fields of a list, with unique names."""
    parts: list[FieldPart] = []
    for each in items(given, what):
        if not isinstance(each, FieldPart):
            raise usage_error(f"each of {what}", 'a field, such as string("name")', each)
        if any(each.field.name == other.field.name for other in parts):
            raise definition_error("key.duplicate", f'the field "{each.field.name}" is declared twice')
        parts.append(each)
    return tuple(parts)


def context_fields(given: object) -> tuple[Field, ...]:
    """Fields of a context: required only if they say so."""
    return tuple(_read_field(each, payload=False) for each in field_parts(given, "the context"))


def payload_fields(given: object) -> tuple[Field, ...]:
    """Fields of a payload: required unless they have a default or say otherwise."""
    return tuple(_read_field(each, payload=True) for each in field_parts(given, "the payload"))


def _read_field(part: FieldPart, *, payload: bool) -> Field:
    required = (payload and part.field.default is UNSET) if part.required is None else part.required
    items = None if part.items is None else replace(_read_field(part.items, payload=False), name="items")
    fields = None if part.fields is None else tuple(_read_field(each, payload=payload) for each in part.fields)
    return replace(part.field, required=required, items=items, fields=fields)


def name(given: object, what: str) -> str:
    """A name under which code is registered: of a handler or a guard."""
    return text(given, NAME, what)
