"""Which chart runs an entity: by kind and revision, or by a range of compatible revisions."""

from __future__ import annotations

import pytest

from interlock.errors import NotFoundError
from interlock.runtime.charts.registry import ChartRegistry
from tests.unit.runtime.scene import DOOR, kernel


def test_without_charts_no_kind_is_known() -> None:
    with pytest.raises(NotFoundError, check=lambda error: error.code == "kind.unknown"):
        ChartRegistry([]).for_new_entity("door")


def test_the_last_chart_of_a_kind_creates() -> None:
    """Order decides between editions of one kind."""
    older, newer = kernel(DOOR), kernel(DOOR.replace("openings + 1", "openings + 2"))
    charts = ChartRegistry([older, newer])

    assert newer is charts.for_new_entity("door")
    assert older is charts.find("door", older.chart.revision)
    assert older is charts.find("door", older.chart.other_names[0])
