"""`interlock run`: real processes and real signals, with handlers in flight; whatever happens, nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

import interlock
from interlock.cli.output.log_handler import LogHandler
from interlock.cli.output.terminal import Terminal
from interlock.cli.user_code import load_code
from interlock.errors import UsageError
from interlock.observe.stuck import missing_revisions
from interlock.ports.store import EntityQuery
from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.old_stores import forget_definitions

URL = "sqlite:///orders.db"


@pytest.mark.parametrize("verbose", [False, True])
def test_log_records_are_shown_with_their_fields(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    log = logging.Logger("of this test")  # noqa: LOG001 - one that goes with the test
    log.addHandler(LogHandler(Terminal(verbose=verbose)))
    try:
        raise ConnectionError("gone\naway")
    except ConnectionError as error:
        log.warning("a handler raised", exc_info=error, extra={"handler": "charge\x1b"})
    log.error("a dead letter waits for a person", extra={"key": "order/1/2/0"})
    log.info("nothing much")
    lines = capsys.readouterr().err.splitlines()

    assert [
        "warning: a handler raised: ConnectionError: gone\\naway handler=charge\\x1b",
        "error: a dead letter waits for a person key=order/1/2/0",
    ] == [each for each in lines if not each.startswith(("  ", "info"))]
    assert [True, verbose] == ["  Traceback (most recent call last):" in lines, "info: nothing much" in lines]


@pytest.mark.parametrize("verbose", [False, True])
def test_only_an_error_of_a_users_function_is_shown_with_its_traceback(
    capsys: pytest.CaptureFixture[str], verbose: bool
) -> None:
    log = logging.Logger("of this test")  # noqa: LOG001 - one that goes with the test
    log.addHandler(LogHandler(Terminal(verbose=verbose)))
    log.warning("work is postponed", exc_info=ConnectionError("gone"), extra={"lane": "effect"})

    assert verbose == ("  ConnectionError: gone" in capsys.readouterr().err.splitlines())


def test_an_error_of_the_users_module_is_shown_with_the_users_lines(call: Caller, folder: Path) -> None:
    (folder / "calls_of_mine.py").write_text("def total(rows):\n    return sum(rows)\n\ntotal(['a'])\n")
    ended = call("run", "calls_of_mine:charts", "--store", URL)
    lines = [each.strip() for each in ended.err.splitlines()]

    assert 2 == ended.code
    assert ["return sum(rows)", "total(['a'])"] == [
        each for each in lines if each in ("return sum(rows)", "total(['a'])")
    ][::-1]
    assert not any("import_module" in each or "/interlock/" in each for each in lines)


def test_a_repeated_log_line_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("test.repeated")
    for verbose in (False, True):
        told = LogHandler(Terminal(verbose=verbose))
        for second in (0.0, 0.5, 9.9, 10.1, 10.2):
            record = logger.makeRecord(
                logger.name, logging.WARNING, __file__, 1, "late", (), None, None, {"began_ms": 1_767_225_600_000}
            )
            record.created = second
            told.handle(record)
        shown = capsys.readouterr().err.splitlines()
        line = "warning: late began=2026-01-01T00:00:00.000Z"

        assert ([line] * 5 if verbose else [line, f"{line} (2 repeated)"]) == shown


async def test_cancelled_entities_of_a_missing_revision_are_not_reported(tmp_path: Path) -> None:
    trip = interlock.loads("""
interlock: 1
kind: trip
initial: planned
states:
  planned: {invoke: {id: stay, type: chart, src: stay}, on: {dropped: over}}
  over: {type: final}
""")
    stay = "interlock: 1\nkind: stay\ninitial: booked\nstates: {booked: {expect: {within: forever}}}\n"
    url, found = f"sqlite:///{tmp_path}/trips.db", []
    for living in (False, True):
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            interlock.open(url, charts=[trip, interlock.loads(stay)]) as trips,
        ):
            await trips.create(f"trip/{living}")
            await _until_a_stay(trips, None)
            if not living:
                await trips.send(f"trip/{living}", "dropped")
                await _until_a_stay(trips, "cancelled")
        forget_definitions(tmp_path / "trips.db")
        async with interlock.open(url, charts=[trip, interlock.loads(f"{stay}on: {{noted: {{}}}}\n")]) as trips:
            found.append([each.kind for each in await missing_revisions(trips)])

    assert [[], ["stay"]] == found


async def _until_a_stay(trips: interlock.Runtime, ended: str | None) -> None:
    async def is_there() -> bool:
        return ended in [each.ended for each in (await trips.store.find(EntityQuery(kind="stay"))).rows]

    await eventually(is_there)


def test_an_application_is_a_chart_a_list_or_a_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app_of_mine", raising=False)
    (folder / "app_of_mine.py").write_text(
        "import interlock\n"
        'lamp = interlock.load("lamp.yaml")\n'
        "lamps = [lamp]\n"
        "def make():\n    return lamp\n"
        "def broken():\n    raise ValueError('no')\n"
        "nothing = []\nnumber = 3\n"
    )
    (folder / "broken_of_mine.py").write_text("import json\n\njson.loads('{')\n")
    (folder / "unread_of_mine.py").write_text("x = 1\ndef (\n")
    found = [[each.chart.kind for each in load_code(f"app_of_mine:{name}")] for name in ("lamp", "lamps", "make")]
    refused = []
    for name in (
        "app_of_mine:broken",
        "app_of_mine:nothing",
        "app_of_mine:number",
        "app_of_mine:x",
        "broken_of_mine:x",
        "unread_of_mine:x",
        "absent_of_mine:x",
        "app_of_mine.py",
        "x y",
    ):
        with pytest.raises(UsageError) as raised:
            load_code(name)
        refused.append(f"{raised.value.message}; {raised.value.hint}")

    said = "Expecting property name enclosed in double quotes"
    absent = "is absent_of_mine.py in this folder, or installed?"
    given = "name the result of interlock.load, a list of those, or a function that returns one"

    assert [["lamp"]] * 3 == found
    assert [
        "`app_of_mine:broken` raised ValueError: no; see app_of_mine.py, line 7",
        f"`app_of_mine:nothing` is not a chart; {given}",
        f"`app_of_mine:number` is not a chart; {given}",
        "module `app_of_mine` has no `x`; its charts are lamp",
        f"module `broken_of_mine` raised JSONDecodeError: {said}; see broken_of_mine.py, line 3",
        "module `unread_of_mine` raised SyntaxError: invalid syntax; see unread_of_mine.py, line 2",
        f"module `absent_of_mine` cannot be imported: No module named 'absent_of_mine'; {absent}",
        "`app_of_mine.py` is not of the form module:name; write module:name, as in app_of_mine:charts",
        "`x y` is not of the form module:name; write module:name, as in orders:charts",
    ] == refused


def test_a_wrong_call_of_run_creates_nothing(call: Caller, folder: Path) -> None:
    ends = [
        call("run", "nowhere:charts", "--store", URL),
        call("run", "--store", URL),
        call("run", "os:path", "--store", URL),
        call("run", "os:path", "--store", "orders.db"),
    ]

    assert [2] * 4 == [each.code for each in ends]
    assert not (folder / "orders.db").exists()
