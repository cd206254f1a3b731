"""Writing smcat: what it can carry comes back when it is read, and everything else is a diagnostic."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from interlock.definition.smcat.parse import parse_smcat
from interlock.definition.smcat.read import read_smcat
from interlock.definition.smcat.write import write_smcat
from interlock.definition.source.node import SourceLines
from interlock.model.diagnostics import Diagnostics
from interlock.model.document import actions as act
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Initial,
    Invoke,
    Saga,
    SagaCall,
    SagaStep,
    State,
    Transition,
)
from interlock.model.document.field import Field
from interlock.model.document.wording import action_text
from tests.unit.definition.built_charts import every_word, order, vm
from tests.unit.definition.documents import documents


def chart(*states: State, **rest: Any) -> Document:
    """A document of these states."""
    return Document(kind="c", root=State(states=states), **rest)


def written(document: Document) -> tuple[list[str], list[str]]:
    """The lines of the text without its title, and the codes of what is lost."""
    writing = write_smcat(document)
    return writing.text.splitlines()[1:], [each.code for each in writing.diagnostics]


def label(transition: Transition, **rest: Any) -> tuple[str, list[str]]:
    """How one transition from `a` to `b` is labelled, and the codes of what is lost."""
    lines, codes = written(chart(State(key="a", transitions=(transition,)), State(key="b"), **rest))
    return lines[-1].removeprefix("a -> b").removeprefix(": ").removesuffix(";"), codes


def on(**rest: Any) -> Transition:
    """A transition to `b` for the event `go`."""
    return Transition(**{"events": ("go",), "targets": ("b",), **rest})


def read_back(document: Document) -> Document:
    """What is read from what was written, without errors."""
    reading = read_smcat(write_smcat(document).text, source="c.smcat")
    assert [] == [each for each in reading.diagnostics if each.severity == "error"]
    assert reading.document is not None
    return reading.document


def test_the_type_is_always_said() -> None:
    """Smcat guesses types from names such as `final`."""
    document = chart(
        State(key="final"),
        State(key="x", type="final"),
        State(key="p", type="parallel", states=(State(key="initial"), State(key="q"))),
        State(key="s", states=(State(key="h", type="history", history="deep", targets=("y",)), State(key="y"))),
        State(key="t", states=(State(key="z"), State(key="g", type="history", targets=("z",)))),
    )
    lines, codes = written(document)

    assert [] == codes
    assert "initial_2 [type=initial]," == lines[0]
    assert "final [type=regular]," in lines
    assert "x [type=final]," in lines
    assert "p [type=parallel] {" in lines
    assert "  initial [type=regular]," in lines
    assert "  h [type=deephistory]," in lines
    assert "  g [type=history];" in lines


def test_what_smcat_carries_comes_back() -> None:
    """States, regions, histories, events, times, completion, expressions, handlers and drawing."""
    expression = act.GuardExpression(expression=act.Expression("context.n[0] > 1"))
    document = Document(
        kind="c",
        root=State(
            initial=Initial(targets=("a",), actions=(act.Do(name="hi"),)),
            states=(
                State(
                    key="a",
                    description="the first\nof two",
                    entry=((act.Do(name="x"), act.Do(name="y")),),
                    exit=((act.Do(name="z"),),),
                    meta={"smcat": {"color": "red", "active": True, "class": "x-1 y"}},
                    transitions=(
                        Transition(origin="always", targets=("p",), guard=act.GuardName(name="in a hurry")),
                        Transition(
                            origin="after", delay="1h30m", targets=("p.s.t", "p.r.u"), actions=(act.Do(name="v"),)
                        ),
                        Transition(events=("go", "stop.*"), targets=("a",), reenter=True, description="again"),
                        Transition(events=("stay",), guard=expression, meta={"smcat": {"width": 2.5}}),
                    ),
                ),
                State(
                    key="p",
                    type="parallel",
                    transitions=(
                        Transition(origin="always", targets=("a",), guard=expression),
                        Transition(origin="onDone", targets=("a",)),
                    ),
                    states=(
                        State(
                            key="s",
                            initial=Initial(targets=("t",)),
                            states=(State(key="t"), State(key="e-1", type="final")),
                            transitions=(Transition(events=("x",), targets=(".t",), reenter=False),),
                        ),
                        State(key="r", initial=Initial(targets=("u",)), states=(State(key="u"), State(key="a"))),
                        State(
                            key="h", type="history", history="deep", targets=("s.t", "r.u"), actions=(act.Do(name="w"),)
                        ),
                    ),
                ),
            ),
        ),
    )
    writing = write_smcat(document)

    assert () == writing.diagnostics
    assert document == read_back(document)


@pytest.mark.parametrize("document", [order(), vm(), every_word()], ids=lambda each: each.kind)
def test_a_second_round_changes_nothing(document: Document) -> None:
    """What was lost was lost the first time."""
    once = read_back(document)

    assert once == read_back(once)


def test_a_key_that_is_used_twice_is_written_with_as_much_of_its_path_as_needed() -> None:
    inner = (State(key="x"), State(key="y"))
    document = chart(
        State(key="a", states=inner), State(key="b", states=(*inner, State(key="c", states=inner))), State(key="x")
    )
    lines, _ = written(document)

    assert '    a.x [type=regular label="x"],'.strip() in [each.strip() for each in lines]
    assert '    c.x [type=regular label="x"],' in lines
    assert "x [type=regular];" in lines
    assert [each.key for each in document.root.states] == [each.key for each in read_back(document).root.states]


def test_several_targets_are_a_fork() -> None:
    regions = tuple(State(key=key, states=(State(key=f"{key}1"),)) for key in "rq")
    source = State(key="a", transitions=(Transition(events=("go",), targets=("p.r.r1", "p.q.q1")),))
    lines, codes = written(chart(source, State(key="p", type="parallel", states=regions)))

    assert [] == codes
    assert ['a -> "]a": go;', '"]a" -> r1;', '"]a" -> q1;'] == lines[-3:]


def test_no_target_is_an_internal_self_loop() -> None:
    lines, codes = written(chart(State(key="a", transitions=(Transition(events=("go",)),))))

    assert [] == codes
    assert "a -> a [type=internal]: go;" == lines[-1]


def test_in_the_xstate_dialect_a_transition_inside_is_internal_unless_it_reenters() -> None:
    """Its default is the other way round; to itself it can only be drawn as one without a target."""
    inside = State(key="a", states=(State(key="x"),), transitions=(Transition(events=("go",), targets=(".x",)),))
    itself = replace(inside, transitions=(Transition(events=("go",), targets=("a",)),))

    lines, codes = written(chart(inside, dialect="xstate"))
    assert ("a -> x [type=internal]: go;", []) == (lines[-1], codes)
    lines, codes = written(chart(itself, dialect="xstate"))
    assert ("a -> a [type=internal]: go;", ["export.internal"]) == (lines[-1], codes)


def test_what_the_root_does_is_written_in_an_outer_state() -> None:
    root = State(states=(State(key="a"), State(key="c")), transitions=(Transition(events=("go",), targets=("a",)),))
    lines, codes = written(Document(kind="c", root=root))

    assert ["export.root"] == codes
    assert ["initial [type=initial],", "c_2 [type=regular] {"] == lines[:2]
    assert "c_2 -> a: go;" == lines[-1]


NAMED = act.GuardName(name="g")
EXPRESSION = act.GuardExpression(expression=act.Expression("x\n > 1"))


@pytest.mark.parametrize(
    ("guard", "text", "codes"),
    [
        (NAMED, "go [g]", []),
        (EXPRESSION, "go [= x > 1]", []),
        (act.GuardIn(state="b"), "go [= In('b')]", []),
        (act.GuardNot(guard=act.GuardIn(state="b")), "go [= not (In('b'))]", []),
        (act.GuardAll(guards=(EXPRESSION, act.GuardIn(state="b"))), "go [= (x > 1) and (In('b'))]", []),
        (act.GuardAny(guards=(EXPRESSION, EXPRESSION)), "go [= (x > 1) or (x > 1)]", []),
        (act.GuardAll(guards=()), "go [= true]", []),
        (act.GuardAny(guards=()), "go [= false]", []),
        (act.GuardName(name="g", arguments={"n": 1}), "go [g(n: 1)]", ["export.guards"]),
        (act.GuardName(name="g", arguments=[1]), "go [g((1))]", ["export.guards"]),
        (act.GuardName(name="else"), "go [else]", ["export.guards"]),
        (act.GuardNot(guard=NAMED), "go [not g]", ["export.guards"]),
        (act.GuardAll(guards=(NAMED, EXPRESSION)), "go [g and (x > 1)]", ["export.guards"]),
        (act.GuardAny(guards=(NAMED, NAMED)), "go [g or g]", ["export.guards"]),
    ],
)
def test_a_guard_is_exact_or_reported(guard: act.Guard, text: str, codes: list[str]) -> None:
    """Conditions without registered functions become one expression; others are words."""
    assert (text, codes) == label(on(guard=guard))


@pytest.mark.parametrize(
    "action",
    [
        act.Do(name="f", arguments={"a": [1, act.Expression("x")], "b": {"c": None}}),
        act.Assign(values=(("a", 1), ("b", True))),
        act.AssignCall(name="f", arguments="x"),
        act.Raise(event="e"),
        act.Send(event="e", to="parent", delay="5s"),
        act.Cancel(id="i"),
        act.Emit(type="t"),
        act.Log(value="two\nwords"),
        act.If(branches=((NAMED, (act.Do(name="f"),)), (EXPRESSION, ())), otherwise=(act.Do(name="g"),)),
        act.Foreach(items=act.Expression("l"), item="i", block=(act.Do(name="f"),)),
        act.Script(text="x = 1"),
    ],
)
def test_an_action_that_smcat_cannot_carry_is_a_text_on_one_line_and_a_loss(action: act.Action) -> None:
    text, codes = label(on(actions=(action,)))

    assert ["export.actions"] == codes
    assert f"go / {action_text(action)}".split() == text.strip('"').replace('\\"', '"').split()
    assert "\n" not in text
    assert ["export.actions"] == written(chart(State(key="a", entry=((action,),))))[1]


@pytest.mark.parametrize(
    ("transition", "text", "codes"),
    [
        (on(origin="after", events=(), delay=act.Expression("x")), "after = x", []),
        (
            on(origin="after", events=(), delay=act.Expression("x[0]")),
            "after = x[0]",
            ["export.descriptors", "export.guards"],
        ),
        (on(events=("a b",)), "a b", ["export.descriptors"]),
        (on(actions=(act.Do(name="f; {"),)), r'"go / f; {"', []),
        (on(actions=(act.Do(name='f "x"'),)), r'"go / f \"x\""', []),
        (on(actions=(act.Do(name="f\\"),), guard=act.GuardName(name="a;")), '"go [a;] / f\\ "', []),
        (on(actions=(act.Do(name="a, b"),)), "go / a, b", ["export.actions"]),
        (on(roles=("r",)), "go", ["export.extensions"]),
        (on(origin="after", events=(), delay="5s", restore="restart"), "after 5s", ["export.extensions"]),
        (on(meta={"x": 1}), "go", ["export.meta"]),
        (on(meta=1), "go", ["export.meta"]),
        (on(meta={"smcat": 1}), "go", ["export.meta"]),
        (on(origin="transitions"), "go", []),
    ],
)
def test_a_label_is_exact_or_reported(transition: Transition, text: str, codes: list[str]) -> None:
    """Each label is read back; the difference is what is lost."""
    assert (text, codes) == label(transition)


@pytest.mark.parametrize(
    ("drawing", "codes"),
    [
        ({"color": 1}, ["export.meta"]),
        ({"class": "é"}, ["export.meta"]),
        ({"active": False}, ["export.meta"]),
        ({"width": 1}, ["export.meta"]),
        ({"color": 'a "b"'}, []),
    ],
)
def test_drawing_that_smcat_refuses_is_not_written(drawing: dict[str, Any], codes: list[str]) -> None:
    """`meta` may hold anything; the text stays smcat."""
    document = chart(State(key="a", meta={"smcat": drawing}))

    assert codes == written(document)[1]
    assert read_back(document).root.states[0].meta == (None if codes else {"smcat": drawing})


@pytest.mark.parametrize("width", [-1, 1e300, True])
def test_a_width_that_is_none_is_not_written(width: float) -> None:
    assert ("go", ["export.meta"]) == label(on(meta={"smcat": {"width": width}}))


def test_a_target_that_names_no_state_is_left_out() -> None:
    """The writer does not fail on a chart that does not compile; the diagnostic has the compiler's hint."""
    document = chart(
        State(key="paid", transitions=(Transition(events=("go",), targets=("payed",)),)),
        State(key="h", type="history", targets=("nowhere",)),
        State(key="s", initial=Initial(targets=("nobody",)), states=(State(key="t"),)),
    )
    writing = write_smcat(document)

    assert ["export.target"] * 3 == [each.code for each in writing.diagnostics]
    assert "->" not in writing.text.replace("initial -> paid", "")


