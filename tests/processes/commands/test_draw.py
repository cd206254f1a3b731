"""`interlock draw --watch` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.cli import BAD, LAMP
from tests.support.eventually import PATIENCE_SECONDS


def test_a_watched_file_is_drawn_again_when_it_changes(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "interlock", "draw", "lamp.yaml", "-o", "x.svg", "--watch"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        (folder / "lamp.yaml").write_text(BAD)
        findings = [process.stderr.readline()]
        while "error" not in findings[-1] or findings[-1].startswith("lamp.yaml:"):
            findings.append(process.stderr.readline())
        (folder / "lamp.yaml").write_text(LAMP.replace("bright", "shining"))
        printed = process.stderr.readline()
        while "wrote" not in printed:
            printed = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()

    assert ("wrote x.svg\n", "wrote x.svg\n", 130) == (first, printed, process.returncode)
    assert any("brihgt" in line for line in findings)
    assert "shining" in (folder / "x.svg").read_text(encoding="utf-8")
