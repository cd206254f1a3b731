"""Operators, lookups and trees: what they accept, what they refuse, and what they charge."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.expression.codegen import EvaluationError, Meter, compile_parsed
from interlock.expression.metering import INTEGER_MAX, measure_value, text_bytes, type_name
from interlock.expression.parser import parse
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from tests.unit.expression.evaluation import WORK, evaluate, failure

LONG = "x" * 600_000
VALUES: dict[str, Any] = {
    "i": 7,
    "f": 2.5,
    "t": True,
    "n": None,
    "s": "ab",
    "l": [1, 2],
    "m": {"k": 1},
    "max": INTEGER_MAX,
    "long": LONG,
}


def deep(levels: int) -> Any:
    """A list nested so many levels."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def doubled(times: int) -> Any:
    """A list that holds itself twice, so many times over: small in memory, 2^times values as a tree."""
    value: Any = [1]
    for _ in range(times):
        value = [value, value]
    return value


def charged(text: str, context: dict[str, Any]) -> int:
    """How many units of work an expression takes from the meter."""
    meter = Meter(WORK)
    evaluate(text, context, meter=meter)
    return WORK - meter.left


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("context.i + 1", 8),
        ("context.i + context.f", 9.5),
        ("context.f + 1", 3.5),
        ("context.s + 'c'", "abc"),
        ("context.l + [3]", [1, 2, 3]),
        ("context.i - 10", -3),
        ("context.f - 1", 1.5),
        ("context.i * 2", 14),
        ("context.i / 2", 3.5),
        ("context.i // 2", 3),
        ("-context.i // 2", -4),
        ("context.i % 4", 3),
        ("-context.i % 4", 1),
        ("-context.f", -2.5),
        ("+context.i", 7),
        ("(1, 2)", [1, 2]),
        ("(context.i,)", [7]),
        ("{context.s: context.i}", {"ab": 7}),
        ("{'a': [context.l]}", {"a": [[1, 2]]}),
        ("{}", {}),
        ("context.max - 1 + 1", INTEGER_MAX),
        ("-context.max", -INTEGER_MAX),
    ],
)
def test_operators_give_pythons_results(text: str, value: object) -> None:
    result = evaluate(text, VALUES)

    assert (value, type(value)) == (result, type(result))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("context.s * 3", "* does not take string and integer"),
        ("3 * context.l", "* does not take integer and list"),
        ("context.s % context.i", "% does not take string and integer"),
        ("context.t + 1", "+ does not take boolean and integer"),
        ("1 - context.t", "- does not take integer and boolean"),
        ("context.s + 1", "+ does not take string and integer"),
        ("context.l + context.s", "+ does not take list and string"),
        ("context.m + context.m", "+ does not take mapping and mapping"),
        ("context.s - context.s", "- does not take string and string"),
        ("context.n / 1", "/ does not take null and integer"),
        ("context.l // 1", "// does not take list and integer"),
        ("-context.t", "- takes a number, not boolean"),
        ("+context.s", "+ takes a number, not string"),
        ("-True", "- takes a number, not boolean"),
        ("{context.i: 1}", "the keys of a mapping are strings, not integer"),
        ("1 in context.s", "a string can contain only strings, not integer"),
        ("1 in context.m", "the keys of a mapping are strings, not integer"),
        ("context.l in context.m", "the keys of a mapping are strings, not list"),
        ("1 in context.i", "in takes a string, a list or a mapping, not integer"),
        ("1 in {}", "the keys of a mapping are strings, not integer"),
        ("context.l[context.s]", "an index of a list must be an integer, not string"),
        ("context.l[context.t]", "an index of a list must be an integer, not boolean"),
        ("context.s[context.s]", "an index of a string must be an integer, not string"),
        ("context.m[context.i]", "a key of a mapping must be a string, not integer"),
        ("context.m[context.l]", "a key of a mapping must be a string, not list"),
        ("context.i[context.i]", "integer has no fields or items"),
        ("context.n[context.i]", "null has no fields or items"),
        ("'abc'['x']", "an index of a string must be an integer, not string"),
    ],
)
def test_wrong_types_are_refused(text: str, message: str) -> None:
    """Repetition and formatting are bombs, a boolean is not a number, and keys have one type."""
    assert ("expression.type", message) == failure(text, VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "context.max + 1",
        "-context.max - 1",
        "context.max * 2",
        "-context.max * 2",
        "1e308 * 10",
        "1e308 + 1e308",
        "-1e308 - 1e308",
        "1e308 / 1e-10",
        "context.long + context.long",
    ],
)
def test_results_beyond_the_limits_are_refused(text: str) -> None:
    """Whole numbers have at most 256 bits, numbers are finite, strings have at most a million characters."""
    assert failure(text, VALUES)[0] == "expression.limit"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("context.s[context.i - 7]", "a"),
        ("context.l[context.i - 8]", 2),
        ("context.m[lower('K')]", 1),
        ("[1, 2][context.i - 6]", 2),
        ("'ab' in context.s", True),
        ("'x' in context.s", False),
        ("'k' in context.m", True),
        ("2 in context.l", True),
        ("2 not in context.l", False),
        ("context.l in [context.l]", True),
        ("context.missing_is_not_read if false else 1", 1),
        ("context.m == {'k': 1}", True),
        ("context.l != [1, 2]", False),
        ("1 == 1.0 == true", True),
        ("context.s == context.l", False),
        ("context.l == context.m", False),
        ("context.l < context.l", False),
        ("context.l <= get(context, 'l')", True),
    ],
)
def test_lookup_membership_and_equality(text: str, value: object) -> None:
    assert value == evaluate(text, VALUES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("context.l[context.i]", "the list has no such item"),
        ("context.l[-context.i]", "the list has no such item"),
        ("context.s[context.i]", "the string has no such item"),
        ("context.m[context.s]", "the mapping has no such key"),
    ],
)
def test_computed_keys_that_are_missing_are_not_named(text: str, message: str) -> None:
    """A computed key may hold a secret, so the message does not repeat it."""
    assert ("expression.missing_key", message) == failure(text, VALUES)


