"""Reading a store without a file: commands that need no `--chart`, and `interlock db definitions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import LAMP, Caller
from tests.support.old_stores import forget_definitions

OLD = LAMP.replace("kind: lamp", "kind: lamp\nrevision: 1.0.0")
NEW = OLD.replace("1.0.0", "2.0.0").replace("press: bright", "press: bright, kick: bright")
STORES = {"files": "file:lamps", "sqlite": "sqlite:///lamps.db"}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, call: Caller, folder: Path) -> str:
    """A store with a lamp of each of two revisions, in a folder without charts."""
    url = STORES[request.param]
    for name, text in (("1", OLD), ("2", NEW)):
        (folder / "chart.yaml").write_text(text)
        assert 0 == call("create", url, f"lamp/{name}", "--chart", "chart.yaml").code
    assert 0 == call("send", url, "lamp/1", "press", "--chart", "chart.yaml").code
    for each in folder.glob("*.yaml"):
        each.unlink()
    return url


@pytest.mark.parametrize("command", ["show", "journal", "replay", "verify", "can"])
def test_an_entity_is_read_without_a_chart(call: Caller, store: str, command: str) -> None:
    ended = call(command, store, "lamp/1")

    assert 0 == ended.code, ended.err
    assert "" != ended.out


def test_each_entity_is_shown_in_its_own_revision(call: Caller, store: str) -> None:
    one, two = (call("show", store, f"lamp/{number}").out for number in (1, 2))

    assert "revision 1.0.0 b1." in one
    assert "● bright" in one
    assert "revision 2.0.0 b1." in two
    assert "kick" in call("can", store, "lamp/2").out


@pytest.mark.parametrize(("revision", "entity"), [("1.0.0", "lamp/1"), ("2.0.0", "lamp/2")])
def test_entities_are_listed_by_the_label_or_the_name_of_a_revision(
    call: Caller, store: str, revision: str, entity: str
) -> None:
    by_label = json.loads(call("ls", store, "--revision", revision, "--json").out)
    name = by_label["rows"][0]["revision"]
    by_name = json.loads(call("ls", store, "lamp", "--revision", name, "--json").out)

    assert [entity] == [each["entity"] for each in by_label["rows"]]
    assert by_label["rows"] == by_name["rows"]
    assert [] == json.loads(call("ls", store, "--revision", "3.0.0", "--json").out)["rows"]


def test_a_list_by_label_goes_on_from_its_cursor(call: Caller, folder: Path, store: str) -> None:
    (folder / "chart.yaml").write_text(NEW)
    for number in (3, 4):
        call("create", store, f"lamp/{number}", "--chart", "chart.yaml")
    first = call("ls", store, "lamp", "--revision", "2.0.0", "--limit", "2")
    more = first.err.split("more: ")[1].splitlines()[0].split()
    second = call("ls", store, *more)

    assert ["lamp/2", "lamp/3", "lamp/4"] == [
        line.split()[0] for line in (first.out + second.out).splitlines() if line.startswith("lamp/")
    ]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("lamp",), "kick"),
        (("lamp", "--revision", "2.0.0"), "kick"),
        (("lamp/2",), "kick"),
    ],
)
def test_a_stored_definition_is_drawn(call: Caller, store: str, words: tuple[str, ...], shown: str) -> None:
    assert shown in call("draw", store, *words).out
    older = call("draw", store, "lamp", "--revision", "1.0.0").out

    assert "press" in older
    assert shown not in older


def test_an_entity_is_drawn_with_its_active_states(call: Caller, store: str) -> None:
    one, two = (call("draw", store, f"lamp/{number}", "--format", "svg").out for number in (1, 2))

    assert one != two
    assert one != call("draw", store, "lamp", "--revision", "1.0.0", "--format", "svg").out


@pytest.mark.parametrize(
    "words", [(), ("STORE",), ("STORE", "lamp", "more"), ("lamp.yaml", "lamp"), ("lamp.yaml", "--revision", "1.0.0")]
)
def test_other_arguments_of_draw_are_refused(call: Caller, store: str, words: tuple[str, ...]) -> None:
    assert 2 == call("draw", *(store if each == "STORE" else each for each in words)).code


@pytest.mark.parametrize(("words", "code"), [(("door",), 6), (("door/1",), 6), (("lamp", "--revision", "7"), 7)])
def test_drawing_what_the_store_does_not_have_fails(
    call: Caller, store: str, words: tuple[str, ...], code: int
) -> None:
    assert code == call("draw", store, *words).code


def test_top_counts_kinds_without_a_chart(call: Caller, store: str) -> None:
    found = json.loads(call("top", store, "--json").out)

    assert [("lamp", "2.0.0", 2)] == [(each["kind"], each["label"], each["entities"]) for each in found["kinds"]]


def test_definitions_are_listed_in_their_order(call: Caller, store: str) -> None:
    found = json.loads(call("db", "definitions", "list", store, "--json").out)
    text = call("db", "definitions", "list", store, "lamp").out

    assert [("lamp", 1, "1.0.0"), ("lamp", 2, "2.0.0")] == [
        (each["kind"], each["sequence"], each["label"]) for each in found
    ]
    assert [True, True] == [each["revision"] in text for each in found]
    assert "" == call("db", "definitions", "list", store, "door").out


def test_a_definition_is_shown_in_any_format(call: Caller, folder: Path, store: str) -> None:
    newest = json.loads(call("db", "definitions", "show", store, "lamp").out)
    older = call("db", "definitions", "show", store, "lamp", "1.0.0", "--to", "yaml").out
    (folder / "older.yaml").write_text(older)

    assert ("lamp", "2.0.0") == (newest["kind"], newest["revision"])
    assert "kick" not in older
    assert 0 == call("check", "older.yaml").code
    assert 6 == call("db", "definitions", "show", store, "door").code
    assert 7 == call("db", "definitions", "show", store, "lamp", "3.0.0").code


def test_an_added_definition_unlocks_the_entities_of_an_old_store(call: Caller, folder: Path) -> None:
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(NEW)
    call("create", STORES["sqlite"], "lamp/1", "--chart", "old.yaml")
    forget_definitions(folder / "lamps.db")
    before = call("send", STORES["sqlite"], "lamp/1", "press", "--chart", "new.yaml")
    added = call("db", "definitions", "add", STORES["sqlite"], "old.yaml", "new.yaml")
    again = call("db", "definitions", "add", STORES["sqlite"], "old.yaml")
    after = call("send", STORES["sqlite"], "lamp/1", "press", "--chart", "new.yaml")

    assert [7, 0, 0, 0] == [each.code for each in (before, added, again, after)]
    assert "db definitions add" in before.err
    assert again.out.splitlines() == added.out.splitlines()[:1]


def test_definitions_need_a_store_that_keeps_them_and_a_file(call: Caller, folder: Path, store: str) -> None:
    assert 2 == call("db", "definitions").code
    assert 2 == call("db", "definitions", "add", store).code
    assert 2 == call("db", "definitions", "list", "memory:", "lamp", "more").code
