"""JSON Schema and reader agree: what one refuses for its shape the other refuses too."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.definition.schema import json_schema
from interlock.definition.shapes import Choice, NoValue, Record, Text
from interlock.definition.source.json import parse_json
from interlock.definition.vocabulary.chart import SHAPES, read_definition, write_chart
from interlock.definition.yaml.parse import parse_yaml
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document
from tests.unit.definition.documents import documents

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.interlock.yaml"))
VALIDATOR = jsonschema_rs.Draft7Validator(json_schema())

NOT_IN_THE_SCHEMA = {"name.reserved", "context.no_value", "invoke.no_src", "invoke.type", "duration.range"}
"""What only the reader sees: names that depend on the dialect, keys of which one must be there, falling ranges."""


@cache
def plain(path: Path) -> Any:
    """An example as plain values."""
    located = parse_yaml(path.read_text(), source=path.name, diagnostics=Diagnostics())
    assert located is not None
    return located.plain()


def shape_problems(tree: Any) -> list[str]:
    """What the reader finds wrong with the shape of plain values."""
    diagnostics = Diagnostics()
    located = parse_json(json.dumps(tree), source="x", diagnostics=diagnostics)
    assert located is not None
    read_definition(located, source="x", diagnostics=diagnostics)
    return [str(each) for each in diagnostics.items if each.code not in NOT_IN_THE_SCHEMA]


def spots(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of every value inside."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(spot for key, each in inner for spot in spots(each, (*path, key)))]


def test_the_schema_is_a_valid_draft_07_schema() -> None:
    """Every reference leads somewhere, every key has a tooltip, every pattern compiles."""
    schema = json_schema()
    assert jsonschema_rs.meta.is_valid(schema)
    references = set(re.findall(r'"#/definitions/(\w+)"', json.dumps(schema)))
    assert references <= schema["definitions"].keys()
    assert schema["definitions"].keys() - references == set()
    for definition in schema["definitions"].values():
        assert all(each.get("description") for each in definition.get("properties", {}).values())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda each: each.name)
def test_examples_are_valid(path: Path) -> None:
    tree = plain(path)
    assert [] == [each.message for each in VALIDATOR.iter_errors(tree)]
    assert [] == shape_problems(tree)


def test_examples_use_every_key() -> None:
    """Between them the examples show the whole vocabulary, but for what converters write and what only trust allows."""
    used = {key for path in EXAMPLES for spot in spots(plain(path)) for key in spot}
    keys = {key.name for shape in SHAPES.values() if isinstance(shape, Record) for key in shape.keys}
    assert {"dialect", "script"} == keys - used


@pytest.mark.slow
@given(documents())
@settings(max_examples=40)
def test_every_written_document_is_valid(document: Document) -> None:
    tree = write_chart(document)
    assert [] == [each.message for each in VALIDATOR.iter_errors(tree)]


POOL: list[Any] = [
    None, True, False, 0, -1, 2.5, "", "x", "= x", "a b", "30s", "30", "1s..2s", "#a.b", ".a", "a, b.*", "*",
    "parallel", "final", "string", "forever", [], ["x"], [5], [["x"]], [{"assign": {"a": 1}}], {}, {"x": 1},
    {"target": "x"}, {"states": {"x": {}}}, {"name": "g"}, {"type": "final"}, {"type": "string"}, {"src": "h"},
    {"do": "n"}, {"30s": "x"},
]  # fmt: skip
WORDS = sorted({key.name for shape in SHAPES.values() if isinstance(shape, Record) for key in shape.keys})


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """An example with one or two values replaced, dropped, renamed or added."""
    tree = copy.deepcopy(plain(draw(st.sampled_from(EXAMPLES))))
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from(spots(tree)[1:]))
        inner = tree
        for key in path:
            inner = inner[key]
        match draw(st.sampled_from(["replace", "drop", "rename", "add"])):
            case "replace":
                inner[last] = copy.deepcopy(draw(st.sampled_from(POOL)))
            case "drop":
                del inner[last]
            case "rename" if isinstance(inner, dict):
                inner[draw(st.sampled_from([*WORDS, "unknown"]))] = inner.pop(last)
            case "add" if isinstance(inner, dict):
                inner[draw(st.sampled_from([*WORDS, "unknown"]))] = copy.deepcopy(draw(st.sampled_from(POOL)))
            case _:
                inner.insert(0, copy.deepcopy(draw(st.sampled_from(POOL)))) if isinstance(inner, list) else None
        if not tree:
            break
    return tree


@pytest.mark.slow
@given(mutated())
@settings(max_examples=200)
def test_reader_and_schema_refuse_the_same_shapes(tree: Any) -> None:
    """For any damaged example, schema and reader agree on whether its shape is valid."""
    problems = shape_problems(tree)
    assert (not problems) == VALIDATOR.is_valid(tree), problems


def test_bytes_are_counted_as_characters_in_the_schema() -> None:
    """The one difference: a name of 256 wide characters passes the schema, and the reader counts its bytes."""
    tree = {"interlock": 1, "kind": "é" * 256, "states": {"a": {}}}
    assert VALIDATOR.is_valid(tree)
    assert [] != shape_problems(tree)
    assert not VALIDATOR.is_valid({**tree, "kind": "e" * 257})


def test_the_words_of_the_vocabulary_are_reported_to_editors() -> None:
    """Choices become enumerations, patterns anchored patterns, and a key that only explains refuses everything."""
    definitions = json_schema()["definitions"]
    assert {"enum": ["shallow", "deep"]} == {
        key: each for key, each in definitions["history"]["properties"]["history"].items() if key != "description"
    }
    assert {"not": {}} == {
        key: each for key, each in definitions["plain_state"]["properties"]["type"].items() if key != "description"
    }
    assert isinstance(SHAPES["plain_state"], Record)
    kinds = {type(each.shape) for each in SHAPES["plain_state"].keys}
    assert {NoValue, Text} <= kinds
    assert Choice not in kinds
