"""Wheels: with the C core where there is a compiler, pure Python otherwise, and named accordingly."""

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
BUILD = "import sys; from setuptools import build_meta; print('built_name', build_meta.build_{}(sys.argv[1]))"
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
def source_tree(tmp_path: Path) -> Path:
    """A copy of the sources of a build, without build results."""
    copy = tmp_path / "source_tree"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(source_tree: Path, what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel or an sdist as pip does, without a network."""
    command = [sys.executable, "-c", BUILD.format(what), str(source_tree / "dist")]
    (source_tree / "dist").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return subprocess.run(
        command,
        cwd=source_tree,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def built_name(result: subprocess.CompletedProcess[str]) -> str:
    """Return the name of the built file."""
    assert 0 == result.returncode, result.stderr
    return result.stdout.split("built_name ")[-1].strip()


def mode_of(wheel: Path, target: Path) -> str:
    """Return the mode in which an unpacked wheel works, in a new interpreter."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    command = [sys.executable, "-c", PROBE, str(target)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return subprocess.run(
        command, env=kept, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    ).stdout.strip()


@pytest.mark.skipif(COMPILER is None, reason="NO C COMPILER here: the wheel with the core is not built")
def test_a_wheel_with_a_compiler_has_the_core(source_tree: Path, tmp_path: Path) -> None:
    """One binary for 3.11 and later, with that tag."""
    name = built_name(build(source_tree, "wheel", INTERLOCK_REQUIRE_NATIVE="1"))
    with zipfile.ZipFile(source_tree / "dist" / name) as archive:
        binaries = [each for each in archive.namelist() if each.endswith(".so")]

    assert "-cp311-abi3-" in name
    assert ["interlock/shm/_core.abi3.so"] == binaries
    assert "native" == mode_of(source_tree / "dist" / name, tmp_path / "unpacked")


def test_a_wheel_without_a_compiler_is_tagged_as_pure(source_tree: Path, tmp_path: Path) -> None:
    """It contains no binary, not even one of an earlier build, and the fallback works."""
    for stale in (
        source_tree / "build" / f"lib.linux-{os.uname().machine}-{sys.implementation.cache_tag}",
        source_tree / "src",
    ):
        place = stale / "interlock" / "shm" / "_core.abi3.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"stale")
    name = built_name(build(source_tree, "wheel", **NO_COMPILER))
    with zipfile.ZipFile(source_tree / "dist" / name) as archive:
        binaries = [each for each in archive.namelist() if each.endswith(".so")]
        [metadata] = [archive.read(each).decode() for each in archive.namelist() if each.endswith(".dist-info/WHEEL")]

    assert name.endswith("-py3-none-any.whl")
    assert [] == binaries
    assert "Root-Is-Purelib: true" in metadata
    assert "flock" == mode_of(source_tree / "dist" / name, tmp_path / "unpacked")


def test_a_build_that_requires_the_core_fails_without_it(source_tree: Path) -> None:
    result = build(source_tree, "wheel", INTERLOCK_REQUIRE_NATIVE="1", **NO_COMPILER)

    assert 0 != result.returncode
    assert [] == list((source_tree / "dist").iterdir())


def test_the_sdist_contains_the_sources_of_the_core(source_tree: Path) -> None:
    name = built_name(build(source_tree, "sdist"))
    with tarfile.open(source_tree / "dist" / name) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    sources = {f"src/interlock/shm/native/{path.name}" for path in (ROOT / "src/interlock/shm/native").iterdir()}

    assert sources | {"setup.py", "src/interlock/shm/_core.pyi"} <= names
