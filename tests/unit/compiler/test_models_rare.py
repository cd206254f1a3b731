"""Models of rare shapes are compared with the chart: models inside other models, unions, sets, absent fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import interlock
from interlock.errors import DefinitionError, UsageError

PARCEL = """
interlock: 1
kind: parcel
context:
  box:
    type: object
    required: true
    fields: {size: {type: integer, required: true}, note: {type: string, nullable: true}}
  level: {type: any}
events:
  noted:
    payload:
      box: {type: object, fields: {size: integer, note: {type: string, required: false, nullable: true}}}
states: {open: {on: {noted: {actions: [{log: noted}]}}, expect: {within: forever}}}
"""


class Leaf(pydantic.BaseModel):
    """A model that refers to itself."""

    size: int
    note: str | None = None


class Branch(pydantic.BaseModel):
    """A model that contains another twice and itself."""

    left: Leaf
    right: Leaf
    more: list[Branch] = []


@dataclass
class Holder:
    """A dataclass with a pydantic model."""

    box: Leaf
    level: Any = None


class Note(TypedDict):
    """An object whose field may be absent."""

    size: NotRequired[int]


class Loose(msgspec.Struct):
    """A context whose object may lack a field that the chart requires, and one that the chart has."""

    box: Note
    level: Any = None


class Kind(Enum):
    """An enum."""

    ONE = 1
    TWO = 2


class Wide(msgspec.Struct):
    """Fields of kinds that a chart writes in other ways."""

    box: Note | None
    level: Literal["a", "b"] | None = None


@dataclass
class Plain:
    """A payload that is a dataclass with a model."""

    box: Leaf


def load(context: Any = None, text: str = PARCEL, **models: Any) -> Any:
    """Load a chart with models."""
    if context is None:
        return interlock.loads(text, models=models)
    return interlock.loads(text, context=context, models=models)


def codes(context: Any, text: str = PARCEL, **models: Any) -> set[str]:
    """The codes of the errors of a comparison."""
    with pytest.raises(DefinitionError) as raised:
        load(context, text, **models)
    return {each.code for each in raised.value.diagnostics if each.severity == "error"}


async def test_a_pydantic_model_inside_a_dataclass_fits() -> None:
    chart = load(Holder, noted=Plain)
    async with interlock.open("memory:", charts=[chart], work=False) as runtime:
        created = (await runtime.create("parcel/1", Holder(Leaf(size=1)))).expect()

    assert 1 == chart.context_of(created.snapshot).box.size


def test_a_field_that_may_be_absent_inside_an_object_is_an_error() -> None:
    assert codes(Loose) & {"model.missing_field", "model.type"}


def test_a_model_that_contains_itself_is_read_once() -> None:
    leaf = "{type: object, required: true, fields: {size: {type: integer, required: true}, note: {type: string}}}"
    fields = f"left: {leaf}, right: {leaf}, more: {{type: array, default: []}}"
    text = SHAPES.replace("TYPE", f"type: object, fields: {{{fields}}}")
    wrong = text.replace("size: {type: integer", "size: {type: string")
    struct = msgspec.defstruct("Shape", [("value", Branch)])

    assert (
        "shape" == load(struct, text.replace("note: {type: string}", "note: {type: string, nullable: true}")).chart.kind
    )
    assert "model.type" in codes(struct, wrong)


SHAPES = """
interlock: 1
kind: shape
context:
  value: {TYPE, required: true}
states: {open: {expect: {within: forever}}}
"""


@pytest.mark.parametrize(
    ("written", "annotation", "fits"),
    [
        ("type: integer, enum: [1, 2]", Kind, True),
        ("type: number", int | float, True),
        ("type: string, enum: [a, b]", Literal["a", "b"], True),
        ("type: any", int | str, True),
        ("type: string, format: byte", bytes, True),
        ("type: string", int, False),
        ("type: array, items: {type: integer}", list[int], True),
        ("type: integer, nullable: true", int | None, True),
        ("type: any", None, True),
    ],
)
def test_the_type_of_a_field_is_compared(written: str, annotation: Any, fits: bool) -> None:
    struct = msgspec.defstruct("Shape", [("value", annotation)])
    model = pydantic.create_model("Shape", value=(annotation, ...))
    text = SHAPES.replace("TYPE", written)
    for each in (struct, model):
        if fits:
            assert "shape" == load(each, text).chart.kind
        else:
            assert {"model.type"} == codes(each, text)


def test_a_set_is_refused_with_its_place() -> None:
    assert codes(msgspec.defstruct("Shape", [("value", set[int])]), SHAPES.replace("TYPE", "type: array"))


def test_a_model_of_an_unknown_event_or_of_no_class_is_a_mistake() -> None:
    with pytest.raises(UsageError) as unknown:
        load(None, nothing=Plain)
    with pytest.raises(UsageError) as wrong:
        load(None, noted=5)
    assert ("event.unknown", "model.malformed") == (unknown.value.code, wrong.value.code)


def test_a_format_on_another_type_than_string_is_an_error() -> None:
    assert {"field.format"} == codes(None, SHAPES.replace("TYPE", "type: integer, format: date"))


async def test_a_context_field_is_checked_against_its_format() -> None:
    chart = interlock.loads(SHAPES.replace("TYPE", "type: string, format: date"))
    async with interlock.open("memory:", charts=[chart], work=False) as runtime:
        with pytest.raises((UsageError, interlock.RejectedError), match="date"):
            await runtime.create("shape/1", {"value": "tomorrow"})


class InnerSize(msgspec.Struct):
    """An object whose field has no default."""

    size: int


class WithInner(msgspec.Struct):
    """A context with it."""

    value: InnerSize


class First(Enum):
    """Some words."""

    A = "a"


class Second(Enum):
    """Other words."""

    B = "b"


def with_schema(schema: dict[str, Any]) -> Any:
    """A model whose field has this JSON schema."""
    return pydantic.create_model("Shape", value=Annotated[Any, pydantic.WithJsonSchema(schema)])


def test_a_field_of_an_object_that_may_be_absent_needs_a_default() -> None:
    fields = "{size: {type: integer, required: false}}"
    text = SHAPES.replace("TYPE", f"type: object, fields: {fields}")

    assert {"model.missing_field"} == codes(WithInner, text)
    assert load(WithInner, text.replace("required: false", "required: true"))


def test_a_union_of_enums_is_one_enum() -> None:
    text = SHAPES.replace("TYPE", "type: string, enum: [a, b]")
    model = pydantic.create_model("Shape", value=First | Second)

    assert load(model, text)
    assert codes(model, text.replace("[a, b]", "[a, c]"))


def test_types_are_a_union_and_null_alone_is_a_type() -> None:
    text = SHAPES.replace("TYPE", "type: integer, nullable: true")

    assert load(with_schema({"type": ["integer", "null"]}), text)
    assert codes(with_schema({"type": ["integer", "null"]}), text.replace("integer", "string"))
    assert load(with_schema({"anyOf": [{"type": "null"}]}), SHAPES.replace("TYPE", "nullable: true"))


def test_an_event_without_declared_fields_is_not_compared() -> None:
    text = PARCEL.replace("  noted:\n", "  other: {}\n  noted:\n")

    assert load(text=text, other=Plain)
