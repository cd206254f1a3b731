"""The functions of the language: results, refusals and limits."""

from __future__ import annotations

import pytest

from interlock.expression.builtins import FUNCTIONS
from interlock.expression.metering import INTEGER_MAX
from tests.unit.expression.evaluation import evaluate, failure

CASES = [
    ("len('abc')", 3),
    ("len([1])", 1),
    ("len({'a': 1})", 1),
    ("min(3, 1, 2)", 1),
    ("min([2.5, 1])", 1),
    ("max('a', 'b')", "b"),
    ("max([1])", 1),
    ("sum([1, 2])", 3),
    ("sum([])", 0),
    ("sum([0.1, 0.2, 0.3])", 0.6),
    ("sum([1e16, 1.0, -1e16])", 1.0),
    ("any([0, 1])", True),
    ("any([])", False),
    ("all([0, 1])", False),
    ("all([])", True),
    ("abs(-2)", 2),
    ("abs(-2.5)", 2.5),
    ("round(2.5)", 2),
    ("round(3.5)", 4),
    ("round(2.345, 2)", 2.35),
    ("round(1234, -2)", 1200),
    ("round(1.5, 15)", 1.5),
    ("floor(-1.5)", -2),
    ("ceil(-1.5)", -1),
    ("floor(3)", 3),
    ("int('42')", 42),
    ("int(' -7 ')", -7),
    ("int(2.9)", 2),
    ("int(-2.9)", -2),
    ("int(true)", 1),
    ("float('1.5e2')", 150.0),
    ("float('.5')", 0.5),
    ("float(2)", 2.0),
    ("float(false)", 0.0),
    ("str('a')", "a"),
    ("str(1)", "1"),
    ("str(1.5)", "1.5"),
    ("str(1e300)", "1e+300"),
    ("str(true)", "true"),
    ("str(false)", "false"),
    ("str(null)", "null"),
    ("bool([])", False),
    ("bool('x')", True),
    ("get({'a': 1}, 'a')", 1),
    ("get({'a': 1}, 'b')", None),
    ("get({'a': 1}, 'b', 2)", 2),
    ("get([1, 2], -1)", 2),
    ("get([1, 2], 2, 'none')", "none"),
    ("get('ab', 1)", "b"),
    ("get(null, 'a', 3)", 3),
    ("get(get({}, 'a'), 'b')", None),
    ("has({'a': null}, 'a')", True),
    ("has({}, 'a')", False),
    ("has([1], 0)", True),
    ("has([1], -2)", False),
    ("has(null, 'a')", False),
    ("actors('approve')", []),
    ("lower('ABC')", "abc"),
    ("upper('stra\u00dfe')", "STRASSE"),
    ("starts_with('abc', 'ab')", True),
    ("starts_with('abc', 'bc')", False),
    ("ends_with('abc', 'bc')", True),
    ("ms('1h30m')", 5_400_000),
    ("ms('250' + 'ms')", 250),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_functions_give_their_results(text: str, value: object) -> None:
    result = evaluate(text)

    assert (value, type(value)) == (result, type(result))


def test_every_function_is_tried() -> None:
    tried = {text.split("(")[0] for text, _ in CASES}

    assert set(FUNCTIONS) == tried | {"In"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("len(1)", "len() takes a string, a list or a mapping, not integer"),
        ("min(1)", "min() of one value takes a list, not integer"),
        ("min('ab')", "min() of one value takes a list, not string"),
        ("min(1, 'a')", "min() compares numbers with numbers, or strings with strings"),
        ("max(1, true)", "max() compares numbers with numbers, or strings with strings"),
        ("max([[1], [2]])", "max() compares numbers with numbers, or strings with strings"),
        ("sum('abc')", "sum() takes a list, not string"),
        ("sum(['a'])", "sum() takes a list of numbers"),
        ("sum([true])", "sum() takes a list of numbers"),
        ("any('abc')", "any() takes a list, not string"),
        ("all({'a': 1})", "all() takes a list, not mapping"),
        ("abs('a')", "abs() takes a number, not string"),
        ("round(true)", "round() takes a number, not boolean"),
        ("round(1, 1.5)", "round() takes a whole number of digits, not number"),
        ("round(1, true)", "round() takes a whole number of digits, not boolean"),
        ("floor(null)", "floor() takes a number, not null"),
        ("ceil([])", "ceil() takes a number, not list"),
        ("int(null)", "int() takes a number, not null"),
        ("float([])", "float() takes a number, not list"),
        ("str([])", "str() takes a string, number, boolean or null, not list"),
        ("str({})", "str() takes a string, number, boolean or null, not mapping"),
        ("lower(1)", "lower() takes a string, not integer"),
        ("upper(null)", "upper() takes a string, not null"),
        ("starts_with(1, 'a')", "starts_with() takes a string, not integer"),
        ("starts_with('a', 1)", "starts_with() takes a string, not integer"),
        ("ends_with(['a'], 'a')", "ends_with() takes a string, not list"),
        ("ends_with('a', ['a'])", "ends_with() takes a string, not list"),
        ("get(1, 'a')", "integer has no fields or items"),
        ("get({}, 1)", "a key of a mapping must be a string, not integer"),
        ("has([], 'a')", "an index of a list must be an integer, not string"),
        ("ms(5)", "ms() takes a string, not integer"),
    ],
)
def test_wrong_arguments_are_refused(text: str, message: str) -> None:
    assert ("expression.type", message) == failure(text)


@pytest.mark.parametrize(
    "text",
    [
        "min([])",
        "max([])",
        "round(7, -99999999)",
        "round(7.5, 16)",
        "int('')",
        "int('1.5')",
        "int('0x10')",
        "int('1_000')",
        "int('\u0661')",
        "int('1' + context.digits)",
        "float('nan')",
        "float('inf')",
        "float('-Infinity')",
        "float('1_0')",
        "float('')",
        "float('.')",
        "ms('5' + '')",
        "ms('' + '1m1h')",
    ],
)
def test_unusable_values_are_refused(text: str) -> None:
    assert failure(text, {"digits": "1" * 100})[0] == "expression.value"


@pytest.mark.parametrize(
    "text",
    [
        "round(1e300)",
        "floor(1e300)",
        "ceil(-1e300)",
        "int(1e300)",
        "int('9' + context.nines)",
        "float('1e999')",
        "sum([1e308, 1e308])",
        "sum([context.max, 1])",
        "str(context.over)",
        "upper(context.long)",
        "lower(context.long_dotted)",
    ],
)
def test_results_beyond_the_limits_are_refused(text: str) -> None:
    """Whole numbers to 256 bits, finite numbers, strings to a million characters, whatever the function."""
    context = {
        "nines": "9" * 90,
        "max": INTEGER_MAX,
        "over": INTEGER_MAX + 1,
        "long": "\u00df" * 600_000,
        "long_dotted": "\u0130" * 600_000,
    }

    assert failure(text, context)[0] == "expression.limit"
