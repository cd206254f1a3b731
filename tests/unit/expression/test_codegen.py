"""The code that is written for an expression: its shape, its order of evaluation, and that it reaches nothing else."""

from __future__ import annotations

import builtins
import pickle
import warnings
from typing import Any

import pytest

from interlock.expression.codegen import NAMESPACE, EvaluationError, Meter, compile_parsed, describe_exception
from interlock.expression.parser import parse
from interlock.model.event import Event
from tests.unit.expression.evaluation import ROOTS, WORK, Entity, evaluate, failure


@pytest.mark.parametrize(
    ("text", "source", "uses"),
    [
        ("context.items > 0", "(context['items'] > 0)", {"context"}),
        ("context.a.b[0]['c']", "context['a']['b'][0]['c']", {"context"}),
        ("context.a[-1]", "context['a'][-1]", {"context"}),
        ("event.data.x", "event.data['x']", {"event"}),
        ("event['data']['x']", "event.data['x']", {"event"}),
        ("event.name == context.wanted", "(event.name == context['wanted'])", {"event", "context"}),
        ("entity.version", "entity.version", {"entity"}),
        ("principal.id == context.owner", None, {"principal", "context", "meter"}),
        ("In('a')", "('root.a' in active)", {"active"}),
        ("true and null", "(True and None)", set()),
        ("-1.5", "(-1.5)", set()),
        ("not context.a", "(not context['a'])", {"context"}),
        ("context.a is not null", "(context['a'] is not None)", {"context"}),
        ("context.a in ('x', 'y')", "(context['a'] in ['x', 'y'])", {"context"}),
        ("'x' not in context", "(not x_in('x', context, meter))", {"context", "meter"}),
        ("len(context)", "x_len(context)", {"context"}),
        ("get(context, 'a', [])", "x_get(context, 'a', [])", {"context"}),
        ("context.count + 1", "x_add(context['count'], 1, meter)", {"context", "meter"}),
        ("[[1], (2, 'x')]", "[[1], [2, 'x']]", set()),
        ("[context.a, [context.b]]", "x_tree([context['a'], [context['b']]], meter)", {"context", "meter"}),
        ("{'k': 1}", "{'k': 1}", set()),
        ("max(1, 2)", "x_max((1, 2), meter)", {"meter"}),
        ("'a' if context.a else 'b'", "('a' if context['a'] else 'b')", {"context"}),
    ],
)
def test_source_is_plain_python_where_that_is_safe(text: str, source: str | None, uses: set[str]) -> None:
    compiled = compile_parsed(parse(text, names=ROOTS), inside={"a": "root.a"})

    assert uses == compiled.uses
    assert source in (None, compiled.source)


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_two_read_numbers_are_compared_natively(operator: str) -> None:
    """A number on the left bounds the cost of a comparison: the checked function is called only for other types."""
    compiled = compile_parsed(parse(f"event.data.amount {operator} context.total"), inside={})

    assert f"x_1 {operator} context['total'] if" in compiled.source
    for amount in (4, 5, 6, 4.5, "a", "b", [1], [2]):
        total = 5 if isinstance(amount, int | float) else amount
        expected = eval(f"amount {operator} total", {"amount": amount, "total": total})
        assert expected is evaluate(f"context.a {operator} context.b", {"a": amount, "b": total})
        assert expected is evaluate(f"context.a {operator} get(context, 'b')", {"a": amount, "b": total})


def test_equal_expressions_compile_to_equal_values() -> None:
    first, second = (compile_parsed(parse("context.a + 1"), inside={}) for _ in range(2))

    assert first == second
    assert first.function is not second.function


def test_source_may_be_pasted_into_a_function() -> None:
    """The source is one expression that needs only NAMESPACE and the names it says it uses."""
    sources = [
        compile_parsed(parse(text), inside={}).source
        for text in ("context.a <= context.b < context.c", "event.data.x == context.a", "[context.a] + [1]")
    ]
    text = "def pasted(context, event, meter):\n    return " + ", ".join(sources)
    names: dict[str, Any] = dict(NAMESPACE)
    exec(text, names)
    event = Event("x", data={"x": 1})

    assert (True, True, [1, 1]) == names["pasted"]({"a": 1, "b": 1, "c": 2}, event, None)


