"""Guards, actions, values and delays of an XState definition."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.definition.codec import read_value, write_value
from interlock.definition.source.node import Node
from interlock.errors import NOWHERE
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
)
from tests.unit.definition.xstate_cases import Json, codes, read, read_state, simple

N = Expression("context.n")


def built(type_: str, /, **params: Any) -> Json:
    """A built-in action or guard."""
    return {"type": type_, "params": params}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("note", Do(name="note")),
        ({"type": "note"}, Do(name="note")),
        (
            {"type": "note", "params": {"n": "= context.n", "text": "\\=x"}},
            Do(name="note", arguments={"n": N, "text": "=x"}),
        ),
        (built("xstate.raise", event={"type": "E"}), Raise(event="E")),
        (
            built("xstate.raise", event={"type": "= context.n", "x": [1, "= context.n"]}),
            Raise(event=N, data={"x": [1, N]}),
        ),
        (built("xstate.raise", event="E"), Raise(event="E")),
        (built("xstate.raise", event={"type": "E"}, data="= context.n"), Raise(event="E", data=N)),
        ({"type": "xstate.raise", "event": {"type": "E"}}, Raise(event="E")),
        (built("xstate.raise", event={"type": "E"}, delay=1500, id="t"), Send(event="E", delay="1s500ms", id="t")),
        (built("xstate.sendTo", event={"type": "E"}), Send(event="E")),
        (
            built(
                "xstate.sendTo",
                to="child",
                event={"type": "E", "x": 1},
                delay="= context.n",
                idLocation="n",
                type="http",
            ),
            Send(event="E", data={"x": 1}, to="child", delay=N, id_location="n", type="http"),
        ),
        (built("xstate.send", event="E", delay="30s"), Send(event="E", delay="30s")),
        (built("xstate.sendParent", event={"type": "E"}), Send(event="E", to="parent")),
        (built("xstate.cancel", sendId="t"), Cancel(id="t")),
        (built("xstate.cancel", id="= context.n"), Cancel(id=N)),
        (built("xstate.log", value="text", label="l"), Log(label="l", value="text")),
        (built("xstate.log", expr="= context.n"), Log(value=N)),
        ({"type": "xstate.log"}, Log()),
        (built("xstate.emit", event={"type": "paid", "x": 1}), Emit(type="paid", data={"x": 1})),
        (built("xstate.assign", assignment={"n": 1}), Assign(values=(("n", 1),))),
        (built("interlock.assign", values={"n": "= context.n"}), Assign(values=(("n", N),))),
        (built("interlock.assign", values=[["n", 1], ["n", 2]]), Assign(values=(("n", 1), ("n", 2)))),
        (built("interlock.assign", name="bump"), AssignCall(name="bump")),
        (built("interlock.assign", name="bump", arguments={"by": 2}), AssignCall(name="bump", arguments={"by": 2})),
        (
            built("interlock.if", branches=[{"guard": "g", "actions": "x"}, {"guard": "h"}], otherwise=["y"]),
            If(branches=((GuardName(name="g"), (Do(name="x"),)), (GuardName(name="h"), ())), otherwise=(Do(name="y"),)),
        ),
        (
            built("interlock.foreach", **{"in": "= context.n", "item": "i", "index": "k", "actions": ["x"]}),
            Foreach(items=N, item="i", index="k", block=(Do(name="x"),)),
        ),
        (built("interlock.script", text="x = 1"), Script(text="x = 1")),
    ],
)
def test_actions(written: Any, expected: Action) -> None:
    """Names are handlers; built-ins are read by their type, with arguments in `params` or next to it."""
    assert ((expected,),) == read_state({"entry": written}).entry


def test_named_actions_may_be_declared_assigns() -> None:
    """`meta.interlock.assigns` of the root says which names write the context."""
    state = read_state(
        {"entry": ["bump", {"type": "set", "params": {"n": 1}}, "note"]},
        meta={"interlock": {"assigns": ["bump", "set"]}},
    )

    assert ((AssignCall(name="bump"), AssignCall(name="set", arguments={"n": 1}), Do(name="note")),) == state.entry


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (3, "value.type"),
        ("", "value.type"),
        ({}, "action.type"),
        ({"type": 3}, "value.type"),
        ("= context.n", "name.invalid"),
        ({"type": "note", "params": 3}, "value.type"),
        ({"type": "note", "parms": {}}, "key.unknown"),
        ({"type": "xstate.raize", "params": {}}, "action.unsupported"),
        ({"type": "xstate.spawnChild"}, "action.unsupported"),
        ({"type": "xstate.raise", "params": 3}, "value.type"),
        (built("xstate.raise"), "action.event"),
        (built("xstate.raise", event={"type": "E"}, delay=1, restore="never"), "value.type"),
        (built("xstate.raise", event=3), "value.type"),
        (built("xstate.raise", event={}), "action.event"),
        (built("xstate.raise", event={"type": ""}), "value.type"),
        (built("xstate.sendTo"), "action.event"),
        (built("xstate.sendParent"), "action.event"),
        (built("xstate.emit"), "action.event"),
        (built("xstate.raise", event="E", delay="soon"), "delay.name"),
        (built("xstate.raise", event="E", delay=True), "delay.type"),
        (built("xstate.raise", event="E", delay=-1), "delay.type"),
        (built("xstate.raise", event="E", delay=1.5), "delay.type"),
        (built("xstate.cancel"), "action.cancel"),
        (built("xstate.assign"), "action.assign"),
        (built("xstate.assign", assignment=[["n"]]), "value.type"),
        (built("xstate.assign", assignment=3), "value.type"),
        (built("xstate.assign", name=3), "value.type"),
        (built("interlock.if"), "action.if"),
        (built("interlock.foreach", item="x"), "action.foreach"),
        (built("interlock.script"), "action.script"),
    ],
)
def test_actions_that_cannot_be_read(written: Any, expected: str) -> None:
    assert expected in codes(simple({"entry": written}))


@pytest.mark.parametrize(
    ("branch", "expected"),
    [(3, ["action.if", "value.type"]), ({}, ["action.if", "action.if"]), ({"guard": 3}, ["action.if", "value.type"])],
)
def test_branches_that_cannot_be_read(branch: Any, expected: list[str]) -> None:
    """A branch is a guard with actions; without any good one there is no `if`."""
    assert expected == sorted(codes(simple({"entry": built("interlock.if", branches=[branch])})))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ok", GuardName(name="ok")),
        ({"type": "ok"}, GuardName(name="ok")),
        ({"type": "ok", "params": {"n": 1}}, GuardName(name="ok", arguments={"n": 1})),
        ({"type": "and", "params": {"n": 1}}, GuardName(name="and", arguments={"n": 1})),
        ("= context.n", GuardExpression(expression=N)),
        (built("interlock.expression", expression="context.n"), GuardExpression(expression=N)),
        (built("xstate.and", guards=["a", "b"]), GuardAll(guards=(GuardName(name="a"), GuardName(name="b")))),
        ({"type": "or", "guards": ["a"]}, GuardAny(guards=(GuardName(name="a"),))),
        (built("not", guard="a"), GuardNot(guard=GuardName(name="a"))),
        (built("xstate.guard:not", guards=["a"]), GuardNot(guard=GuardName(name="a"))),
        (built("xstate.stateIn", stateValue="#m.b"), GuardIn(state="b")),
        (built("stateIn", stateValue="a.x"), GuardIn(state="a.x")),
        (built("xstate.stateIn", stateValue={"a": "x"}), GuardIn(state="a.x")),
        (
            built("xstate.stateIn", stateValue={"a": {}, "b": {}}),
            GuardAll(guards=(GuardIn(state="a"), GuardIn(state="b"))),
        ),
    ],
)
def test_guards(written: Any, expected: Guard) -> None:
    """Names are functions; composed guards and `stateIn` are read by their type."""
    state = read_state({"on": {"E": {"guard": written}}, "initial": "x", "states": {"x": {}}})

    assert expected == state.transitions[0].guard


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (3, ["value.type"]),
        ("", ["value.type"]),
        ({}, ["guard.type"]),
        ({"type": 3}, ["value.type"]),
        ({"type": "ok", "parms": 3}, ["key.unknown"]),
        (built("xstate.nand", guards=[]), ["guard.unsupported"]),
        (built("xstate.and"), ["guard.empty"]),
        (built("xstate.not", guards=["a", "b"]), ["guard.not"]),
        (built("interlock.expression"), ["guard.expression"]),
        (built("xstate.stateIn"), ["guard.state_in"]),
        (built("xstate.stateIn", stateValue=3), ["value.type"]),
        (built("xstate.stateIn", stateValue="z"), ["target.unknown"]),
        (built("xstate.stateIn", stateValue={"z": {}}), ["target.unknown"]),
    ],
)
def test_guards_that_cannot_be_read(written: Any, expected: list[str]) -> None:
    assert expected == codes(simple({"on": {"E": {"guard": written}}}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("= context.n", N),
        ("=context.n", N),
        ("\\=x", "=x"),
        ("\\\\=x", "\\=x"),
        ("\\x", "\\x"),
        ("x=", "x="),
        (3, 3),
        (None, None),
    ],
)
def test_values(text: Any, value: Any) -> None:
    """A leading `=` makes an expression, a backslash before it takes it as it is."""
    assert value == read_value(Node(text, NOWHERE))


@pytest.mark.parametrize("value", [N, "=x", "\\=x", "\\x", "x", [1, N, {"a": "=="}], None, True])
def test_values_come_back(value: Any) -> None:
    def json_node(plain: Any) -> Node:
        if isinstance(plain, dict):
            return Node({key: json_node(each) for key, each in plain.items()}, NOWHERE)
        if isinstance(plain, list):
            return Node([json_node(each) for each in plain], NOWHERE)
        return Node(plain, NOWHERE)

    assert value == read_value(json_node(write_value(value)))


def test_an_expression_knows_its_place() -> None:
    guard = (
        read({"id": "m", "initial": "a", "states": {"a": {"on": {"E": {"guard": "= context.n"}}}, "b": {}}})
        .root.states[0]
        .transitions[0]
        .guard
    )

    assert isinstance(guard, GuardExpression)
    assert guard.place.column + 3 == guard.expression.place.column
