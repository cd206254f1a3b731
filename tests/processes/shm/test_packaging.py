"""Wheels: with the C core where there is a compiler, honest about its absence where there is none."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
COMPILER = shutil.which(os.environ.get("CC", "cc"))
NO_COMPILER = {"CC": "no-such-compiler", "LDSHARED": "no-such-compiler -shared"}
BUILD = "import sys; from setuptools import build_meta; print('made', build_meta.build_{}(sys.argv[1]))"
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import interlock
from interlock.shm.lifecycle.gate import Gate
from interlock.shm.memory.region import MemoryRegion
assert interlock.__file__.startswith(sys.argv[1]), interlock.__file__
with MemoryRegion.create() as region:
    gate = Gate(region)
    gate.start()
    with gate.enter():
        pass
    print(region.mode)
"""
try:
    SETUPTOOLS = version("setuptools")
except PackageNotFoundError:
    SETUPTOOLS = "0"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        int(SETUPTOOLS.partition(".")[0]) < 80,
        reason=f"NEEDS setuptools 80 in this environment, it has {SETUPTOOLS}: make setup installs it",
    ),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what a build needs, with nothing built in it."""
    copy = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(tree: Path, what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds a wheel or an sdist as pip does, without a network."""
    command = [sys.executable, "-c", BUILD.format(what), str(tree / "dist")]
    (tree / "dist").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return subprocess.run(
        command,
        cwd=tree,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def made(result: subprocess.CompletedProcess[str]) -> str:
    """The name of what was built."""
    assert 0 == result.returncode, result.stderr
    return result.stdout.split("made ")[-1].strip()


def mode_of(wheel: Path, target: Path) -> str:
    """The mode in which an unpacked wheel works, in an interpreter of its own."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    command = [sys.executable, "-c", PROBE, str(target)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return subprocess.run(
        command, env=kept, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    ).stdout.strip()


@pytest.mark.skipif(COMPILER is None, reason="NO C COMPILER here: the wheel with the core is not built")
def test_a_wheel_with_a_compiler_has_the_core(tree: Path, tmp_path: Path) -> None:
    """One binary for 3.11 and later, and the name says so."""
    name = made(build(tree, "wheel", INTERLOCK_REQUIRE_NATIVE="1"))
    with zipfile.ZipFile(tree / "dist" / name) as archive:
        binaries = [each for each in archive.namelist() if each.endswith(".so")]

    assert "-cp311-abi3-" in name
    assert ["interlock/shm/_core.abi3.so"] == binaries
    assert "native" == mode_of(tree / "dist" / name, tmp_path / "unpacked")


def test_a_wheel_without_a_compiler_is_pure_and_says_so(tree: Path, tmp_path: Path) -> None:
    """No binary, not even one that an earlier build left; and the fallback works."""
    for stale in (tree / "build" / f"lib.linux-{os.uname().machine}-{sys.implementation.cache_tag}", tree / "src"):
        place = stale / "interlock" / "shm" / "_core.abi3.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"stale")
    name = made(build(tree, "wheel", **NO_COMPILER))
    with zipfile.ZipFile(tree / "dist" / name) as archive:
        binaries = [each for each in archive.namelist() if each.endswith(".so")]
        [told] = [archive.read(each).decode() for each in archive.namelist() if each.endswith(".dist-info/WHEEL")]

    assert name.endswith("-py3-none-any.whl")
    assert [] == binaries
    assert "Root-Is-Purelib: true" in told
    assert "flock" == mode_of(tree / "dist" / name, tmp_path / "unpacked")


def test_whoever_requires_the_core_gets_it_or_an_error(tree: Path) -> None:
    """A publisher's build does not fall back in silence."""
    result = build(tree, "wheel", INTERLOCK_REQUIRE_NATIVE="1", **NO_COMPILER)

    assert 0 != result.returncode
    assert [] == list((tree / "dist").iterdir())


def test_the_sdist_has_what_the_core_is_built_from(tree: Path) -> None:
    """Sources, headers and the script that builds them."""
    name = made(build(tree, "sdist"))
    with tarfile.open(tree / "dist" / name) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    sources = {f"src/interlock/shm/native/{path.name}" for path in (ROOT / "src/interlock/shm/native").iterdir()}

    assert sources | {"setup.py", "src/interlock/shm/_core.pyi"} <= names
