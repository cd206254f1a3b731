"""The safe language as the compiler and the kernel see it."""

from __future__ import annotations

import pytest

from interlock.expression.language import SAFE
from interlock.expression.parser import ExpressionError


def test_the_safe_language_checks_and_compiles() -> None:
    parsed = SAFE.check("context.a and In('x')")

    assert parsed is not None
    assert (("a", 8),) == parsed.reads
    assert SAFE.compile("In('x')", {"x": "r.x"}).function({}, None, None, {"r.x"}, None) is True


def test_the_safe_language_runs_no_scripts() -> None:
    assert SAFE.script("context.a = 1") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("In(context.a)", "In() takes the name of a state, written out"),
        ("actors(context.a)", "actors() takes the name of an event"),
    ],
)
def test_names_of_states_and_events_are_written_out(text: str, message: str) -> None:
    """The compiler checks them, so they cannot be computed."""
    with pytest.raises(ExpressionError) as raised:
        SAFE.check(text)

    assert ("expression.arguments", message) == (raised.value.code, raised.value.message)
