"""Fixtures of the command line: a folder with charts in it, and a way to call."""

from pathlib import Path

import pytest

from tests.unit.cli.calls import BAD, LAMP, Caller


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Caller:
    """Runs a command line in this process."""
    return Caller(capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a good and a bad chart; no colour from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "INTERLOCK_STORE", "INTERLOCK_CHARTS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(BAD, encoding="utf-8")
    return tmp_path
