"""Runs the command as a user does, with limits of time and memory.

Rule: the kernel ends a run after a minute of CPU time; this is for hangs, not an assertion of speed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BOUNDED = Path(__file__).with_name("bounded.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of a process: its exit code (negative: a signal) and its output."""

    code: int
    out: str
    err: str


def interlock(
    *arguments: str | Path, folder: Path, humble: bool = False, file_bytes_max: int = resource.RLIM_INFINITY
) -> Ended:
    """Run `interlock` in a folder.

    `humble`: permissions apply, even for root. `file_bytes_max`: as on a disk that fills up.
    """
    bounds = [str(file_bytes_max), "humble" if humble else "usual"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, str(BOUNDED), *bounds, *map(str, arguments)],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        process.wait()
        out.seek(0)
        err.seek(0)
        return Ended(
            code=process.returncode,
            out=out.read().decode("utf-8", "surrogateescape"),
            err=err.read().decode("utf-8", "surrogateescape"),
        )


def _environment() -> dict[str, str]:
    """Return our environment without colour, and without coverage, which would write files beyond the limits."""
    apart = ("NO_COLOR", "FORCE_COLOR", "COVERAGE")
    return {name: text for name, text in os.environ.items() if not name.startswith(apart)}
