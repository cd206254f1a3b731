"""`interlock doctor`: the status and the fix of each check; it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import interlock
from interlock.cli.commands.operation import doctor
from interlock.errors import UsageError
from interlock.ports.clock import SystemClock
from interlock.testing.clock import VirtualClock
from tests.support.cli import Caller
from tests.support.old_stores import forget_definitions

STORE = "sqlite:///lamps.db"
CHARTED = ("--chart", "lamp.yaml")


class Usage(NamedTuple):
    """As `shutil` returns it."""

    total: int
    used: int
    free: int


@pytest.fixture
def lamps(call: Caller, folder: Path) -> Path:
    """A store with a lamp."""
    call("create", STORE, "lamp/1", *CHARTED)
    return folder


def checks(call: Caller, *words: str) -> dict[str, tuple[str, str, str | None]]:
    """What was found, by name."""
    found = json.loads(call("doctor", *words, "--json").out)
    return {each["name"]: (each["status"], each["detail"], each["fix"]) for each in found["checks"]}


def test_a_store_that_is_well_has_no_other_mark(call: Caller, lamps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "select_mode", lambda: "native")
    monkeypatch.setattr(doctor, "file_system", lambda path: "ext4")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, 10 << 30))
    ended = call("doctor", STORE, *CHARTED)
    names = [line[2:].split("  ")[0].strip() for line in ended.out.splitlines()]

    assert 0 == ended.code, ended.out
    assert ["✓"] * len(names) == [line[0] for line in ended.out.splitlines()], ended.out
    assert ["python", "interlock", "extras", "sqlite", "shared memory"] == names[:5]
    assert ["store", "file system", "disk", "clock", "work", "leases", "dead letters", "times", "revisions"] == names[
        5:-1
    ]
    assert "entities" == names[-1]


def test_doctor_reports_a_chart_whose_old_text_is_served(call: Caller, lamps: Path) -> None:
    """It was saved after a text with a higher label."""
    lamp = (lamps / "lamp.yaml").read_text()
    for label in ("2.0", "1.4"):
        (lamps / f"{label}.yaml").write_text(f"revision: '{label}'\n{lamp}")
        call("create", STORE, f"lamp/{label}", "--chart", f"{label}.yaml")
    status, detail, fix = checks(call, STORE, *CHARTED)["outdated charts"]

    assert "warning" == status
    assert "1.4" in detail
    assert "2.0" in (fix or "")


def test_doctor_reports_revisions_without_a_definition(call: Caller, lamps: Path) -> None:
    lamp = (lamps / "lamp.yaml").read_text()
    (lamps / "other.yaml").write_text(lamp.replace("press: bright", "press: bright, kick: bright"))
    own, stored = (checks(call, STORE, "--chart", each)["revisions"] for each in ("lamp.yaml", "other.yaml"))
    forget_definitions(lamps / "lamps.db")
    after = checks(call, STORE, "--chart", "other.yaml")["revisions"]

    assert [("ok", None)] * 2 == [(each[0], each[2]) for each in (own, stored)]
    assert "warning" == after[0]
    assert "revision b1." in after[1]
    assert "db definitions add" in (after[2] or "")
    assert 0 == call("db", "definitions", "add", STORE, "lamp.yaml").code
    assert "ok" == checks(call, STORE, "--chart", "other.yaml")["revisions"][0]


def test_doctor_names_unknown_revisions_of_a_file_store(call: Caller, lamps: Path) -> None:
    lamp = (lamps / "lamp.yaml").read_text()
    (lamps / "other.yaml").write_text(lamp.replace("press: bright", "press: bright, kick: bright"))
    assert 0 == call("create", "file:kept", "lamp/1", "--chart", "lamp.yaml").code
    before = checks(call, "file:kept", "--chart", "other.yaml")["revisions"]
    shutil.rmtree(lamps / "kept" / "definitions")
    after = checks(call, "file:kept", "--chart", "other.yaml")["revisions"]

    assert ("ok", "warning") == (before[0], after[0])
    assert "`lamp`" in after[1]


def test_without_a_store_only_the_machine_is_checked(call: Caller, folder: Path) -> None:
    ended = call("doctor")

    assert 0 == ended.code
    assert "no store given" in ended.err
    assert "disk" not in ended.out


def test_the_store_of_the_project_is_checked(call: Caller, lamps: Path) -> None:
    (lamps / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")

    assert {"store", "entities"} <= set(checks(call))


def test_a_missing_store_is_not_created(call: Caller, folder: Path) -> None:
    found = checks(call, "sqlite:///none.db")

    assert ("warning", "interlock create, or db upgrade, creates it") == (found["store"][0], found["store"][2])
    assert "work" not in found
    assert not (folder / "none.db").exists()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO schema_version (version, name) VALUES (999, 'later')")
    connection.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def _ahead(path: Path) -> None:
    os.utime(path, (4_000_000_000, 4_000_000_000))


@pytest.mark.parametrize(
    ("harm", "name", "printed"),
    [(_newer, "store", "newer release"), (_garbage, "store", "lamps.db"), (_ahead, "clock", "in the future")],
    ids=["newer", "garbage", "ahead"],
)
def test_an_error_of_the_store_is_reported_with_exit_code_1(
    call: Caller, lamps: Path, harm: Callable[[Path], None], name: str, printed: str
) -> None:
    harm(lamps / "lamps.db")
    before = (lamps / "lamps.db").read_bytes()
    ended = call("doctor", STORE, *CHARTED)
    lines = [line for line in ended.out.splitlines() if line.startswith("✗")]

    assert 1 == ended.code, ended.out
    assert any(printed in line and line.startswith(f"✗ {name}") for line in lines), ended.out
    assert "✓ python" in ended.out
    assert before == (lamps / "lamps.db").read_bytes()


@pytest.mark.parametrize(
    ("free", "mark", "code"), [(10 << 30, "ok", 0), (512 << 20, "warning", 0), (1 << 20, "error", 1), (0, "error", 1)]
)
def test_low_disk_space_is_reported(
    call: Caller, lamps: Path, monkeypatch: pytest.MonkeyPatch, free: int, mark: str, code: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, free))
    ended = call("doctor", STORE)

    assert (code, mark) == (ended.code, checks(call, STORE)["disk"][0])


def test_a_network_file_system_is_an_error(call: Caller, lamps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "file_system", lambda path: "nfs4")

    status, _, fix = checks(call, STORE)["file system"]
    assert ("error", "use a local disk") == (status, fix)


def test_an_extra_that_the_store_needs_is_a_failure_and_another_is_not(
    call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda module: False)
    monkeypatch.setattr(doctor, "store_checks", _nothing)
    here = checks(call, "postgresql://127.0.0.1/none")
    other = checks(call)

    assert ("error", "pip install 'interlock[postgres]'") == (here["extra"][0], here["extra"][2])
    assert ("ok", False) == (other["extras"][0], "extra" in other)


async def _nothing(url: str, charts: Any) -> list[doctor.Check]:
    return []


def test_a_fallback_of_shared_memory_is_a_warning(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "select_mode", lambda: "flock")
    slower = checks(call)["shared memory"]
    monkeypatch.setattr(doctor, "select_mode", _refused)
    absent = checks(call)["shared memory"]

    assert ("warning", True) == (slower[0], "fallback flock" in slower[1])
    assert ("warning", "no", "use a store") == absent


def _refused() -> None:
    raise UsageError("no", code="shm.machine", hint="use a store")


def test_an_old_sqlite_library_is_an_error(call: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIBRARY_MIN", (99, 0, 0))
    ended = call("doctor")

    assert (1, True) == (ended.code, "99.0.0 or newer" in ended.out)


def test_an_old_library_is_a_warning_where_a_file_is_shared(
    call: Caller, lamps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of the application checkpoint, too; in a file of the store only the store does."""
    with sqlite3.connect(lamps / "shop.db") as connection:
        connection.execute("CREATE TABLE payment (id)")
    connection.close()
    call("create", "sqlite:///shop.db", "lamp/1", *CHARTED)
    found = []
    for safe in ((99, 0, 0), (3, 37, 0)):
        monkeypatch.setattr(doctor, "LIBRARY_CHECKPOINTS_SAFELY", safe)
        shared, own = checks(call, "sqlite:///shop.db"), checks(call, STORE)
        found.append((shared["shared file"][0], "shared file" in own))

    assert [("warning", False), ("ok", False)] == found
    monkeypatch.setattr(doctor, "LIBRARY_CHECKPOINTS_SAFELY", (99, 0, 0))
    assert "wal_autocheckpoint = 0" in (checks(call, "sqlite:///shop.db")["shared file"][2] or "")


