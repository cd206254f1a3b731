"""Commands on a terminal: screens that are redrawn, progress, and completion of a shell."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS

STORE = "sqlite:///lamps.db"
CHARTED = ("--chart", "lamp.yaml")


@pytest.fixture
def lamps(call: Caller, folder: Path) -> Path:
    """A folder with a store of three lamps."""
    for number in (1, 2, 3):
        assert 0 == call("create", STORE, f"lamp/{number}", *CHARTED).code
    return folder


def test_a_shell_completes_commands() -> None:
    asked = {**os.environ, "_INTERLOCK_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    found = set()
    for letters in ("d", "n", "s", "t"):
        command = [sys.executable, "-m", "interlock"]
        ended = subprocess.run(
            command, env={**asked, "COMP_WORDS": f"interlock {letters}"}, capture_output=True, text=True, check=False
        )
        found |= {line.removeprefix("plain,") for line in ended.stdout.splitlines()}

    assert {"demo", "doctor", "new", "stuck", "top"} <= found


def test_the_screen_is_redrawn_until_interrupted(lamps: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "interlock", "top", STORE, *CHARTED, "--interval", "200ms"],
        stdout=slave,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        screen = drawn(master, process, twice="3 entities")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        screen += drawn(master, process)
    finally:
        process.kill()
        process.communicate()
        os.close(slave)
        os.close(master)

    assert (130, b"interrupted\n") == (process.returncode, said)
    assert "\x1b[?1049h" in screen
    assert screen.count("\x1b[?1049l") == 1


def drawn(master: int, process: subprocess.Popen[bytes], twice: str | None = None) -> str:
    """Read what was drawn, until a text was drawn twice, or all of it."""
    found = b""
    while twice is None or found.decode(errors="replace").count(twice) < 2:
        wait = 0.2 if twice is None else PATIENCE_SECONDS
        if not select.select([master], [], [], wait)[0]:
            break
        found += os.read(master, 65_536)
    return found.decode(errors="replace")


def test_progress_is_shown_on_a_terminal(lamps: Path) -> None:
    words = ["verify", STORE, *CHARTED]
    starter = (
        "import interlock.cli.output.progress as progress; progress.REDRAW_SECONDS = 0; "
        f"from interlock.cli.main import main; main({words!r})"
    )
    master, slave = pty.openpty()
    plain = {**os.environ, "NO_COLOR": "1"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", starter], cwd=lamps, stdout=subprocess.PIPE, stderr=slave, env=plain
        )
        process.communicate()
        printed = os.read(master, 65_536).decode()
    finally:
        os.close(slave)
        os.close(master)

    assert "  33%  1 of 3 entities  0 corrupt" in printed
    assert printed.endswith("3 of 3 entities  0 corrupt\r\x1b[K")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_our_variable(shell: str, call: Caller) -> None:
    assert "_INTERLOCK_COMPLETE" in call("completion", shell).out