@pytest.mark.parametrize("levels", [1, 64])
def test_trees_within_the_depth_are_built(levels: int) -> None:
    """A value may be 64 levels deep."""
    assert [deep(levels - 1) if levels > 1 else 1] == evaluate(
        "[context.a]", {"a": deep(levels - 1) if levels > 1 else 1}
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[context.a]", deep(64)),
        ("{'k': context.a}", deep(100)),
        ("[context.a, context.a]", doubled(40)),
        ("context.a + context.a", [1] * 60_000),
        ("[context.a] + [context.a]", doubled(40)),
        ("context", doubled(40)),
        ("[context.a]", {"k": doubled(17)}),
        ("context.a == context.b", doubled(40)),
        ("context.a == context.b", deep(100)),
        ("context.a < context.b", doubled(40)),
        ("context.a in [context.b]", doubled(40)),
        ("[context.a]", ["y" * 1_000_000] * 100),
        ("[context.a]", {str(key) + "y" * 1_000_000: 1 for key in range(100)}),
        ("[context.a]", [0] * 100_000),
    ],
)
def test_trees_beyond_the_limits_are_refused(text: str, value: Any) -> None:
    """Shared parts count as often as they appear: 100,000 values, depth 64, long texts counted by length."""
    copy = [*value] if isinstance(value, list) else {**value}

    assert failure(text, {"a": value, "b": copy})[0] == "expression.limit"


def test_an_event_as_a_value_is_counted() -> None:
    event = Event("x", data=doubled(40))

    assert failure("event", event=event)[0] == "expression.limit"
    assert failure("principal", principal={"x": doubled(40)})[0] == "expression.limit"


