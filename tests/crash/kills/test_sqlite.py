"""Real processes and kill -9 on a SQLite store: acknowledged entries are stored once, and none is stored in part."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from interlock.errors import UnavailableError
from interlock.ports.store import Append, Appended, Duplicate
from interlock.stores.sqlite.store import SqliteStore
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal, snapshot
from tests.crash.kills import sqlite_writers
from tests.crash.kills.store_writer import ENTITIES
from tests.crash.kills.storm import storm

KILLS = int(os.environ.get("INTERLOCK_KILLS", "40"))
SCRIPT = Path(sqlite_writers.__file__)
ROOT = SCRIPT.parents[3]


def started(*arguments: object) -> subprocess.Popen[str]:
    """Start the script as a process with our package, and capture its output."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths})


@pytest.mark.slow
def test_killed_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Four writers on the same entities, one after the other killed in the middle of a send and started again."""
    path = tmp_path / "storm.db"
    outcome = storm(f"sqlite:///{path}", kills=KILLS, seed=7)
    with closing(sqlite3.connect(path)) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
        assert [(ENTITIES,)] == connection.execute("SELECT sum(entities) FROM state_count").fetchall()

    assert ([], KILLS) == (outcome.found(), outcome.kills)
    assert (True, True) == (outcome.inside > KILLS // 2, len(outcome.kept) > KILLS)


@pytest.mark.slow
def test_a_store_that_answers_too_early_is_detected(tmp_path: Path) -> None:
    """The storm is not blind: a writer that acknowledges before COMMIT loses an entry within a few kills."""
    outcome = storm(f"sqlite:///{tmp_path / 'early.db'}", kills=10, seed=7, writers=1, fault="early")

    assert [] != outcome.lost


@pytest.mark.slow
async def test_a_commit_cut_at_any_byte_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    with started("torn", f"sqlite:///{path}") as process:
        output, _ = process.communicate()
    before, after = map(int, output.split())
    log = path.with_name("torn.db-wal").read_bytes()
    cuts = sorted({*range(before, after, 1_021), before, before + 1, before + 24, after - 4_096, after - 1, after})
    seen = set()
    for cut in cuts:
        for tail in (b"", bytes(after - cut)):
            copy = tmp_path / "copy.db"
            shutil.copy(path, copy)
            copy.with_name("copy.db-wal").write_bytes(log[:cut] + tail)
            copy.with_name("copy.db-shm").unlink(missing_ok=True)
            store = SqliteStore(copy)
            versions = {len(await journal(store, f"parcel/{each}")) for each in range(sqlite_writers.BATCH)}
            now = {(await snapshot(store, f"parcel/{each}")).version for each in range(sqlite_writers.BATCH)}
            await store.close()
            assert versions == now
            assert 1 == len(versions), f"cut at {cut}: some of a batch"
            assert cut < after or {2} == versions, "a whole log, and the batch is not there"
            seen |= versions

    assert {1, 2} == seen


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
async def test_a_kill_before_any_statement_of_a_batch_leaves_none_of_it(tmp_path: Path, count: int) -> None:
    """The process dies before each statement in turn: the batch before stands, this one can be sent again."""
    with started("inside", tmp_path, count) as process:
        output, _ = process.communicate()
    statements, ending = map(int, output.split())
    for kill_at in range(statements):
        store = SqliteStore(tmp_path / f"{kill_at}.db")
        for number in range(count):
            sample = SampleEntity(f"parcel/{number}")
            born, step = sample.create(), sample.step("shipped", key="s")
            assert 1 == len(await journal(store, sample.entity))
            assert Duplicate(1) == await store.append(born)
            assert isinstance(await store.append(step), Appended)
            assert sample.snapshot == await snapshot(store, sample.entity)
        await store.close()

    assert 0 == ending
    assert statements > 6 + 4 * count


async def _until_full(store: SqliteStore, sample: SampleEntity) -> Append:
    """Append until the disk is full; return the append that failed."""
    while True:
        append = sample.step("written", {"text": "x" * 2_000}, key=f"k{sample.time_ms}")
        try:
            await append_all(store, append)
        except UnavailableError as error:
            if error.code != "store.full":
                raise
            return append


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    """No page can be had: callers get UnavailableError, what was acknowledged stays, and the same keys work later."""
    path = tmp_path / "full.db"
    store = SqliteStore(path)
    connection = store.database.queue.writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    await asyncio.to_thread(connection.execute, f"PRAGMA max_page_count = {pages + 40}")
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    refused = await _until_full(store, sample)
    others = [SampleEntity(f"parcel/other{each}") for each in range(100)]
    full = await asyncio.gather(*(store.append(each.create()) for each in others), return_exceptions=True)
    assert (
        UnavailableError in {type(each) for each in full} <= {UnavailableError, Appended}
    )  # a small row may still fit
    assert refused.expected == len(await journal(store, "parcel/1"))

    await asyncio.to_thread(connection.execute, "PRAGMA max_page_count = 1000000")
    await append_all(store, refused)
    again = [each for each, answer in zip(others, full, strict=True) if isinstance(answer, UnavailableError)]
    await asyncio.gather(*(append_all(store, each.create()) for each in again))
    assert sample.snapshot == await snapshot(store, "parcel/1")
    await store.close()
