"""YAML text: YAML 1.2 types with places, the refusals, the limits, and comments. With the C parser and the pure one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from interlock.definition.source.node import Node
from interlock.definition.vocabulary.chart import SCHEMA_LINE
from interlock.definition.yaml import parse
from interlock.definition.yaml.comments import find_comments
from interlock.definition.yaml.parse import parse_yaml
from interlock.errors import Diagnostic, Place
from interlock.model.diagnostics import Diagnostics

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


@pytest.fixture(autouse=True, params=["c", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs every test with both parsers of PyYAML."""
    if request.param == "pure":
        monkeypatch.setattr(parse, "LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")


def located(text: str) -> Node:
    """The value of a text without diagnostics."""
    diagnostics = Diagnostics()
    value = parse_yaml(text, source="x", diagnostics=diagnostics)
    assert [] == diagnostics.items
    assert value is not None
    return value


def parsed(text: str | bytes) -> tuple[Any, list[Diagnostic]]:
    """The plain value, or the word `nothing`, and the diagnostics."""
    diagnostics = Diagnostics()
    value = parse_yaml(text, source="x", diagnostics=diagnostics)
    return ("nothing" if value is None else value.plain()), diagnostics.items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-11-15", "2026-11-15"),
        ("0b1", "0b1"),
        ("0o9", "0o9"),
        ("3.1.0", "3.1.0"),
        ("True", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("17", 17),
        ("-0", 0),
        ("+3", 3),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("'17'", "17"),
        ('"true"', "true"),
        ("''", ""),
        ("|-\n  17", "17"),
    ],
)
def test_types_are_those_of_yaml_1_2(text: str, expected: Any) -> None:
    """Plain scalars have YAML 1.2 core types; what only YAML 1.1 types is a string; quotes make strings."""
    actual = located(f"a: {text}\n").plain()["a"]
    assert (type(expected), expected) == (type(actual), actual)


def test_keys_are_strings_as_written() -> None:
    """A key is never typed: `on`, `1`, `null` and `24h` are the words themselves."""
    assert {"on": 1, "1": 2, "null": 3, "24h": 4, "<<": 5} == located('on: 1\n1: 2\nnull: 3\n24h: 4\n"<<": 5').plain()


def test_values_and_keys_have_their_places() -> None:
    """Places count from 1; a block ends with its last part, a flow value with its bracket; paths name the keys."""
    value = located("a:\n  b.c:\n    - é\n    - 'd'\n\n\nz: {q: 1,\n  r: []}\n").value
    assert isinstance(value, dict)
    assert Place("x", 2, 3, 4, 10, "a") == value["a"].place
    assert Place("x", 2, 3, 2, 6, "a[b.c]") == value["a"].keys["b.c"]
    inner = value["a"].value
    assert isinstance(inner, dict)
    items = inner["b.c"].value
    assert isinstance(items, list)
    assert Place("x", 4, 7, 4, 10, "a[b.c][1]") == items[1].place
    assert Place("x", 7, 4, 8, 9, "z") == value["z"].place


def test_an_alias_is_the_value_it_names() -> None:
    value = located("a: &x {b: [1]}\nc: *x\nd: &y 5\ne: [*y, *x]").value
    assert isinstance(value, dict)
    assert value["a"] is value["c"]
    assert [5, {"b": [1]}] == value["e"].plain()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("yaml.empty", 1, 1)),
        ("# only a comment", ("yaml.empty", 1, 1)),
        ("a: 1\n---\nb: 2", ("yaml.documents", 2, 1)),
        (b"a: \xff", ("yaml.encoding", 1, 1)),
        ("a:\n- é\n- \x01", ("yaml.character", 3, 3)),
        ("a: \ufeff", ("yaml.character", 1, 4)),
        ("? [a]\n: 1", ("yaml.key", 1, 3)),
        ("{{ x }}: 1", ("yaml.key", 1, 1)),
        ("a: &x 1\n*x : 2", ("yaml.key", 2, 1)),
        ("a: *x", ("yaml.alias", 1, 4)),
        ("a: &x [*x]", ("yaml.alias", 1, 8)),
        ("*x", ("yaml.alias", 1, 1)),
        (BOMB, ("yaml.values", 5, 35)),
        ("a: &x 1\nb: [" + ",".join(["*x"] * 101) + "]", ("yaml.aliases", 2, 305)),
        ("a: &b " + "[" * 90 + "]" * 90 + "\nc: " + "[" * 10 + "*b" + "]" * 10, ("yaml.depth", 2, 14)),
        ("[" * 200_000, ("yaml.depth", 1, 97)),
        ("- " * 200_000, ("yaml.depth", 1, 193)),
        ("{a: " * 200_000, ("yaml.depth", 1, 385)),
        ("a: " + "x" * 1_048_576, ("yaml.size", 1, 1)),
        ("a: b: c", ("yaml.syntax", 1, 5)),
    ],
)
def test_what_cannot_be_a_definition_ends_the_reading(text: str | bytes, expected: tuple[str, int, int]) -> None:
    """Hostile and broken texts give no node and one diagnostic at the first problem."""
    actual, (diagnostic,) = parsed(text)
    assert "nothing" == actual
    assert expected == (diagnostic.code, diagnostic.place.line, diagnostic.place.column)


