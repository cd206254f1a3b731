"""The texts of a drawing read like the definition, on one line, and never grow without bound."""

import pytest

from interlock.model.charts.chart import Descriptor, Invoke, Transition
from interlock.model.document.actions import (
    Do,
    Expression,
    GuardExpression,
    GuardName,
)
from interlock.render.labels import (
    TEXT_LENGTH_MAX,
    blocks_lines,
    clipped,
    event_text,
    invoke_line,
    transition_text,
)

PAID = GuardExpression(expression=Expression(" context.paid > 0 "))
STAFF = GuardName(name="is_staff")


def test_a_transition_shows_only_the_parts_it_has() -> None:
    full = Transition(index=0, source=1, label="pay", guard=STAFF, block=(Do(name="bill"),))

    assert "pay [is_staff] / bill" == transition_text(full)
    assert "pay" == transition_text(Transition(index=0, source=1, label="pay"))


def test_the_event_of_a_transition_without_label_comes_from_its_descriptors() -> None:
    described = Transition(index=0, source=1, descriptors=(Descriptor("a", ("a",)), Descriptor("b.*", ("b",))))

    assert "a, b.*" == event_text(described)
    assert "always" == event_text(Transition(index=0, source=1))


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    text = clipped("word " * 100)

    assert len(text) <= TEXT_LENGTH_MAX
    assert text.endswith("…")


def test_white_space_is_folded_onto_one_line() -> None:
    assert "a b c" == clipped(" a\n\tb\u2028 c ")


def test_an_empty_block_has_no_line() -> None:
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
    assert text == invoke_line(invoke)
