"""`tail`: what happened on a store, and what happens, in the order in which it was kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.cli import Caller

STORES = ["sqlite:///lamps.db", "file:lamps"]


def shown(text: str) -> list[str]:
    """Lines with their times masked."""
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME", text).splitlines()


@pytest.fixture(params=STORES, ids=["sqlite", "files"])
def store(request: pytest.FixtureRequest, call: Caller, folder: Path) -> str:
    """A store with two lamps, one of which was pressed."""
    url = str(request.param)
    for name in ("lamp/1", "lamp/2"):
        call("create", url, name, "--chart", "lamp.yaml")
    call("send", url, "lamp/1", "press", "--chart", "lamp.yaml", "--principal", "ada")
    return url


def test_tail_prints_entries_in_the_order_of_writing(call: Caller, store: str) -> None:
    ended = call("tail", store)

    assert 0 == ended.code, ended.err
    assert [
        "TIME  lamp/1 v1  _create  → dark",
        "TIME  lamp/2 v1  _create  → dark",
        "TIME  lamp/1 v2  press  dark → bright  by ada",
    ] == shown(ended.out)


def test_one_kind_is_shown_alone_and_as_json(call: Caller, store: str) -> None:
    lines = [json.loads(line) for line in call("tail", store, "lamp", "--json").out.splitlines()]

    assert [("lamp/1", 1), ("lamp/2", 1), ("lamp/1", 2)] == [
        (each["entity"], each["entry"]["version"]) for each in lines
    ]
    assert "" == call("tail", store, "door").out


def test_tail_starts_at_the_given_time(call: Caller, store: str) -> None:
    counts = [
        len(call("tail", store, "--since", begin).out.splitlines())
        for begin in ("start", "now", "2h", "2001-01-01T00:00Z", "2999-01-01T00:00Z")
    ]

    assert [3, 0, 3, 3, 0] == counts


@pytest.mark.parametrize("begin", ["yesterday", "5", "2026-11-15T12:00", ""])
def test_an_invalid_start_time_is_refused(call: Caller, folder: Path, begin: str) -> None:
    ended = call("tail", "sqlite:///lamps.db", "--since", begin)

    assert (2, True) == (ended.code, "10m" in ended.err)


def test_a_missing_store_is_not_created(call: Caller, folder: Path) -> None:
    assert 6 == call("tail", "sqlite:///none.db").code
    assert not (folder / "none.db").exists()
