"""What commands print about a store with corrupt or unreadable entities."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from interlock.stores.files.names import directory_name, shard_name
from tests.support.cli import Caller, Ended

CHARTED = ("--chart", "lamp.yaml")
STORE = "file:kept"


@pytest.fixture
def lamps(call: Caller, folder: Path) -> Path:
    """A folder of four lamps, each pressed four times: five entries, and a snapshot of the fifth."""
    for number in (1, 2, 3, 4):
        assert 0 == call("create", STORE, f"lamp/{number}", *CHARTED).code
        for _ in range(4):
            assert 0 == call("send", STORE, f"lamp/{number}", "press", *CHARTED).code
    return folder / "kept"


def place(root: Path, entity: str) -> Path:
    """The folder of an entity."""
    name = directory_name(entity)
    return root / "resources" / shard_name(name, 2) / name


def damage(root: Path, entity: str, version: int) -> None:
    """Change one letter of a record."""
    path = place(root, entity) / "events.log"
    data = path.read_bytes()
    at = data.index(b"press", data.index(b'{"v":%d,' % version))
    path.write_bytes(data[:at] + b"b" + data[at + 1 :])


def make_unreadable(root: Path, entity: str) -> None:
    """Put a folder in the place of the journal: not even root can read it."""
    path = place(root, entity) / "events.log"
    path.rename(path.with_name("elsewhere"))
    path.mkdir()


@pytest.fixture
def call_alone(call: Caller, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run a command line as in a separate process, where logging is not configured."""

    def called(*words: str) -> Ended:
        with monkeypatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [])
            return call(*words)

    return called


# verify


def test_an_unreadable_entity_does_not_hide_corruption_elsewhere(call: Caller, lamps: Path) -> None:
    make_unreadable(lamps, "lamp/1")
    alone = call("verify", STORE, *CHARTED)
    damage(lamps, "lamp/3", 4)
    both = call("verify", STORE, *CHARTED)

    assert (7, 8) == (alone.code, both.code)
    assert "? lamp/1  journal.unread: `lamp/1`: read failed: not a regular file (resources/" in both.out
    assert "\n✗ lamp/3  journal.corrupt: " in both.out
    assert "4 entities, 13 entries, chains and replay: 1 corrupt, 1 could not be read" in both.out
    assert "4 entities, 15 entries, chains and replay: 0 corrupt, 1 could not be read" in alone.out
    assert ("hint: " in both.err, "hint: " in alone.err) == (True, False)


def test_programs_hear_of_every_entity_and_of_the_version_of_the_damage(call: Caller, lamps: Path) -> None:
    make_unreadable(lamps, "lamp/1")
    damage(lamps, "lamp/3", 4)
    lines = [json.loads(line) for line in call("verify", STORE, *CHARTED, "--json").out.splitlines()]
    problems = {each["entity"]: each.get("problem") for each in lines}

    assert ["lamp/1", "lamp/2", "lamp/3", "lamp/4"] == list(problems)
    assert ("journal.unread", None) == (problems["lamp/1"]["code"], problems["lamp/1"].get("version"))
    assert ("journal.corrupt", 4) == (problems["lamp/3"]["code"], problems["lamp/3"]["version"])
    assert (None, None) == (problems["lamp/2"], problems["lamp/4"])


def test_an_unknown_entity_does_not_stop_the_verification_of_others(call: Caller, lamps: Path) -> None:
    sound = call("verify", STORE, "lamp/2", "lamp/9", "lamp/4", *CHARTED)
    damage(lamps, "lamp/4", 2)
    damaged = call("verify", STORE, "lamp/2", "lamp/9", "lamp/4", *CHARTED)

    assert (6, 8) == (sound.code, damaged.code)
    assert "? lamp/9  entity.unknown: unknown entity `lamp/9`; check the name: interlock ls" in sound.out
    assert "2 entities, 10 entries, chains and replay: 0 corrupt, 1 unknown" in sound.out
    assert "✗ lamp/4" in damaged.out


def test_corruption_is_reported_with_reason_and_file(call: Caller, lamps: Path) -> None:
    damage(lamps, "lamp/2", 4)
    cut = place(lamps, "lamp/3") / "events.log"
    data = cut.read_bytes()
    cut.write_bytes(data[: data.index(b"\n", data.index(b'{"v":3,')) + 1])
    torn = place(lamps, "lamp/4") / "events.log"
    torn.write_bytes(torn.read_bytes()[: data.index(b'{"v":3,') + 20])
    printed = dict(
        re.findall(r"^✗ (lamp/\d)  journal\.corrupt: (.*)$", call("verify", STORE, *CHARTED).out, re.MULTILINE)
    )
    names = {each: place(lamps, each).relative_to(lamps) / "events.log" for each in printed}

    assert printed["lamp/2"].startswith(
        "the journal of `lamp/2` is damaged after version 3: the hash does not match, and the snapshot has version 5 "
        f"({names['lamp/2']}, offset "
    )
    assert "after version 3: the journal ends there, and the snapshot has version 5 (" in printed["lamp/3"]
    assert "after version 2: the line is incomplete, and the snapshot has version 5 (" in printed["lamp/4"]


# ls


