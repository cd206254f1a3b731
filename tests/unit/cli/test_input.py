"""Files are read with clear refusals, and written whole or not at all."""

import io
import os
from pathlib import Path

import pytest

from interlock.cli.input import read_source, write_text
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX


def test_a_source_knows_its_format_by_its_suffix(folder: Path) -> None:
    source = read_source("lamp.yaml")

    assert ("lamp.yaml", "yaml", Path("lamp.yaml")) == (source.name, source.format, source.path)
    assert "kind: lamp" in source.lines()


def test_a_named_format_outranks_the_suffix(folder: Path) -> None:
    assert "smcat" == read_source("lamp.yaml", "smcat").format


def test_stdin_is_read_as_the_named_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))

    source = read_source("-", "yaml")

    assert ("<stdin>", b"a: 1", None) == (source.name, source.data, source.path)


@pytest.mark.parametrize(
    ("name", "format", "code"),
    [
        ("-", None, "format.unknown"),
        (".", None, "file.directory"),
        ("lmap.yaml", None, "file.unknown"),
        ("none/lamp.yaml", None, "file.unknown"),
        ("notes.txt", None, "format.unknown"),
        ("lamp.yaml", "yml", "format.unknown"),
    ],
)
def test_an_unreadable_definition_is_refused(folder: Path, name: str, format: str | None, code: str) -> None:
    (folder / "notes.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(InterlockError) as found:
        read_source(name, format)

    assert code == found.value.code


def test_a_missing_file_suggests_its_neighbour_or_its_missing_folder(folder: Path) -> None:
    with pytest.raises(NotFoundError) as near:
        read_source("lmap.yaml")
    with pytest.raises(NotFoundError) as nowhere:
        read_source("none/lamp.yaml")
    with pytest.raises(NotFoundError) as nothing:
        read_source("zzzzzzzz.smcat")

    assert 'did you mean "lamp.yaml"?' == near.value.hint
    assert nowhere.value.hint is not None
    assert nothing.value.hint is None


def test_no_more_is_read_than_a_definition_may_have(folder: Path) -> None:
    (folder / "huge.yaml").write_bytes(b"#" * (DEFINITION_STORED_BYTES_MAX * 2))

    assert DEFINITION_STORED_BYTES_MAX + 1 == len(read_source("huge.yaml").data)


def test_writing_replaces_the_whole_file_and_keeps_its_mode(folder: Path) -> None:
    path = folder / "out.txt"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)

    write_text(path, "new\n")

    assert ("new\n", 0o640) == (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777)
    assert {"bad.yaml", "lamp.yaml", "out.txt"} == {each.name for each in folder.iterdir()}


def test_a_new_file_has_the_usual_mode(folder: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_text(folder / "out.txt", "new")
    finally:
        os.umask(mask)

    assert 0o640 == (folder / "out.txt").stat().st_mode & 0o777


def test_a_link_keeps_pointing_to_the_file_that_changes(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "real.txt")
    (folder / "real.txt").write_text("old", encoding="utf-8")

    write_text(folder / "link.txt", "new")

    assert (folder / "link.txt").is_symlink()
    assert "new" == (folder / "real.txt").read_text(encoding="utf-8")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "out.txt"
    path.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")

    assert "old" == path.read_text(encoding="utf-8")
    assert {"bad.yaml", "lamp.yaml", "out.txt"} == {each.name for each in folder.iterdir()}


def test_a_directory_or_a_missing_folder_is_no_place_to_write(folder: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        write_text(folder, "x")
    with pytest.raises(NotFoundError):
        write_text(folder / "none" / "x", "x")


def test_a_pipe_or_device_is_written_to_and_not_replaced(folder: Path) -> None:
    path = folder / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(path, "text")
        received = os.read(reader, 10)
    finally:
        os.close(reader)

    assert b"text" == received
    assert not path.is_file()