def test_namespace_reaches_nothing() -> None:
    """Generated code sees functions in x_ and no builtins; the mapping itself cannot be changed."""
    assert NAMESPACE["__builtins__"] == {}
    assert all(name.startswith("x_") for name in NAMESPACE if name != "__builtins__")
    assert not hasattr(NAMESPACE, "__setitem__")
    function: Any = compile_parsed(parse("context.a"), inside={}).function
    names = function.__globals__
    assert not [name for name in vars(builtins) if name in names]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("2 < 1 < context.missing", False),
        ("context.a < context.b < context.c", True),
        ("context.a == context.a != context.b", True),
        ("context.a is not null is not context.b", True),
        ("null is context.n is null", True),
        ("null is null", True),
        ("null is not 1", True),
        ("1 is None", False),
        ("'abc'[0] is None", False),
        ("-1 is None", False),
        ("[] is not None", True),
        ("context.a in context.list in [true]", False),
        ("context.a in [1] in [true]", False),
        ("'a' in context == true", False),
        ("1 in context.list not in context.list", True),
        ("get(context, 'a') < get(context, 'b') < get(context, 'c')", True),
    ],
)
def test_comparisons_chain_as_in_python(text: str, value: bool) -> None:
    """Every operand is evaluated once, and nothing after the first comparison that fails."""
    context = {"a": 1, "b": 2, "c": 3, "n": None, "list": [1, 2]}

    assert value is evaluate(text, context)


def test_the_left_operand_is_evaluated_first() -> None:
    assert failure("context.x < context.y") == ("expression.missing_key", 'no field "x"')
    assert failure("context.a < context.y", {"a": "s"}) == ("expression.missing_key", 'no field "y"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("context.a or context.b", "x"),
        ("context.a and context.missing", ""),
        ("context.b and 1", 1),
        ("1 if context.b else context.missing", 1),
        ("not context.a", True),
    ],
)
def test_logic_stops_early_and_gives_the_operand(text: str, value: object) -> None:
    """`and`, `or` and `if` are Python's."""
    assert value == evaluate(text, {"a": "", "b": "x"})


def test_roots_as_values_are_plain_and_apart() -> None:
    context = {"a": 1}
    copy = evaluate("context", context)

    assert copy == context
    assert copy is not context
    assert evaluate("entity") == {"id": "A-1", "kind": "order", "version": 3}
    assert evaluate("event").keys() == {
        *("name", "data", "id", "time_ms", "type", "origin", "origintype", "sendid", "invokeid", "principal")
    }
    assert evaluate("event['na' + 'me']") == "paid"
    assert evaluate("event.principal.id") == "ann"
    assert evaluate("principal", principal={"id": "bo"}) == {"id": "bo"}
    assert evaluate("principal is null or principal == null") is True
    assert evaluate("principal['i' + 'd']", principal={"id": "bo"}) == "bo"
    assert evaluate("context['a']", context) == evaluate("context['' + 'a']", context) == 1


def test_in_asks_the_active_states() -> None:
    function = compile_parsed(parse("In('x') and not In('y')"), inside={"x": "r.x", "y": "r.y"}).function

    assert function({}, None, None, {"r.x"}, None) is True
    assert function({}, None, None, {"r.x", "r.y"}, None) is False


@pytest.mark.parametrize("text", ["event", "event.name", "event.data.x", "get(event, 'name')", "has(event, 'data')"])
def test_an_unbound_event_has_its_own_code(text: str) -> None:
    assert failure(text, event=None)[0] == "expression.unbound_event"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("context.missing", "missing_key", 'no field "missing"'),
        ("context.m['x']", "missing_key", 'no field "x"'),
        ("context.l[9]", "missing_key", "the list or string has no such item"),
        ("context.l[18446744073709551615]", "missing_key", "the list or string has no such item"),
        ("context.m.x.y", "missing_key", 'no field "x"'),
        ("context.m[0]", "type", "a key of a mapping must be a string, not integer"),
        ("context.n.x", "type", "null has no fields or items"),
        ("context.i[0]", "type", "integer has no fields or items"),
        ("context.l.x", "type", "an index of a list or string must be an integer, a key of a mapping a string"),
        ("context.s.x", "type", "an index of a list or string must be an integer, a key of a mapping a string"),
        ("context.i < 'a'", "type", "< does not compare integer with string"),
        ("context.n >= 1", "type", ">= does not compare null with integer"),
        ("context.l < [null]", "type", "< does not compare integer with null"),
        ("context.m < context.m", "type", "< does not compare mapping with mapping"),
        ("1 / 0", "zero_division", "division by zero"),
        ("1 // 0.0", "zero_division", "division by zero"),
        ("1 % 0", "zero_division", "division by zero"),
        ("principal.id", "type", "null has no fields or items"),
    ],
)
def test_failures_are_explained_in_our_words(text: str, code: str, message: str) -> None:
    """A failed evaluation has a code and a message that do not change with the version of Python."""
    context = {"n": None, "i": 1, "l": [1, 2], "s": "abc", "m": {"a": 1}}

    assert (f"expression.{code}", message) == failure(text, context)


