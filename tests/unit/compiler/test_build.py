"""From a document to a chart: numbers, descriptors, defaults, and diagnostics."""

from collections.abc import Mapping
from typing import Any

import pytest

from interlock.compiler.build import compile_document
from interlock.expression.codegen import Compiled
from interlock.expression.language import SAFE, Language, Script
from interlock.expression.parser import Parsed
from interlock.model.charts.chart import After
from interlock.model.document.actions import Expression, GuardIn
from interlock.model.document.actions import Script as ScriptAction
from interlock.model.document.document import Document, EventType, Initial, Invoke, State, Transition
from interlock.model.document.field import Field
from tests.unit.compiler.diagnostics import chart_of, compiled, errors, reported


def test_states_are_numbered_in_document_order() -> None:
    """S1: pre-order, the root is 0, and a descendant's number lies between its ancestor's and its `last`."""
    chart = chart_of("states: {a: {states: {b: {}, c: {}}}, d: {}}")

    assert ["", "a", "a.b", "a.c", "d"] == [each.id for each in chart.states]
    assert [4, 3, 2, 3, 4] == [each.last for each in chart.states]
    assert [-1, 0, 1, 1, 0] == [each.parent for each in chart.states]
    assert [0, 1, 2, 2, 1] == [each.depth for each in chart.states]
    assert ["compound", "compound", "atomic", "atomic", "atomic"] == [each.type for each in chart.states]


def test_the_first_child_that_can_be_active_is_the_default() -> None:
    """S4: without `initial` the first child in document order that is not a history."""
    chart = chart_of("states: {a: {states: {h: {type: history, target: c}, b: {}, c: {}}}}")

    assert ((1,), (3,)) == (chart.states[0].initial, chart.states[1].initial)


def test_results_and_generated_events_come_before_those_of_on() -> None:
    """A state's own `*` cannot hide its timers, results and completion."""
    chart = chart_of("""\
states:
  a:
    invoke: {id: i, src: s, onDone: b, onError: b}
    after: {1h: b, "= 5": b}
    always: {target: b, guard: g}
    onDone: b
    on: {"*": {actions: [x]}}
    states: {f: {type: final}}
  b: {}
""")
    tried = [chart.transitions[each] for each in chart.states[1].transitions]

    assert ["done i", "error i", "always", "after 1h", "after 5", "done", "*"] == [each.label for each in tried]
    assert [("done.invoke.i", True), ("error.invoke.i", True)] == [
        (each.descriptors[0].text, each.descriptors[0].exact) for each in tried[:2]
    ]


def test_delays_of_one_length_share_a_timer() -> None:
    """S38: the event names the duration as written; an expression is named by its number."""
    chart = chart_of("""\
states:
  a: {after: {1h: [{target: b, guard: g}, c], "= 5": {target: b, onRestore: restart}, "= 6": c}}
  b: {}
  c: {}
""")
    after = chart.states[1].after

    assert ["after.1h.a", "after.0.a", "after.1.a"] == [each.event for each in after]
    assert After(event="after.1h.a", delay=3_600_000, label="1h") == after[0]
    assert "restart" == after[1].restore


def test_an_invoke_without_id_that_is_listened_to_gets_one() -> None:
    """Its own transitions must know the name of its results; the others are named when they start (S30)."""
    chart = chart_of("""\
states:
  a: {invoke: [{src: s, onDone: b}, {src: t}]}
  b: {}
""")

    assert ["a.0", None] == [each.id for each in chart.states[1].invokes]


def test_the_names_that_code_must_bring() -> None:
    chart = chart_of("""\
states:
  a:
    entry: [y, {if: {all: [g2, {not: {name: g1, with: {n: 1}}}]}, then: [x], else: [{assign: f}]}]
    invoke: [{src: h, timeout: 1m}, {id: c, src: child, type: chart}, {id: d, src: {states: {z: {}}}, type: chart}]
    on: {e: {guard: g3, actions: [y]}}
""")

    assert ("g1", "g2", "g3") == chart.guards
    assert ("f",) == chart.assigns
    assert ("h", "x", "y") == chart.handlers
    assert ("child",) == chart.charts
    assert ["a.2"] == [name for name, _ in chart.inline]


def test_an_inline_chart_that_is_wrong_makes_the_whole_wrong() -> None:
    text = "states: {a: {invoke: {id: i, type: chart, src: {states: {z: {on: {e: nowhere}}}}}}}"

    assert ["error 3:70"] == reported(text, "target.unknown")
    assert compiled(text).chart is None


