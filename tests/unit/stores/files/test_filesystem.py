"""The real and the simulated file system behave alike where the file store relies on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.stores.files.filesystem import FileSystem, OperatingSystem
from tests.crash.simulated.file_system import Simulated, World


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, int]]:
    """A file system, and an open directory in it."""
    fs: FileSystem = OperatingSystem() if request.param == "real" else Simulated(World())
    at = os.open(tmp_path, os.O_RDONLY) if request.param == "real" else fs.parent("store")[0]
    yield fs, at
    fs.close(at)


def content(fs: FileSystem, at: int, name: str) -> bytes:
    """What another reader gets."""
    file = fs.open_file(at, name)
    try:
        return fs.read(file, 0, 100)
    finally:
        fs.close(file)


@pytest.mark.parametrize("opening", ["create", "open_append"])
def test_a_write_after_a_truncation_is_at_the_end(place: tuple[FileSystem, int], opening: str) -> None:
    """The next write starts at the new end of the file, not after a hole."""
    fs, at = place
    file = getattr(fs, opening)(at, "log")
    fs.write(file, b"kept,")
    fs.write(file, b"half of a ba")
    fs.truncate(file, 5)
    fs.write(file, b"next")
    fs.close(file)

    assert b"kept,next" == content(fs, at, "log")


def test_a_write_at_an_offset_leaves_the_other_bytes(place: tuple[FileSystem, int]) -> None:
    """Lines overwrite blanks; the bytes after them stay."""
    fs, at = place
    file = fs.open_update(at, "log")
    fs.write_at(file, 0, b"one......")
    fs.write_at(file, 3, b"two")
    size = fs.size(file)
    fs.close(file)

    assert (b"onetwo...", 9) == (content(fs, at, "log"), size)


def test_an_existing_name_is_not_created_again(place: tuple[FileSystem, int]) -> None:
    """The second caller gets an error, and the first one's bytes stay."""
    fs, at = place
    file = fs.create(at, "log")
    fs.write(file, b"first")
    fs.close(file)
    with pytest.raises(FileExistsError):
        fs.create(at, "log")

    assert b"first" == content(fs, at, "log")
