"""Labels of revisions are compared number by number."""

from __future__ import annotations

import pytest

from interlock.evolve.labels import is_lower, is_within


@pytest.mark.parametrize(
    ("label", "bounds", "expected"),
    [
        ("3.1", ">=3.0 <4", True),
        ("3", ">=3.0 <4", True),
        ("4", ">=3.0 <4", False),
        ("4.0.0", "<4", False),
        ("3.9.9", "<4", True),
        ("2.10", ">2.9", True),
        ("2.9", "> 2.9", False),
        ("2.9.0", "2.9", True),
        ("2.9", "=2.9", True),
        ("2.8", "<=2.8", True),
        ("beta", ">=0", False),
        ("", ">=0", False),
    ],
)
def test_a_range_is_compared_number_by_number(label: str, bounds: str, expected: bool) -> None:
    """Missing numbers are zero; a label that is not a version is in no range."""
    assert expected == is_within(label, bounds)


@pytest.mark.parametrize(
    ("label", "other", "expected"),
    [
        ("1.9", "1.10", True),
        ("1", "1.0.1", True),
        ("1.0", "1", False),
        ("2", "1", False),
        ("beta", "2", False),
        ("1", "beta", False),
        (None, "2", False),
        ("1", None, False),
    ],
)
def test_only_versions_have_an_order(label: str | None, other: str | None, expected: bool) -> None:
    assert expected == is_lower(label, other)
