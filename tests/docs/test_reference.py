"""The reference is complete: every key, function, public name and field is on its page, and nothing else is.

Rule 1: what is compared is the code's own table, so a new key without a line of documentation fails here.
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
    """Gives the text of a page of the reference."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Gives the part of a page between a heading and the next one."""
    found = list(_SECTION.finditer(text))
    number = next(number for number, each in enumerate(found) if each["title"] == title)
    end = found[number + 1].start() if number + 1 < len(found) else len(text)
    return text[found[number].end() : end]


def rows(table: str) -> list[list[str]]:
    """Gives the cells of the table's rows, without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def first_names(table: str) -> list[str]:
    """Gives the code in the first cell of each row, the arguments of a call left out."""
    return [name.partition("(")[0] for row in rows(table) for name in _CODE.findall(row[0])]


def records() -> dict[str, dict[str, bool]]:
    """Gives every kind of mapping in the vocabulary: its keys, and whether each is required."""
    definitions: dict[str, Any] = json_schema()["definitions"]
    return {
        name: {key: key in shape.get("required", ()) for key in shape["properties"]}
        for name, shape in definitions.items()
        if "properties" in shape
    }


def documented() -> dict[str, dict[str, bool]]:
    """Gives what the page says about them."""
    found: dict[str, dict[str, bool]] = {}
    for match in _KEYS.finditer(page("vocabulary.md")):
        for column, name in enumerate(match["names"].split(), start=1):
            cells = {row[0].strip("`"): row[column] for row in rows(match["table"])}
            assert set(cells.values()) <= {"yes", "**required**", "no"}, name
            found[name] = {key: cell == "**required**" for key, cell in cells.items() if cell != "no"}
    return found


def test_every_key_of_the_vocabulary_is_documented_where_it_may_stand() -> None:
    """The tables name exactly the keys of the schema, and say rightly which are required."""
    several = {name: keys for name, keys in records().items() if len(keys) > 1}

    assert several == documented()


def test_every_action_and_guard_of_one_key_is_documented() -> None:
    """A mapping with a single key stands in the table of actions or of guards."""
    text = page("vocabulary.md")
    missing = [key for keys in records().values() if len(keys) == 1 for key in keys if f"`{{{key}: " not in text]

    assert [] == missing


def test_every_function_of_the_language_is_documented() -> None:
    """The table of functions is the language's own list."""
    assert list(FUNCTIONS) == list(dict.fromkeys(first_names(section(page("expressions.md"), "Functions"))))


def test_every_name_an_expression_may_read_is_documented() -> None:
    """Roots and their fields are named."""
    table = section(page("expressions.md"), "What can be read")
    named = set(_CODE.findall(table))

    assert set() == (NAMES | {"principal"} | {field for fields in FIELDS.values() for field in fields}) - named


def test_every_node_of_the_language_is_documented() -> None:
    """The page lists what the checker lets through, and no more."""
    paragraph = page("expressions.md").partition("In words of Python's `ast`")[2].partition("\n\n")[0]
    named = set(_CODE.findall(paragraph))

    assert {node.__name__ for node in (*_RULES, *_OPERATORS)} == named


def test_the_limits_of_expressions_are_the_real_ones() -> None:
    """The numbers on the page are those in the code."""
    text = page("expressions.md")
    numbers = [TEXT_LENGTH_MAX, NODES_MAX, DEPTH_MAX, limits.INTEGER_BITS_MAX, limits.STRING_LENGTH_MAX]
    numbers += [limits.VALUES_MAX, limits.VALUE_DEPTH_MAX, limits.EVALUATIONS_MAX]
    shown = section(text, "Limits")

    assert [] == [number for number in numbers if f"{number:,}" not in shown]
    assert f"whole numbers to {CONSTANT_BITS_MAX} bits" in text


def test_every_public_name_is_documented() -> None:
    """A name of `interlock.__all__` opens a row of a table."""
    named = set(first_names(page("api.md")))

    assert [] == [name for name in interlock.__all__ if name not in named]


def test_every_member_of_a_bound_chart_is_documented() -> None:
    """What a user can call on a loaded chart is listed."""
    table = section(page("api.md"), "BoundChart")
    public = {name for name in vars(interlock.BoundChart) if not name.startswith("_")}

    assert set() == public - set(first_names(table))


@pytest.mark.parametrize("value", [Snapshot, Timer, Invocation, Parent, Event, Effect, Step, Fault, FailedGuard])
def test_every_field_of_a_value_is_documented(value: type[msgspec.Struct]) -> None:
    """The table of a value lists its fields in their order, which is their order in JSON."""
    table = section(page("snapshot-and-effects.md"), value.__name__).partition("\n\n`effect.name`")[0]

    assert list(value.__struct_fields__) == first_names(table)


def test_every_type_of_effect_is_documented() -> None:
    """The second table of the section on effects has a row for each."""
    table = section(page("snapshot-and-effects.md"), "Effect").partition("\n\n`effect.name`")[2]

    assert set(get_args(EffectType)) == set(first_names(table))