def test_what_is_computed_is_resolved_at_its_position() -> None:
    """`In()` and `{in: ...}` become ids; so does a name in an expression of an invoke."""
    chart = chart_of("""\
context: {n: {type: any, default: "= In('a.b')"}}
events: {e: {roles: [r]}}
states:
  a:
    states: {b: {on: {e: {guard: {any: [{in: c}, "= In('c')"]}}}}, c: {invoke: {id: i, src: "= In('b')"}}}
""")
    guard = chart.transitions[0].guard
    src = chart.states[3].invokes[0].src

    assert isinstance(src, Expression)
    assert (("b", "a.b"),) == src.inside
    assert "a.c" == guard.guards[0].state  # type: ignore[union-attr]  # as written above
    assert (("c", "a.c"),) == guard.guards[1].expression.inside  # type: ignore[union-attr]  # as written above


def test_two_states_cannot_have_one_id() -> None:
    text = "states:\n  a: {id: x}\n  b: {id: x}"

    assert ["error 5:3"] == reported(text, "state.duplicate_id")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("target.unknown", "states: {a: {on: {e: b}}}"),
        ("target.ambiguous", "states: {a: {states: {b: {on: {e: a}}, a: {}}}}"),
        ("expression.syntax", "states: {a: {on: {e: {guard: '= 1 +', actions: [x]}}}}"),
        ("target.unknown", "states: {a: {on: {e: {guard: {in: z}, actions: [x]}}}}"),
        ("target.unknown", "states: {a: {on: {e: {guard: \"= In('z')\", actions: [x]}}}}"),
    ],
)
def test_a_name_that_means_nothing_is_an_error(code: str, text: str) -> None:
    assert [code] == errors(text)
    assert compiled(text).chart is None


def test_scxml_loads_what_fails_only_when_it_is_reached() -> None:
    """S35: a malformed expression, an unknown `In()` and a transition that leads nowhere are warnings there."""
    text = """\
dialect: scxml
states:
  a: {on: {e: {guard: "= 1 +"}, f: {guard: "= In('z')"}, g: nowhere}}
"""
    chart = chart_of(text)

    assert ["warning 5:28"] == reported(text, "expression.syntax")
    assert ["warning 5:50", "warning 5:61"] == reported(text, "target.unknown")
    assert "expression.syntax: the expression ends too early" == chart.transitions[0].guard.expression.malformed  # type: ignore[union-attr]  # as written above
    assert () == chart.transitions[2].targets


def test_a_malformed_expression_is_reported_at_each_place() -> None:
    assert 2 == len(reported("states: {a: {on: {e: {guard: '= 1 +'}, f: {guard: '= 1 +'}}}}", "expression.syntax"))


def test_the_dialect_decides_defaults() -> None:
    """`unhandled` and `errors` follow the dialect unless they are said."""
    own, scxml, xstate = (
        chart_of(f"dialect: {name}\nstates: {{a: {{}}}}") for name in ("interlock", "scxml", "xstate")
    )

    assert ("reject", "event") == (own.unhandled, own.dialect.errors)
    assert ("ignore", "event") == (scxml.unhandled, scxml.dialect.errors)
    assert ("ignore", "raise") == (xstate.unhandled, xstate.dialect.errors)
    assert "event" == chart_of("dialect: xstate\nerrors: event\nstates: {a: {}}").dialect.errors


def test_unhandled_defer_is_not_a_diagnostic() -> None:
    assert "defer" == chart_of("unhandled: defer\nstates: {a: {}}").unhandled


def test_a_revision_is_a_label_and_a_hash() -> None:
    first = chart_of("revision: 1.2.0\nstates: {a: {}}")
    again = chart_of("revision: 1.2.0\nstates:\n  a: {}")
    other = chart_of("revision: 1.2.0\nstates: {b: {}}")

    assert first.revision == again.revision
    assert first.revision != other.revision
    assert first.revision.startswith("1.2.0+")
    assert chart_of("states: {a: {}}").revision.startswith("0+")


def test_too_deep_too_many_and_too_long_are_refused_before_anything_else() -> None:
    deep = State(key="s")
    for _ in range(33):
        deep = State(key="s", states=(deep,))
    many = tuple(State(key=f"s{each}") for each in range(2_001))
    long = tuple(Transition(events=("e",)) for _ in range(20_001))

    assert ["chart.depth"] == errors(Document(kind="test", root=State(states=(deep,))))
    assert ["chart.states"] == errors(Document(kind="test", root=State(states=many)))
    assert ["chart.transitions"] == errors(
        Document(kind="test", root=State(states=(State(key="a"),), transitions=long))
    )


