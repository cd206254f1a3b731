"""Keys of indexed fields: the order of the bytes is the order of the values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.model.document.field import Field
from interlock.model.document.formats import Format
from interlock.model.encoding.index_key import (
    INDEX_FORMS,
    KEY_BYTES_MAX,
    PREFIX_BYTES,
    IndexForm,
    decimal_key,
    form_of_field,
    index_key,
    is_exact,
    key_of_value,
)

NEAR = tuple(sign * (base + step) for base in (0, 2**53, 2**63, 2**64, 2**100, 2**255) for step in (-2, -1, 0, 1, 2)
             for sign in (1, -1))  # fmt: skip
"""Integers where doubles lose digits, and where machine words end."""

numbers = st.one_of(
    st.sampled_from(NEAR),
    st.sampled_from(NEAR).map(float),
    st.integers(-(2**256) + 1, 2**256 - 1),
    st.integers(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10, allow_nan=False),
)
decimals = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.decimals(-100, 100, allow_nan=False, places=2),
    st.sampled_from([Decimal(each) for each in ("0", "-0", "0.00", "1E+3", "1000", "9", "10", "-9", "-10", "1E-400")]),
)
moments = st.datetimes(
    min_value=datetime(2, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(9998, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-9))]),
)
spans = st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000))
short_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=PREFIX_BYTES // 4)


def key(value: Any, form: IndexForm) -> bytes:
    found = index_key(value, form)
    assert found is not None
    assert len(found) <= KEY_BYTES_MAX
    return found


def order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


@given(numbers, numbers)
def test_numbers_sort_by_value_whether_integers_or_floats(left: float, right: float) -> None:
    assert order(left, right) == order(key(left, "number"), key(right, "number"))


def test_every_pair_of_critical_numbers_sorts_by_value() -> None:
    values = (*NEAR, *map(float, NEAR), 0.5, -0.5, -0.0, 5e-324, -5e-324, 1.7976931348623157e308)
    for left in values:
        for right in values:
            assert order(left, right) == order(key(left, "number"), key(right, "number")), (left, right)


@given(decimals, decimals)
def test_decimals_sort_by_value_however_they_are_written(left: Decimal, right: Decimal) -> None:
    left, right = (each if -5_000 < each.adjusted() < 5_000 else Decimal(1) for each in (left, right))
    assert order(left, right) == order(key(str(left), "decimal"), key(f"{right:f}", "decimal"))


def test_long_decimals_sort_by_the_digits_that_their_keys_have() -> None:
    low, high = Decimal("1." + "1" * 300), Decimal("1.2" + "1" * 300)
    assert decimal_key(high.copy_negate()) < decimal_key(low.copy_negate()) < decimal_key(low) < decimal_key(high)
    assert [False] * 2 == [is_exact(decimal_key(each)) for each in (low, low.copy_negate())]
    assert is_exact(decimal_key(Decimal("1." + "1" * (PREFIX_BYTES - 2))))


@given(moments, moments)
def test_times_sort_by_moment_whatever_their_zone(left: datetime, right: datetime) -> None:
    keys = key(left.isoformat(), "date-time"), key(right.astimezone(UTC).isoformat(), "date-time")
    assert order(left, right) == order(*keys)


def test_times_do_not_sort_as_text() -> None:
    assert key("2026-11-18T03:00:00Z", "date-time") < key("2026-11-18T03:00:00.5Z", "date-time")


@given(st.dates(), st.dates())
def test_dates_sort_by_day(left: date, right: date) -> None:
    assert order(left, right) == order(key(left.isoformat(), "date"), key(right.isoformat(), "date"))


@given(spans, spans)
def test_durations_sort_by_length(left: timedelta, right: timedelta) -> None:
    def text(span: timedelta) -> str:
        micro = span // timedelta(microseconds=1)
        return f"{'-' if micro < 0 else ''}PT{abs(micro) // 1_000_000}.{abs(micro) % 1_000_000:06}S"

    assert order(left, right) == order(key(text(left), "duration"), key(text(right), "duration"))


def test_one_duration_has_one_key_in_each_spelling() -> None:
    texts = ("P1DT1H", "PT25H", "PT90000S", "PT90000.0S", "PT1500M")
    assert 1 == len({key(each, "duration") for each in texts})


@given(short_texts, short_texts)
def test_strings_sort_by_code_point(left: str, right: str) -> None:
    assert order(left, right) == order(key(left, "string"), key(right, "string"))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400), short_texts)
def test_long_strings_sort_against_short_ones(long: str, short: str) -> None:
    assert order(long, short) == order(key(long, "string"), key(short, "string"))


def test_long_strings_with_the_same_start_have_different_keys() -> None:
    left, right = "x" * 500 + "a", "x" * 500 + "b"
    assert key(left, "string") != key(right, "string")
    assert [False, True] == [is_exact(key(each, "string")) for each in (left, "x" * PREFIX_BYTES)]


def test_values_of_one_field_group_by_type() -> None:
    keys = [key(each, "string") for each in (False, True, -1, 2.5, "", "1", "é")]
    assert sorted(keys) == keys
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("form", INDEX_FORMS)
@pytest.mark.parametrize("value", [None, [], {}, [1], {"a": 1}, float("inf"), float("nan"), 2**300])
def test_other_values_have_no_key(form: IndexForm, value: object) -> None:
    assert index_key(value, form) is None


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("decimal", "NaN"),
        ("decimal", "1_000"),
        ("decimal", "\u0661"),
        ("decimal", ""),
        ("date-time", "2026-11-18T03:00:00"),
        ("date-time", "soon"),
        ("date", "2026-13-01"),
        ("date", "20261118"),
        ("duration", "P"),
        ("duration", "PT"),
        ("duration", "1h"),
        ("duration", "PT999999999999999H"),
    ],
)
def test_text_that_is_not_of_its_form_keeps_the_key_of_a_string(form: IndexForm, text: str) -> None:
    assert key(text, "string") == key(text, form)


def test_a_value_in_json_has_the_key_of_the_python_value() -> None:
    assert key("1000", "decimal") == key_of_value(Decimal("1E+3"))
    assert key("2026-11-18T12:00:00Z", "date-time") == key_of_value(datetime(2026, 11, 18, 12, tzinfo=UTC))
    assert key("2026-11-18", "date") == key_of_value(date(2026, 11, 18))
    assert key("PT3601.5S", "duration") == key_of_value(timedelta(seconds=3601.5))


def test_the_form_follows_from_the_type_of_the_field() -> None:
    forms = {each: form_of_field(Field(name="x", type=each)) for each in ("string", "integer", "number", "boolean")}
    assert {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"} == forms
    formats: tuple[Format, ...] = ("decimal", "date-time", "date", "duration", "uuid", "byte")
    found = [form_of_field(Field(name="x", type="string", format=each)) for each in formats]
    assert ["decimal", "date-time", "date", "duration", "string", "string"] == found
    assert [None] * 3 == [form_of_field(Field(name="x", type=each)) for each in ("any", "object", "array")]
