"""The JSON form of values that are rare: subclasses, models inside models, annotations that cannot be evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest

from interlock.errors import UsageError
from interlock.model.encoding.convert import from_json, to_json, type_hints
from interlock.model.encoding.json_value import context_values
from interlock.model.limits import VALUES_MAX


class Ratio(Enum):
    """An enum of a number with a fraction."""

    HALF = 0.5


class Text(str):
    """A subclass of a JSON type."""

    __slots__ = ()


class Number(int):
    """A subclass of a JSON type."""


class Real(float):
    """A subclass of a JSON type."""


class Inner(pydantic.BaseModel):
    """A model with bytes, which are base64 in JSON."""

    raw: bytes = pydantic.Field(alias="Raw")


class Outer(pydantic.BaseModel):
    """A model with a model."""

    inner: Inner


class Raws(pydantic.BaseModel):
    """A model with a list of bytes."""

    raws: list[bytes]


class Tree(pydantic.BaseModel):
    """A model that contains itself."""

    name: str
    children: list[Tree] = []


@dataclass
class Holder:
    """A dataclass with a pydantic model."""

    inner: Inner


class Unknown:
    """A class that is not a model."""


class Broken(msgspec.Struct):
    """A Struct with a field that has no JSON form."""

    value: Unknown


def json(value: Any) -> Any:
    """The JSON form of a payload."""
    return to_json(value, what="the payload", code="event.payload")


def value(found: Any, cls: Any) -> Any:
    """A value of a type from its JSON form."""
    return from_json(found, cls, what="the context", code="context.model")


def test_subclasses_of_json_types_become_plain_values() -> None:
    found = json({"a": Text("x"), "b": Number(3), "c": Real(0.5), "d": Ratio.HALF})

    assert {"a": "x", "b": 3, "c": 0.5, "d": 0.5} == found
    assert [str, int, float, float] == [type(each) for each in found.values()]


def test_a_time_outside_of_the_calendar_is_refused() -> None:
    late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
    with pytest.raises(UsageError, match="9999"):
        json({"at": late})


def test_too_many_values_are_refused() -> None:
    with pytest.raises(UsageError, match="more than"):
        json([Number(1)] * (VALUES_MAX + 1))


def test_bytes_of_a_model_inside_a_model_are_base64() -> None:
    assert b"\xff" == value({"inner": {"Raw": "/w=="}}, Outer).inner.raw
    assert b"\xff" == value({"inner": {"Raw": "/w=="}}, Holder).inner.raw
    assert [b"\xff"] == value({"raws": ["/w=="]}, Raws).raws
    assert "b" == value({"name": "a", "children": [{"name": "b"}]}, Tree).children[0].name


@pytest.mark.parametrize(("found", "cls"), [({"inner": 5}, Outer), ({"raws": 5}, Raws), ({"inner": {"Raw": 5}}, Outer)])
def test_json_that_does_not_fit_a_model_is_refused(found: Any, cls: Any) -> None:
    with pytest.raises(UsageError) as raised:
        value(found, cls)
    assert "context.model" == raised.value.code


def test_a_type_without_json_form_is_named() -> None:
    """With its place, as any other value that does not fit."""
    with pytest.raises(UsageError, match="Unknown") as raised:
        value({"value": 1}, Broken)
    assert "context.model" == raised.value.code
    assert "at `value`" in raised.value.message


def test_annotations_that_cannot_be_evaluated_are_left_out() -> None:
    def handler(given: Any) -> None:
        """Take anything."""

    handler.__annotations__ = {"given": "NoSuchType"}
    assert {} == type_hints(handler)


def test_a_context_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        context_values(5)
    assert "context.refused" == raised.value.code
    assert {} == context_values(None)
