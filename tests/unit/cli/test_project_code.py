"""Code that a project names: commands that look do not import it unless they are asked to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock.cli.main import COMMANDS
from tests.support.cli import LAMP, Caller

STORE = "sqlite:///lamps.db"
CODE = """
import pathlib
import interlock

pathlib.Path(__file__).with_name("imported").touch()
lamp = interlock.load(pathlib.Path(__file__).with_name("lamp.yaml"))
"""
LOOKING = {
    "can": ["lamp/1"],
    "check": ["lamp.yaml"],
    "db": ["status"],
    "doctor": [],
    "effects": ["ls"],
    "holds": [],
    "journal": ["lamp/1"],
    "ls": [],
    "replay": ["lamp/1"],
    "show": ["lamp/1"],
    "stuck": [],
    "tail": ["--since", "start"],
    "top": ["--once"],
    "verify": [],
}
WRITING = {"archive", "compact", "create", "erase", "hold", "prune", "resume", "run", "send", "serve"}
APART = {
    "audit",
    "completion",
    "convert",
    "demo",
    "diff",
    "draw",
    "export",
    "fmt",
    "keyring",
    "keys",
    "lifecycle",
    "migrate",
    "new",
    "refold",
    "rollout",
    "schema",
    "shadow",
    "simulate",
    "types",
    "bundle",
}
"""Commands that take no charts from a project."""


@pytest.fixture(params=["interlock.toml", "pyproject.toml"])
def project(request: pytest.FixtureRequest, call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an entity, whose file names its chart by code."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(folder))])
    monkeypatch.delitem(sys.modules, "lamps_of_a_stranger", raising=False)
    assert 0 == call("create", STORE, "lamp/1", "--chart", "lamp.yaml").code
    head = "" if request.param == "interlock.toml" else "[tool.interlock]\n"
    (folder / request.param).write_text(f'{head}store = "{STORE}"\ncharts = ["lamps_of_a_stranger:lamp"]\n')
    (folder / "lamps_of_a_stranger.py").write_text(CODE, encoding="utf-8")
    return folder


def test_every_command_is_sorted_here() -> None:
    assert set(COMMANDS) == {*LOOKING, *WRITING, *APART}


@pytest.mark.parametrize("command", LOOKING)
def test_a_reading_command_imports_no_code_of_the_project(call: Caller, project: Path, command: str) -> None:
    ended = call(command, *LOOKING[command])

    assert not (project / "imported").exists()
    assert ended.code in (0, 1)
    if command in ("can", "doctor", "replay", "show", "stuck", "top", "verify"):
        assert "not imported" in ended.err


@pytest.mark.parametrize("command", ["can", "doctor", "replay", "show", "stuck", "top", "verify"])
def test_a_command_that_is_asked_to_imports_it(
    call: Caller, project: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    below = project / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    ended = call(command, *LOOKING[command], "--chart", "lamps_of_a_stranger:lamp")

    assert ended.code in (0, 1), ended.err
    assert (project / "imported").exists()


@pytest.mark.parametrize("arguments", [["create", "lamp/2"], ["send", "lamp/1", "press"]])
def test_a_command_that_writes_runs_the_project(call: Caller, project: Path, arguments: list[str]) -> None:
    assert 0 == call(*arguments).code
    assert (project / "imported").exists()


def test_definitions_of_the_project_are_read_and_only_its_code_is_left_out(call: Caller, project: Path) -> None:
    (project / "torch.yaml").write_text(LAMP.replace("kind: lamp", "kind: torch"), encoding="utf-8")
    for each in ("interlock.toml", "pyproject.toml"):
        (project / each).unlink(missing_ok=True)
    (project / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = ["torch.yaml", "lamps_of_a_stranger:lamp"]\n')
    ended = call("verify")

    assert not (project / "imported").exists()
    assert "lamps_of_a_stranger:lamp" in ended.err
    assert 0 == ended.code  # the store has the definition of its entity


def test_an_invalid_project_file_does_not_matter_if_a_chart_is_given(call: Caller, project: Path) -> None:
    for each in ("interlock.toml", "pyproject.toml"):
        (project / each).unlink(missing_ok=True)
    (project / "interlock.toml").write_text("charts = 7\n", encoding="utf-8")
    ended = call("show", STORE, "lamp/1", "--chart", "lamps_of_a_stranger:lamp")

    assert 0 == ended.code, ended.err
