"""YAML to documents: what each key means."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.definition.yaml.format import FORMAT
from interlock.model.document import actions as act
from interlock.model.document.actions import Expression
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Initial,
    Invoke,
    Removed,
    Retry,
    Saga,
    SagaCall,
    SagaStep,
    Sensitive,
    State,
    Transition,
)
from interlock.model.document.field import UNSET, Field

HEAD = "interlock: 1\nkind: order\n"


def document(text: str) -> Document:
    """The document of a text that has no diagnostics."""
    reading = FORMAT.read(text, source="order.yaml")
    assert () == reading.diagnostics
    assert reading.document is not None
    return reading.document


def state(body: str) -> State:
    """The first state of a chart whose first state has this body, in flow style."""
    return document(f"{HEAD}states: {{a: {body}}}").root.states[0]


def test_the_head_of_a_chart() -> None:
    text = """
interlock: 1
kind: order.eu
revision: 3.1.0
compatible: ">=3 <4"
upgrade: safe
dialect: scxml
unhandled: defer
errors: raise
binding: late
script: x = 1
properties: {p: ["= kept"]}
renamed: {old.a: a}
removed: {states: {gone: 2027-01-31}, events: {lost.e: 2027-02-01}}
type: parallel
id: top
description: d
tags: [t]
meta: "= kept"
allow: {state.trap: fine}
sensitive: [card]
monotonic: true
initial: [a, b.c]
context: {}
events: {}
states: {a: {}, b: {states: {c: {}}}}
"""
    root = State(
        id="top",
        type="parallel",
        description="d",
        tags=("t",),
        meta="= kept",
        allow=(("state.trap", "fine"),),
        sensitive=Sensitive(fields=("card",)),
        monotonic=True,
        initial=Initial(targets=("a", "b.c")),
        states=(State(key="a"), State(key="b", states=(State(key="c"),))),
    )
    expected = Document(
        kind="order.eu",
        root=root,
        revision="3.1.0",
        compatible=">=3 <4",
        upgrade="safe",
        dialect="scxml",
        unhandled="defer",
        errors="raise",
        binding="late",
        script="x = 1",
        properties={"p": ["= kept"]},
        renamed=(("old.a", "a"),),
        removed=Removed(states=(("gone", "2027-01-31"),), events=(("lost.e", "2027-02-01"),)),
        events=(),
    )
    assert expected == document(text)
    assert "order.yaml" == document(text).source


def test_transitions_stand_in_the_order_in_which_they_are_tried() -> None:
    """`always`, `after`, `onDone`, `on`, `transitions`, whatever the order of the keys."""
    body = """{
      transitions: [{event: "x, y.*", target: b}, {guard: g}],
      on: {e: b, f: [b, {}]}, onDone: b, after: {30s: b, "= d": {target: b, onRestore: remaining}}, always: [b, b]}"""
    b = ("b",)
    expected = (
        Transition(origin="always", targets=b),
        Transition(origin="always", targets=b),
        Transition(origin="after", delay="30s", targets=b),
        Transition(origin="after", delay=Expression("d"), targets=b, restore="remaining"),
        Transition(origin="onDone", targets=b),
        Transition(events=("e",), targets=b),
        Transition(events=("f",), targets=b),
        Transition(events=("f",)),
        Transition(origin="transitions", events=("x", "y.*"), targets=b),
        Transition(origin="transitions", guard=act.GuardName(name="g")),
    )
    assert expected == state(body).transitions


def test_a_transition_with_everything() -> None:
    body = """{on: {"a.b , c.*,*": {target: ["#x.y", .z], guard: g, actions: [n], reenter: false, roles: [r],
      description: d, meta: {m: 1}}}}"""
    expected = Transition(
        events=("a.b", "c.*", "*"),
        targets=("#x.y", ".z"),
        guard=act.GuardName(name="g"),
        actions=(act.Do(name="n"),),
        reenter=False,
        roles=("r",),
        description="d",
        meta={"m": 1},
    )
    assert (expected,) == state(body).transitions


GUARDS: list[tuple[str, act.Guard]] = [
    ("g", act.GuardName(name="g")),
    (r"'\=g'", act.GuardName(name="=g")),
    ("'= a > 1 '", act.GuardExpression(expression=Expression("a > 1"))),
    ("{name: g, with: {a: '= b'}}", act.GuardName(name="g", arguments={"a": Expression("b")})),
    ("{all: [g, {in: a.b}]}", act.GuardAll(guards=(act.GuardName(name="g"), act.GuardIn(state="a.b")))),
    ("{any: []}", act.GuardAny(guards=())),
    ("{not: {not: g}}", act.GuardNot(guard=act.GuardNot(guard=act.GuardName(name="g")))),
]


@pytest.mark.parametrize(("text", "expected"), GUARDS)
def test_guards(text: str, expected: act.Guard) -> None:
    """A bare string names a function, `=` starts an expression, a mapping composes."""
    (transition,) = state(f"{{always: {{guard: {text}}}}}").transitions
    assert expected == transition.guard


ACTIONS: list[tuple[str, act.Action]] = [
    ("n", act.Do(name="n")),
    ("{do: n, with: {a: '= b', c: 1}}", act.Do(name="n", arguments={"a": Expression("b"), "c": 1})),
    ("{do: n, with: '= b'}", act.Do(name="n", arguments=Expression("b"))),
    ("{assign: {a.b: '= c', d: null}}", act.Assign(values=(("a.b", Expression("c")), ("d", None)))),
    ("{assign: f}", act.AssignCall(name="f")),
    ("{assign: f, with: [1]}", act.AssignCall(name="f", arguments=[1])),
    ("{raise: e}", act.Raise(event="e")),
    ("{raise: '= e'}", act.Raise(event=Expression("e"))),
    ("{raise: {event: e, data: {a: '= b'}}}", act.Raise(event="e", data={"a": Expression("b")})),
    ("{send: {event: e}}", act.Send(event="e")),
    (
        "{send: {event: '= e', to: parent, delay: 30s, id: i, idLocation: l, data: [1], type: t}}",
        act.Send(event=Expression("e"), to="parent", delay="30s", id="i", id_location="l", data=[1], type="t"),
    ),
    ("{send: {event: e, delay: '= d'}}", act.Send(event="e", delay=Expression("d"))),
    ("{cancel: '= i'}", act.Cancel(id=Expression("i"))),
    ("{emit: {type: t, data: 1}}", act.Emit(type="t", data=1)),
    ("{log: some text}", act.Log(value="some text")),
    ("{log: {label: l, value: ['= v']}}", act.Log(label="l", value=[Expression("v")])),
    (
        "{if: g, then: [a], elif: [{if: '= h', then: []}], else: [b]}",
        act.If(
            branches=(
                (act.GuardName(name="g"), (act.Do(name="a"),)),
                (act.GuardExpression(expression=Expression("h")), ()),
            ),
            otherwise=(act.Do(name="b"),),
        ),
    ),
    (
        "{foreach: {in: '= l', item: i, index: n, do: [a]}}",
        act.Foreach(items=Expression("l"), item="i", index="n", block=(act.Do(name="a"),)),
    ),
    ("{script: x = 1}", act.Script(text="x = 1")),
]


@pytest.mark.parametrize(("text", "expected"), ACTIONS)
def test_actions(text: str, expected: act.Action) -> None:
    read = document(f"{HEAD}states: {{a: {{entry: [{text}]}}}}")
    assert ((expected,),) == read.root.states[0].entry
    assert read == document(FORMAT.write(read).text)


def test_entry_is_one_block_or_several() -> None:
    a, b = act.Do(name="a"), act.Do(name="b")
    assert ((a, b),) == state("{exit: [a, b]}").exit
    assert ((a,), (), (b,)) == state("{exit: [[a], [], [b]]}").exit
    assert () == state("{exit: []}").exit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'=x'", Expression("x")),
        ("'=  x  '", Expression("x")),
        ("'='", Expression("")),
        ("= x", Expression("x")),
        (r"\=x", "=x"),
        (r"\\=x", r"\=x"),
        (r"\x", r"\x"),
        ("' = x'", " = x"),
        ("{'= k': '= v'}", {"= k": Expression("v")}),
    ],
)
def test_a_leading_equals_sign_makes_an_expression(text: str, expected: Any) -> None:
    """In values `=` starts an expression and a backslash before it a literal; keys are never expressions."""
    assert expected == state(f"{{type: final, output: {text}}}").output


def test_an_expression_knows_where_its_text_starts() -> None:
    """The place of an expression is that of its first character, plain or quoted, so that others can point into it."""
    lines = [
        "states:",
        "  a: {on: {e: {guard: '=  ab'}}}",
        "  b:",
        "    always: {guard: =cd}",
        '    after: {"= ef": a}',
    ]
    root = document(HEAD + "\n".join(lines)).root
    first, second = root.states
    guards = [first.transitions[0].guard, second.transitions[0].guard]
    expressions = [each.expression for each in guards if isinstance(each, act.GuardExpression)]
    expressions.append(second.transitions[1].delay)
    for expression in expressions:
        column = expression.location.column - 1
        line = lines[expression.location.line - 3]
        assert expression.text == line[column : column + 2]
        assert column + 3 == expression.location.end_column
    assert "states.b.after[= ef]" == expressions[2].location.path


def test_initial_forms() -> None:
    assert Initial(targets=("b",)) == state("{initial: b, states: {b: {}}}").initial
    assert Initial(targets=("b", "c")) == state("{initial: [b, c], states: {b: {}}}").initial
    expected = Initial(targets=("b",), actions=(act.Do(name="n"),))
    assert expected == state("{initial: {target: b, actions: [n]}, states: {b: {}}}").initial


def test_history_and_final_states() -> None:
    expected = State(key="a", type="history", history="deep", targets=("b", "c"), actions=(act.Do(name="n"),))
    assert expected == state("{type: history, history: deep, target: [b, c], actions: [n]}")
    assert "shallow" == state("{type: history, target: b}").history
    assert {"x": Expression("y")} == state("{type: final, output: {x: '= y'}}").output


def test_fields_of_the_context() -> None:
    """Every key of a field; a bare type is short; nested fields are required only when they say so."""
    text = """{context: {
      s: {type: string, required: true, length_max: 5, description: d, enum: [x, "= y"]},
      n: {type: number, nullable: true, min: 1, max: 2.5}, x: any, y: {default: "= 1"}, z: {type: any, default: null},
      l: {type: array, default: [], items: {type: object, fields: {q: string, r: {type: string, required: true}}}}}}"""
    items = Field(
        name="items",
        type="object",
        fields=(Field(name="q", type="string"), Field(name="r", type="string", required=True)),
    )
    expected = (
        Field(name="s", type="string", required=True, length_max=5, description="d", enum=("x", "= y")),
        Field(name="n", type="number", nullable=True, min=1, max=2.5),
        Field(name="x"),
        Field(name="y", default=Expression("1")),
        Field(name="z", default=None),
        Field(name="l", type="array", default=[], items=items),
    )
    assert expected == state(text).context


def test_declared_events() -> None:
    """Fields of a payload are required unless they say otherwise or have a default, nested ones too."""
    text = """events:
  full: {payload: {a: string, b: {type: string, required: false}, c: {default: 1}, d: {fields: {e: any}},
    f: {default: 1, required: true}},
    roles: [r], permit: "= p", dedupe: "= k", direction: internal, description: d}
  empty: {payload: {}}
  bare: {}