@pytest.mark.parametrize(
    ("text", "value", "codes"),
    [
        ("a: 1\na: 2\nb: 3", {"a": 1, "b": 3}, ["yaml.duplicate_key"]),
        ("a: [1]\na: [2, 3]\nb: 3", {"a": [1], "b": 3}, ["yaml.duplicate_key"]),
        ("- .nan\n- -.INF\n- 1", [0, 0, 1], ["yaml.number", "yaml.number"]),
        (f"- {'1' * 5_000}\n- 1e999\n- 0x{'F' * 70}", [0, 0, 0], ["yaml.number"] * 3),
        ("a: !!str 5\nb: !x {c: 1}\nd: ! e", {"a": "5", "b": {"c": 1}, "d": "e"}, ["yaml.tag"] * 3),
        ("<<: {a: 1}", {"<<": {"a": 1}}, ["yaml.merge"]),
        ("&x a: 1\n!!str b: 2", {"a": 1, "b": 2}, ["yaml.key", "yaml.key"]),
    ],
)
def test_what_is_refused_in_one_place_does_not_end_the_reading(text: str, value: Any, codes: list[str]) -> None:
    actual, diagnostics = parsed(text)
    assert value == actual
    assert codes == [each.code for each in diagnostics]


def test_the_first_of_duplicate_keys_is_named() -> None:
    """The diagnostic about a duplicate key points to it and names the line of the first."""
    _, (diagnostic,) = parsed("on: 1\nb: 2\non: 3")
    assert (3, 1) == (diagnostic.place.line, diagnostic.place.column)
    assert "line 1" in diagnostic.message


def test_syntax_errors_carry_the_usual_cure() -> None:
    """Tabs and unquoted signs are what most syntax errors come from; nothing is guessed where a text just ends."""
    assert "indent with spaces, not tabs" == parsed("a:\n\t- b")[1][0].hint
    assert "quote texts" in (parsed("a: @x")[1][0].hint or "")
    assert parsed("a: [\n")[1][0].hint is None


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """An escape that makes half a character is refused by the parser or by us, never passed on."""
    _, (diagnostic,) = parsed('a: "\\uD800"')
    assert diagnostic.code in ("yaml.syntax", "yaml.character")


def test_comments_are_found_where_a_rewrite_would_lose_them() -> None:
    """Comments are found at line ends, alone, and on the header of a block; a `#` inside a scalar is not one."""
    text = (
        "# first\na: 'x # y' # two\nb: |  # three\n  # not\n  t\n# four\nc: x#y\nd: > # five\n\n  z\n\n"
        ' # six\ne: "a\n # no\n b" # seven\nf: [a, # eight\n b]\ng: |\n'
    )
    places = [(each.line, each.column) for each in find_comments(text)]
    assert [(1, 1), (2, 12), (3, 7), (6, 1), (8, 6), (12, 2), (15, 5), (16, 8)] == places
    assert Place("x", 1, 6, 1, 9) == find_comments("a: b # c\r\nd: e", source="x")[0]


def test_the_schema_line_is_not_a_comment_to_lose() -> None:
    """The first line of every rewrite is not reported; anywhere else it is a comment."""
    assert [] == find_comments(f"{SCHEMA_LINE}\na: 1\n")
    assert [2] == [each.line for each in find_comments(f"a: 1\n{SCHEMA_LINE}\n")]
