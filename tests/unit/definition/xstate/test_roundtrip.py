"""Documents that go out as XState JSON and come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from interlock.definition.xstate.format import read_xstate, write_xstate
from interlock.model.document.actions import (
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
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
from interlock.model.document.field import Field
from interlock.model.document.targets import TargetIndex
from tests.conformance.xstate.scenes import SCENES, Scene
from tests.unit.definition.documents import documents
from tests.unit.definition.xstate_cases import again, read

N = Expression("context.n")
ACTIONS = (
    Do(name="note"),
    Do(name="note", arguments={"n": N, "text": "=x"}),
    Assign(values=(("n", N), ("m", "\\=y"))),
    Assign(values=(("n", 1), ("n", 2))),
    Assign(values=(("b", 1), ("2", 2))),
    Assign(values=()),
    AssignCall(name="bump"),
    AssignCall(name="note"),
    AssignCall(name="note", arguments={"by": 2}),
    Raise(event="E"),
    Raise(event=N, data={"n": N}),
    Raise(event="E", data={"type": "t"}),
    Raise(event="E", data={}),
    Raise(event="E", data=[1]),
    Send(event="E"),
    Send(event="E", delay="30s"),
    Send(event="E", delay="90s", id="t"),
    Send(event="E", delay="90s", restore="remaining"),
    Send(event="E", to="parent", delay="90s", restore="restart"),
    Send(event="E", to="self", delay=N),
    Send(event="E", to=N, data={"n": 1}, id=N, id_location="n", type="http"),
    Cancel(id="t"),
    Cancel(id=N),
    Emit(type="paid", data={"n": N}),
    Log(value="text"),
    Log(label="l", value=N),
    If(branches=((GuardName(name="g"), (Do(name="x"),)), (GuardIn(state="b"), ())), otherwise=(Do(name="y"),)),
    If(branches=((GuardExpression(expression=N), ()),)),
    Foreach(items=N, item="i", block=(Do(name="x"),)),
    Foreach(items=[1], item="i", index="k", block=()),
    Script(text="x = 1"),
)
GUARD = GuardAll(
    guards=(
        GuardAny(guards=(GuardName(name="g"), GuardName(name="h", arguments={"n": N}))),
        GuardNot(guard=GuardExpression(expression=N)),
        GuardIn(state="b"),
    )
)
SAGA = Saga(
    steps=(
        SagaStep(
            id="one",
            do=SagaCall(src="take", input={"n": N}, output="n", key=N),
            guard=GUARD,
            compensate=SagaCall(src="give"),
            retry=Retry(max=3, backoff="1s..30s", jitter="full", on=("busy",)),
            timeout="30s",
        ),
    ),
    compensation="parallel",
    done=(Transition(targets=("b",), actions=(Do(name="x"),)),),
    error=(Transition(targets=("b",)),),
)
INVOKE = Invoke(
    src="job",
    id="j",
    id_location="n",
    type="chart",
    input={"n": N},
    autoforward=True,
    finalize=(Do(name="x"),),
    done=(Transition(targets=("#b",), guard=GUARD, actions=(Do(name="x"),)),),
    error=(Transition(targets=("#b",)), Transition()),
    retry=Retry(max=1),
    timeout="1m",
    key=N,
    restore="restart",
)
FULL = Document(
    kind="order",
    revision="1.2",
    compatible=">=1",
    upgrade="safe",
    dialect="xstate",
    unhandled="defer",
    errors="event",
    binding="late",
    events=(
        EventType(name="pay", payload=(Field(name="n", type="integer", required=True, min=1, max=2.5),), roles=("x",)),
        EventType(name="tick", direction="internal", permit=N, dedupe=N, description="d"),
    ),
    script="x = 1",
    properties={"never": ["a"]},
    renamed=(("old", "a"),),
    removed=Removed(states=(("gone", "2027-01-31"),), events=(("lost", "2027-01-31"),)),
    root=State(
        initial=Initial(targets=("a",)),
        context=(
            Field(name="n", type="integer", default=1, min=0),
            Field(name="m", required=True, type="string"),
            Field(
                name="o", type="object", nullable=True, fields=(Field(name="p", type="array", items=Field(name="q")),)
            ),
            Field(name="i", default=None),
        ),
        states=(
            State(
                key="a",
                id="first",
                initial=Initial(targets=("x", "y.z"), actions=(Do(name="init"),)),
                states=(
                    State(key="x"),
                    State(key="y", initial=Initial(targets=("z",)), states=(State(key="z"),)),
                    State(key="h", type="history", history="deep", targets=("#a.x",), actions=(Do(name="hist"),)),
                    State(key="g", type="history", targets=("#a.y.z",)),
                ),
                transitions=(
                    Transition(origin="always", guard=GUARD, targets=("#b",)),
                    Transition(origin="after", delay="90s", targets=("#b",), restore="remaining"),
                    Transition(origin="after", delay=N, actions=(Do(name="x"),)),
                    Transition(origin="onDone", targets=("#b",)),
                    Transition(events=("E",), targets=("#a.x",), reenter=True, roles=("owner",), description="d"),
                    Transition(events=("E",), targets=("#a.x", "#b"), reenter=False, meta={"color": "red"}),
                    Transition(events=("done.state.b",)),
                    Transition(events=("after.1m30s.first",)),
                    Transition(events=("done.invoke.j.*",)),
                    Transition(events=("*",)),
                ),
                entry=(ACTIONS, (Do(name="second"),)),
                exit=((), (Do(name="last"),)),
                invokes=(INVOKE, Invoke(src=N), Invoke(src="plain", type=N)),
                context=(Field(name="late", default=N),),
                saga=SAGA,
                expect=Expect(within="1h", then="stuck"),
                sensitive=Sensitive(fields=("n",), hidden=True, neutral="somewhere", roles=("x",)),
                monotonic=("x", "y"),
                allow=(("state.trap", "it is meant"),),
                description="d",
                tags=("t", "u"),
                meta={"color": "red"},
            ),
            State(key="b", type="final", output={"n": N}, monotonic=True),
        ),
    ),
)


def test_a_document_that_uses_everything_comes_back_equal() -> None:
    """What XState has no key for is carried in `meta.interlock`."""
    assert FULL == again(FULL)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_what_was_read_comes_back_equal(scene: Scene) -> None:
    document = read(scene.definition)

    assert document == again(document)


def test_a_chart_in_place_comes_back_equal() -> None:
    child = Document(
        kind="child",
        dialect="xstate",
        unhandled="ignore",
        root=State(initial=Initial(targets=("a",)), states=(State(key="a"), State(key="b"))),
    )
    root = State(
        initial=Initial(targets=("a",)),
        states=(State(key="a", invokes=(Invoke(src=child, type="chart"),)), State(key="b")),
    )
    document = Document(kind="m", dialect="xstate", unhandled="ignore", root=root)

    assert document == again(document)


@pytest.mark.parametrize(
    "root",
    [
        {"transitions": (Transition(events=("E",), targets=("b",)),)},
        {"type": "parallel"},
        {"states": (State(key="a", states=(State(key="x"),)),)},
        {
            "states": (State(key="a", transitions=(Transition(events=("E",), targets=("#m",)),)), State(key="b")),
            "id": "m",
        },
    ],
    ids=["acts", "parallel", "alone", "target"],
)
def test_ids_stay_the_same_below_a_hidden_root(root: dict[str, Any]) -> None:
    """Paths start with its key there, so every state has an id: references by id keep their meaning."""
    states = (State(key="a", states=(State(key="x"),)), State(key="b"))
    document = Document(kind="m", root=State(**{"states": states, **root}), renamed=(("old", "a"), ("older", "gone")))
    back = again(document)

    assert TargetIndex(document).ids[1:] == TargetIndex(back).ids[2:]
    assert document.renamed == back.renamed


@pytest.mark.parametrize("arguments", [[1, N], "text", 3, False, N, {"n": N}])
def test_functions_of_the_author_take_arguments_of_any_shape(arguments: object) -> None:
    """A guard and an assign function do; only a handler's input is a mapping or an expression."""
    guard = GuardName(name="g", arguments=arguments)
    block = (AssignCall(name="f", arguments=arguments),)
    states = (State(key="a", transitions=(Transition(events=("E",), guard=guard, actions=block),)), State(key="b"))
    root = State(initial=Initial(targets=("a",)), states=states)
    document = Document(kind="m", dialect="xstate", unhandled="ignore", root=root)

    assert document == again(document)


