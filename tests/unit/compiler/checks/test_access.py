"""Checks of authorization: permits, `create` and `read`, and approvals."""

from __future__ import annotations

import pytest

from interlock.assemble.charts import compile_reading, read_text

HEAD = """\
interlock: 1
kind: k
context:
  owner: {type: string, default: "", index: true}
  note: {type: string, default: ""}
  n: {type: integer, default: 0}
"""
STATES = """states: {a: {expect: {within: forever}, on: {go: {}, ask: {}, "yes": b}}, b: {type: final}}\n"""


def codes(text: str, states: str = STATES) -> list[str]:
    found = compile_reading(read_text(HEAD + text + states, format="yaml", source="x")).diagnostics
    return sorted(each.code for each in found if each.code != "event.no_roles")


EVENTS = 'events: {go: {}, ask: {}, "yes": {}}\n'


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("create: {roles: [a]}", []),
        ("create: {roles: []}", []),
        ('create: {permit: "= event.data.context.owner == principal.id"}', []),
        ("create: {}", ["access.empty"]),
        ("read: {}", ["access.empty"]),
        ("read: {owner: owner}", []),
        ("read: {owner: own}", ["read.owner"]),
        ("read: {owner: note}", ["read.owner"]),
        ("read: {owner: n}", ["read.owner"]),
        ('read: {owner: owner, permit: "= true"}', ["read.owner"]),
        ('read: {permit: "= context.owner == principal.id"}', []),
        ('read: {permit: "= context.ownr == principal.id"}', ["expression.unknown_field"]),
        ('read: {permit: "= event.data.x"}', ["expression.name"]),
        ('create: {permit: "= context.owner == principal.id"}', ["expression.name"]),
        ('create: {permit: "= principal.id =="}', ["expression.syntax"]),
        ("""read: {permit: "= In('a')"}""", ["permit.state"]),
        ("create: {owner: owner}", ["access.empty", "key.unknown"]),
    ],
)
def test_create_and_read(text: str, wanted: list[str]) -> None:
    assert wanted == codes(f"{text}\n{EVENTS}")


def test_a_permit_decides_without_the_state() -> None:
    events = """events: {go: {permit: "= In('a')"}, ask: {}, "yes": {}}\n"""
    assert ["permit.state"] == codes(events)


def test_an_inline_chart_needs_its_own_read() -> None:
    inline = """states: {a: {invoke: {id: i, type: chart, src: {%sstates: {x: {type: final}}}, timeout: 1s, onDone: b,
    onError: b}}, b: {type: final}}\n"""
    assert ["read.inline"] == codes("read: {roles: [clerk]}\n", inline % "")
    assert [] == codes("read: {roles: [clerk]}\n", inline % "read: {roles: [clerk]}, ")
    assert [] == codes("", inline % "")


@pytest.mark.parametrize(
    ("approvals", "wanted"),
    [
        ("{of: yes}", []),
        ("{of: yes, count: 16, since: ask, not: [ask], within: 1h}", []),
        ("{of: yes, count: 17}", ["approvals.count"]),
        ("{of: yes, count: 0}", ["value.range"]),
        ("{of: go}", ["approvals.event"]),
        ("{of: yes, since: go}", ["approvals.event"]),
        ("{of: yes, not: [yes], since: ask}", ["approvals.event"]),
        ("{of: maybe}", ["approvals.event"]),
        ("{of: yes, not: [ask]}", ["approvals.since"]),
        ("{count: 2}", ["key.missing"]),
    ],
)
def test_approvals(approvals: str, wanted: list[str]) -> None:
    assert wanted == codes(f'events: {{go: {{approvals: {approvals}}}, ask: {{}}, "yes": {{}}}}\n')
