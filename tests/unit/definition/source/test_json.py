"""JSON text: values with places, limits before and inside the loop, and hints for what people write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.definition.source.json import parse_json
from interlock.errors import Diagnostic, Place
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import DEFINITION_BYTES_MAX

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def parsed(text: str | bytes) -> tuple[Any, list[Diagnostic]]:
    """The plain value, or the word `nothing`, and the diagnostics."""
    diagnostics = Diagnostics()
    located = parse_json(text, source="chart.json", diagnostics=diagnostics)
    return ("nothing" if located is None else located.plain()), diagnostics.items


def refused(text: str | bytes) -> tuple[str, str, str | None]:
    """Code, position and hint of the only diagnostic."""
    _, (diagnostic,) = parsed(text)
    return diagnostic.code, f"{diagnostic.place.line}:{diagnostic.place.column}", diagnostic.hint


@pytest.mark.slow
@given(JSON, st.sampled_from([None, 0, 2]), st.booleans())
def test_reads_what_the_standard_encoder_writes(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Every JSON value, however laid out, reads as itself, and its keys keep their order."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    actual, diagnostics = parsed(text)
    assert [] == diagnostics
    assert json.dumps(value) == json.dumps(actual)


def test_every_value_and_key_has_its_place() -> None:
    """Places count lines and columns from 1, end behind the last character, and carry the path of keys."""
    text = '{\n  "a": {"b.c": [1,\r\n "é"]}}'
    located = parse_json(text, source="x", diagnostics=Diagnostics())
    assert located is not None
    outer = located.value
    assert isinstance(outer, dict)
    inner = outer["a"].value
    assert isinstance(inner, dict)
    items = inner["b.c"].value
    assert isinstance(items, list)
    assert Place("x", 1, 1, 3, 8, "") == located.place
    assert Place("x", 2, 3, 2, 6, "a") == located.keys["a"]
    assert Place("x", 2, 9, 2, 14, "a[b.c]") == outer["a"].keys["b.c"]
    assert Place("x", 2, 17, 2, 18, "a[b.c][0]") == items[0].place
    assert Place("x", 3, 2, 3, 5, "a[b.c][1]") == items[1].place


def test_bytes_and_a_byte_order_mark_are_welcome() -> None:
    """Bytes are UTF-8; a byte order mark is skipped."""
    assert (["é"], []) == parsed('\ufeff["é"]'.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xff", ("json.encoding", "1:1", "save the file as UTF-8")),
        ("\ud800", ("json.encoding", "1:1", None)),
        ("", ("json.syntax", "1:1", None)),
        ("[", ("json.syntax", "1:2", None)),
        ("1 2", ("json.syntax", "1:3", None)),
        ("[1 2]", ("json.syntax", "1:4", None)),
        ("[1,]", ("json.syntax", "1:3", "JSON has no trailing commas")),
        ('{"a": 1,\n}', ("json.syntax", "1:8", "JSON has no trailing commas")),
        ('{"a" 1}', ("json.syntax", "1:6", None)),
        ("{a: 1}", ("json.syntax", "1:2", None)),
        ("{'a': 1}", ("json.syntax", "1:2", "strings need double quotes")),
        ("// no\n1", ("json.syntax", "1:1", "JSON has no comments")),
        ("[NaN]", ("json.syntax", "1:2", "a number must be finite")),
        ("[-Infinity]", ("json.syntax", "1:2", "a number must be finite")),
        ("[01]", ("json.syntax", "1:2", None)),
        ("[1.]", ("json.syntax", "1:2", None)),
        ("[+1]", ("json.syntax", "1:2", None)),
        ("[undefined]", ("json.syntax", "1:2", "remove the key, or write null")),
        ('"open', ("json.syntax", "1:1", None)),
        ('"a\nb"', ("json.syntax", "1:3", None)),
        ('"\\n\\q"', ("json.syntax", "1:4", None)),
        ('"\\', ("json.syntax", "1:2", None)),
        ("[" * 200_000, ("json.depth", "1:97", None)),
        ('{"a":' * 200_000, ("json.depth", "1:481", None)),
        pytest.param("[" + "1," * 50_000 + "1]", ("json.values", "1:100000", None), marks=pytest.mark.slow),
    ],
)
def test_what_is_not_json_ends_the_reading(text: str | bytes, expected: tuple[str, str, str | None]) -> None:
    """A text that is not JSON, too deep or too large gives no node and one diagnostic at the character."""
    assert "nothing" == parsed(text)[0]
    assert expected == refused(text)


def test_functions_are_refused_with_the_cure() -> None:
    """Code copied from a JavaScript config gets the hint to name and register the function."""
    for text in ('{"a": () => 1}', '{"a": function () {}}', '{"a": async () => 1}'):
        assert "JSON has no functions: name the action or guard, and register it" == refused(text)[2]


@pytest.mark.parametrize(
    ("text", "value", "code"),
    [
        ('{"a": 1, "a": 2, "b": 3}', {"a": 1, "b": 3}, "json.duplicate_key"),
        (f"[{'1' * 5_000}, 2]", [0, 2], "json.number"),
        (f"[{9**81}]", [0], "json.number"),
        ("[1e999]", [0], "json.number"),
        (f"[0.{'1' * 5_000}]", [0], "json.number"),
        ('["\\ud800", 1]', ["", 1], "json.string"),
    ],
)
def test_what_means_nothing_portable_is_refused_and_reading_goes_on(text: str, value: Any, code: str) -> None:
    actual, (diagnostic,) = parsed(text)
    assert (value, code) == (actual, diagnostic.code)


def test_size_is_measured_in_bytes_before_parsing() -> None:
    """A text one byte too large is refused unread, whether given as bytes, as ASCII or as wider characters."""
    fits = f'"{"x" * (DEFINITION_BYTES_MAX - 2)}"'
    assert [] == parsed(fits)[1]
    for text in (fits + " ", (fits + " ").encode(), f'"{"é" * (DEFINITION_BYTES_MAX // 2)}"'):
        assert "json.size" == refused(text)[0]


def test_paths_stay_short() -> None:
    """Long keys and deep nesting do not make endless paths: a diagnostic must fit on a screen."""
    key = "k" * 100
    deep = f'{{"{key}":' * 90 + "1e999" + "}" * 90
    _, (diagnostic,) = parsed(deep)
    assert diagnostic.place.path.endswith("…")
    assert 300 > len(diagnostic.place.path)
    _, (diagnostic,) = parsed("[" * 90 + "1e999" + "]" * 90)
    assert 300 > len(diagnostic.place.path)
