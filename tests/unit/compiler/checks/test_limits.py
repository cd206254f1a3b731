"""Nested content: as deep as the limits allow, and not one level deeper, everywhere."""

import pytest

from interlock.compiler.build import compile_document
from interlock.kernel.step import Kernel
from interlock.model.document.actions import (
    Action,
    Assign,
    Expression,
    Foreach,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardNot,
    If,
)
from interlock.model.document.document import Document, Initial, Invoke, Saga, SagaCall, SagaStep, State, Transition
from interlock.model.document.field import Field
from interlock.model.limits import CONTENT_DEPTH_MAX, FOREACH_DEPTH_MAX

TRUE = GuardExpression(expression=Expression("context.n == 0"))
CONTEXT = (Field(name="n", type="integer", default=0), Field(name="item"))


def ifs(depth: int) -> Action:
    """An assign inside this many `if`; every other one is under `else`."""
    action: Action = Assign(values=(("n", 0),))
    for level in range(depth):
        action = If(branches=((TRUE, (action,)),)) if level % 2 else If(branches=((TRUE, ()),), otherwise=(action,))
    return action


def loops(depth: int) -> Action:
    """An `if` inside this many `foreach`."""
    action = ifs(2)
    for _ in range(depth):
        action = Foreach(items=[1], item="item", block=(action,))
    return action


def guards(depth: int) -> Guard:
    """A guard inside this many others."""
    guard: Guard = TRUE
    for level in range(depth):
        guard = (GuardNot(guard=guard), GuardAll(guards=(guard,)), GuardAny(guards=(guard,)))[level % 3]
    return guard


def found(*states: State) -> list[str]:
    """The codes of the errors of a chart with these states."""
    document = Document(kind="test", root=State(context=CONTEXT, states=states))
    return [each.code for each in compile_document(document).diagnostics if each.severity == "error"]


@pytest.mark.parametrize("action", [ifs(CONTENT_DEPTH_MAX - 2), loops(FOREACH_DEPTH_MAX)], ids=["if", "foreach"])
def test_what_is_as_deep_as_allowed_runs(action: Action) -> None:
    """The limits lie below those of Python, so whatever compiles can be made a function."""
    document = Document(kind="test", root=State(context=CONTEXT, states=(State(key="a", entry=((action,),)),)))
    chart = compile_document(document).chart

    assert chart is not None
    assert () == Kernel(chart).start(entity="test/1").faults


def test_a_guard_as_deep_as_allowed_is_asked() -> None:
    go = Transition(events=("go",), targets=("b",), guard=guards(CONTENT_DEPTH_MAX - 1))

    assert [] == found(State(key="a", transitions=(go,)), State(key="b"))


DEEP = ifs(CONTENT_DEPTH_MAX)
TOO_DEEP = Transition(actions=(DEEP,), targets=("b",))
CALL = SagaCall(src="do")


@pytest.mark.parametrize(
    "state",
    [
        State(key="a", entry=((), (DEEP,))),
        State(key="a", exit=((DEEP,),)),
        State(key="a", entry=((loops(FOREACH_DEPTH_MAX + 1),),)),
        State(key="a", entry=((ifs(5_000),),)),
        State(key="a", entry=((If(branches=((guards(CONTENT_DEPTH_MAX), ()),)),),)),
        State(key="a", initial=Initial(targets=("c",), actions=(DEEP,)), states=(State(key="c"),)),
        State(key="a", states=(State(key="c"), State(key="h", type="history", targets=("c",), actions=(DEEP,)))),
        State(key="a", transitions=(Transition(events=("go",), actions=(DEEP,)),)),
        State(key="a", transitions=(Transition(events=("go",), guard=guards(CONTENT_DEPTH_MAX)),)),
        State(key="a", invokes=(Invoke(src="do", finalize=(DEEP,)),)),
        State(key="a", invokes=(Invoke(src="do", done=(TOO_DEEP,)),)),
        State(key="a", invokes=(Invoke(src="do", error=(TOO_DEEP,)),)),
        State(key="a", saga=Saga(steps=(SagaStep(id="s", do=CALL, guard=guards(CONTENT_DEPTH_MAX)),))),
        State(key="a", saga=Saga(steps=(SagaStep(id="s", do=CALL),), compensated=(TOO_DEEP,))),
        State(
            key="a",
            invokes=(
                Invoke(
                    src=Document(kind="inner", root=State(states=(State(key="c", entry=((DEEP,),)),))), type="chart"
                ),
            ),
        ),
    ],
    ids=range(15),
)
def test_what_is_deeper_is_reported_everywhere(state: State) -> None:
    """`content.depth`, once, and nothing walks into it afterwards."""
    assert ["content.depth"] == found(state, State(key="b"))
