"""The C headers of shared memory, compiled alone, under the sanitizers of the compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_SECONDS

HERE = Path(__file__).parent / "native"
HEADERS = Path(__file__).parents[2] / "src/interlock/shm/native"
COMPILER = shutil.which("gcc") or shutil.which("clang")
SANITIZERS = ("thread", "address,undefined")


@cache
def missing(sanitizer: str) -> str:
    """Return why this sanitizer cannot be used here; empty if it can."""
    if COMPILER is None:
        return "no C compiler"
    with tempfile.TemporaryDirectory() as folder:
        command = [COMPILER, f"-fsanitize={sanitizer}", "-x", "c", "-", "-o", str(Path(folder, "program"))]
        source = "int main(void) { return 0; }"
        compiled = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return "" if compiled.returncode == 0 else f"the compiler has no runtime for -fsanitize={sanitizer}"


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("harness", sorted(path.stem for path in HERE.glob("*.c")))
def test_a_harness_passes_under_a_sanitizer(harness: str, sanitizer: str, tmp_path: Path) -> None:
    """No data race, no invalid access, no undefined behaviour; and the checks of the harness hold."""
    reason = missing(sanitizer)
    if reason:
        pytest.skip(f"SKIPPED: {reason}; the C headers are NOT checked by it here")
    assert COMPILER is not None
    program = tmp_path / harness
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{HEADERS}"]
    sanitizing = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    source = str(HERE / f"{harness}.c")
    subprocess.run([COMPILER, *flags, *sanitizing, source, "-o", str(program)], check=True, timeout=PATIENCE_SECONDS)
    ended = subprocess.run([program], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)

    assert (0, "ok") == (ended.returncode, ended.stdout[:2]), ended.stderr


def test_every_header_has_a_harness() -> None:
    harnesses = "".join(path.read_text() for path in HERE.glob("*.c"))

    assert [] == [
        path.name for path in HEADERS.glob("*.h") if path.name != "extension.h" and path.name not in harnesses
    ]
