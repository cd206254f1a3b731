"""Runs command lines in the process of the test, and keeps what they print.

`call` and `folder` are fixtures for every test (`tests/conftest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

LAMP = """\
interlock: 1
kind: lamp
states:
  dark: {on: {press: bright}, expect: {within: forever}}
  bright: {on: {press: dark}, after: {10m: dark}}
"""
BAD = LAMP.replace("press: bright", "press: brihgt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a command line."""

    code: int
    out: str
    err: str


class Caller:
    """Runs command lines; the fixture `call` creates it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ended:
        """Run one command line."""
        from interlock.cli.main import main  # most tests do not need it

        self._capsys.readouterr()
        code = main([str(each) for each in arguments])
        captured = self._capsys.readouterr()
        return Ended(code=code, out=captured.out, err=captured.err)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Caller:
    """Runs a command line in this process."""
    return Caller(capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a valid and an invalid chart, and no settings from the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "INTERLOCK_STORE", "INTERLOCK_CHARTS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(BAD, encoding="utf-8")
    return tmp_path
