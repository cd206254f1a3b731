"""One log line per transition: its fields, when it is written, and what it never says."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.observe.log_format import JsonLines
from interlock.runtime.entities.transition_log import LOGGER, open_transition_log, printable
from interlock.testing import VirtualClock
from tests.support.eventually import eventually, eventually_blocking
from tests.unit.observe.test_open_telemetry import ACCOUNT, SENT, TRACE

LAMP = """
interlock: 1
kind: lamp
context: {secret: {type: string, default: hush}}
states:
  off: {on: {flip: on}}
  on: {after: {1m: off}, on: {flip: off}}
"""


class Lines(io.StringIO):
    """What was written, as JSON."""

    def fields(self) -> list[dict[str, Any]]:
        """Each line."""
        return [json.loads(each) for each in self.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of the transition log, which is on."""
    found, log = Lines(), logging.getLogger(LOGGER)
    handler = logging.StreamHandler(found)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield found
    log.setLevel(logging.NOTSET)
    log.removeHandler(handler)


async def test_a_line_has_the_fields_of_the_entry_and_no_payload(lines: Lines) -> None:
    clock = VirtualClock(1_000_000)
    async with interlock.open("memory:", charts=[interlock.loads(LAMP)], clock=clock) as lamps:
        await lamps.create("lamp/1", principal={"id": "ada", "roles": []}, reason="a gift")
        await clock.advance(500)
        await lamps.send("lamp/1", "flip", {"iban": "DE00"}, trace=SENT, principal={"id": "eve", "roles": []})
        await clock.advance(60_000)
        await eventually(lambda: len(lines.fields()) == 3)

    common = {"entity_id": "lamp/1", "kind": "lamp", "outcome": "applied", "message": "transition", "level": "info"}
    standard = {"logger": LOGGER}
    created, flipped, fired = [
        {name: value for name, value in each.items() if name != "time"} for each in lines.fields()
    ]
    assert {**common, **standard, "version": 1, "event": "_create", "state_from": "", "state_to": "off"} | {
        "duration_ms": None,
        "actor": "ada",
        "trace_id": "",
    } == created
    assert {**common, **standard, "version": 2, "event": "flip", "state_from": "off", "state_to": "on"} | {
        "duration_ms": 500,
        "actor": "eve",
        "trace_id": TRACE,
    } == flipped
    assert (60_000, "timer", TRACE) == (fired["duration_ms"], fired["actor"], fired["trace_id"])
    assert not any(word in lines.getvalue() for word in ("DE00", "hush", "gift"))


async def test_a_hidden_step_has_no_line_and_a_change_shows_what_others_see(lines: Lines) -> None:
    account = interlock.loads(ACCOUNT)
    account.handler("police.report")(_report)
    owner, officer = {"id": "ada", "roles": ["customer"]}, {"id": "officer", "roles": ["police"]}
    async with interlock.open("memory:", charts=[account], work=False) as accounts:
        await accounts.create("account/1", principal=owner)
        await accounts.send("account/1", "freeze", principal=officer, trace=SENT)
        await accounts.send("account/1", "thaw", principal=officer, trace=SENT)
        await accounts.send("account/1", "touch", principal=owner)
        await accounts.send("account/1", "freeze", principal=officer, trace=SENT)
        shown = len(lines.fields())
        await accounts.send("account/1", "close", principal=officer, trace=SENT)

    assert 2 == shown
    assert not any(word in lines.getvalue() for word in ("freeze", "thaw", 'close"', "officer", "frozen", TRACE))
    assert [(1, "_create", "ada", "active"), (2, "touch", "ada", "active"), (3, "updated", "system", "closed")] == [
        (each["version"], each["event"], each["actor"], each["state_to"]) for each in lines.fields()
    ]


async def _report(attempt: interlock.Attempt) -> None:
    """Report nothing."""


def test_a_joined_transition_is_logged_after_the_commit_and_not_without_one(lines: Lines, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lamps.db"
    with interlock.connect(url, charts=[interlock.loads(LAMP)]) as lamps:
        lamps.create("lamp/1")
        connection = sqlite3.connect(tmp_path / "lamps.db", isolation_level=None)
        for end in ("ROLLBACK", "COMMIT"):
            connection.execute("BEGIN IMMEDIATE")
            lamps.join(connection).send("lamp/1", "flip")
            assert 1 == len(lines.fields())
            connection.execute(end)
        eventually_blocking(lambda: len(lines.fields()) == 2)
        connection.close()

    assert (2, "flip") == (lines.fields()[-1]["version"], lines.fields()[-1]["event"])


@pytest.mark.parametrize(("own", "root", "is_on"), [(0, 20, False), (20, 30, True), (30, 20, False)])
def test_it_is_on_only_if_its_own_level_lets_it_pass(own: int, root: int, is_on: bool) -> None:
    log, above = logging.getLogger(LOGGER), logging.getLogger("interlock")
    levels = log.level, above.level
    try:
        log.setLevel(own)
        above.setLevel(root)
        assert is_on == (open_transition_log() is not None)
    finally:
        log.setLevel(levels[0])
        above.setLevel(levels[1])


def test_text_of_a_sender_cannot_forge_a_line() -> None:
    assert ("a\ufffdb\ufffd", "käse") == (printable("a\nb\x1b"), printable("käse"))


def test_an_error_and_an_odd_value_are_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord("interlock", logging.ERROR, "", 0, "failed", (), (ValueError, error, None))
    record.place = Path("a")
    record.text = "\udcff"
    line = JsonLines().format(record)

    assert "\n" not in line
    found = json.loads(line)
    assert ("error", "failed", "a", "\udcff") == (found["level"], found["message"], found["place"], found["text"])
    assert "ValueError: two\nlines" == found["error"]
