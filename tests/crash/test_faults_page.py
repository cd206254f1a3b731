"""The public list of faults names tests that exist: each command on the page would run something."""

import ast
import re
from pathlib import Path

import pytest

from tests.crash.simulated.mutants import INTERLEAVED, SWEPT, SWEPT_WORK

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "testing.md"
FAULTS = PAGE.read_text(encoding="utf-8").partition("## Faults found")[2]
COMMANDS = re.findall(r"`pytest ([^`]+)`", FAULTS)
_CHOSEN = re.compile(r"(?P<file>\S+) -k (?P<word>\w+)")
_NAMED = re.compile(r'"(?P<file>\S+)::(?P<test>\w+)\[(?P<case>\w+)\]"')


def names_in(file: str) -> list[str]:
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return [each.name for each in functions if each.name.startswith("test_")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_a_test(command: str) -> None:
    """It chooses by a word that is in a test's name, or names a test and one of its faulty stores."""
    chosen, named = _CHOSEN.fullmatch(command), _NAMED.fullmatch(command)
    if chosen is not None:
        assert any(chosen["word"] in each for each in names_in(chosen["file"]))
    else:
        assert named is not None
        assert named["test"] in names_in(named["file"])
        assert named["case"] in {**SWEPT, **SWEPT_WORK, **INTERLEAVED}


def test_the_page_has_its_rows() -> None:
    rows = [line for line in FAULTS.splitlines() if line.startswith("| ")]

    assert len(COMMANDS) == len([line for line in rows if not line.startswith(("| fault", "| without"))])
    assert len(COMMANDS) > 20
