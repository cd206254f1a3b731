"""Paths that are not files, and places that cannot be written: a documented exit code, one line, and no change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.processes import Ended
from tests.hostile.processes import interlock as command

GOOD = """\
interlock: 1
kind: lamp
states:
  dark: {on: {press: bright}, expect: {within: forever}}
  bright: {on: {press: dark}, after: {10m: dark}}
"""
OK, FINDINGS, USAGE, NOT_FOUND, UNAVAILABLE = 0, 1, 2, 6, 7


def _link(folder: Path) -> str:
    (folder / "link.yaml").symlink_to("good.yaml")
    return "link.yaml"


def _dangling(folder: Path) -> str:
    (folder / "dangling.yaml").symlink_to("nowhere.yaml")
    return "dangling.yaml"


def _circle(folder: Path) -> str:
    (folder / "one.yaml").symlink_to("two.yaml")
    (folder / "two.yaml").symlink_to("one.yaml")
    return "one.yaml"


def _directory(folder: Path) -> str:
    (folder / "folder.yaml").mkdir()
    return "folder.yaml"


INPUTS: dict[str, tuple[Callable[[Path], str], int, str]] = {
    "a link to a definition": (_link, OK, "no findings"),
    "a link to nothing": (_dangling, NOT_FOUND, "file not found"),
    "links in a circle": (_circle, UNAVAILABLE, "one.yaml"),
    "a directory": (_directory, USAGE, "is a directory"),
    "an endless device": (lambda folder: "/dev/zero", FINDINGS, "yaml.size"),
    "an empty device": (lambda folder: "/dev/null", FINDINGS, "yaml.empty"),
    "a name that is too long": (lambda folder: "a" * 300 + ".yaml", USAGE, "too long"),
    "a name with a line break and an escape": (lambda folder: "no\n\x1b[31m.yaml", NOT_FOUND, "file not found"),
    "a file where a folder should be": (lambda folder: "good.yaml/x.yaml", USAGE, "good.yaml"),
    "an unknown option": (lambda folder: "--frmo", USAGE, "--frmo"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one definition in it."""
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def refused(ended: Ended) -> bool:
    """Whether stderr is one error line, perhaps with one hint line."""
    error, *hints = ended.err.splitlines()
    return error.startswith("error: ") and len(hints) <= 1 and all(each.startswith("hint: ") for each in hints)


@pytest.mark.slow
@pytest.mark.parametrize("how", INPUTS)
def test_what_is_no_definition_is_told(how: str, folder: Path) -> None:
    make, code, words = INPUTS[how]

    ended = command("check", "--from", "yaml", make(folder), folder=folder)

    assert code == ended.code, ended.err
    assert words in ended.out + ended.err
    assert code in (OK, FINDINGS) or refused(ended)
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.slow
def test_a_pipe_that_never_ends_costs_no_more_than_a_definition(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    ours = os.open(folder / "pipe.yaml", os.O_RDWR)  # both ends, so that no open waits for the other
    with subprocess.Popen(["yes", "#"], stdout=ours) as feeder:
        ended = command("check", "--json", "pipe.yaml", folder=folder)
        feeder.kill()
    os.close(ours)

    assert FINDINGS == ended.code
    assert '"yaml.size"' in ended.out


@pytest.mark.slow
def test_a_file_that_may_not_be_read_is_told(folder: Path) -> None:
    """With its name, and as a wrong call: another file, or another user, is the cure."""
    (folder / "good.yaml").chmod(0)

    ended = command("check", "good.yaml", folder=folder, humble=True)

    assert USAGE == ended.code, ended.err
    assert "error: good.yaml: Permission denied\n" == ended.err


@pytest.mark.slow
def test_a_folder_that_may_not_be_written_to_is_told(folder: Path) -> None:
    folder.chmod(0o555)

    ended = command("-q", "convert", "good.yaml", "--to", "scxml", "-o", "out.scxml", folder=folder, humble=True)

    folder.chmod(0o755)
    assert USAGE == ended.code, ended.err
    assert "error: out.scxml: Permission denied\n" == ended.err
    assert ["good.yaml"] == [each.name for each in folder.iterdir()]


OUTPUTS: dict[str, tuple[str, int, str]] = {
    "a missing folder": ("none/out.scxml", NOT_FOUND, "does not exist"),
    "a directory": (".", USAGE, "is a directory"),
    "a full disk": ("/dev/full", UNAVAILABLE, "No space left"),
    "a file below a file": ("good.yaml/out.scxml", NOT_FOUND, "good.yaml"),
    "a name that is too long": ("b" * 300 + ".scxml", USAGE, "too long"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", OUTPUTS)
def test_what_cannot_be_written_is_told(how: str, folder: Path) -> None:
    output, code, words = OUTPUTS[how]

    ended = command("-q", "convert", "good.yaml", "--to", "scxml", "-o", output, folder=folder)

    assert code == ended.code, ended.err
    assert refused(ended), ended.err
    assert words in ended.err
    assert ["good.yaml"] == [each.name for each in folder.iterdir()]
    assert GOOD == (folder / "good.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_the_old_file(folder: Path) -> None:
    (folder / "big.yaml").write_text(
        "interlock: 1\nkind: big\nstates:\n"
        + "".join(f"  s{n}: {{on: {{go: s{n + 1}}}}}\n" for n in range(999))
        + "  s999: {type: final}\n",
        encoding="utf-8",
    )
    (folder / "out.scxml").write_text("old", encoding="utf-8")

    ended = command(
        "-q", "convert", "big.yaml", "--to", "scxml", "-o", "out.scxml", folder=folder, file_bytes_max=4_096
    )

    assert UNAVAILABLE == ended.code, ended.err
    assert refused(ended), ended.err
    assert "old" == (folder / "out.scxml").read_text(encoding="utf-8")
    assert {"big.yaml", "good.yaml", "out.scxml"} == {each.name for each in folder.iterdir()}