@pytest.mark.parametrize(
    "state",
    [
        State(key="a", transitions=(Transition(origin="after", delay="soon", targets=("b",)),)),
        State(key="a", invokes=(Invoke(src="s", timeout="soon"),)),
    ],
)
def test_a_duration_needs_a_unit(state: State) -> None:
    """V7, wherever a document brings one."""
    document = Document(kind="test", root=State(states=(state, State(key="b"))))

    assert ["error 1:1"] == reported(document, "duration.syntax")


class Trusting:
    """A language that takes every text and runs scripts."""

    def check(self, text: str) -> Parsed | None:
        return None

    def compile(self, text: str, inside: Mapping[str, str]) -> Compiled:
        return SAFE.compile("true", inside)

    def script(self, text: str) -> Script | None:
        def run(context: dict[str, Any], *_: Any) -> None:
            context.clear()

        return run


def test_scripts_need_a_language_that_runs_them() -> None:
    """They are refused by default, at the root and in blocks; a trusted language takes them, and any expression."""
    text = "script: x = 1\nstates: {a: {entry: [{script: y = 2}], on: {e: {guard: '= lambda: x', actions: [z]}}}}"
    trusting: Language = Trusting()
    root = "script: x = 1\nstates: {a: {}}"

    assert ["error 1:1"] == reported(root, "script.untrusted")
    assert compiled(text, language=trusting).chart is not None
    assert ScriptAction(text="y = 2") == compiled(text, language=trusting).chart.states[1].entry[0][0]  # type: ignore[union-attr]  # asserted above


def test_xstate_tries_exact_names_before_wildcards_by_falling_length() -> None:
    """X7: whatever the order written."""
    names = ("*", "foo.*", "foo.bar", "foo.bar.*")
    transitions = tuple(Transition(events=(each,), actions=(ScriptAction(text=""),)) for each in names)
    document = Document(kind="test", dialect="xstate", root=State(states=(State(key="a", transitions=transitions),)))
    trusting: Language = Trusting()
    chart = compile_document(document, language=trusting).chart

    assert chart is not None
    assert ["foo.bar", "foo.bar.*", "foo.*", "*"] == [
        chart.transitions[each].label for each in chart.states[1].transitions
    ]
    assert [True, False, False, False] == [each.descriptors[0].exact for each in chart.transitions]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("foo", ("foo",)), ("foo.*", ("foo",)), ("foo.", ("foo",)), ("foo.bar", ("foo", "bar")), ("*", ())],
)
def test_a_descriptor_is_a_prefix_of_whole_tokens(text: str, tokens: tuple[str, ...]) -> None:
    """399: `foo` takes `foo.x`, and not `foobar`."""
    document = Document(kind="test", root=State(states=(State(key="a", transitions=(Transition(events=(text,)),)),)))
    chart = compile_document(document).chart

    assert chart is not None
    assert tokens == chart.transitions[0].descriptors[0].tokens
    assert chart.transitions[0].descriptors[0].matches("foo.bar")
    assert (text == "*") == chart.transitions[0].descriptors[0].matches("foobar")


def test_diagnostics_are_reported_by_position_without_duplicates() -> None:
    """A bad line of a saga is checked for the step and for its compensation, and reported once."""
    text = """\
states:
  b_ing: {}
  a: {saga: {steps: [{id: s, do: {src: f}, compensate: {src: g}, retry: {max: 1, backoff: 5s..1s}}]}}
"""
    found = compiled(text).diagnostics

    assert list(found) == sorted(found, key=lambda each: (each.location, each.code))
    assert ["error 5:22"] == reported(text, "duration.range")


def test_fields_and_events_keep_what_the_document_says() -> None:
    event = EventType(name="e", roles=("r",), dedupe=Expression("event.id"))
    state = State(
        key="a",
        context=(Field(name="n", default=1), Field(name="m")),
        initial=Initial(targets=("b",)),
        states=(State(key="b", transitions=(Transition(events=("e",), guard=GuardIn(state="a")),)),),
        tags=("t",),
        description="d",
        meta={"x": 1},
    )
    document = Document(kind="test", root=State(states=(state,)), events=(event,), properties={"p": 1})
    chart = compile_document(document).chart

    assert chart is not None
    assert ((Field(name="n", default=1), Field(name="m")), ("t",), "d", {"x": 1}) == (
        chart.states[1].context,
        chart.states[1].tags,
        chart.states[1].description,
        chart.states[1].meta,
    )
    assert (event,) == chart.events
    assert {"p": 1} == chart.properties
