"""Guards, actions and values as one line of text."""

import pytest

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
from interlock.model.document.wording import action_text, arguments_text, guard_text, value_text

PAID = GuardExpression(expression=Expression(" context.paid > 0 "))
STAFF = GuardName(name="is_staff")


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Do(name="bill"), "bill"),
        (Do(name="bill", arguments=[1, Expression("context.x")]), "bill([1, context.x])"),
        (
            Do(name="bill", arguments={"amount": Expression("context.amount"), "to": "anna"}),
            'bill(amount: context.amount, to: "anna")',
        ),
        (Assign(values=(("a", 1), ("b.c", Expression("event.data")))), "a = 1, b.c = event.data"),
        (AssignCall(name="totals"), "assign totals"),
        (Raise(event="ready"), "raise ready"),
        (Raise(event=Expression("context.name")), "raise context.name"),
        (Send(event="ping"), "send ping"),
        (Send(event="ping", to="self"), "send ping"),
        (Send(event="ping", to="parent", delay="30s"), "send ping to parent after 30s"),
        (
            Send(event="ping", to=Expression("context.other"), delay=Expression("context.wait")),
            "send ping to context.other after context.wait",
        ),
        (Cancel(id="billing"), "cancel billing"),
        (Emit(type="order.paid"), "emit order.paid"),
        (Log(), "log"),
        (Log(label="total", value=Expression("context.total")), "log total context.total"),
        (Log(value="text"), "log text"),
        (If(branches=((STAFF, (Do(name="a"),)),)), "if is_staff: a"),
        (
            If(branches=((STAFF, (Do(name="a"),)), (PAID, ())), otherwise=(Do(name="c"),)),
            "if is_staff: a elif context.paid > 0: nothing; else: c",
        ),
        (
            Foreach(items=Expression("context.rows"), item="row", block=(Do(name="a"), Do(name="b"))),
            "for row in context.rows: a, b",
        ),
        (Script(text="x = 1"), "script"),
    ],
)
def test_an_action_is_one_line_of_text(action: Action, text: str) -> None:
    assert text == action_text(action)


def test_a_value_is_json_with_bare_expressions() -> None:
    value = {"a": [None, True, 1.5, "x"], "b": Expression("context.b")}

    assert '{a: [null, true, 1.5, "x"], b: context.b}' == value_text(value)


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (STAFF, "is_staff"),
        (PAID, "context.paid > 0"),
        (GuardIn(state="live"), "In('live')"),
        (GuardNot(guard=STAFF), "not is_staff"),
        (GuardAll(guards=(STAFF, PAID)), "is_staff and (context.paid > 0)"),
        (GuardAny(guards=(STAFF, GuardNot(guard=GuardIn(state="live")))), "is_staff or (not In('live'))"),
    ],
)
def test_a_guard_is_one_line_of_text(guard: Guard, text: str) -> None:
    """Names and `In` bare, expressions in brackets inside others."""
    assert text == guard_text(guard)


def test_arguments_are_in_brackets() -> None:
    assert ["", "(a: 1)", '("x")'] == [arguments_text(each) for each in (None, {"a": 1}, "x")]
