"""Compiled expressions agree with a tree walk written apart from them: the same value, or the same kind of error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interlock.expression.builtins import FUNCTIONS
from interlock.expression.codegen import Meter, compile_parsed, describe_exception
from interlock.expression.parser import ExpressionError, parse
from interlock.model.event import Event
from tests.unit.expression.evaluation import ROOTS, WORK, Entity
from tests.unit.expression.oracle import NoValueError, oracle

FIELDS = ["a", "b", "c", "d"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]
ONE_ARGUMENT = [name for name, (least, _) in FUNCTIONS.items() if least == 1 and name != "In"]
TWO_ARGUMENTS = [name for name, (_, most) in FUNCTIONS.items() if most is None or most > 1]
WORDS = ["", "a", "b", "ab", "AB", " 7 ", "1.5", "5m", "\u00df", "k"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(-(2**256) + 1, 2**256 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(WORDS),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "k"]), inner, max_size=3),
    max_leaves=6,
)
contexts = st.fixed_dictionaries({"a": values, "b": values, "c": scalars}, optional={"d": values})
events = st.none() | st.builds(Event, st.sampled_from(["x", "paid"]), values, st.none() | st.just("id"))

atoms = st.one_of(
    st.integers(0, 300).map(str),
    st.sampled_from(["0.5", "1e300", "18446744073709551615", "true", "false", "null", "None", "True", "[]", "{}"]),
    st.sampled_from(WORDS).map(repr),
    st.sampled_from(["context.a", "context.b", "context.c", "context.d", "context['a']"]),
    st.sampled_from(["event.data", "event.data.a", "event.name", "entity.version", "principal.id", "In('on')"]),
    st.sampled_from(["context", "event", "entity", "principal"]),
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions made of smaller ones."""
    binary = st.sampled_from(OPERATORS)
    unary = st.sampled_from(["not ", "-", "+"])
    return st.one_of(
        st.tuples(inner, binary, inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(inner, binary, inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(inner, binary, inner, binary, inner).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(unary, inner).map(lambda parts: f"({parts[0]}{parts[1]})"),
        inner.map(lambda part: f"({part} is null)"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        st.tuples(inner, inner).map(lambda parts: f"{parts[0]}[{parts[1]}]"),
        st.tuples(inner, st.sampled_from(FIELDS)).map(lambda parts: f"({parts[0]}).{parts[1]}"),
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]}, {parts[1]})"),
        st.tuples(inner, inner).map(lambda parts: f"{{'k': {parts[0]}, ('' + 'a'): {parts[1]}}}"),
        st.tuples(inner, inner).map(lambda parts: f"{{{parts[0]}: {parts[1]}}}"),
        st.tuples(st.sampled_from(ONE_ARGUMENT), inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
        st.tuples(st.sampled_from(TWO_ARGUMENTS), inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"get({', '.join(parts)})"),
    )


expressions = st.recursive(atoms, larger, max_leaves=12)


def is_expression(text: str) -> bool:
    """Whether the text parses: a written key of the wrong type, say, is found before it runs."""
    try:
        parse(text, names=ROOTS)
    except ExpressionError:
        return False
    return True


def outcome(text: str, context: dict[str, Any], event: Event | None, active: frozenset[str]) -> object:
    """What the compiled expression does: its value with types, or the code of its error."""
    parsed = parse(text, names=ROOTS)
    function = compile_parsed(parsed, inside={"on": "on"}).function
    try:
        return exact(function(context, event, Entity(), active, Meter(WORK), {"id": "ann"}))
    except Exception as error:  # noqa: BLE001  # `describe_exception` describes it
        return describe_exception(error)[0]


def expectation(text: str, context: dict[str, Any], event: Event | None, active: frozenset[str]) -> object:
    """What the oracle says."""
    names = ("name", "data", "id", "time_ms", "type", "origin", "origintype", "sendid", "invokeid", "principal")
    roots = {
        "context": context,
        "event": None if event is None else {name: getattr(event, name) for name in names},
        "entity": {"id": "A-1", "kind": "order", "version": 3},
        "principal": {"id": "ann"},
    }
    try:
        return exact(oracle(text, roots, active))
    except NoValueError as error:
        return f"expression.{error}"


def exact(value: Any) -> object:
    """The value with the types of all its parts, since 1 equals 1.0 and true."""
    if isinstance(value, list):
        return ["list", *map(exact, value)]
    if isinstance(value, dict):
        return ["dict", *((key, exact(each)) for key, each in value.items())]
    return [type(value).__name__, value]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(expressions, contexts, events, st.sampled_from([frozenset[str](), frozenset({"on"})]))
def test_compiled_code_agrees_with_the_oracle(
    text: str, context: dict[str, Any], event: Event | None, active: frozenset[str]
) -> None:
    """For any well-formed expression over any small values, both give one value or fail in one way."""
    assume(is_expression(text))
    expected = expectation(text, context, event, active)
    actual = outcome(text, context, event, active)

    assert expected == actual
