"""`journal --follow` and `tail --follow`: stored entries, then new ones, until interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS


def test_a_followed_journal_shows_entries_of_other_processes(call: Caller, folder: Path) -> None:
    call("create", "sqlite:///lamps.db", "lamp/1", "--chart", "lamp.yaml")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "interlock", "journal", "sqlite:///lamps.db", "lamp/1", "--follow", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        with interlock.open(
            f"sqlite:///{folder}/lamps.db", charts=[interlock.load(folder / "lamp.yaml")]
        ).blocking() as lamps:
            lamps.send("lamp/1", "press")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()

    assert ("_create", "press") == (first["event"]["name"], second["event"]["name"])
    assert (130, b"interrupted\n") == (process.returncode, said)


@pytest.mark.parametrize("store", ["sqlite:///lamps.db", "file:lamps"], ids=["sqlite", "files"])
def test_follow_shows_entries_of_others_until_interrupted(call: Caller, store: str, folder: Path) -> None:
    for name in ("lamp/1", "lamp/2"):
        call("create", store, name, "--chart", "lamp.yaml")
    call("send", store, "lamp/1", "press", "--chart", "lamp.yaml")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "interlock", "tail", store, "--follow", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        with interlock.open(
            _absolute(store, folder), charts=[interlock.load(folder / "lamp.yaml")]
        ).blocking() as lamps:
            lamps.send("lamp/2", "press")
        lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()

    assert [("lamp/2", "press")] == [
        (each["entity"], each["entry"]["event"]["name"]) for each in map(json.loads, lines[3:])
    ]
    assert (130, b"interrupted\n") == (process.returncode, said)


def _absolute(store: str, folder: Path) -> str:
    return store.replace("sqlite:///", f"sqlite:///{folder}/").replace("file:", f"file:{folder}/")
