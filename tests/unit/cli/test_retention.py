"""`interlock prune` and `compact`: what a user types, and what they see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Caller

STORE = "sqlite:///lamps.db"
CHART = """
interlock: 1
kind: lamp
states:
  dark: {on: {press: bright, broken: broken}}
  bright: {on: {press: dark}}
  broken: {type: final}
"""


@pytest.fixture
def lamps(folder: Path, call: Caller) -> Caller:
    (folder / "lamps.yaml").write_text(CHART, encoding="utf-8")
    for words in (["create", STORE, "lamp/1"], ["send", STORE, "lamp/1", "broken"], ["create", STORE, "lamp/2"]):
        assert call(*words, "--chart", "lamps.yaml").code == 0
    return call


def test_a_dry_run_changes_nothing_and_a_run_removes(lamps: Caller) -> None:
    words = ("prune", STORE, "--kind", "lamp", "--older", "0ms", "--chart", "lamps.yaml", "--json")
    preview = lamps(*words, "--dry-run")
    assert (preview.code, json.loads(preview.out)["done"]) == (0, "would_prune")
    assert lamps("show", STORE, "lamp/1").code == 0

    found = lamps(*words, "--reason", "too old")
    assert (found.code, json.loads(found.out)["done"]) == (0, "pruned")
    assert lamps("show", STORE, "lamp/1").code == 6
    assert lamps("show", STORE, "lamp/2").code == 0
    again = lamps(*words)
    assert (again.code, again.out) == (0, "")


def test_a_store_without_a_retention_names_the_fix(lamps: Caller) -> None:
    for command in ("prune", "compact"):
        found = lamps(command, STORE, "--chart", "lamps.yaml")
        assert found.code == 2
        assert "retention: {ended: 90d}" in found.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("prune", "--older", "1d"), "--older needs --kind"),
        (("compact", "--kind", "lamp", "--older", "1d"), "30d at least"),
        (("prune", "--kind", "lamb", "--older", "1d"), "unknown kind"),
        (("prune", "--kind", "lamp", "--older", "1d", "--to", "s3://bucket"), "file:///var/archive"),
        (("prune", "--kind", "lamp", "--older", "1d", "--rate", "0"), "such as 500"),
    ],
)
def test_a_mistake_removes_nothing_and_names_the_fix(lamps: Caller, words: tuple[str, ...], text: str) -> None:
    found = lamps(words[0], STORE, *words[1:], "--chart", "lamps.yaml")
    assert found.code != 0
    assert text in found.err
    assert lamps("show", STORE, "lamp/1").code == 0


def test_a_journal_goes_to_the_archive_before_it_is_removed(lamps: Caller, folder: Path) -> None:
    address = (folder / "archive").as_uri()
    words = ("prune", STORE, "--kind", "lamp", "--older", "0ms", "--to", address, "--chart", "lamps.yaml")
    assert lamps(*words).code == 0
    (month,) = (folder / "archive").iterdir()
    assert len(lamps("journal", f"file:{month}", "lamp/1").out.splitlines()) == 2
    assert "interlock journal file:" in lamps("show", STORE, "lamp/1").err
