"""Waiting for a condition, one line for each reason to skip, and the tests that a quick run skips."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import eventually as patience
from tests.support.eventually import eventually, eventually_blocking
from tests.support.missing import error_without, run_without

ROOT = Path(__file__).parents[2]
SAMPLE = """
import subprocess, sys
import pytest

def test_passes():
    pass

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.slow
def test_takes_long():
    pass

@pytest.mark.parametrize("number", range(3))
def test_needs_a_server(number):
    pytest.skip("NO SERVER HERE")

def test_computes():
    import time
    end = time.process_time() + 2.2
    while time.process_time() < end:
        pass
"""


async def test_a_condition_is_waited_for_and_its_value_returned() -> None:
    values = iter([0, None, 7, 0, 8])

    async def condition() -> int | None:
        return next(values)

    assert (7, 8) == (await eventually(lambda: next(values)), await eventually(condition))
    assert 9 == eventually_blocking(iter([0, 9]).__next__)


async def test_a_condition_that_never_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(AssertionError, match="the ship did not hold"):
        await eventually(lambda: False, "the ship")
    with pytest.raises(AssertionError, match="the ship did not hold"):
        eventually_blocking(lambda: False, "the ship")


def test_a_module_can_be_missing_in_another_interpreter() -> None:
    code = "try:\n    import json.decoder\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    found = error_without(code="import interlock\ninterlock.load('absent.yaml')")

    assert "json.decoder\n" == run_without("json.decoder", code=code).stdout
    assert ["NotFoundError", "file.not_found"] == found[:2]


def run_sample(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the sample tests in a separate process, with the settings of all tests."""
    file = folder / "test_sample.py"
    file.write_text(SAMPLE, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "-p",
        "no:randomly",
    ]
    return subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", *arguments, file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_server_is_one_line_however_many_tests_need_it(tmp_path: Path) -> None:
    ended = run_sample(tmp_path, "-k", "not computes")

    assert (0, 1) == (ended.returncode, ended.stdout.count("NO SERVER HERE")), ended.stdout
    assert "SKIPPED 3: NO SERVER HERE" in ended.stdout
    assert "3 passed, 3 skipped" in ended.stdout


def test_a_quick_run_leaves_out_processes_and_slow_tests_and_fails_for_more_cpu(tmp_path: Path) -> None:
    ended = run_sample(tmp_path, "--quick")

    assert "SKIPPED 1: left to `make test`: it starts a process" in ended.stdout
    assert "2 passed, 4 skipped, 1 deselected" in ended.stdout
    assert (1, True) == (ended.returncode, "test_computes" in ended.stdout)
