"""A system call that fails or kills the process loses and duplicates nothing. The report runs all of them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from interlock.errors import UnavailableError
from interlock.stores.sqlite.connection import translate_error
from tests.crash.disks import failing_calls
from tests.crash.disks.failing_calls import FAULTS, KILL, LIVES, Fault, calls_of, faults_of, is_possible, prepare, swept

EVERY = {"files": 19, "rotating": 23, "sqlite": 31}
"""How many faults are sampled as one here; not a multiple of the three ways, so that each way has its turn."""


@pytest.fixture(autouse=True)
def traced() -> None:
    """Skip the tests if nothing can be traced."""
    why = is_possible()
    if why is not None:
        pytest.skip(why)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
def test_a_failing_call_loses_and_doubles_nothing(name: str, tmp_path: Path) -> None:
    """Whichever call fails or kills: errors are UnavailableError, receipts hold, the store continues. All fired."""
    sweep = swept(name, tmp_path, every=EVERY[LIVES[name].store])

    assert ([], []) == (sweep.found, sweep.silent)
    assert sweep.fired >= 8


@pytest.mark.slow
def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """No opening of SQLite's files and folder, ours or the library's, lets an OSError through to the caller."""
    sweep = swept("sqlite, begin", tmp_path, only=["openat"], every=len(FAULTS))

    assert ([], []) == (sweep.found, sweep.silent)


def test_a_lock_that_cannot_be_taken_is_unavailable() -> None:
    """SQLite's `locking protocol` is trouble of the system, over when it is over; not a mistake of ours."""
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL

    assert isinstance(translate_error(error, Path("store.db")), UnavailableError)


@pytest.mark.slow
def test_a_life_makes_the_calls_that_matter(tmp_path: Path) -> None:
    """The count of a clean run covers opening, locking, writing, flushing, cutting, renaming and removing."""
    calls: set[str] = set()
    for name in ("rotating, begin", "rotating, go on", "sqlite, go on"):
        place = tmp_path / name
        place.mkdir()
        ledger = prepare(LIVES[name], place)
        calls |= set(calls_of(LIVES[name], place, tmp_path, ledger))

    written = {"openat", "write", "pwrite64", "fdatasync", "fsync", "ftruncate"}
    named = {"mkdirat", "renameat", "linkat", "unlinkat"}
    assert set() == {*written, *named, "flock", "fcntl"} - calls


@pytest.mark.slow
def test_a_fault_that_never_fires_is_reported(tmp_path: Path) -> None:
    """A call number past the last one has no effect, and the sweep says so instead of passing."""
    beyond = [Fault("fdatasync", 10_000, "EIO"), Fault("fdatasync", 10_000, KILL)]
    with patch.object(failing_calls, "faults_of", lambda calls: beyond):
        sweep = swept("files, begin", tmp_path)

    assert (["fdatasync #10000 EIO", "fdatasync #10000 kill"], 0) == (sweep.silent, sweep.fired)


def test_every_way_has_its_turn_in_the_sample() -> None:
    """The sample that runs with every change holds failing, full and killing calls."""
    faults = list(faults_of(Counter({"write": 40})))

    assert all({each.way for each in faults[::every]} == set(FAULTS) for every in EVERY.values())


def test_what_a_process_lost_is_found(tmp_path: Path) -> None:
    life = LIVES["files, go on"]
    place = tmp_path / "place"
    place.mkdir()
    ledger = prepare(life, place)
    ledger.acknowledged["gone"] = 5
    ledger.asked = ledger.asked - {"k2"} | {"gone"}
    found = failing_calls.examined(life.store, place, ledger)

    assert {"lost: gone at version 5", "phantom: k2"} <= set(found)
