"""Users copy the example charts: they get no error and no warning."""

from pathlib import Path

import pytest

from interlock.compiler.build import compile_document
from interlock.definition.yaml.format import FORMAT
from tests.tidy.tracked import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.interlock.yaml"))


def test_there_are_examples() -> None:
    """An empty folder would prove nothing."""
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name.split(".")[0])
def test_an_example_gets_no_error_and_no_warning(path: Path) -> None:
    reading = FORMAT.read(path.read_bytes(), source=path.name)

    assert reading.document is not None
    found = (*reading.diagnostics, *compile_document(reading.document).diagnostics)
    assert [] == [str(each) for each in found if each.severity != "info"]
