"""A file store of layout C runs no effects; every command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interlock
from tests.support import journal_only_store
from tests.support.cli import Caller

STORE = "journals:lamps"
CHARTED = ("--chart", "lamp.yaml")
QUIET = "interlock: 1\nkind: switch\nstates: {off: {on: {press: on}}, on: {on: {press: off}}}\n"
"""A chart without effects."""


@pytest.fixture(autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the store that keeps no work."""
    journal_only_store.install(tmp_path_factory.mktemp("plugin"), monkeypatch)


@pytest.fixture
def switch(folder: Path) -> tuple[str, str]:
    """The chart of a switch, as an option."""
    (folder / "switch.yaml").write_text(QUIET)
    return "--chart", "switch.yaml"


def _work(call: Caller, *words: str) -> tuple[int, str, str]:
    ended = call("doctor", *words, "--json")
    (found,) = (each for each in json.loads(ended.out)["checks"] if each["name"] == "work")
    return ended.code, found["status"], found["detail"]


def test_a_step_with_unsupported_effects_prints_a_warning(call: Caller, folder: Path) -> None:
    created = call("create", STORE, "lamp/1", *CHARTED)
    rehearsed = call("send", STORE, "lamp/1", "press", "--dry-run", *CHARTED)
    pressed = call("send", STORE, "lamp/1", "press", "--json", *CHARTED)
    again = call("send", STORE, "lamp/1", "press", *CHARTED)
    printed = "warning: this store does not run effects: timers\n"

    assert [(0, ""), (0, printed), (0, printed), (0, "")] == [
        (each.code, each.err) for each in (created, rehearsed, pressed, again)
    ]
    assert "applied" == json.loads(pressed.out)["outcome"]


@pytest.mark.parametrize("store", ["file:lamps", "sqlite:///lamps.db"])
def test_a_store_with_work_prints_no_warning(call: Caller, folder: Path, store: str) -> None:
    call("create", store, "lamp/1", *CHARTED)
    pressed = call("send", store, "lamp/1", "press", *CHARTED)

    assert (0, "") == (pressed.code, pressed.err)


def test_doctor_reports_unsupported_effects(call: Caller, folder: Path, switch: tuple[str, str]) -> None:
    call("create", STORE, "lamp/1", *CHARTED)
    resting = _work(call, STORE)
    call("send", STORE, "lamp/1", "press", *CHARTED)

    assert (0, "ok", "this store does not run effects, and none are requested") == resting
    assert (1, "error", "this store does not run effects: timers of lamp/1") == _work(call, STORE)
    assert (1, "error", "this store does not run effects: timers of lamp") == _work(call, STORE, *CHARTED)


def test_doctor_accepts_a_chart_without_effects(call: Caller, folder: Path, switch: tuple[str, str]) -> None:
    call("create", STORE, "switch/1", *switch)

    assert (0, "ok", "this store does not run effects, and none are requested") == _work(call, STORE, *switch)


def test_stuck_warns_about_a_store_without_work(call: Caller, folder: Path) -> None:
    call("create", STORE, "lamp/1", *CHARTED)
    ended, data = call("stuck", STORE, *CHARTED), call("stuck", STORE, "--json")

    assert [True, True] == [each.err.startswith("warning: this store does not run effects") for each in (ended, data)]
    assert [] == json.loads(data.out)["work"]


def test_a_store_without_work_has_no_list(call: Caller, folder: Path) -> None:
    call("create", STORE, "lamp/1", *CHARTED)
    ended = call("effects", "ls", STORE)

    assert (2, True) == (ended.code, ended.err.startswith("error: this store does not run effects\nhint: "))


@pytest.mark.parametrize("work", [None, False])
def test_an_opening_warns_once_for_each_kind(folder: Path, work: bool | None, caplog: pytest.LogCaptureFixture) -> None:
    lamp, switch = interlock.load("lamp.yaml"), interlock.loads(QUIET)
    newer = interlock.loads((folder / "lamp.yaml").read_text().replace("10m", "20m"))
    with interlock.open(STORE, charts=[lamp, newer, switch], work=work).blocking():
        pass

    assert [("this store does not run effects: the timers of `lamp` will not run", STORE)] == [
        (each.message, vars(each)["store"]) for each in caplog.records
    ]


