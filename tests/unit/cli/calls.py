"""Runs command lines in this process and keeps what they print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from interlock.cli.main import main

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
    """How a command line ended."""

    code: int
    out: str
    err: str


class Caller:
    """Runs command lines; made by the fixture `call`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ended:
        """Run one command line."""
        self._capsys.readouterr()
        code = main([str(each) for each in arguments])
        captured = self._capsys.readouterr()
        return Ended(code=code, out=captured.out, err=captured.err)
