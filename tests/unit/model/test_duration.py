"""Durations: what is one, what is not, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.model.duration import format_duration, parse_css_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("7d", 604_800_000), ("1h30m", 5_400_000)],
)
def test_a_duration_is_a_number_with_a_unit(text: str, ms: int) -> None:
    assert ms == parse_duration(text)


@pytest.mark.parametrize("text", ["", "30", "1m1h", "1s1s", "-1s", "1.5s", " 1s", "1 s", "s", "1x", "9999999999999s"])
def test_an_invalid_duration_gives_none(text: str) -> None:
    """No unit, rising or repeated units, signs, fractions and white space are refused."""
    assert parse_duration(text) is None


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_formatted_reads_back(ms: int) -> None:
    """`format_duration` is the inverse of `parse_duration`."""
    assert ms == parse_duration(format_duration(ms))


@pytest.mark.parametrize(
    ("text", "ms"), [("1.5s", 1_500), (".5s", 500), ("200ms", 200), ("+2s", 2_000), (" 1s ", 1_000), ("0.25ms", 0)]
)
def test_css_times_may_have_fractions(text: str, ms: int) -> None:
    """SCXML takes CSS2 times; parts of a millisecond are dropped."""
    assert ms == parse_css_duration(text)


@pytest.mark.parametrize("text", ["", "s", ".s", "1m", "-1s", "1"])
def test_an_invalid_css_time_gives_none(text: str) -> None:
    """Only `s` and `ms`, and never without a number."""
    assert parse_css_duration(text) is None
