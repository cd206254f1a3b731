"""Definitions with errors in every text format, and the diagnostics that `load` reports for them.

`golden_diagnostics.json` holds severity, code and place of each diagnostic, not its wording. After an intended change
run `pytest tests/unit/compiler/test_golden_diagnostics.py --rewrite` and read the diff.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interlock.assemble.charts import compile_reading, read_text
from interlock.errors import Diagnostic

GOLDEN = Path(__file__).with_name("golden_diagnostics.json")


def summaries(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Severity, code and place of each diagnostic."""
    places = [(each, each.place) for each in diagnostics]
    return [f"{each.severity} {each.code} {at.line}:{at.column}-{at.end_line}:{at.end_column}" for each, at in places]


def test_the_diagnostics_of_refused_definitions_are_the_recorded_ones(rewrite: bool) -> None:
    recorded: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
    found = [
        {
            **each,
            "diagnostics": summaries(
                compile_reading(read_text(each["text"], format=each["format"], source=each["source"])).diagnostics
            ),
        }
        for each in recorded
    ]
    if rewrite:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")

    assert len(recorded) > 200
    for before, now in zip(recorded, found, strict=True):
        assert before == now