def test_a_list_names_unreadable_entities_once_with_the_reason(call_alone: Callable[..., Ended], lamps: Path) -> None:
    make_unreadable(lamps, "lamp/1")
    damage(lamps, "lamp/3", 4)
    (place(lamps, "lamp/3") / "state.json").unlink()
    ended = call_alone("ls", STORE)

    assert (1, ["lamp/2", "lamp/4"]) == (ended.code, [line.split()[0] for line in ended.out.splitlines()])
    warnings = sorted(line for line in ended.err.splitlines() if line.startswith("warning: "))
    assert 2 == len(warnings)
    assert " left out of a list entity_id=lamp/1 code=store.read error=`lamp/1`: read failed: " in warnings[0]
    assert " left out of a list entity_id=lamp/3 code=journal.corrupt error=the journal of `lamp/3` " in warnings[1]
    assert ended.err.endswith("unreadable: lamp/1 lamp/3\nhint: interlock verify lamp/1 lamp/3 for details\n")


def test_json_lists_unreadable_entities(call: Caller, lamps: Path) -> None:
    for number in (1, 2, 3, 4):
        make_unreadable(lamps, f"lamp/{number}")
    ended = call("ls", STORE, "--json")
    printed = json.loads(ended.out)

    assert (1, [], ["lamp/1", "lamp/2", "lamp/3", "lamp/4"]) == (ended.code, printed["rows"], printed["unreadable"])


def test_logging_configuration_is_restored(call_alone: Callable[..., Ended], lamps: Path) -> None:
    logger = logging.getLogger("interlock")
    before = (logger.level, list(logger.handlers))
    damage(lamps, "lamp/3", 4)
    (place(lamps, "lamp/3") / "state.json").unlink()

    assert "warning: " in call_alone("ls", STORE, "-v").err
    assert before == (logger.level, logger.handlers)


# What stands before the damage


def test_the_entries_before_the_damage_are_printed(call: Caller, lamps: Path) -> None:
    damage(lamps, "lamp/3", 4)
    whole, part = call("journal", STORE, "lamp/3"), call("journal", STORE, "lamp/3", "--limit", "2")
    behind = call("journal", STORE, "lamp/3", "--after", "3")
    again = call("replay", STORE, "lamp/3", *CHARTED)

    assert (8, ["1", "2", "3"]) == (whole.code, [line.split()[0] for line in whole.out.splitlines()])
    assert "damaged after version 3: the hash does not match" in whole.err
    assert '"A journal is damaged" in docs/guide/operate.md' in whole.err
    assert (0, 2, "") == (part.code, len(part.out.splitlines()), part.err)
    assert (8, "") == (behind.code, behind.out)
    assert (8, 3) == (again.code, again.out.count("✓"))


@pytest.mark.parametrize("snapshot", ["kept", "lost"])
def test_an_entity_is_shown_as_it_was_before_the_damage(call: Caller, lamps: Path, snapshot: str) -> None:
    damage(lamps, "lamp/3", 4)
    if snapshot == "lost":
        (place(lamps, "lamp/3") / "state.json").unlink()
    codes = [call("show", STORE, "lamp/3", "--at", at, *CHARTED).code for at in ("1", "3", "4", "2099-01-01T00:00Z")]
    shown = json.loads(call("show", STORE, "lamp/3", "--at", "2", "--json", *CHARTED).out)

    assert [0, 0, 8, 0 if snapshot == "kept" else 8] == codes
    assert (2, ["bright"]) == (shown["version"], shown["configuration"])


def test_a_truncated_journal_shows_its_valid_entries(call: Caller, lamps: Path) -> None:
    path = place(lamps, "lamp/3") / "events.log"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'{"v":3,') + 9])
    ended = call("journal", STORE, "lamp/3")

    assert (8, 2) == (ended.code, len(ended.out.splitlines()))
    assert data[: len(path.read_bytes())] == path.read_bytes()


def test_a_database_shows_the_entries_before_the_damage_too(call: Caller, folder: Path) -> None:
    address = "sqlite:///lamps.db"
    call("create", address, "lamp/1", *CHARTED)
    for _ in range(3):
        call("send", address, "lamp/1", "press", *CHARTED)
    with closing(sqlite3.connect(folder / "lamps.db")) as connection, connection:
        connection.execute(
            "UPDATE journal SET record = CAST(replace(record, 'press', 'prexx') AS BLOB) WHERE version = 3"
        )
    ended, shown = call("journal", address, "lamp/1"), call("show", address, "lamp/1", "--at", "2", *CHARTED)

    assert (8, 2, 0) == (ended.code, len(ended.out.splitlines()), shown.code)
    assert "damaged at version 3" in ended.err
    assert '"A journal is damaged" in docs/guide/operate.md' in ended.err


# Ctrl-C


def test_a_list_names_a_corrupt_entity_with_a_truncated_name(call: Caller, lamps: Path) -> None:
    entity = f"lamp/{'é' * 90}"
    call("create", STORE, entity, *CHARTED)
    (place(lamps, entity) / "state.json").write_bytes(b"garbage")
    listed, data = call("ls", STORE), call("ls", STORE, "--json")

    assert (1, 1, [directory_name(entity)]) == (listed.code, data.code, json.loads(data.out)["unreadable"])
    assert f"unreadable: {directory_name(entity)}\nhint: interlock verify for details\n" in listed.err
    assert 8 == call("verify", STORE, "--chains-only").code