OPERANDS: dict[str, Any] = {
    "s": "x" * 64_000,
    "s2": "".join(["x" * 64_000]),
    "wide_s": "\U0001d54f" * 64_000,
    "short": "x",
    "one": 1,
    "list": [0] * 2_500,
    "list2": [0] * 2_500,
    "numbers": [1] * 2_500,
    "decimals": [0.5] * 2_500,
    "words": ["w"] * 2_500,
    "texts": ["x" * 64_000, "".join(["x" * 64_000])],
    "lists": [[0] for _ in range(1_000)],
    "lists2": [[0] for _ in range(1_000)],
    "mapping": {"a": 1},
    "wide": {str(key): key for key in range(2_000)},
    "wide2": {str(key): key for key in range(2_000)},
}


@pytest.mark.parametrize(
    ("text", "least"),
    [
        # 64 characters compared, and 8 bytes built, are a unit; so is an item, or more.
        ("context.s + context.s", 16_000),
        ("context.wide_s + context.s", 64_000),
        ("context.s == context.s2", 1_000),
        ("context.s != context.s2", 1_000),
        ("context.s < context.s2", 1_000),
        ("context.s <= context.s2", 1_000),
        ("context.s > context.s2", 1_000),
        ("context.s >= context.s2", 1_000),
        ("context.texts == [context.s, context.s2]", 2_000),
        ("'x' in context.s", 1_000),
        ("'xxxxx' in context.s", 4_500),
        ("('x' + context.short) in context.s", 1_500),
        ("context.s in context.s2", 2_500),
        ("context.s in context.mapping", 1_000),
        ("'x' in context.list", 2_500),
        ("context.one in context.list", 2_500),
        ("context.s in context.words", 2_500_000),
        ("[context.one] in context.lists", 2_000),
        ("context.mapping not in context.lists", 2_000),
        ("context.list == context.list2", 2_500),
        ("context.list != context.list2", 2_500),
        ("context.list < context.list2", 2_500),
        ("context.list <= context.list2", 2_500),
        ("context.list > context.list2", 2_500),
        ("context.list >= context.list2", 2_500),
        ("context.lists == context.lists2", 4_000),
        ("context.wide == context.wide2", 4_000),
        ("[context.list]", 2_500),
        ("{'k': context.list}", 2_500),
        ("context.list + [1]", 2_500),
        ("[1] + context.list", 2_500),
        ("context.lists + context.lists2", 4_000),
        ("context", 20_000),
        ("sum(context.numbers)", 2_500),
        ("sum(context.decimals)", 5 * 2_500),
        ("min(context.numbers)", 2_500),
        ("max(context.numbers)", 2_500),
        ("min(context.texts)", 2_000),
        ("max(context.s, context.s2)", 2_000),
        ("max(context.words)", 2_500),
        ("any(context.list)", 2_500),
        ("all(context.words)", 2_500),
        ("lower(context.s)", 8_000),
        ("upper(context.s)", 8_000),
        ("lower(context.wide_s)", 64_000),
        ("upper(context.wide_s)", 64_000),
        ("starts_with(context.s, context.s2)", 1_000),
        ("ends_with(context.s, context.s2)", 1_000),
    ],
)
def test_work_that_grows_with_its_operands_is_charged(text: str, least: int) -> None:
    """At least what it takes: a unit of work is about 0.1 microseconds, or 8 bytes."""
    spent = charged(text, OPERANDS)

    assert least <= spent <= 4 * least + 100


def test_an_event_as_a_value_is_work() -> None:
    meter = Meter(WORK)
    evaluate("event", event=Event("x", data=OPERANDS["list"]), meter=meter)

    assert WORK - meter.left >= 2_500


@pytest.mark.parametrize(
    "text",
    [
        "context.s == 'x'",
        "context.s == context.short",
        "context.short == context.s",
        "context.s == context.list",
        "context.short < context.s",
        "context.one in [1, 2]",
        "context.list == context.mapping",
        "context.list == [1]",
        "[context.one, context.one]",
        "context.short + context.short",
        "lower(context.short)",
        "starts_with(context.s, 'x')",
        "len(context.list)",
        "str(context.s)",
        "get(context, 's')",
        "has(context.wide, 's')",
        "context.list[7]",
        "'s' in context",
        "context.s in context.short",
        "bool(context.list)",
        "not context.list",
        "context.list and context.one",
        "context.list if context.one else context.s",
    ],
)
def test_short_work_is_free(text: str) -> None:
    spent = charged(text, OPERANDS)

    assert 0 == spent