@pytest.mark.parametrize("name", ["=", "= context.n", "\\=", "\\", "sent"])
def test_the_field_that_takes_the_id_of_a_send_comes_back_as_it_was(name: str) -> None:
    """It is a name, not a value: no `=` in it makes an expression, and none is escaped."""
    send = Send(event="go", to="parent", id_location=name)
    states = (State(key="a", transitions=(Transition(events=("E",), actions=(send,)),)), State(key="b"))
    root = State(initial=Initial(targets=("a",)), states=states)
    document = Document(kind="m", dialect="xstate", unhandled="ignore", root=root)

    assert document == again(document)


@pytest.mark.parametrize("targets", [("#deep",), ("x.y",)])
def test_a_history_without_default_falls_back_to_a_deep_initial(targets: tuple[str, ...]) -> None:
    """Only an extension can give the initial states of such a parent; its history has the same targets."""
    inner = State(key="x", states=(State(key="w"), State(key="y", id="deep")), initial=Initial(targets=("w",)))
    outer = State(key="a", initial=Initial(targets=targets), states=(inner, State(key="h", type="history")))
    root = State(initial=Initial(targets=("a",)), states=(outer, State(key="b")))
    back = again(Document(kind="m", dialect="xstate", unhandled="ignore", root=root))

    assert back.root.states[0].initial is not None
    assert back.root.states[0].initial.targets == back.root.states[0].states[1].targets
    assert back == again(back)


def test_a_description_may_be_empty() -> None:
    states = (State(key="a", description="", transitions=(Transition(events=("E",), description=""),)), State(key="b"))
    root = State(initial=Initial(targets=("a",)), states=states, description="")
    document = Document(kind="m", dialect="xstate", unhandled="ignore", root=root)

    assert document == again(document)


@pytest.mark.slow
@given(documents())
@settings(max_examples=60)
def test_any_document_can_be_written_and_what_is_read_back_is_stable(document: Document) -> None:
    first = read_xstate(write_xstate(document).text, source="m.json")
    if first.document is None or any(each.severity == "error" for each in first.diagnostics):
        json.loads(write_xstate(document).text)
        return

    assert first.document == read_xstate(write_xstate(first.document).text, source="m.json").document