states: {a: {}}"""
    payload = (
        Field(name="a", type="string", required=True),
        Field(name="b", type="string"),
        Field(name="c", default=1),
        Field(name="d", required=True, fields=(Field(name="e", required=True),)),
        Field(name="f", default=1, required=True),
    )
    expected = (
        EventType(
            name="full",
            payload=payload,
            roles=("r",),
            permit=Expression("p"),
            dedupe=Expression("k"),
            direction="internal",
            description="d",
        ),
        EventType(name="empty", payload=()),
        EventType(name="bare"),
    )
    assert expected == document(HEAD + text).events
    assert document(f"{HEAD}states: {{a: {{}}}}").events is None
    assert UNSET is payload[0].default


def test_an_invoke_with_everything() -> None:
    """Every key of an invoke; one or a list; results are transitions without events."""
    body = """{invoke: [{src: h}, {id: i, idLocation: l, src: "= s", type: "= t", input: {a: "= b"}, autoforward: true,
      finalize: [n], onDone: b, onError: [b, {}], retry: {max: 5, backoff: 1s..30s, jitter: full, on: [x]},
      timeout: 30s, key: "= k", onRestore: fail}]}"""
    expected = Invoke(
        src=Expression("s"),
        id="i",
        id_location="l",
        type=Expression("t"),
        input={"a": Expression("b")},
        autoforward=True,
        finalize=(act.Do(name="n"),),
        done=(Transition(targets=("b",)),),
        error=(Transition(targets=("b",)), Transition()),
        retry=Retry(max=5, backoff="1s..30s", jitter="full", on=("x",)),
        timeout="30s",
        key=Expression("k"),
        restore="fail",
    )
    assert (Invoke(src="h"), expected) == state(body).invokes
    assert (Invoke(src="h", finalize=()),) == state("{invoke: {src: h, finalize: []}}").invokes


def test_an_inline_chart_is_a_document_inside() -> None:
    """Its kind is the outer kind and the invoke's id or the state's key, unless it names one; its type is chart."""
    (unnamed,) = state("{invoke: {src: {states: {x: {invoke: {id: i, src: {states: {y: {}}}}}}}}}").invokes
    assert isinstance(unnamed.src, Document)
    assert ("order.a", "chart") == (unnamed.src.kind, unnamed.type)
    inner = unnamed.src.root.states[0].invokes[0].src
    assert isinstance(inner, Document)
    assert "order.a.i" == inner.kind
    (named,) = state("{invoke: {src: {interlock: 1, kind: k, states: {x: {}}}}}").invokes
    assert isinstance(named.src, Document)
    assert "k" == named.src.kind


def test_a_saga_with_everything() -> None:
    body = """{saga: {compensation: none, onDone: b, onCompensated: b, onError: {}, steps: [
      {id: s, if: g, do: {src: h, input: "= i", output: f.g, key: k}, compensate: {src: u, input: 1}, retry: {max: 0},
       timeout: 1m}, {id: t, do: {src: h}}]}}"""
    expected = Saga(
        compensation="none",
        done=(Transition(targets=("b",)),),
        compensated=(Transition(targets=("b",)),),
        error=(Transition(),),
        steps=(
            SagaStep(
                id="s",
                guard=act.GuardName(name="g"),
                do=SagaCall(src="h", input=Expression("i"), output="f.g", key="k"),
                compensate=SagaCall(src="u", input=1),
                retry=Retry(max=0),
                timeout="1m",
            ),
            SagaStep(id="t", do=SagaCall(src="h")),
        ),
    )
    assert expected == state(body).saga


def test_expect_sensitive_and_monotonic_forms() -> None:
    """A list masks fields; true and a mapping hide the state itself; `then` is an alert unless said."""
    assert Expect(within="1h") == state("{expect: {within: 1h}}").expect
    assert Expect(within="forever", then="late") == state("{expect: {within: forever, then: late}}").expect
    assert Sensitive(fields=("a.b",)) == state("{sensitive: [a.b]}").sensitive
    assert Sensitive(hidden=True) == state("{sensitive: true}").sensitive
    expected = Sensitive(hidden=True, fields=("f",), neutral="busy", roles=("r",))
    assert expected == state("{sensitive: {fields: [f], as: busy, roles: [r]}}").sensitive
    assert ("x", "y") == state("{monotonic: [x, y], states: {x: {}, y: {}}}").monotonic
