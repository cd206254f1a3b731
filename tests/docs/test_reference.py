"""The reference lists every key, function, public name and field, and nothing else.

The pages are compared with the tables in the code, so a new key without documentation fails here.
"""

import re
from typing import Any, get_args

import msgspec
import pytest

import interlock
from interlock.definition.schema import json_schema
from interlock.expression.builtins import FIELDS, FUNCTIONS, NAMES
from interlock.expression.parser import _OPERATORS, _RULES, CONSTANT_BITS_MAX
from interlock.expression.tokens import DEPTH_MAX, NODES_MAX, TEXT_LENGTH_MAX
from interlock.model import limits
from interlock.model.effect import Effect, EffectType
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Parent, Snapshot, Timer
from interlock.model.step import FailedGuard, Fault, Step
from tests.tidy.tracked import ROOT

REFERENCE = ROOT / "docs" / "reference"

_SECTION = re.compile(r"^#{2,3} (?P<title>.+)$", re.MULTILINE)
_KEYS = re.compile(r"<!-- keys: (?P<names>[\w ]+) -->\n\n(?P<table>(?:\|.*\n)+)")
_CODE = re.compile(r"`([^`]+)`")


def page(name: str) -> str:
    """Returns the text of a page of the reference."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Returns the part of a page between a heading and the next one."""
    found = list(_SECTION.finditer(text))
    number = next(number for number, each in enumerate(found) if each["title"] == title)
    end = found[number + 1].start() if number + 1 < len(found) else len(text)
    return text[found[number].end() : end]


def rows(table: str) -> list[list[str]]:
    """Returns the cells of the table's rows, without the header."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def first_names(table: str) -> list[str]:
    """Returns the code in the first cell of each row, without the arguments of a call."""
    return [name.partition("(")[0] for row in rows(table) for name in _CODE.findall(row[0])]


def records() -> dict[str, dict[str, bool]]:
    """Returns every mapping of the vocabulary: its keys, and whether each is required."""
    definitions: dict[str, Any] = json_schema()["definitions"]
    return {
        name: {key: key in shape.get("required", ()) for key in shape["properties"]}
        for name, shape in definitions.items()
        if "properties" in shape
    }


def documented() -> dict[str, dict[str, bool]]:
    """Returns the same from the page."""
    found: dict[str, dict[str, bool]] = {}
    for match in _KEYS.finditer(page("vocabulary.md")):
        for column, name in enumerate(match["names"].split(), start=1):
            cells = {row[0].strip("`"): row[column] for row in rows(match["table"])}
            assert set(cells.values()) <= {"yes", "**required**", "no"}, name
            found[name] = {key: cell == "**required**" for key, cell in cells.items() if cell != "no"}
    return found


def test_every_key_of_the_vocabulary_is_documented() -> None:
    several = {name: keys for name, keys in records().items() if len(keys) > 1}

    assert several == documented()


def test_every_action_and_guard_of_one_key_is_documented() -> None:
    text = page("vocabulary.md")
    missing = [key for keys in records().values() if len(keys) == 1 for key in keys if f"`{{{key}: " not in text]

    assert [] == missing


def test_every_function_of_the_language_is_documented() -> None:
    assert list(FUNCTIONS) == list(dict.fromkeys(first_names(section(page("expressions.md"), "Functions"))))


def test_every_name_an_expression_may_read_is_documented() -> None:
    table = section(page("expressions.md"), "What can be read")
    named = set(_CODE.findall(table))

    assert set() == (NAMES | {"principal"} | {field for fields in FIELDS.values() for field in fields}) - named


def test_every_node_of_the_language_is_documented() -> None:
    paragraph = page("expressions.md").partition("In terms of Python's `ast`")[2].partition("\n\n")[0]
    named = set(_CODE.findall(paragraph))

    assert {node.__name__ for node in (*_RULES, *_OPERATORS)} == named


def test_the_limits_of_expressions_are_the_real_ones() -> None:
    text = page("expressions.md")
    numbers = [TEXT_LENGTH_MAX, NODES_MAX, DEPTH_MAX, limits.INTEGER_BITS_MAX, limits.STRING_LENGTH_MAX]
    numbers += [limits.VALUES_MAX, limits.VALUE_DEPTH_MAX, limits.EVALUATIONS_MAX]
    shown = section(text, "Limits")

    assert [] == [number for number in numbers if f"{number:,}" not in shown]
    assert f"whole numbers of up to {CONSTANT_BITS_MAX} bits" in text


def test_every_public_name_is_documented() -> None:
    named = set(first_names(page("api.md")))

    assert [] == [name for name in interlock.__all__ if name not in named]


def test_every_member_of_a_bound_chart_is_documented() -> None:
    table = section(page("api.md"), "BoundChart")
    public = {name for name in vars(interlock.BoundChart) if not name.startswith("_")}

    assert set() == public - set(first_names(table))


@pytest.mark.parametrize("value", [Snapshot, Timer, Invocation, Parent, Event, Effect, Step, Fault, FailedGuard])
def test_every_field_of_a_value_is_documented(value: type[msgspec.Struct]) -> None:
    table = section(page("snapshot-and-effects.md"), value.__name__).partition("\n\n`effect.name`")[0]

    assert list(value.__struct_fields__) == first_names(table)


def test_every_type_of_effect_is_documented() -> None:
    table = section(page("snapshot-and-effects.md"), "Effect").partition("\n\n`effect.name`")[2]

    assert set(get_args(EffectType)) == set(first_names(table))