def test_eventless_transitions_behind_others_are_reported() -> None:
    late = Transition(origin="transitions", targets=("b",))
    state = State(key="a", transitions=(on(), late))

    assert ["export.order"] == written(chart(state, State(key="b")))[1]


def test_what_is_invoked_is_an_activity_and_its_results_are_events() -> None:
    to = (Transition(targets=("b",)),)
    invokes = (
        Invoke(src="f", id="i", done=to, error=to),
        Invoke(src=chart(State(key="z")), done=to, error=to),
        Invoke(src=act.Expression("x")),
        Invoke(),
    )
    lines, codes = written(chart(State(key="a", invokes=invokes), State(key="b")))

    assert ["export.invoke"] * 4 == codes
    assert ["a [type=regular]: do/ f", "  do/ c", "  do/ x", "  do/ nothing,"] == lines[1:5]
    expected = ["a -> b: done.invoke.i;", "a -> b: error.invoke.i;", "a -> b: done.invoke;", "a -> b: error.invoke;"]
    assert expected == lines[-4:]


def test_a_saga_keeps_its_arrows() -> None:
    to = (Transition(targets=("b",)),)
    saga = Saga(steps=(SagaStep(id="s", do=SagaCall(src="f")),), done=to, compensated=to, error=to)
    lines, codes = written(chart(State(key="a", saga=saga), State(key="b")))

    assert ["export.extensions"] == codes
    assert ["a -> b: onDone;", "a -> b: onCompensated;", "a -> b: onError;"] == lines[-3:]


