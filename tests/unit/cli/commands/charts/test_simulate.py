"""`interlock simulate`: how lines become acts. The scenarios show the output."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.assemble.charts import loads
from interlock.cli.commands.charts.simulate import parse_line, parse_payload
from interlock.cli.output.entity import context_changes
from interlock.cli.output.values import value_text
from interlock.errors import UsageError
from interlock.testing.playback import Act, AdvanceClock, CompleteEffect, FailEffect, SendEvent, SetGuard

CHART = loads(
    "interlock: 1\nkind: k\nevents: {more: {payload: {n: integer, code: string}}}\nstates: {a: {on: {more: {}}}}\n"
).chart


@pytest.mark.parametrize(
    ("line", "act"),
    [
        ("advance", AdvanceClock()),
        ("advance 1m", AdvanceClock(60_000)),
        ("done job", CompleteEffect("job")),
        ('done job {"a": 1}', CompleteEffect("job", {"a": 1})),
        ("fail job", FailEffect("job")),
        ("fail job busy come back later", FailEffect("job", "busy", "come back later")),
        ("guard g false", SetGuard("g", False)),
        ("send advance", SendEvent("advance")),
        ("more n=2 code=7", SendEvent("more", {"n": 2, "code": "7"})),
    ],
)
def test_a_line_is_an_act(line: str, act: Act) -> None:
    assert act == parse_line(line, CHART)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("advance 5", "duration.syntax"),
        ("guard", "play.guard"),
        ("guard g maybe", "play.guard"),
        ("send", "play.event"),
        ("go {", "play.payload"),
        ("go 'a", "play.payload"),
        ("go 1a=2", "play.payload"),
        ("go word", "play.payload"),
        ("go " + "[" * 100_000, "play.payload"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_invalid_line_is_refused(line: str, code: str) -> None:
    with pytest.raises(UsageError) as found:
        parse_line(line, CHART)

    assert code == found.value.code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ('{"a": [1]}', {"a": [1]}),
        ("3", 3),
        ("a=1 b=x c='d e' d=true", {"a": 1, "b": "x", "c": "d e", "d": True}),
        ("code=007", {"code": "007"}),
        ("code=7 n=7", {"code": "7", "n": 7}),
    ],
)
def test_a_payload_is_json_or_pairs(text: str, value: Any) -> None:
    assert value == parse_payload(text, frozenset({"code"}))


def test_long_values_are_shortened() -> None:
    assert len(value_text("x" * 10_000)) == 200


def test_a_removed_field_is_printed() -> None:
    lines = [
        "".join(str(part if isinstance(part, str) else part[0]) for part in line)
        for line in context_changes({"a": 1, "b": 1}, {"b": True})
    ]

    assert ["  context  a: removed", "  context  b: 1 → true"] == lines