def test_searching_is_charged_for_its_worst_case() -> None:
    """In short strings Python may compare the whole part at every position; in long ones it does not."""
    context = {"part": "a" * 49 + "b" + "a" * 49, "whole": "a" * 29_999, "long": "a" * 60_000}

    assert charged("context.part in context.whole", context) >= 99 * 29_900 // 64
    assert charged("context.part in context.long", context) < 8 * 60_000 // 64


def test_comparing_small_lists_is_charged_item_by_item() -> None:
    context = {"a": list(range(990)), "b": list(range(990))}

    assert 20 * 990 <= charged(" or ".join(["context.a < context.b"] * 20), context)


@pytest.mark.parametrize("digits", [0, 2, 15])
def test_a_float_without_a_fraction_is_rounded_at_once(digits: int) -> None:
    """Python takes 20 microseconds to find out that nothing changes."""
    for value in (2.0**53, -1.5e300, 2**60):
        assert value == evaluate(f"round(context.x, {digits})", {"x": value})
    assert evaluate("round(context.x, -2)", {"x": 2.0**53}) == round(2.0**53, -2)


def test_failed_work_is_charged_too() -> None:
    for value in (doubled(40), [deep(63), [0] * 2_000]):
        meter = Meter(WORK)
        with pytest.raises(EvaluationError):
            measure_value([[value]], meter)
        assert meter.left < WORK - 1


def test_a_spent_meter_stops_the_evaluation() -> None:
    meter = Meter(1)
    context = {"a": [0] * 2_500}

    assert failure("any(context.a)", context, meter=meter)[0] == "expression.evaluations"
    assert meter.left == 0
    assert failure("any(context.a)", context, meter=meter)[0] == "expression.evaluations"


def test_the_bytes_of_a_tree() -> None:
    """Eight for each value, containers too, and one for each character; four in long texts that are not ASCII."""
    meter = Meter(WORK)

    assert measure_value(1, meter) == 8
    assert measure_value([], meter) == 8
    assert measure_value([1, "ab", {"key": [None]}], meter) == 6 * 8 + 5
    assert measure_value(["x" * 2_000, {"k" * 3_000: 1}], meter) == 4 * 8 + 5_000
    assert measure_value(["\u00e9" * 2_000, "\u00e9"], meter) == 3 * 8 + 8_001
    assert [text_bytes("ab"), text_bytes("x" * 2_000), text_bytes("\u00e9" * 2_000)] == [10, 2_008, 8_008]


@pytest.mark.parametrize("value", [0, "", [], {}, [0] * 50, ["", ""], [[], {}], {"": ""}, "\u00e9" * 1_000, ["\n" * 9]])
def test_the_bytes_of_a_tree_are_at_most_four_times_its_json(value: Any) -> None:
    """So that what fits into a snapshot is never refused; a separator belongs to each value."""
    assert measure_value(value, Meter(WORK)) <= 4 * (len(encode(value)) + 1)


def test_a_tree_of_many_shared_bytes_is_refused() -> None:
    """Small in memory, it would be huge when encoded."""
    text = "y" * 500_000

    assert evaluate("[context.a, context.a]", {"a": text}) == [text, text]
    assert failure("[context.a]", {"a": [text] * 9}) == (
        "expression.limit",
        "a value takes more than 4,194,304 bytes",
    )


def test_work_without_a_meter_is_short() -> None:
    for text in ("context.list == context.list2", "context.wide_s + 'x'", "context.s in context.words"):
        function = compile_parsed(parse(text), inside={}).function
        with pytest.raises(EvaluationError) as caught:
            function(OPERANDS, None, None, (), None)
        assert "expression.unmetered" == caught.value.code


def test_types_are_called_by_the_words_of_a_definition() -> None:
    names = [type_name(each) for each in (None, True, 1, 1.5, "", [], {}, (), object())]

    assert ["null", "boolean", "integer", "number", "string", "list", "mapping", "list", "value"] == names
