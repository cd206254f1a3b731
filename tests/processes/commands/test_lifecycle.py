"""`interlock lifecycle` next to a process that has joined."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.cli import exit_codes
from interlock.shm import Phase, lifecycle_status
from tests.support.cli import Caller
from tests.support.eventually import PATIENCE_SECONDS

PROGRAM = """
import sys
from interlock.shm.lifecycle.asgi import shared_lifecycle

with shared_lifecycle("checkout", slots=4) as life:
    permit = life.enter()
    print("inside", flush=True)
    sys.stdin.readline()
    life.exit(permit)
    life.wait_closed()
    sys.stdin.readline()  # the name exists until the last process leaves
"""


@pytest.fixture
def regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of regions of this test only."""
    folder = tmp_path / "regions"
    monkeypatch.setenv("INTERLOCK_RUNTIME_DIR", str(folder))
    return folder


@contextmanager
def joined() -> Iterator[subprocess.Popen[str]]:
    """A process that has joined and holds a permit until it reads a line."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        assert started.stdout.readline() == "inside\n"
        yield started
    finally:
        started.kill()
        started.communicate(timeout=PATIENCE_SECONDS)


def shown(call: Caller, *words: str) -> Any:
    return json.loads(call("lifecycle", "show", *words, "--json").out)


@pytest.mark.usefixtures("regions")
def test_show_names_the_processes_and_their_permits(call: Caller) -> None:
    with joined() as process:
        text = call("lifecycle", "show", "checkout").out
        found = shown(call, "checkout")
        listed = call("lifecycle", "show").out

    assert text.splitlines() == [
        "checkout  RUNNING  1 process, 1 permit",
        f"  slot 0    pid {process.pid}, 1 permit",
    ]
    assert listed == "checkout  RUNNING  1 process, 1 permit\n"
    assert found["processes"] == [{"pid": process.pid, "slot": 0, "permits": 1}]
    assert (found["phase"], found["slots"], found["permits"], found["died"]) == ("RUNNING", 4, 1, [])


@pytest.mark.usefixtures("regions")
def test_show_needs_no_free_slot_and_changes_nothing(call: Caller) -> None:
    with joined(), joined(), joined(), joined():
        before = lifecycle_status("checkout")
        found = shown(call, "checkout")

        assert lifecycle_status("checkout") == before
        assert len(found["processes"]) == before.slots == 4


@pytest.mark.usefixtures("regions")
def test_a_process_that_died_inside_is_named_and_a_drain_ignores_it(call: Caller) -> None:
    with joined() as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
        text = call("lifecycle", "show", "checkout").out
        ended = call("lifecycle", "drain", "checkout")

    assert text.splitlines() == [
        "checkout  RUNNING  0 processes, 0 permits",
        f"  slot 0    pid {process.pid}, 1 permit, died: ignored by a drain",
    ]
    assert (exit_codes.OK, True) == (ended.code, "checkout is closed; 1 process had died" in ended.out)


@pytest.mark.usefixtures("regions")
def test_drain_says_who_is_inside_and_closes_when_they_have_left(call: Caller) -> None:
    with joined() as process:
        waits = call("lifecycle", "drain", "checkout", "--timeout", "1ms")
        assert lifecycle_status("checkout").phase is Phase.DRAINING
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        closed = call("lifecycle", "drain", "checkout", "--timeout", f"{PATIENCE_SECONDS:g}s")

    assert exit_codes.UNAVAILABLE == waits.code
    assert f"checkout is not closed: pid {process.pid}, 1 permit" in waits.err
    assert (exit_codes.OK, "checkout is closed\n") == (closed.code, closed.out)


@pytest.mark.usefixtures("regions")
def test_an_unknown_name_and_a_missing_command_are_errors(call: Caller) -> None:
    unknown = call("lifecycle", "show", "chekcout")
    invalid = call("lifecycle", "drain", "../checkout")
    missing = call("lifecycle")
    nothing = call("lifecycle", "show")

    assert (exit_codes.NOT_FOUND, True) == (unknown.code, "unknown region `chekcout`" in unknown.err)
    assert (exit_codes.USAGE, True) == (invalid.code, "not a valid region name" in invalid.err)
    assert exit_codes.USAGE == missing.code
    assert nothing.out == "no lifecycles\n"


def test_a_region_of_an_earlier_boot_is_listed_with_its_problem(call: Caller, regions: Path) -> None:
    regions.mkdir(mode=0o700)
    (regions / "old").write_bytes(b"not a region")
    (regions / "old").chmod(0o600)

    text = call("lifecycle", "show")

    assert (exit_codes.OK, True) == (text.code, text.out.startswith("old  this file is not a region"))
    assert ["region.magic"] == [each["code"] for each in shown(call)]