def test_overdue_work_and_stuck_entities_are_counted(call: Caller, lamps: Path) -> None:
    (lamps / "job.yaml").write_text(
        "interlock: 1\nkind: job\nrevision: 1.0.0\nstates: {new: {entry: [begin], expect: {within: 1m}}}\n",
        encoding="utf-8",
    )
    clock = VirtualClock()
    with interlock.open(STORE, charts=[interlock.load("job.yaml")], clock=clock, work=False).blocking() as jobs:
        jobs.create("job/1")
        jobs.create("job/2")
    ended = call("doctor", STORE, "--chart", "job.yaml")

    assert 0 == ended.code
    assert "! work           2 overdue\n" in ended.out
    assert "! entities       2 longer in a state than expected\n                 fix: interlock stuck\n" in ended.out


def test_times_in_the_future_are_reported_with_a_fix(call: Caller, lamps: Path) -> None:
    (lamps / "job.yaml").write_text(
        "interlock: 1\nkind: job\nrevision: 1.0.0\nstates: {new: {entry: [begin], after: {1h: old}}, old: {}}\n",
        encoding="utf-8",
    )
    before = checks(call, STORE, *CHARTED)["times"]
    clock = VirtualClock(SystemClock().now_ms() + 10 * 365 * 86_400_000)
    with interlock.open(STORE, charts=[interlock.load("job.yaml")], clock=clock, work=False).blocking() as jobs:
        jobs.create("job/1")
    mark, printed, fix = checks(call, STORE, *CHARTED)["times"]

    assert ("ok", "none in the future", None) == before
    assert "warning" == mark
    assert "in the future: 1 entities, 1 timers, 1 pieces of work, such as job/1/1/" in printed
    assert "set the clock with NTP, then start a worker" in (fix or "")
    assert "interlock effects retry job/1/1/" in (fix or "")
    assert "--force" in (fix or "")


def test_a_bus_of_the_store_is_named_and_nats_comes_with_a_warning(call: Caller, folder: Path) -> None:
    with interlock.connect(
        "sqlite:///lamps.db", charts=[interlock.load("lamp.yaml")], bus="nats://ada:secret@127.0.0.1:1?stream=lamps"
    ):
        pass
    found = call("doctor", "sqlite:///lamps.db", "--json")
    checks = {each["name"]: each for each in json.loads(found.out)["checks"]}

    assert ("ok", True) == (checks["messages"]["status"], "nats://127.0.0.1:1" in checks["messages"]["detail"])
    assert ("warning", True) == (checks["nats"]["status"], "sync_interval" in checks["nats"]["fix"])
    assert "secret" not in found.out
