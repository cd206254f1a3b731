"""Fields: what each type and bound takes, and the sentence it refuses with."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from interlock.model.field import (
    UNSET,
    Field,
    FieldType,
    copied,
    fields_refusal,
    is_text,
    plain_refusal,
    refusal,
    same_value,
    type_name,
)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", "a", 1),
        ("integer", 1, 1.5),
        ("integer", 0, True),
        ("number", 1.5, "1"),
        ("number", 1, False),
        ("boolean", True, 1),
        ("object", {}, []),
        ("array", [], {}),
    ],
)
def test_a_type_takes_its_own_values_only(kind: FieldType, good: Any, bad: Any) -> None:
    """A boolean is no number, and null is nothing but null."""
    field = Field(name="x", type=kind)

    assert refusal(good, field) is None
    assert refusal(bad, field) is not None
    assert f"`x` must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}, not null" == refusal(None, field)


def test_null_is_taken_where_the_field_says_so() -> None:
    """`nullable` fields and fields of any type take null."""
    assert refusal(None, Field(name="x", type="string", nullable=True)) is None
    assert refusal(None, Field(name="x")) is None


def test_bounds_are_inclusive_and_for_numbers_only() -> None:
    """`min` and `max` are themselves allowed."""
    field = Field(name="x", min=1, max=3)

    assert refusal(1, field) is None
    assert refusal(3, field) is None
    assert refusal(0, field) == "`x` must be at least 1"
    assert refusal(4, field) == "`x` must be at most 3"
    assert refusal("2", field) == "`x` has bounds and must be a number, not a string"
    assert refusal(True, field) == "`x` has bounds and must be a number, not a boolean"
    assert refusal(5, Field(name="x", max=3)) == "`x` must be at most 3"
    assert refusal(5, Field(name="x", min=3)) is None


def test_a_number_must_be_finite() -> None:
    """Infinity and not-a-number would be written as null."""
    assert refusal(float("nan"), Field(name="x", type="number")) == "`x` must be finite"
    assert refusal(float("inf"), Field(name="x")) == "`x` must be finite"


def test_an_enumeration_does_not_take_true_for_one() -> None:
    """JSON equality: True is not 1."""
    field = Field(name="x", enum=(1, "a"))

    assert refusal(1, field) is None
    assert refusal(True, field) == "`x` must be one of 1, 'a'"
    assert not same_value(1, True)


def test_length_counts_characters_and_items() -> None:
    """`length_max` is for strings and lists; other values have no length."""
    field = Field(name="x", length_max=2)

    assert refusal("ab", field) is None
    assert refusal([1, 2, 3], field) == "`x` must not be longer than 2"
    assert refusal(12345, field) is None


def test_items_and_fields_are_checked_inside() -> None:
    """The refusal names the path to what is wrong."""
    items = Field(name="x", type="array", items=Field(name="", type="integer"))
    fields = Field(name="x", type="object", fields=(Field(name="y", type="integer", required=True),))

    assert refusal([1, 2], items) is None
    assert refusal([1, "2"], items) == "`x[1]` must be an integer, not a string"
    assert refusal({"y": 1}, fields) is None
    assert refusal({}, fields) == "`x.y` is missing"
    assert refusal({"y": 1, "z": 2}, fields) == "`x.z` is not a field here; the fields are y"
    assert refusal({"y": "1"}, fields) == "`x.y` must be an integer, not a string"
    assert refusal(5, Field(name="x", items=Field(name=""), fields=())) is None


def test_optional_fields_may_be_absent() -> None:
    """Only required fields are missed."""
    assert fields_refusal({}, (Field(name="y"),)) is None
    assert fields_refusal({"z": 1}, ()) == "`z` is not a field here; the fields are none"


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "a", [1, {"b": [None]}], {"a": {}}, 2**256 - 1])
def test_plain_values_are_taken(value: Any) -> None:
    """JSON within the limits."""
    assert plain_refusal(value) is None


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _doubled(times: int) -> Any:
    value: Any = [1]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (float("inf"), "finite"),
        (float("nan"), "finite"),
        (2**256, "256 bits"),
        ("a" * 1_000_001, "1,000,000 characters"),
        ({1: 2}, "keys"),
        ((1, 2), "tuple"),
        (object(), "object"),
        (_deep(65), "64 levels"),
        (_doubled(40), "100,000 values"),
        ([0] * 100_001, "100,000 values"),
        ([[0] * 99_999] * 2, "100,000 values"),
    ],
)
def test_what_is_not_plain_is_refused_with_the_reason(value: Any, part: str) -> None:
    """Non-finite numbers, huge integers, other types, deep and doubled trees."""
    assert part in (plain_refusal(value) or "")


def test_many_scalars_on_one_level_count_too() -> None:
    """The count is over the whole tree, not per list."""
    value = [[0] * 50_000, [0] * 49_990, [[0] * 20]]

    assert "100,000 values" in (plain_refusal(value) or "")


def test_types_are_named_as_the_vocabulary_does() -> None:
    """A message never shows Python's own names for JSON values."""
    values: list[Any] = [None, True, 1, 1.5, "", [], {}, ()]
    names = [type_name(each) for each in values]

    assert names == ["null", "a boolean", "an integer", "a number", "a string", "an array", "an object", "tuple"]


def test_unset_is_false_and_one_of_a_kind() -> None:
    """The absence of a default survives pickling as itself."""
    assert not UNSET
    assert repr(UNSET) == "UNSET"
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET  # our own bytes


def test_a_field_is_plain_when_nothing_was_said() -> None:
    """Any type, no enumeration, no bounds."""
    assert Field(name="x").plain
    assert not Field(name="x", type="string").plain
    assert not Field(name="x", enum=(1,)).plain
    assert not Field(name="x", min=1).plain
    assert not Field(name="x", max=1).plain


@pytest.mark.parametrize("text", ["", "plain", "caf\u00e9", "\U0001f600", "\x00", "\uffff"], ids=ascii)
def test_whole_characters_are_text(text: str) -> None:
    """Whatever UTF-8 can write."""
    assert is_text(text)
    assert plain_refusal([text, {text: 1}]) is None


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d"], ids=ascii)
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    """Python bears it, and no file or database does: it is refused as a value and as a key."""
    problem = "a string may not hold half of a surrogate pair, which is no character"

    assert not is_text(text)
    assert (problem, problem) == (plain_refusal([text]), plain_refusal({text: 1}))


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    """Equal all the way down, and no list or mapping is the same one."""
    value = {"a": [1, {"b": []}], "c": "x", "d": None}
    copy = copied(value)

    assert value == copy
    copy["a"][1]["b"].append(1)
    assert {"a": [1, {"b": []}], "c": "x", "d": None} == value
