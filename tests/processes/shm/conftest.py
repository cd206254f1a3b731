"""Every test of shared memory has its own directory for named regions, and ends the processes that it starts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.shm.memory.region import MemoryRegion
from tests.processes.shm.processes import Child, Work
from tests.processes.shm.queues import working_modes


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private directory for named regions."""
    directory = tmp_path / "regions"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("INTERLOCK_RUNTIME_DIR", str(directory))
    return directory


@pytest.fixture(params=working_modes())
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each mode that works on this machine."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    return str(request.param)


@pytest.fixture
def shared(mode: str) -> Iterator[MemoryRegion]:
    """A region without a name, in each mode."""
    with MemoryRegion.create(slots=4) as region:
        yield region


@pytest.fixture
def quick(runtime_directory: Path) -> Iterator[MemoryRegion]:  # where its name stands
    """A region with a name, in the fastest mode."""
    with MemoryRegion.create("tests", slots=4) as region:
        yield region


@pytest.fixture
def child() -> Iterator[Callable[[Work], Child]]:
    """Start forked children, and kill the remaining ones by their ids."""
    made: list[Child] = []

    def start(work: Work) -> Child:
        made.append(Child(work))
        return made[-1]

    yield start
    for each in made:
        each.end()
