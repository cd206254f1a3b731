"""`interlock diff` with git, drawings and files; its output for people is in the scenarios."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import LAMP, Caller

NEWER = LAMP.replace("10m", "5m")


@pytest.fixture
def repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as a repository with one commit; the chart is changed since, and a copy is in a folder below."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (folder / "charts").mkdir()
    (folder / "charts" / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    git("init", "-q", "-b", "trunk")
    git("add", ".")
    git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "one")
    (folder / "lamp.yaml").write_text(NEWER, encoding="utf-8")
    return folder


def git(*arguments: str) -> None:
    """Run git in the current folder."""
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def test_a_revision_of_git_is_compared_with_a_file(repository: Path, call: Caller) -> None:
    ended = call("diff", "HEAD:lamp.yaml", "lamp.yaml", "-q", "--fail-on", "care")

    assert (10, "") == (ended.code, ended.err)
    assert "timer.delay" in ended.out
    assert 0 == call("diff", "trunk:lamp.yaml", "HEAD:charts/lamp.yaml", "--fail-on", "care").code


def test_a_path_starts_at_the_top_or_with_a_dot_here(
    repository: Path, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "charts")

    assert 0 == call("diff", "HEAD:lamp.yaml", "HEAD:./lamp.yaml").code
    assert "./lamp.yaml" in call("diff", "HEAD:none/lamp.yaml", "lamp.yaml").err.replace("none/", "")


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("nowhere:lamp.yaml", 6, "unknown git revision"),
        ("HEAD~7:lamp.yaml", 6, "unknown git revision"),
        ("HEAD:none.yaml", 6, "no file"),
        ("HEAD:charts", 6, "no file"),
        ("HEAD:bad.yaml", 1, "unknown state"),
        (":lamp.yaml", 6, "file not found"),
    ],
)
def test_what_git_does_not_have_is_an_error(repository: Path, call: Caller, name: str, code: int, text: str) -> None:
    ended = call("diff", name, "lamp.yaml")

    assert code == ended.code
    assert text in ended.err


def test_a_revision_cannot_be_an_option_of_git(repository: Path, call: Caller) -> None:
    ended = call("diff", "--", "--output=x:lamp.yaml", "lamp.yaml")

    assert (2, True) == (ended.code, "invalid revision" in ended.err)
    assert not (repository / "x").exists()


STORE = "sqlite:///lamps.db"


@pytest.fixture
def lamps(folder: Path, call: Caller) -> str:
    """A store with a lamp that is bright, and a newer chart without that state, which is in the file `newer.yaml`."""
    assert 0 == call("create", STORE, "lamp/1", "--chart", "lamp.yaml").code
    assert 0 == call("send", STORE, "lamp/1", "press", "--chart", "lamp.yaml").code
    (folder / "newer.yaml").write_text(REMOVED, encoding="utf-8")
    return STORE


REMOVED = """
interlock: 1
kind: lamp
revision: 2.0.0
removed: {states: {bright: 2020-01-01}, events: {press: 2999-01-01}}
states: {dark: {}}
"""


def test_a_store_adds_who_is_concerned(lamps: str, call: Caller) -> None:
    ended = call("diff", "lamp@", "newer.yaml", "--store", lamps, "--json")
    found = json.loads(ended.out)
    removed = next(each for each in found["changes"] if each["code"] == "state.removed")

    assert 11 == ended.code
    assert (1, True) == (removed["store"]["entities"], removed["store"]["in_use"])
    assert (1, 1) == (found["store"]["living"], found["store"]["others"])
    assert {"bright": "used", "press": "used"} == {
        each["name"]: each["verdict"] for each in found["store"]["tombstones"]
    }


def test_the_evidence_is_in_every_form(lamps: str, call: Caller, folder: Path) -> None:
    text, markdown = (
        call("diff", "lamp.yaml", "newer.yaml", "--store", lamps, *each).out for each in ([], ["--format", "markdown"])
    )
    assert 11 == call("diff", "lamp.yaml", "newer.yaml", "--store", lamps, "-o", "d.svg").code
    plain = call("diff", "lamp.yaml", "newer.yaml").out

    assert all("1 living entity is in it" in each and "still in use" in each for each in (text, markdown))
    assert "living" not in plain
    assert ">1</text></g>" in (folder / "d.svg").read_text(encoding="utf-8")


def test_only_what_is_in_use_can_fail(lamps: str, call: Caller) -> None:
    live = ("diff", "lamp.yaml", "newer.yaml", "--store", lamps, "--fail-on", "live")
    used = call(*live).code
    call("send", lamps, "lamp/1", "press", "--chart", "lamp.yaml")

    assert (11, 11) == (used, call(*live).code)
    assert 0 == call("diff", "lamp.yaml", "lamp.yaml", "--store", lamps, "--fail-on", "live").code


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("lamp@1", "lamp.yaml"), 6, "needs its store"),
        (("lamp@9", "lamp.yaml", "--store", STORE), 6, "its revisions are"),
        (("fan@", "lamp.yaml", "--store", STORE), 6, "db definitions list"),
        (("lamp.yaml", "lamp.yaml", "--store", "sqlite:///none.db"), 6, "store not found"),
        (("lamp.yaml", "lamp.yaml", "--fail-on", "live"), 2, "need --store"),
        (("lamp.yaml", "lamp.yaml", "--seen-within", "3d"), 2, "need --store"),
        (("lamp.yaml", "lamp.yaml", "--store", STORE, "--seen-within", "soon"), 2, "soon"),
    ],
)
def test_wrong_calls_with_a_store(lamps: str, call: Caller, words: tuple[str, ...], code: int, text: str) -> None:
    ended = call("diff", *words)

    assert (code, True) == (ended.code, text in ended.err), ended.err


def test_without_git_a_revision_is_refused(folder: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    ended = call("diff", "HEAD:lamp.yaml", "lamp.yaml")

    assert (6, True) == (ended.code, "git is not installed" in ended.err)


def test_a_format_that_the_name_does_not_show_is_given(repository: Path, call: Caller) -> None:
    (repository / "lamp.txt").write_text(LAMP, encoding="utf-8")
    git("add", "lamp.txt")
    git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "two")

    assert 2 == call("diff", "HEAD:lamp.txt", "lamp.yaml").code
    assert 0 == call("diff", "HEAD:lamp.txt", "lamp.yaml", "--from", "yaml").code


def test_an_existing_file_with_a_colon_is_that_file(folder: Path, call: Caller) -> None:
    (folder / "HEAD:lamp.yaml").write_text(LAMP, encoding="utf-8")

    assert 0 == call("diff", "HEAD:lamp.yaml", "lamp.yaml").code


def test_the_drawing_marks_what_differs(folder: Path, call: Caller) -> None:
    """A declared rename is drawn as one state."""
    (folder / "newer.yaml").write_text(f"renamed: {{bright: lit}}\n{NEWER.replace('bright', 'lit')}", encoding="utf-8")
    ended = call("diff", "lamp.yaml", "newer.yaml", "-o", "diff.svg")

    assert 0 == ended.code
    drawn = (folder / "diff.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "after 5m" in drawn
    assert "after 10m" in drawn
    assert drawn == call("diff", "-q", "lamp.yaml", "newer.yaml", "--format", "svg").out


def test_a_report_is_written_to_a_file_by_its_suffix(folder: Path, call: Caller) -> None:
    (folder / "newer.yaml").write_text(NEWER, encoding="utf-8")
    for name, start in (("diff.md", "### `lamp`: with care"), ("diff.txt", "with care")):
        assert 0 == call("diff", "lamp.yaml", "newer.yaml", "-o", name).code
        assert (folder / name).read_text(encoding="utf-8").startswith(start)
