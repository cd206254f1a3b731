"""`interlock ls --where` and `interlock db index`: finding entities by context fields from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interlock
from tests.support.cli import Caller

PARCEL = """\
interlock: 1
kind: parcel
context:
  owner: {type: string, default: ada, index: true}
  weight: {type: number, default: 1}
states:
  packed: {on: {sent: moving}}
  moving: {expect: {within: forever}}
"""


@pytest.fixture(params=["sqlite:///parcels.db", "file:{folder}/parcels"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store with parcels; the chart is `parcel.yaml`."""
    found: str = request.param.format(folder=folder)
    (folder / "parcel.yaml").write_text(PARCEL, encoding="utf-8")
    with interlock.connect(found, charts=[interlock.load(folder / "parcel.yaml")]) as parcels:
        for number in range(6):
            parcels.create(f"parcel/{number}", {"owner": ("ada", "bob")[number % 2], "weight": number})
        parcels.send("parcel/3", "sent")
    return found


def _entities(out: str) -> list[str]:
    return [each["entity"] for each in json.loads(out)["rows"]]


def test_ls_finds_entities_by_a_field(call: Caller, url: str) -> None:
    words = ("ls", url, "parcel", "--where", "owner=bob", "--chart", "parcel.yaml", "--json")
    found, in_state = call(*words), call(*words, "--state", "moving")

    assert (0, ["parcel/1", "parcel/3", "parcel/5"]) == (found.code, sorted(_entities(found.out)))
    assert ["parcel/3"] == _entities(in_state.out)
    assert "context" not in json.loads(found.out)["rows"][0]


def test_ls_prints_the_context_on_request(call: Caller, url: str) -> None:
    words = ("ls", url, "parcel", "--where", "owner=bob", "--chart", "parcel.yaml", "--context")

    assert [{"owner": "bob", "weight": each} for each in (1, 3, 5)] == sorted(
        (each["context"] for each in json.loads(call(*words, "--json").out)["rows"]), key=lambda each: each["weight"]
    )
    assert "weight: 5" in call(*words).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--where", "owner"), 2),
        (("--where", "weight=1"), 2),
        (("--where", "ownr=bob"), 2),
        (("--where", "owner=bob", "--where", "owner=ada"), 2),
    ],
)
def test_a_condition_that_cannot_be_answered_is_a_usage_error(
    call: Caller, url: str, words: tuple[str, ...], code: int
) -> None:
    ended = call("ls", url, "parcel", *words, "--chart", "parcel.yaml")

    assert (code, "") == (ended.code, ended.out)


def test_where_needs_a_kind(call: Caller, url: str) -> None:
    assert 2 == call("ls", url, "--where", "owner=bob", "--chart", "parcel.yaml").code


@pytest.fixture
def older(folder: Path) -> str:
    """A SQLite store with entities, whose chart `parcel.yaml` has a new index on `weight`."""
    text = PARCEL.replace("default: 1}", "default: 1, index: true}")
    with interlock.connect("sqlite:///older.db", charts=[interlock.loads(PARCEL)]) as parcels:
        for number in range(6):
            parcels.create(f"parcel/{number}", {"weight": number})
    (folder / "parcel.yaml").write_text(text, encoding="utf-8")
    return "sqlite:///older.db"


def test_an_index_is_built_shown_and_dropped(call: Caller, older: str) -> None:
    with interlock.connect(older, charts=[interlock.load("parcel.yaml")]):
        pass
    pending = call("db", "index", "status", older)
    refused = call("ls", older, "parcel", "--where", "weight>=4")
    built = call("db", "index", "build", older, "--json")
    status = call("db", "index", "status", older, "parcel", "--json")
    found = call("ls", older, "parcel", "--where", "weight>=4", "--json")
    dropped = call("db", "index", "drop", older, "parcel", "weight")
    again = call("db", "index", "drop", older, "parcel", "weight")

    assert (1, True) == (pending.code, "building" in pending.out)
    assert (2, "") == (refused.code, refused.out)
    assert {("owner", "ready", 0), ("weight", "ready", 6)} == {
        (each["field"], each["state"], each["done"]) for each in json.loads(built.out)
    }
    assert (0, {"owner", "weight"}) == (status.code, {each["field"] for each in json.loads(status.out)})
    assert ["parcel/4", "parcel/5"] == _entities(found.out)
    assert (0, 6) == (dropped.code, again.code)


def test_build_creates_the_indexes_of_the_chart(call: Caller, older: str) -> None:
    built = call("db", "index", "build", older, "parcel", "weight", "--chart", "parcel.yaml")

    assert (0, True) == (built.code, "parcel.weight" in built.out)
    assert ["parcel/5"] == _entities(call("ls", older, "parcel", "--where", "weight=5", "--json").out)


def test_an_unknown_index_is_not_found(call: Caller, older: str) -> None:
    assert [6, 6] == [call("db", "index", each, older, "parcel", "size").code for each in ("build", "drop")]


def test_a_store_without_indexes_says_so(call: Caller, folder: Path) -> None:
    with interlock.connect(f"file:{folder}/parcels", charts=[interlock.loads(PARCEL)]) as parcels:
        parcels.create("parcel/1")

    assert [2, 2] == [call("db", "index", each, f"file:{folder}/parcels").code for each in ("status", "build")]


def test_a_group_without_a_command_is_a_usage_error(call: Caller, folder: Path) -> None:
    assert 2 == call("db", "index").code
