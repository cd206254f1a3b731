"""A file store in a folder that others may write to: planted pipes, links, directories and huge files.

Each command ends with a documented exit code, in bounded memory, and does not wait for a pipe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import interlock
from tests.hostile.processes import interlock as command

CHART = "interlock: 1\nkind: lamp\nstates: {a: {on: {go: b}}, b: {on: {go: a}}}\n"
OK, FINDINGS, USAGE, UNAVAILABLE, CORRUPT = 0, 1, 2, 7, 8
HUGE = 3 * 2**30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a chart, and a file store with two entities."""
    (tmp_path / "lamp.yaml").write_text(CHART, encoding="utf-8")
    with interlock.open(f"file:{tmp_path}/st", charts=[interlock.loads(CHART)]).blocking() as runtime:
        runtime.create("lamp/1")
        runtime.send("lamp/1", "go")
        runtime.create("lamp/2")
    return tmp_path


def pipe(path: Path) -> None:
    """A named pipe: who opens it to read waits for a writer."""
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    """A link to a file of another user."""
    path.unlink()
    path.symlink_to("/etc/passwd")


def directory(path: Path) -> None:
    """A directory in the place of the file."""
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    """The same file with three gigabytes of zeros after it. They take no space on the disk."""
    os.truncate(path, HUGE)


PLANTED = (pipe, link, directory, huge)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.log", "state.json", "format.json"])
@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__)
def test_a_planted_file_is_an_error_and_not_a_hang(name: str, plant: Callable[[Path], None], folder: Path) -> None:
    found = next(each for each in folder.rglob(name) if "lamp.2" not in str(each))
    plant(found)

    for words in (("show", "file:st", "lamp/1"), ("send", "file:st", "lamp/1", "go"), ("verify", "file:st")):
        ended = command(*words, "--chart", "lamp.yaml", folder=folder)
        assert ended.code in (OK, USAGE, UNAVAILABLE, CORRUPT), (words, ended.code, ended.err)
        assert ended.code != OK or (name, plant) == ("state.json", huge), words  # a cache; its journal has everything
        assert "root:" not in ended.out + ended.err


@pytest.mark.slow
def test_other_entities_are_not_affected(folder: Path) -> None:
    pipe(next(each for each in folder.rglob("events.log") if "lamp.2" not in str(each)))

    assert OK == command("send", "file:st", "lamp/2", "go", "--chart", "lamp.yaml", folder=folder).code
    listed = command("ls", "file:st", folder=folder)
    assert FINDINGS == listed.code  # the unreadable one is named
    assert "lamp/2" in listed.out


SMALL_FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "project": ("interlock.toml", ("ls",)),
    "keys": ("keys.toml", ("serve", "file:st", "--key-file", "keys.toml", "--port", "0")),
    "mapping": ("map.yaml", ("migrate", "plan", "file:st", "--to", "lamp.yaml", "--mapping", "map.yaml")),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SMALL_FILES)
@pytest.mark.parametrize("content", ["huge", "not text"])
def test_a_small_text_file_has_a_limit_and_is_text(what: str, content: str, folder: Path) -> None:
    name, words = SMALL_FILES[what]
    (folder / name).write_bytes(b"\xff\xfe\x00")
    (folder / name).chmod(0o600)
    if content == "huge":
        huge(folder / name)

    ended = command(*words, folder=folder)

    assert USAGE == ended.code, ended.err
    assert name in ended.err
    assert ended.err.startswith("error: ")
