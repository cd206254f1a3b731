"""`interlock rollout`: a rollout from its first share to its end, and wrong calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import LAMP, Caller

STORE = "sqlite:///lamps.db"


@pytest.fixture
def lamps(folder: Path, call: Caller) -> str:
    """A store with one lamp and two definitions of lamps; the second one is the newest chart."""
    old = LAMP.replace("kind: lamp\n", "kind: lamp\nrevision: 1.0.0\n")
    new = old.replace("1.0.0", "2.0.0").replace("10m", "5m")
    for name, text in (("old.yaml", old), ("new.yaml", new)):
        (folder / name).write_text(text, encoding="utf-8")
    assert 0 == call("create", STORE, "lamp/1", "--chart", "old.yaml").code
    assert 0 == call("db", "definitions", "add", STORE, "new.yaml").code
    return STORE


def status(call: Caller) -> dict[str, object]:
    """The status of the rollout."""
    found: dict[str, object] = json.loads(call("rollout", "status", STORE, "lamp", "--json").out)
    return found


def test_a_rollout_from_start_to_end(lamps: str, call: Caller) -> None:
    codes = [
        call("rollout", *words).code
        for words in (
            ("set", lamps, "lamp", "--to", "2.0.0", "--percent", "0.01"),
            ("advance", lamps, "lamp", "--percent", "100", "--why", "no errors"),
        )
    ]
    call("create", lamps, "lamp/2", "--chart", "old.yaml")
    found = status(call)
    rollout = found["rollout"]
    assert isinstance(rollout, dict)

    assert [0, 0] == codes
    assert ("complete", 10_000) == (rollout["state"], rollout["share"])
    assert [1, 10_000] == [each["share"] for each in rollout["history"]]
    assert {rollout["revision"]: 1, rollout["base"]: 1} == found["entities"]
    assert "no errors" in call("rollout", "status", lamps, "lamp").out


def test_an_aborted_rollout_creates_on_the_base(lamps: str, call: Caller) -> None:
    call("rollout", "set", lamps, "lamp", "--to", "2.0.0", "--percent", "50")
    ended = call("rollout", "abort", lamps, "lamp", "--json")
    for number in range(2, 6):
        call("create", lamps, f"lamp/{number}", "--chart", "new.yaml")
    found = status(call)
    rollout = found["rollout"]
    assert isinstance(rollout, dict)

    assert "aborted" == json.loads(ended.out)["state"]
    assert {rollout["base"]: 5} == found["entities"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("set", STORE, "lamp", "--to", "9"), 6),
        (("set", STORE, "fan", "--to", "1.0.0"), 6),
        (("set", STORE, "lamp", "--to", "2.0.0", "--percent", "0"), 2),
        (("set", STORE, "lamp", "--to", "2.0.0", "--base", "2.0.0"), 2),
        (("set", STORE, "lamp"), 2),
        (("advance", STORE, "lamp", "--percent", "5"), 6),
        (("abort", STORE, "lamp"), 6),
        (("status", STORE, "lamp"), 6),
        (("status", "sqlite:///none.db", "lamp"), 6),
    ],
)
def test_wrong_calls(lamps: str, call: Caller, words: tuple[str, ...], code: int) -> None:
    assert code == call("rollout", *words).code


def test_another_revision_waits_for_the_end_of_a_rollout(lamps: str, call: Caller) -> None:
    call("rollout", "set", lamps, "lamp", "--to", "2.0.0", "--percent", "50")

    assert 3 == call("rollout", "set", lamps, "lamp", "--to", "1.0.0").code
    assert 2 == call("rollout", "advance", lamps, "lamp", "--percent", "10").code