def test_an_opening_warns_of_events_for_overdue_states_that_no_worker_sends(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parcel = interlock.loads(
        "interlock: 1\nkind: parcel\nstates: {open: {expect: {within: 1h, then: late}, on: {late: lost}}, lost: {}}\n"
    )
    with interlock.open(STORE, charts=[parcel]).blocking():
        pass

    assert ["entities of this store get no events of `expect`: late of `parcel` will not be sent"] == [
        each.message for each in caplog.records
    ]


@pytest.mark.parametrize("store", ["memory:", "file:lamps", "sqlite:///lamps.db"])
def test_an_opening_of_a_store_that_keeps_work_does_not_warn(
    folder: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with interlock.open(store, charts=[interlock.load("lamp.yaml")], work=False).blocking():
        pass

    assert [] == caplog.records


def test_an_ended_entity_has_no_pending_effects(call: Caller, folder: Path) -> None:
    (folder / "fuse.yaml").write_text(
        "interlock: 1\nkind: fuse\nstates: {whole: {after: {10m: blown}, on: {burn: blown}}, blown: {type: final}}\n"
    )
    call("create", STORE, "fuse/1", "--chart", "fuse.yaml")
    call("send", STORE, "fuse/1", "burn", "--chart", "fuse.yaml")

    assert "ok" == _work(call, STORE)[1]


def test_a_folder_that_lost_its_format_is_refused_by_every_command(call: Caller, folder: Path) -> None:
    call("create", STORE, "lamp/1", *CHARTED)
    line = (folder / "lamps" / "format.json").read_text().strip()
    (folder / "lamps" / "format.json").unlink()
    before = sorted(folder.rglob("*"))
    ended = [call("create", "file:lamps", "lamp/2", *CHARTED), call("ls", "file:lamps"), call("doctor", "file:lamps")]

    assert [8, 8, 1] == [each.code for each in ended]
    assert [True] * 3 == [line in each.err + each.out for each in ended]
    assert before == sorted(folder.rglob("*"))


def test_a_tenant_folder_without_its_format_file_is_reported_by_every_command(call: Caller, folder: Path) -> None:
    call("create", "file:lamps?tenant=acme", "lamp/1", *CHARTED)
    path = folder / "lamps" / "format.json"
    line = path.read_text().strip()
    path.unlink()
    ended = [
        call("create", "file:lamps", "lamp/2", *CHARTED),
        call("ls", "file:lamps"),
        call("doctor", "file:lamps"),
    ]
    path.write_text(line.replace(',"tenant":"acme"', ""))
    wrong = call("verify", "file:lamps", "--chains-only")
    path.write_text(line)

    assert '"tenant":"acme"' in line
    assert [(8, True), (8, True), (1, True)] == [(each.code, line in each.err + each.out) for each in ended]
    assert (8, True) == (wrong.code, "acme.lamp.1  entity.unreadable: " in wrong.out)
    assert 0 == call("verify", "file:lamps", "--chains-only").code


def test_a_file_name_in_place_of_a_kind_gets_a_hint(call: Caller, folder: Path) -> None:
    call("create", "file:kept", "lamp/1", *CHARTED)
    (folder / "lamp").mkdir()
    printed = {each: call(*each).err for each in (("ls", "x.db"), ("doctor", "x.db"), ("ls", "kept"), ("ls", "lamp"))}

    meant = "error: `x.db` is not a store URL\nhint: did you mean sqlite:///x.db?\n"
    assert meant == printed["ls", "x.db"] == printed["doctor", "x.db"]
    assert "error: `kept` is not a store URL\nhint: did you mean file:kept?\n" == printed["ls", "kept"]
    assert printed["ls", "lamp"].startswith("error: no store given")

    (folder / "interlock.toml").write_text('store = "file:kept"\n')
    assert "no entities; `x.db` was read as a kind: for a store write its URL, such as sqlite:///x.db\n" == (
        call("ls", "x.db").err
    )
