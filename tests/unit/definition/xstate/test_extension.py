"""`meta.interlock`: what XState has no key for, and what happens when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.document.actions import Do
from interlock.model.document.document import Expect, Sensitive
from interlock.model.document.field import Field
from tests.unit.definition.xstate_cases import Json, codes, read, read_state, simple


def extra(**given: Any) -> Json:
    """A `meta` that holds these keys of ours."""
    return {"meta": {"interlock": given}}


def test_a_state_takes_what_is_ours() -> None:
    """By the names and types of the model; the rest of `meta` stays the author's."""
    meta = {
        "interlock": {"expect": {"within": "1h"}, "sensitive": {"fields": ["n"]}, "monotonic": True},
        "color": "red",
    }
    state = read_state({"meta": meta})

    assert (Expect(within="1h"), Sensitive(fields=("n",)), True) == (state.expect, state.sensitive, state.monotonic)
    assert {"color": "red"} == state.meta


def test_fields_of_the_context_get_types() -> None:
    """`fields` types those that `context` names, adds others, and keeps the untyped ones behind."""
    fields = [{"name": "n", "type": "integer", "min": 0}, {"name": "m", "required": True}]
    document = read(simple(context={"o": 1, "n": 2}, **extra(fields=fields)))

    assert (
        Field(name="n", type="integer", default=2, min=0),
        Field(name="m", required=True),
        Field(name="o", default=1),
    ) == document.root.context


def test_a_block_is_cut_again() -> None:
    """XState has one block of actions; lengths say where ours ended."""
    state = read_state({"entry": ["x", "y", "z"], **extra(entry=[1, 0, 2])})

    assert ((Do(name="x"),), (), (Do(name="y"), Do(name="z"))) == state.entry


@pytest.mark.parametrize("given", [{"meta": {"interlock": 3}}, {"meta": 3}])
def test_it_must_be_a_mapping(given: Json) -> None:
    assert "value.type" in codes(simple(given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"expekt": {}}, "key.unknown"),
        ({"assigns": ["x"]}, "key.unknown"),
        ({"expect": 3}, "value.type"),
        ({"expect": {}}, "value.type"),
        ({"expect": {"within": "1h", "than": "x"}}, "key.unknown"),
        ({"expect": {"within": 3}}, "value.type"),
        ({"sensitive": {"hidden": 1}}, "value.type"),
        ({"sensitive": {"fields": "n"}}, "value.type"),
        ({"monotonic": 3}, "value.type"),
        ({"allow": [["a"]]}, "value.type"),
        ({"allow": [["a", 3]]}, "value.type"),
        ({"context": [{"name": "n", "type": "odd"}]}, "value.type"),
        ({"context": [{"name": "n", "min": "1"}]}, "value.type"),
        ({"context": [{"name": "n", "length_max": True}]}, "value.type"),
        ({"entry": [1, 1]}, "interlock.blocks"),
        ({"entry": [2, -1]}, "interlock.blocks"),
        ({"entry": "x"}, "interlock.blocks"),
        ({"actions": [3]}, "value.type"),
        ({"saga": {"steps": [{"id": "x", "do": {"src": "y"}, "guard": 3}]}}, "value.type"),
    ],
)
def test_wrong_values_are_reported(given: Json, expected: str) -> None:
    assert expected in codes(simple({"entry": ["x"], **extra(**given)}))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"events": [{"name": "x", "permit": "no expression"}]}, ["value.type"]),
        ({"fields": 3}, ["value.type"]),
        ({"unhandled": "drop"}, ["value.type"]),
        ({"assigns": 3}, ["value.type"]),
    ],
)
def test_wrong_values_of_the_whole_are_reported(given: Json, expected: list[str]) -> None:
    """The root's `meta.interlock` speaks for the chart."""
    assert expected == codes(simple(**extra(**given)))


def test_transitions_invokes_and_initials_have_their_own() -> None:
    a = {
        "initial": {"target": "x", **extra(odd=1)},
        "states": {"x": {}},
        "on": {"E": {"target": "b", **extra(odd=1)}},
        "invoke": {"src": "job", **extra(odd=1)},
    }

    assert ["key.unknown"] * 3 == codes(simple(a))
