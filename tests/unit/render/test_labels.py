"""The texts of a drawing read like the definition, on one line, and never grow without bound."""

import pytest

from interlock.model.chart import Descriptor, Invoke, Transition
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    GuardExpression,
    GuardName,
    If,
    Log,
    Raise,
    Script,
    Send,
)
from interlock.render.labels import (
    TEXT_LENGTH_MAX,
    action_text,
    blocks_lines,
    clipped,
    event_text,
    invoke_line,
    transition_text,
    value_text,
)

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
def test_an_action_reads_as_a_phrase(action: Action, text: str) -> None:
    """Every action of the vocabulary has a short text."""
    assert text == action_text(action)


def test_a_value_is_shown_as_json_with_bare_expressions() -> None:
    """A literal string keeps its quotes, an expression has none."""
    value = {"a": [None, True, 1.5, "x"], "b": Expression("context.b")}

    assert '{a: [null, true, 1.5, "x"], b: context.b}' == value_text(value)


def test_a_transition_shows_only_the_parts_it_has() -> None:
    """Event, guard and actions are each left out where there is none."""
    full = Transition(index=0, source=1, label="pay", guard=STAFF, block=(Do(name="bill"),))

    assert "pay [is_staff] / bill" == transition_text(full)
    assert "pay" == transition_text(Transition(index=0, source=1, label="pay"))


def test_the_event_of_a_transition_without_label_comes_from_its_descriptors() -> None:
    """A chart made by hand is drawn too; what waits for nothing says so."""
    described = Transition(index=0, source=1, descriptors=(Descriptor("a", ("a",)), Descriptor("b.*", ("b",))))

    assert "a, b.*" == event_text(described)
    assert "always" == event_text(Transition(index=0, source=1))


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    """A label is bounded, whatever the definition holds."""
    text = clipped("word " * 100)

    assert len(text) <= TEXT_LENGTH_MAX
    assert text.endswith("…")


def test_white_space_is_folded_onto_one_line() -> None:
    """A line break in an expression does not break a label."""
    assert "a b c" == clipped(" a\n\tb\u2028 c ")


def test_an_empty_block_has_no_line() -> None:
    """Entry blocks that do nothing are not drawn."""
    assert ["entry / a"] == blocks_lines("entry", ((), (Do(name="a"),)))


@pytest.mark.parametrize(
    ("invoke", "text"),
    [
        (Invoke(id="refund", src="payment.refund"), "invoke payment.refund (refund)"),
        (Invoke(id="refund", src="refund"), "invoke refund"),
        (Invoke(id=None, src=Expression("context.handler")), "invoke context.handler"),
        (Invoke(id="child", src=None), "invoke a computed chart (child)"),
    ],
)
def test_an_invoke_names_its_source_and_its_id(invoke: Invoke, text: str) -> None:
    """The id is shown where it says more than the source."""
    assert text == invoke_line(invoke)
