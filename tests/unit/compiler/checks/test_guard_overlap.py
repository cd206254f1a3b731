"""Which guards are known to exclude each other by their text alone."""

import pytest

from interlock.compiler.checks.guard_overlap import GuardComparison
from interlock.expression.parser import parse
from interlock.model.document.actions import (
    Expression,
    Guard,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
)


def said(first: str, second: str) -> bool:
    """Whether two expressions exclude each other, in both orders the same."""
    trees = {text: parse(text) for text in (first, second)}
    left, right = (GuardExpression(expression=Expression(text)) for text in (first, second))
    answer = GuardComparison(trees).exclusive(left, right)

    assert answer == GuardComparison(trees).exclusive(right, left)
    return answer


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("context.x", "not context.x"),
        ("context.n > 3", "context.n <= 3"),
        ("context.n > 3", "context.n < 3"),
        ("context.n < 3", "context.n == 3"),
        ("context.n == 3", "context.n != 3"),
        ("context.n < 3", "context.n > 5"),
        ("context.n <= 3", "context.n >= 5"),
        ("context.n == 3", "context.n > 5"),
        ("3 < context.n", "context.n <= 3"),
        ("context.s == 'a'", "context.s == 'b'"),
        ("context.s == null", "context.s == 'b'"),
        ("context.s is None", "context.s is not null"),
        ("context.b == true", "context.b == false"),
        ("context.s in ['a']", "context.s not in ['a']"),
        ("context.a and context.n > 3", "context.n <= 3 and context.b"),
        ("not (context.a or context.b)", "context.b"),
        ("not (context.n < 3)", "context.n < 3"),
        ("In('a')", "not In('a')"),
    ],
)
def test_guards_that_exclude_each_other(first: str, second: str) -> None:
    assert said(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("context.n > 3", "context.n > 5"),
        ("context.n > 3", "context.m <= 3"),
        ("context.n >= 3", "context.n <= 3"),
        ("context.n == 1", "context.n == 1.0"),
        ("context.n == 1", "context.n == true"),
        ("context.n != 1", "context.n != 2"),
        ("context.s > 'a'", "context.s < 'b'"),
        ("context.n == context.m", "context.n == 3"),
        ("context.a or context.b", "not context.a"),
        ("not (context.a and context.b)", "context.a"),
        ("1 < context.n < 3", "context.n >= 3"),
        ("'a' in context.xs", "'b' in context.xs"),
        ("context.s in ['a']", "context.s in ['b']"),
    ],
)
def test_guards_that_may_hold_together(first: str, second: str) -> None:
    assert not said(first, second)


def test_guards_without_expressions() -> None:
    """Names, `{in: state}` and what is made of them."""
    name, state = GuardName(name="g"), GuardIn(state="a")
    cases: list[tuple[bool, Guard, Guard]] = [
        (True, name, GuardNot(guard=name)),
        (True, GuardNot(guard=name), name),
        (True, GuardAll(guards=(state, name)), GuardNot(guard=state)),
        (False, name, GuardName(name="h")),
        (False, state, GuardIn(state="b")),
        (False, GuardNot(guard=name), GuardNot(guard=state)),
        (False, GuardAny(guards=(state,)), GuardNot(guard=state)),
    ]

    assert [expected for expected, _, _ in cases] == [
        GuardComparison({}).exclusive(first, second) for _, first, second in cases
    ]


def test_what_a_language_cannot_read_proves_nothing() -> None:
    first, second = (GuardExpression(expression=Expression(text)) for text in ("x", "not x"))

    assert not GuardComparison({"x": None, "not x": None}).exclusive(first, second)
