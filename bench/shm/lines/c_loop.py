"""The limit of enter and exit: `pair.c`, compiled from the package's own `core.h` with the flags of its build."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.measure import ROOT, PeerUnavailableError
from bench.shm.line import Answer, Line

SOURCE = Path(__file__).with_name("pair.c")
HEADERS = ROOT / "src/interlock/shm/native"
FLAGS = ("-std=c11", "-O2", "-g0", "-Wall", "-Wextra")
SECONDS_MAX = 60


def compiled(folder: Path) -> tuple[Path, str]:
    """The program, and the version of the compiler that made it. Raises PeerUnavailableError without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise PeerUnavailableError("no C compiler here")
    program = folder / "pair"
    command = [compiler, *FLAGS, f"-I{HEADERS}", str(SOURCE), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["the compiler failed without a word"]
        raise PeerUnavailableError(words[-1])
    version = subprocess.run(
        [compiler, "-dumpfullversion"], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    return program, version.stdout.strip()


def _line(what: str) -> Line:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    program, version = compiled(Path(folder.name))

    def pair(count: int) -> Answer:
        done = subprocess.run(
            [program, what, str(count)], capture_output=True, text=True, check=True, timeout=SECONDS_MAX
        )
        return {"value": float(done.stdout)}

    return Line(name=f"C loop, {'gate' if what == 'gate' else 'lifecycle'}", version=version, drives={"pair": pair})


LINES = {"gate": lambda: _line("gate"), "life": lambda: _line("life")}
