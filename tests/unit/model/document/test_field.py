"""Fields: what each type and bound takes, and the sentence it refuses with."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from interlock.model.document.field import (
    LONE_SURROGATE,
    UNSET,
    Field,
    FieldType,
    copy_json,
    field_problem,
    fields_problem,
    is_text,
    json_problem,
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
    field = Field(name="x", type=kind)

    assert field_problem(good, field) is None
    assert field_problem(bad, field) is not None
    assert f"`x` must be {'an' if kind[0] in 'aeiou' else 'a'} {kind}, not null" == field_problem(None, field)


def test_null_is_taken_where_the_field_says_so() -> None:
    """`nullable` fields and fields of any type take null."""
    assert field_problem(None, Field(name="x", type="string", nullable=True)) is None
    assert field_problem(None, Field(name="x")) is None


def test_bounds_are_inclusive_and_for_numbers_only() -> None:
    """`min` and `max` are themselves allowed."""
    field = Field(name="x", min=1, max=3)

    assert field_problem(1, field) is None
    assert field_problem(3, field) is None
    assert field_problem(0, field) == "`x` must be at least 1"
    assert field_problem(4, field) == "`x` must be at most 3"
    assert field_problem("2", field) == "`x` has bounds and must be a number, not a string"
    assert field_problem(True, field) == "`x` has bounds and must be a number, not a boolean"
    assert field_problem(5, Field(name="x", max=3)) == "`x` must be at most 3"
    assert field_problem(5, Field(name="x", min=3)) is None


def test_a_number_must_be_finite() -> None:
    """Infinity and not-a-number would be written as null."""
    assert field_problem(float("nan"), Field(name="x", type="number")) == "`x` must be finite"
    assert field_problem(float("inf"), Field(name="x")) == "`x` must be finite"


def test_an_enumeration_does_not_take_true_for_one() -> None:
    """JSON equality: True is not 1."""
    field = Field(name="x", enum=(1, "a"))

    assert field_problem(1, field) is None
    assert field_problem(True, field) == "`x` must be one of 1, 'a'"
    assert not same_value(1, True)


def test_length_counts_characters_and_items() -> None:
    """`length_max` is for strings and lists; other values have no length."""
    field = Field(name="x", length_max=2)

    assert field_problem("ab", field) is None
    assert field_problem([1, 2, 3], field) == "`x` must not be longer than 2"
    assert field_problem(12345, field) is None


def test_items_and_fields_are_checked_inside() -> None:
    items = Field(name="x", type="array", items=Field(name="", type="integer"))
    fields = Field(name="x", type="object", fields=(Field(name="y", type="integer", required=True),))

    assert field_problem([1, 2], items) is None
    assert field_problem([1, "2"], items) == "`x[1]` must be an integer, not a string"
    assert field_problem({"y": 1}, fields) is None
    assert field_problem({}, fields) == "`x.y` is missing"
    assert field_problem({"y": 1, "z": 2}, fields) == "unknown field `x.z`; the fields are y"
    assert field_problem({"y": "1"}, fields) == "`x.y` must be an integer, not a string"
    assert field_problem(5, Field(name="x", items=Field(name=""), fields=())) is None


def test_optional_fields_may_be_absent() -> None:
    assert fields_problem({}, (Field(name="y"),)) is None
    assert fields_problem({"z": 1}, ()) == "unknown field `z`; the fields are none"


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "a", [1, {"b": [None]}], {"a": {}}, 2**256 - 1])
def test_plain_values_are_taken(value: Any) -> None:
    assert json_problem(value) is None


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
    assert part in (json_problem(value) or "")


def test_many_scalars_on_one_level_count_too() -> None:
    value = [[0] * 50_000, [0] * 49_990, [[0] * 20]]

    assert "100,000 values" in (json_problem(value) or "")


def test_types_are_named_as_the_vocabulary_does() -> None:
    values: list[Any] = [None, True, 1, 1.5, "", [], {}, ()]
    names = [type_name(each) for each in values]

    assert names == ["null", "a boolean", "an integer", "a number", "a string", "an array", "an object", "tuple"]


def test_unset_is_false_and_one_of_a_kind() -> None:
    assert not UNSET
    assert repr(UNSET) == "UNSET"
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET  # our own bytes


def test_a_field_is_plain_when_nothing_was_said() -> None:
    assert Field(name="x").accepts_any
    assert not Field(name="x", type="string").accepts_any
    assert not Field(name="x", enum=(1,)).accepts_any
    assert not Field(name="x", min=1).accepts_any
    assert not Field(name="x", max=1).accepts_any


@pytest.mark.parametrize("text", ["", "plain", "caf\u00e9", "\U0001f600", "\x00", "\uffff"], ids=ascii)
def test_whole_characters_are_text(text: str) -> None:
    """Whatever UTF-8 can write."""
    assert is_text(text)
    assert json_problem([text, {text: 1}]) is None


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d"], ids=ascii)
def test_a_lone_surrogate_is_not_a_text(text: str) -> None:
    """Python accepts it, but no file or database does: it is refused as a value and as a key."""
    assert not is_text(text)
    assert (LONE_SURROGATE, LONE_SURROGATE) == (json_problem([text]), json_problem({text: 1}))


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    value = {"a": [1, {"b": []}], "c": "x", "d": None}
    copy = copy_json(value)

    assert value == copy
    copy["a"][1]["b"].append(1)
    assert {"a": [1, {"b": []}], "c": "x", "d": None} == value


CHOICES = (None, True, 2, "a", [1, {"k": True}], {"k": [1, 2]})
VALUES = [None, False, True, 0, 1, 1.0, 2, 2.0, "a", "b", [1, {"k": 1}], [1], {"k": [1, 2]}, {}]


@pytest.mark.parametrize("value", VALUES)
def test_an_enumeration_is_looked_up_as_it_would_be_compared(value: Any) -> None:
    spec = Field(name="x", enum=CHOICES)
    listed = any(same_value(value, each) for each in CHOICES)

    assert (field_problem(value, spec) is None) == (listed or value is None)


def test_what_cannot_be_looked_up_is_not_a_choice() -> None:
    assert field_problem({1, 2}, Field(name="x", enum=(1,))) is not None


def test_long_lists_of_choices_and_fields_are_cut_in_messages() -> None:
    long = Field(name="x", enum=tuple(range(1_000)))
    wide = tuple(Field(name=f"f{number}") for number in range(1_000))

    assert "`x` must be one of " + ", ".join(map(str, range(20))) + " and 980 more" == field_problem(-1, long)
    assert f"unknown field `{'k' * 80}`; the fields are f0, f1, " in str(fields_problem({"k" * 9_000: 1}, wide))
    assert len(str(fields_problem({"k" * 9_000: 1}, wide))) < 300


def test_problems_of_an_object_are_reported_in_the_order_of_its_fields() -> None:
    spec = Field(
        name="x",
        type="object",
        fields=(
            Field(name="a", type="integer"),
            Field(name="b", type="integer", required=True),
            Field(name="c", type="integer"),
        ),
    )

    assert "`x.a` must be an integer, not a string" == field_problem({"c": "", "a": ""}, spec)
    assert "`x.b` is missing" == field_problem({"c": ""}, spec)
    assert "unknown field `x.z`; the fields are a, b, c" == field_problem({"a": "", "z": 1}, spec)
    assert field_problem({"c": 1, "b": 2}, spec) is None


class Counter:
    """Counts the work of checks."""

    def __init__(self) -> None:
        self.work = 0

    def charge(self, work: int) -> None:
        """Count it."""
        self.work += work


@pytest.mark.parametrize(
    ("spec", "value", "work"),
    [
        (Field(name="x", items=Field(name="", type="integer", min=0)), [1] * 100, 800),
        (Field(name="x", items=Field(name="", type="integer")), [1] * 100, 0),
        (Field(name="x", items=Field(name="", type="integer")), [1] * 99 + [None], 800),
        (Field(name="x", fields=(Field(name="a"), Field(name="b"))), {"a": 1, "b": 2}, 16),
        (Field(name="x", items=Field(name="", fields=(Field(name="a"),))), [{"a": 1}] * 100, 1_600),
        (Field(name="x", items=Field(name="", fields=tuple(Field(name=str(n)) for n in range(999)))), [{}] * 100, 800),
        (Field(name="x", items=Field(name="", enum=tuple(range(9_999)))), [9_998] * 100, 800),
    ],
)
def test_a_check_takes_as_long_as_the_value_not_as_the_field(spec: Field, value: Any, work: int) -> None:
    """And is charged for it; a field with a thousand names or choices costs no more than one with two."""
    counter = Counter()
    field_problem(value, spec, charge=counter.charge)

    assert work == counter.work


def test_a_deep_problem_is_looked_for_once() -> None:
    spec = Field(name="x", type="integer", min=0)
    value: Any = -1
    for _ in range(40):
        spec, value = Field(name="x", fields=(spec,)), {"x": value}
    counter = Counter()

    assert "must be at least 0" in str(field_problem(value, spec, charge=counter.charge))
    assert 40 * 8 == counter.work


def test_what_was_worked_out_for_a_field_is_not_a_part_of_it() -> None:
    used, fresh = (Field(name="x", enum=(1,), fields=(Field(name="a", required=True),)) for _ in range(2))
    field_problem({"a": 1}, used)
    field_problem({"a": 1}, used)

    assert used == fresh
    copy = pickle.loads(pickle.dumps(used))
    assert (frozenset({(False, 1)}), ("a",), ["a"]) == (copy.choices, copy.required_names, list(copy.fields_by_name))
