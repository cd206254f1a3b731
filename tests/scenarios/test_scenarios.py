"""Every scenario file: its commands print the output below them.

After an intended change run `pytest tests/scenarios --rewrite`, read the diff, and commit only what you can explain.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.runner import StillClock, format_blocks, parse, run

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parent.parent / "examples"
SCENARIOS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_gives_its_output(
    scenario: Path, rewrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command of the file, run in order in a fresh folder with the examples, prints the output below it."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "INTERLOCK_STORE", "INTERLOCK_CHARTS"):
        monkeypatch.delenv(name, raising=False)
    expected = parse(scenario.read_text(encoding="utf-8"))
    clock = StillClock()
    actual = [replace(block, output=run(block, clock)) for block in expected]
    if rewrite:
        scenario.write_text(format_blocks(actual), encoding="utf-8")
        return

    assert format_blocks(expected) == format_blocks(actual)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8


def test_a_scenario_file_survives_its_own_rewriting() -> None:
    for scenario in SCENARIOS:
        text = scenario.read_text(encoding="utf-8")

        assert text == format_blocks(parse(text)), scenario.name


def test_output_with_blank_lines_is_between_doubled_separators() -> None:
    text = "# a comment\ncat x\n----\n----\na\n\nb\n----\n----\n\nfile y\nin\n\nput\n----\n"
    blocks = parse(text)

    assert [("a", "", "b"), ()] == [block.output for block in blocks]
    assert ("in", "", "put") == blocks[1].input
    assert text == format_blocks(blocks)
