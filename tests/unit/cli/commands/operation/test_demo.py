"""`interlock demo`: a process that serves the console, stops on a signal, and resumes when it is started again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.cli import Caller


@pytest.mark.parametrize("on_path", [True, False])
def test_the_demo_prints_how_to_use_another_terminal(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    environment = folder / "its own"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "activate").touch()
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if on_path else None)
    said = call("demo", "--no-console", "--duration", "0s").err
    first = "" if on_path else ". 'its own/bin/activate' && "

    assert f"in another terminal: {first}cd interlock-demo, then interlock top" in said


def test_a_folder_with_other_files_is_not_changed(call: Caller, folder: Path) -> None:
    (folder / "interlock.toml").write_text('store = "sqlite:///mine.db"\n', encoding="utf-8")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    ended = call("demo", "--no-console", "--folder", ".")

    assert (2, True) == (ended.code, "--folder" in ended.err)
    assert before == {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize(
    "words",
    [
        ("--rate", "0"),
        ("--rate", "1000"),
        ("--rate", "nan"),
        ("--duration", "soon"),
        ("--port", "99999"),
        ("--seed", "x"),
    ],
)
def test_a_wrong_call_creates_nothing(call: Caller, folder: Path, words: tuple[str, str]) -> None:
    assert 2 == call("demo", *words).code
    assert not (folder / "interlock-demo").exists()


def test_an_impossible_folder_is_refused(call: Caller, folder: Path) -> None:
    ended = call("demo", "--no-console", "--folder", "lamp.yaml/demo")

    assert 2 == ended.code
    assert "lamp.yaml" in ended.err
