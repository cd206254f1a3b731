"""Walks over documents, and rewrites of blocks."""

from __future__ import annotations

from interlock.model.document.actions import (
    Assign,
    AssignCall,
    Block,
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
    Initial,
    Invoke,
    Saga,
    SagaCall,
    SagaStep,
    State,
    Transition,
)
from interlock.model.document.walk import (
    action_expressions,
    block_actions,
    documents,
    guard_expressions,
    guard_parts,
    rewrite_block,
    state_blocks,
    state_guards,
    states,
    value_expressions,
)
from interlock.model.document.wording import guard_text

E = Expression
GUARD = GuardAll(
    guards=(
        GuardName(name="rich", arguments={"at": E("a")}),
        GuardAny(guards=(GuardExpression(expression=E("b")), GuardNot(guard=GuardIn(state="live")))),
    )
)
BLOCK: Block = (
    Do(name="act", arguments={"x": [E("c")]}),
    Assign(values=(("f", E("d")), ("g", 1))),
    AssignCall(name="fn", arguments=E("e")),
    Raise(event=E("f"), data=E("g")),
    Send(event="s", to=E("h"), delay=E("i"), data=E("j")),
    Cancel(id=E("k")),
    Emit(type="t", data=E("l")),
    Log(label="x", value=E("m")),
    If(branches=((GUARD, (Raise(event=E("n")),)),), otherwise=(Raise(event=E("o")),)),
    Foreach(items=E("p"), item="i", block=(Raise(event=E("q")),)),
    Script(text="x"),
)


def _texts(block: Block) -> list[str]:
    return [each.text for action in block_actions(block) for each in action_expressions(action)]


def test_every_expression_of_a_block_is_found_in_document_order() -> None:
    assert _texts(BLOCK) == list("cdefghijklmabnopq")


def test_rewriting_reaches_every_expression_and_every_in() -> None:
    changed = rewrite_block(BLOCK, lambda each: E(each.text.upper()), lambda each: GuardIn(state="done"))

    assert _texts(changed) == list("CDEFGHIJKLMABNOPQ")
    branch = changed[8]
    assert isinstance(branch, If)
    assert guard_text(branch.branches[0][0]) == "rich and ((B) or (not In('done')))"


def test_the_parts_of_a_guard_are_walked_outside_in() -> None:
    kinds = [type(each).__name__ for each in guard_parts(GUARD)]

    assert kinds == ["GuardAll", "GuardName", "GuardAny", "GuardExpression", "GuardNot", "GuardIn"]
    assert [each.text for each in guard_expressions(GUARD)] == ["a", "b"]


def test_a_value_without_expressions_has_none() -> None:
    assert list(value_expressions({"a": [1, None, "= not one here"]})) == []


def _transition(name: str) -> Transition:
    return Transition(events=("e",), guard=GuardName(name=name), actions=(Do(name=name),))


INLINE = Document(kind="inner", root=State(states=(State(key="z"),)))
STATE = State(
    key="a",
    transitions=(_transition("own"),),
    entry=((Do(name="entry"),),),
    exit=((Do(name="exit"),),),
    actions=(Do(name="default"),),
    initial=Initial(targets=("b",), actions=(Do(name="initial"),)),
    invokes=(
        Invoke(src=INLINE, finalize=(Do(name="finalize"),), done=(_transition("done"),), error=(_transition("error"),)),
        Invoke(src="handler"),
    ),
    saga=Saga(
        steps=(SagaStep(id="s", do=SagaCall(src="x"), guard=GuardName(name="step")),),
        done=(_transition("saga.done"),),
        compensated=(_transition("saga.compensated"),),
        error=(_transition("saga.error"),),
    ),
    states=(State(key="b"),),
)
DOCUMENT = Document(kind="outer", root=State(states=(STATE, State(key="c"))))


def test_states_and_inline_charts_are_walked_in_document_order() -> None:
    assert ["", "a", "b", "c"] == [each.key for each in states(DOCUMENT.root)]
    assert ["outer", "inner"] == [each.kind for each in documents(DOCUMENT)]


def test_every_block_and_guard_of_a_state_is_found() -> None:
    results = ["own", "done", "error", "saga.done", "saga.compensated", "saga.error"]
    names = [action.name for block in state_blocks(STATE) for action in block if isinstance(action, Do)]

    assert ["entry", "exit", "default", "initial", "finalize", *results] == names
    assert [*results, "step"] == [each.name for each in state_guards(STATE) if isinstance(each, GuardName)]
    assert [()] == list(state_blocks(State(key="b")))