def test_everything_without_a_place_is_reported_once() -> None:
    state = State(key="a", id="x", expect=Expect(within="5s"), monotonic=True, allow=(("a", "b"),))
    document = chart(state, revision="1", binding="late", unhandled="defer")
    writing = write_smcat(document)

    (found,) = writing.diagnostics
    assert "export.extensions" == found.code
    names = ("revision", "unhandled", "binding", "expect", "monotonic", "allow", "id")
    assert all(f"`{each}`" in found.message for each in names)


def test_data_and_blocks_are_reported_separately() -> None:
    blocks = ((act.Do(name="x"),), (act.Do(name="y"),))
    states = (
        State(key="a", context=(Field(name="f"),), entry=blocks, tags=("t", "u")),
        State(key="e", type="final", output=1, exit=blocks),
    )
    lines, codes = written(chart(*states, events=(EventType(name="e"),)))

    expected = ["blocks", "blocks", "context", "events", "output", "tags"]
    assert [f"export.{each}" for each in expected] == sorted(codes)
    assert "# tags: t, u" in lines


def test_an_empty_chart_is_an_empty_text() -> None:
    assert ("// c\n", ()) == (write_smcat(chart()).text, write_smcat(chart()).diagnostics)


@pytest.mark.slow
@given(documents())
@settings(max_examples=60)
def test_whatever_the_document_the_text_is_smcat(document: Document) -> None:
    """Any names, texts and values: the syntax of what is written is right, and it can be read."""
    text = write_smcat(document).text
    diagnostics = Diagnostics()
    parse_smcat(text, SourceLines(text, "c.smcat"), diagnostics)

    assert [] == [str(each) for each in diagnostics.items], text
    assert read_smcat(text, source="c.smcat").document is not None or not document.root.states
