"""Actions and guards: walking them, rewriting them, and their one-line text."""

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
    action_expressions,
    block_actions,
    block_rewritten,
    guard_expressions,
    guard_parts,
    guard_text,
    value_expressions,
)

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
    """Those inside guards, branches and loops too, each once."""
    assert _texts(BLOCK) == list("cdefghijklmabnopq")


def test_rewriting_reaches_every_expression_and_every_in() -> None:
    """Places, names and constants stay as they are."""
    changed = block_rewritten(BLOCK, lambda each: E(each.text.upper()), lambda each: GuardIn(state="done"))

    assert _texts(changed) == list("CDEFGHIJKLMABNOPQ")
    branch = changed[8]
    assert isinstance(branch, If)
    assert guard_text(branch.branches[0][0]) == "rich and ((B) or (not In('done')))"


def test_the_parts_of_a_guard_are_walked_outside_in() -> None:
    """A guard is its own first part."""
    kinds = [type(each).__name__ for each in guard_parts(GUARD)]

    assert kinds == ["GuardAll", "GuardName", "GuardAny", "GuardExpression", "GuardNot", "GuardIn"]
    assert [each.text for each in guard_expressions(GUARD)] == ["a", "b"]


def test_a_value_without_expressions_has_none() -> None:
    """Constants, lists and mappings of them."""
    assert list(value_expressions({"a": [1, None, "= not one here"]})) == []


def test_a_guard_reads_as_one_line() -> None:
    """Names and `In` bare, expressions in brackets inside others."""
    alone: list[Guard] = [GuardName(name="rich"), GuardExpression(expression=E(" a > 1 ")), GuardIn(state="live")]

    assert [guard_text(each) for each in alone] == ["rich", "a > 1", "In('live')"]
    assert guard_text(GuardNot(guard=alone[1])) == "not (a > 1)"
    assert guard_text(GuardAny(guards=(alone[0], alone[1]))) == "rich or (a > 1)"
