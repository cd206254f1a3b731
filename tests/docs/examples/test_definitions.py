"""The definitions of the examples have no errors and no warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.assemble.charts import load
from interlock.definition.vocabulary.chart import SCHEMA_LINE

EXAMPLES = Path(__file__).parents[3] / "examples"
DEFINITIONS = sorted(EXAMPLES.glob("*/*.interlock.yaml"))


def test_every_example_has_its_definitions() -> None:
    assert ["device", "network", "order", "storage", "subscription", "vm"] == sorted(
        path.name.removesuffix(".interlock.yaml") for path in DEFINITIONS
    )


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.name.split(".")[0])
def test_a_definition_gets_no_error_and_no_warning(path: Path) -> None:
    chart = load(path)

    assert [] == [str(each) for each in chart.diagnostics if each.severity != "info"]
    assert SCHEMA_LINE == path.read_text(encoding="utf-8").splitlines()[0]