def test_exceptions_of_other_origin_are_explained_too() -> None:
    for error in (OverflowError(), MemoryError(), RecursionError()):
        assert describe_exception(error) == ("expression.limit", "a value is too large")
    assert describe_exception(OSError())[0] == "expression.internal"
    assert describe_exception(KeyError("k" * 500)) == ("expression.missing_key", f'no field "{"k" * 80}"')
    assert describe_exception(TypeError("'<' not supported between instances of 'A' and 'int'"))[1] == (
        "< does not compare value with integer"
    )
    assert describe_exception(TypeError("'A' object is not subscriptable"))[1] == "value has no fields or items"


def test_evaluation_errors_survive_pickling() -> None:
    copy = pickle.loads(pickle.dumps(EvaluationError("expression.type", "no")))

    assert ("expression.type", "no", "no") == (copy.code, copy.message, str(copy))


def test_the_deepest_expressions_compile() -> None:
    """30 levels of the most bracketed code stay within Python's own limits, without a warning."""
    texts = [
        "(" * 28 + "context.a" + " == context.a)" * 28,
        "(" * 28 + "context.a" + " < context.a <= context.a)" * 28,
        "[" * 29 + "1" + "]" * 29,
        "{'k': " * 27 + "context.a" + "}" * 27,
        "len(" * 28 + "context.a" + ")" * 28,
        "1" + " + 1" * 29,
        "not " * 28 + "context.a",
        "-" * 28 + "context.a",
        "1 if context.a else " * 28 + "1",
        "context" + ".a" * 29,
        "context.a" + "[context.b]" * 28,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in texts:
            assert compile_parsed(parse(text), inside={}).source


@pytest.mark.parametrize(
    "text", ["1 is None", "'a'[0]", "'a'['b']", "1 .x", "[1]['a']", "(1, 2) is None", "{}.a", "null.x"]
)
def test_odd_literals_compile_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = compile_parsed(parse(text), inside={})

    assert compiled.uses == frozenset()


def test_hostile_constants_are_emitted_as_literals() -> None:
    """Quotes, braces, escapes and line ends in a text stay in the text."""
    for text in ("'; import os; '", "{x}", "\\\n\r\x00", '"""', "\u2028", "%s", "\U0001f600"):
        written = "'" + "".join(f"\\U{ord(each):08x}" for each in text) + "'"

        assert text == evaluate(written)
        assert [text] == list(evaluate(f"{{{written}: 1}}"))


def test_fast_path_and_metered_path_agree() -> None:
    """Without a meter short work runs as usual; long work raises, and then the meter decides."""
    function = compile_parsed(parse("context.a + context.a"), inside={}).function
    short, long = {"a": "x"}, {"a": "x" * 5_000}

    assert function(short, None, Entity, (), None) == "xx"
    with pytest.raises(EvaluationError) as caught:
        function(long, None, Entity, (), None)
    assert caught.value.code == "expression.unmetered"
    meter = Meter(WORK)
    assert function(long, None, Entity, (), meter) == "x" * 10_000
    assert meter.left == WORK - 1_250


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("context.a", 100),
        ("context.a + 1 > 2", 100),
        ("[" + ", ".join(["context.a"] * 60) + "]", 121),
        ("[" + ", ".join(["1"] * 150) + "]", 151),
        ("[" + ", ".join(["str(context.a)"] * 3) + "]", 163),
        ("[" + ", ".join(["ms(context.a)"] * 3) + "]", 253),
        ("[" + ", ".join(["round(context.a, 2)"] * 3) + "]", 316),
    ],
)
def test_the_parts_of_an_expression_are_work(text: str, work: int) -> None:
    """An evaluation counts for 100 parts, and for more when it has more; slow functions count for many."""
    assert work == compile_parsed(parse(text), inside={}).work
