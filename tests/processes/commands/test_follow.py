"""`journal --follow`: what is there, then what comes, until interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import interlock
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.cli.calls import Caller


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
        with interlock.open(f"sqlite:///{folder}/lamps.db", charts=[interlock.load(folder / "lamp.yaml")]) as lamps:
            lamps.send("lamp/1", "press")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()

    assert ("_create", "press") == (first["event"]["name"], second["event"]["name"])
    assert (130, b"interrupted\n") == (process.returncode, said)
