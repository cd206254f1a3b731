"""Malicious definitions cause one clear error with its position, in the command and in the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import interlock
from interlock.errors import DefinitionError
from tests.hostile.definitions import ALL, BYTES, EXPRESSIONS, HEAD, MEANINGS, PARSERS, Hostile, deep_chart, wide_chart
from tests.hostile.processes import interlock as command

FINDINGS = 1
MESSAGE_MAX = 500


@pytest.mark.parametrize("hostile", ALL, ids=lambda each: each.name)
def test_the_library_refuses_it_with_a_place(hostile: Hostile) -> None:
    """`loads` raises DefinitionError and nothing else; the first error says what and where, in a few words."""
    with pytest.raises(DefinitionError) as caught:
        interlock.loads(hostile.make(), format=hostile.format, source=hostile.file)

    first = next(each for each in caught.value.diagnostics if each.severity == "error")
    assert hostile.code == first.code
    assert hostile.file == first.place.file
    assert min(first.place.line, first.place.column) >= 1
    assert 0 < len(first.message) < MESSAGE_MAX


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile", [*PARSERS, *BYTES[::3], *MEANINGS[::3], *EXPRESSIONS[::6]], ids=lambda each: each.name
)
def test_the_command_survives_it(hostile: Hostile, tmp_path: Path) -> None:
    """Exit code 1, the finding as JSON, silence on stderr, memory as for any other file."""
    (tmp_path / hostile.file).write_bytes(hostile.make())

    ended = command("check", hostile.file, "--json", folder=tmp_path)

    assert (FINDINGS, "") == (ended.code, ended.err)
    errors = [each for each in json.loads(ended.out)["files"][0]["findings"] if each["severity"] == "error"]
    assert (hostile.code, hostile.file) == (errors[0]["code"], errors[0]["file"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("check",), ("check", "--github"), ("convert", "--to", "scxml"), ("draw",), ("fmt",), ("simulate",)],
    ids=" ".join,
)
def test_every_command_refuses_it_alike(words: tuple[str, ...], tmp_path: Path) -> None:
    bomb = next(each for each in PARSERS if each.name == "flow lists, deep")
    (tmp_path / bomb.file).write_bytes(bomb.make())

    ended = command(*words, bomb.file, folder=tmp_path)

    assert FINDINGS == ended.code
    assert "Traceback" not in ended.err
    assert "yaml.depth" in ended.out + ended.err
    assert max(map(len, (ended.out + ended.err).splitlines())) < 1_000


@pytest.mark.parametrize("make", [wide_chart, deep_chart], ids=["2,000 states", "32 levels"])
def test_what_is_just_within_the_limits_is_a_chart(make: Callable[[], str]) -> None:
    chart = interlock.loads(make()).chart

    assert chart.states


@pytest.mark.parametrize("format", ["yaml", "scxml", "xstate", "smcat"])
def test_a_byte_order_mark_is_passed_over(format: str) -> None:
    texts = {
        "yaml": HEAD + "states: {a: {}}\n",
        "scxml": '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0"><state id="a"/></scxml>',
        "xstate": '{"initial":"a","states":{"a":{},"b":{}}}',
        "smcat": "a -> b;",
    }

    assert "a" == interlock.loads(b"\xef\xbb\xbf" + texts[format].encode(), format=format).document.root.states[0].key
