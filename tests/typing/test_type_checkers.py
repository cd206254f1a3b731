"""mypy and pyright accept the right programs and reject each wrong one, at its line.

The programs are texts, not modules: the checks of the repository itself must not see the wrong ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock.render.python_types import python_types

FOLDER = Path(__file__).parent
SECONDS_MAX = 600
"""A type checker that takes longer hangs."""

REASONS = {
    9: r'"version"',
    10: r'"amuont"',
    14: r"not iterable",
    16: r"must be used|is not used",
    19: r'"kye"',
    20: r'type "Session"',
    21: r'type "AsyncSession"',
    22: r'expected "BlockingConnection"|sqlite:///orders\.db',
    23: r"must be used|is not used",
    24: r'"kye"',
    25: r"not iterable",
    26: r'"after"',
    27: r'"str"',
    28: r"Callable\[\[Any\], None\]|\(connection: Any\) -> None",
    29: r"FeedEntry\], None\]|entry: FeedEntry",
    30: r'"charts"',
    31: r"__aenter__|async with",
}
"""What an error must say where another mistake on the line would pass for the stated one."""

_WRONG = re.compile(r"# wrong (\d+):")
_MYPY_LINE = re.compile(r"^(?P<file>\w+\.py):(?P<line>\d+): error: (?P<text>.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs as modules, and the generated types of their chart."""
    folder = tmp_path_factory.mktemp("typing")
    for name in ("right", "wrong"):
        (folder / f"{name}.py").write_text((FOLDER / f"{name}.txt").read_text(encoding="utf-8"), encoding="utf-8")
    types = python_types(interlock.load(FOLDER / "order.yaml").chart)
    (folder / "order_types.py").write_text(types, encoding="utf-8")
    return folder


def mypy(folder: Path, name: str) -> dict[int, str]:
    """The errors of mypy in a module, by line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--enable-error-code", "unused-coroutine", f"{name}.py"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = [each for each in _MYPY_LINE.finditer(run.stdout) if each["file"] == f"{name}.py"]
    assert bool(found) == bool(run.returncode), run.stdout
    return _by_line((int(each["line"]), each["text"]) for each in found)


def pyright(folder: Path, name: str) -> dict[int, str]:
    """The errors of pyright in a module, by line. Skips with one line where its Node.js part cannot be installed."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, f"{name}.py"]
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportMissingTypeStubs": false}')
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        found = json.loads(run.stdout)["generalDiagnostics"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        pytest.skip("pyright is not installed, or cannot download its Node.js part: its half of this test is SKIPPED")
    errors = [each for each in found if each["severity"] == "error"]
    return _by_line((each["range"]["start"]["line"] + 1, each["message"]) for each in errors)


def _by_line(errors: Iterable[tuple[int, str]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for line, text in errors:
        found[line] = f"{found[line]}\n{text}" if line in found else text
    return found


CHECKERS: list[Callable[[Path, str], dict[int, str]]] = [mypy, pyright]


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_right_programs_are_accepted(programs: Path, checker: Callable[[Path, str], dict[int, str]]) -> None:
    assert list(range(1, 18)) == list(numbers("right"))
    assert {} == checker(programs, "right")


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_wrong_program_is_rejected_at_its_line(
    programs: Path, checker: Callable[[Path, str], dict[int, str]]
) -> None:
    lines = (FOLDER / "wrong.txt").read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong " in line}
    found = checker(programs, "wrong")

    assert list(range(1, 32)) == list(numbers("wrong"))
    assert wrong == set(found) & wrong, sorted(lines[number - 1] for number in wrong - set(found))
    assert set(found) <= wrong, {number: found[number] for number in set(found) - wrong}
    texts = {int(numbered[1]): text for line, text in found.items() if (numbered := _WRONG.search(lines[line - 1]))}
    assert {} == {number: texts[number] for number, reason in REASONS.items() if not re.search(reason, texts[number])}


def numbers(name: str) -> Iterator[int]:
    """The numbers of the programs of a text, in order."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    yield from (int(each) for each in re.findall(rf"# {name} (\d+):", text))
