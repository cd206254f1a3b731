"""Conditions on indexed fields: which keys they cover, and which values they accept."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.model.conditions import KeyRange, Range, key_range, parse_conditions, read_conditions
from interlock.model.encoding.index_key import IndexForm, index_key

texts = st.one_of(st.text("ab", max_size=4), st.text("ab", min_size=2).map(lambda each: "x" * 199 + each))
"""Short strings, and strings around the length at which a key is cut."""

numbers = st.one_of(st.integers(-5, 5), st.floats(-5, 5, allow_nan=False), st.sampled_from([2**53, 2**53 + 1, 2.0**53]))


class Colour(Enum):
    """A value of a program."""

    RED = "red"


def bounds(found: Range[Any], value: Any) -> bool:
    """Whether a value is inside a range, by Python's own comparison."""
    return (
        (found.at_least is None or value >= found.at_least)
        and (found.above is None or value > found.above)
        and (found.at_most is None or value <= found.at_most)
        and (found.below is None or value < found.below)
    )


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Range[Any]]:
    lower = st.one_of(
        st.just({}), values.map(lambda each: {"at_least": each}), values.map(lambda each: {"above": each})
    )
    upper = st.one_of(st.just({}), values.map(lambda each: {"at_most": each}), values.map(lambda each: {"below": each}))
    both = st.tuples(lower, upper).filter(lambda each: bool(each[0] or each[1]))
    return both.map(lambda each: Range(**each[0], **each[1]))


def covers(keys: KeyRange, value: Any) -> bool:
    key = index_key(value, keys.form)
    return key is not None and keys.low <= key < keys.high


@given(ranges(numbers), numbers)
def test_a_range_of_numbers_matches_what_python_compares(wanted: Range[Any], value: float) -> None:
    keys = key_range("amount", wanted, "number")
    assert keys.exact
    assert bounds(wanted, value) == keys.matches(value) == covers(keys, value)


@given(ranges(texts), texts)
def test_a_range_of_strings_matches_what_python_compares(wanted: Range[Any], value: str) -> None:
    keys = key_range("name", wanted, "string")
    assert bounds(wanted, value) == keys.matches(value)
    assert covers(keys, value) or not keys.matches(value)
    assert not keys.exact or covers(keys, value) == keys.matches(value)


@given(ranges(st.decimals(-50, 50, places=1)), st.decimals(-50, 50, places=2))
def test_a_range_of_decimals_matches_what_python_compares(wanted: Range[Any], value: Decimal) -> None:
    keys = key_range("price", wanted, "decimal")
    assert bounds(wanted, value) == keys.matches(str(value)) == covers(keys, str(value))


@given(texts, texts)
def test_equality_matches_equal_strings_only(wanted: str, value: str) -> None:
    keys = key_range("name", wanted, "string")
    assert (wanted == value) == keys.matches(value) == covers(keys, value)


def test_a_range_without_an_end_stays_within_the_type() -> None:
    keys = key_range("amount", Range(at_least=10), "number")
    assert [True, False, False, False] == [keys.matches(each) for each in (2**255, "99", True, None)]
    keys = key_range("name", Range(below="b"), "string")
    assert [True, False, False] == [keys.matches(each) for each in ("", 1, None)]
    flags = key_range("paid", Range(at_least=False), "boolean")
    assert [True, True, False] == [flags.matches(each) for each in (False, True, 0)]


def test_long_decimals_are_compared_with_their_values() -> None:
    wanted, larger = Decimal("1." + "1" * 300), Decimal("1." + "1" * 301)
    keys = key_range("price", Range(above=wanted), "decimal")
    assert [True, False] == [keys.matches(str(each)) for each in (larger, wanted)]
    assert key_range("price", wanted, "decimal").matches(str(wanted))
    assert not key_range("price", wanted, "decimal").matches(str(larger))


