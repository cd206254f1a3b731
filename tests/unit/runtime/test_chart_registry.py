"""Which chart runs an entity: by kind and revision, or by a range of compatible revisions."""

from __future__ import annotations

import pytest

from interlock.errors import NotFoundError
from interlock.runtime.chart_registry import ChartRegistry, is_within
from tests.unit.runtime.scene import DOOR, kernel


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


def test_without_charts_no_kind_is_known() -> None:
    with pytest.raises(NotFoundError, check=lambda error: error.code == "kind.unknown"):
        ChartRegistry([]).for_new_entity("door")


def test_the_last_chart_of_a_kind_creates() -> None:
    """Order decides between editions of one kind."""
    older, newer = kernel(DOOR), kernel(DOOR.replace("openings + 1", "openings + 2"))
    charts = ChartRegistry([older, newer])

    assert newer is charts.for_new_entity("door")
    assert older is charts.for_revision("door", older.chart.revision)
    assert older is charts.for_revision("door", older.chart.other_names[0])
