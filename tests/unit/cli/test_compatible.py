"""Commands on an entity in a state that a compatible chart does not have, and on unhandled errors."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import LAMP, Caller
from tests.support.old_stores import forget_definitions

STORE = "sqlite:///lamps.db"
OLD = LAMP.replace("kind: lamp", "kind: lamp\nrevision: 1.0.0")
NEW = OLD.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1 <2"').replace("dark", "black")


def test_an_entity_in_a_state_that_the_newest_chart_lacks_continues_on_its_own_revision(
    call: Caller, folder: Path
) -> None:
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(NEW)
    call("create", STORE, "lamp/1", "--chart", "old.yaml")
    calls = (("show", "lamp/1"), ("can", "lamp/1"), ("doctor",), ("send", "lamp/1", "press"))
    ended = [call(name, STORE, *more, "--chart", "new.yaml") for name, *more in calls]

    assert [0, 0, 0, 0] == [each.code for each in ended]
    assert "● dark" in ended[0].out


def test_without_its_definition_such_an_entity_waits(call: Caller, folder: Path) -> None:
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(NEW)
    call("create", STORE, "lamp/1", "--chart", "old.yaml")
    forget_definitions(folder / "lamps.db")
    calls = (("show",), ("can",), ("send", "press"))
    ended = [call(name, STORE, "lamp/1", *more, "--chart", "new.yaml") for name, *more in calls]
    both = call("show", STORE, "lamp/1", "--chart", "old.yaml", "--chart", "new.yaml")

    assert [7, 7, 7] == [each.code for each in ended]
    assert all("db definitions add" in each.err for each in ended)
    assert ["● dark" in each.out for each in ended] == [True, False, False]  # `show` prints what the snapshot says
    assert (0, True) == (both.code, "● dark" in both.out)


def test_replay_shows_unhandled_errors(call: Caller, folder: Path) -> None:
    text = LAMP.replace("kind: lamp", "kind: lamp\ncontext: {n: {type: integer, default: 0}}")
    text = text.replace("{press: bright}", "{press: {target: bright, actions: [{assign: {n: '= event.data.n'}}]}}")
    (folder / "faulty.yaml").write_text(text)
    call("create", STORE, "lamp/1", "--chart", "faulty.yaml")
    call("send", STORE, "lamp/1", "press", '{"m": 1}', "--chart", "faulty.yaml")
    shown = call("replay", STORE, "lamp/1", "--chart", "faulty.yaml")
    lines = call("replay", STORE, "lamp/1", "--chart", "faulty.yaml", "--json").out.splitlines()

    assert (0, 1) == (shown.code, shown.out.count("  fault    "))
    assert [0, 1] == [len(json.loads(each)["faults"]) for each in lines]