@pytest.mark.parametrize(
    ("form", "wanted", "value"),
    [
        ("string", UUID("6FB0F2AE-0000-4000-8000-000000000001"), "6fb0f2ae-0000-4000-8000-000000000001"),
        ("string", Colour.RED, "red"),
        ("boolean", False, False),
        ("number", 1, 1.0),
        ("decimal", Decimal("1E+3"), "1000"),
        ("decimal", "1000.0", "1000"),
        ("decimal", 1000, "1000.00"),
        ("date-time", datetime(2026, 11, 18, 12, tzinfo=UTC), "2026-11-18T13:00:00+01:00"),
        ("date-time", "2026-11-18T12:00:00Z", "2026-11-18T12:00:00.000000+00:00"),
        ("date", date(2026, 11, 18), "2026-11-18"),
        ("date", "2026-11-18", "2026-11-18"),
        ("duration", timedelta(hours=1), "PT3600S"),
        ("duration", "PT1H", "PT60M"),
    ],
)
def test_a_python_value_finds_its_json_form(form: IndexForm, wanted: Any, value: Any) -> None:
    assert key_range("x", wanted, form).matches(value)


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("string", 7),
        ("string", "\ud800"),
        ("string", None),
        ("number", "10"),
        ("number", True),
        ("number", float("nan")),
        ("number", 2**300),
        ("number", Decimal(1)),
        ("boolean", 1),
        ("decimal", 1.5),
        ("decimal", "NaN"),
        ("decimal", Decimal("Infinity")),
        ("date-time", datetime(2026, 11, 18)),  # noqa: DTZ001 - a time without a zone is refused
        ("date-time", date(2026, 11, 18)),
        ("date", datetime(2026, 11, 18, tzinfo=UTC)),
        ("duration", 3600),
        ("string", ["a"]),
    ],
)
def test_a_value_that_the_field_cannot_have_is_refused(form: IndexForm, wanted: Any) -> None:
    for condition in (wanted, Range(at_least=wanted)) if wanted is not None else (wanted,):
        with pytest.raises(UsageError) as raised:
            key_range("x", condition, form)
        assert "where.value" == raised.value.code


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "above": 1}, {"at_most": 1, "below": 1}])
def test_a_range_has_at_most_one_bound_on_each_side(bounds: dict[str, int]) -> None:
    with pytest.raises(UsageError) as raised:
        Range(**bounds)
    assert "where.range" == raised.value.code


FORMS: dict[str, IndexForm] = {
    "amount": "number",
    "paid": "boolean",
    "customer": "string",
    "price": "decimal",
    "at": "date-time",
    "day": "date",
    "took": "duration",
}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (("customer=c-7",), {"customer": "c-7"}),
        (("customer=007",), {"customer": "007"}),
        (("customer=a=b",), {"customer": "a=b"}),
        (("customer=",), {"customer": ""}),
        (("amount>=10", "amount<20"), {"amount": Range(at_least=10, below=20)}),
        (("amount > 2.5",), {"amount": Range(above=2.5)}),
        (("amount<=-3",), {"amount": Range(at_most=-3)}),
        (("paid=true",), {"paid": True}),
        (("price=19.90",), {"price": Decimal("19.90")}),
        (("day>=2026-11-18",), {"day": Range(at_least=date(2026, 11, 18))}),
        (("at<2026-11-18T12:00:00Z",), {"at": Range(below=datetime(2026, 11, 18, 12, tzinfo=UTC))}),
        (("took>PT1H",), {"took": Range(above=timedelta(hours=1))}),
        (("unknown=5",), {"unknown": "5"}),
    ],
)
def test_conditions_are_read_by_the_form_of_their_field(conditions: tuple[str, ...], expected: Any) -> None:
    assert expected == read_conditions(conditions, FORMS)


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (("customer",), "where.malformed"),
        (("=5",), "where.malformed"),
        (("amount=1", "amount=2"), "where.malformed"),
        (("amount=1", "amount>0"), "where.malformed"),
        (("amount>1", "amount>2"), "where.malformed"),
        (("amount>1", "amount>=2"), "where.range"),
        (("amount=ten",), "where.value"),
        (("amount=nan",), "where.value"),
        (("paid=yes",), "where.value"),
        (("at=yesterday",), "where.value"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(conditions: tuple[str, ...], code: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_conditions(conditions, FORMS)
    assert code == raised.value.code


def test_conditions_are_grouped_by_field() -> None:
    assert {"a": ((">=", "1"), ("<", "2")), "b": (("=", "x y"),)} == parse_conditions(("a>=1", "b= x y", "a<2"))
