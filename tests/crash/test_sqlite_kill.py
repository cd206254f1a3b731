"""Real processes and real kill -9 on a SQLite store: what was acknowledged is there once, and nothing is half there."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interlock.errors import UnavailableError
from interlock.ports.store import Append, Appended, Duplicate
from interlock.stores.sqlite import SqliteStore
from interlock.testing.store_samples import Life
from interlock.testing.store_subject import journal, kept, snapshot
from tests.crash import sqlite_writers

KILLS = int(os.environ.get("INTERLOCK_KILLS", "50"))
WRITERS = 4
TASKS = 4
SCRIPT = Path(sqlite_writers.__file__)
ROOT = SCRIPT.parents[2]


def started(*arguments: object) -> subprocess.Popen[str]:
    """A process of the script, with our package and its output in our hands."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths})


@dataclass
class Writer:
    """One writer over all its lives: what it was told, and where each of its tasks goes on."""

    address: str
    name: str
    command: str = "storm"
    process: subprocess.Popen[str] = field(init=False)
    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    duplicates: int = 0

    def start(self) -> None:
        """Begin, each task at its first key that was not acknowledged: a key in doubt is sent again."""
        self.process = started(self.command, self.address, self.name, *(self._next(each) for each in range(TASKS)))

    def hear(self) -> None:
        """Take in one acknowledgement."""
        self._note(self._output().readline())

    def kill(self) -> None:
        """End it where it stands, and take in what it had said by then."""
        self.process.kill()
        for line in self._output():
            self._note(line)
        self.process.wait()
        self._output().close()

    def _output(self) -> subprocess.IO[str]:  # type: ignore[name-defined]  # typeshed has it
        assert self.process.stdout is not None
        return self.process.stdout

    def _next(self, task: int) -> int:
        return sum(key.startswith(f"{self.name}.{task}.") for key in self.acknowledged)

    def _note(self, line: str) -> None:
        assert line.endswith("\n"), f"{self.name} ended by itself: {line!r}"
        key, entity, version, outcome = line.split()
        assert key not in self.acknowledged
        self.acknowledged[key] = (entity, int(version))
        self.duplicates += outcome == "duplicate"


async def _check(path: Path, acknowledged: dict[str, tuple[str, int]]) -> int:
    """Every acknowledged entry once, at its version; journals chained, replay equal to snapshots; the entries kept."""
    store = SqliteStore(path)
    found: dict[str, tuple[str, int]] = {}
    entries = 0
    for number in range(sqlite_writers.ENTITIES):
        entity = f"parcel/{number}"
        records = await journal(store, entity)
        keys = {each.key: (entity, each.version) for each in records}
        assert len(records) == len(keys), f"a key twice in {entity}"
        assert len(records) - 1 == (await snapshot(store, entity)).context["notes"]
        found |= keys
        entries += len(records)
    await store.close()

    assert {} == {key: place for key, place in acknowledged.items() if found.get(key) != place}
    return entries


async def _born(path: Path) -> None:
    store = SqliteStore(path)
    await kept(store, *(Life(f"parcel/{each}").created() for each in range(sqlite_writers.ENTITIES)))
    await store.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_killed_writers_lose_and_double_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Four writers on the same entities, one after the other killed and started again with the keys in doubt."""
    seed = random.randrange(2**32)
    record_property("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "storm.db"
    await _born(path)
    writers = [Writer(f"sqlite:///{path}", f"w{each}") for each in range(WRITERS)]
    for each in writers:
        each.start()
    try:
        for _ in range(KILLS):
            victim = chance.choice(writers)
            for _ in range(chance.randint(1, 12)):
                victim.hear()
            victim.kill()
            victim.start()
    finally:
        for each in writers:
            each.kill()
    acknowledged = {key: place for each in writers for key, place in each.acknowledged.items()}
    entries = await _check(path, acknowledged)
    with closing(sqlite3.connect(path)) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
        assert [(sqlite_writers.ENTITIES,)] == connection.execute("SELECT entities FROM state_count").fetchall()
    in_doubt = entries - sqlite_writers.ENTITIES - len(acknowledged)
    record_property("acknowledged", len(acknowledged))
    record_property("kept_unheard", in_doubt)
    record_property("duplicates", sum(each.duplicates for each in writers))

    assert len(acknowledged) >= KILLS
    assert 0 <= in_doubt <= WRITERS * TASKS


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_store_that_answers_too_early_is_found_out(tmp_path: Path) -> None:
    """The storm is not blind: a writer that acknowledges before COMMIT loses an entry within a few kills."""
    path = tmp_path / "early.db"
    await _born(path)
    writer = Writer(f"sqlite:///{path}", "w", "early")
    lost = False
    for _ in range(100):
        writer.start()
        writer.hear()
        writer.kill()
        try:
            await _check(path, writer.acknowledged)
        except AssertionError:
            lost = True
            break

    assert lost


@pytest.mark.slow
async def test_a_commit_cut_at_any_byte_is_whole_or_not_there(tmp_path: Path) -> None:
    """The log of a killed process, cut or blanked inside its last transaction: the batch is all there or all gone."""
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
@pytest.mark.timeout(120)
async def test_a_kill_before_any_statement_of_a_batch_leaves_none_of_it(tmp_path: Path) -> None:
    """The process dies before each statement in turn: the batch before stands, this one can be sent again."""
    with started("inside", tmp_path) as process:
        output, _ = process.communicate()
    statements, ending = map(int, output.split())
    for kill_at in range(statements):
        store = SqliteStore(tmp_path / f"{kill_at}.db")
        for number in range(3):
            life = Life(f"parcel/{number}")
            born, step = life.created(), life.stepped("shipped", key="s")
            assert 1 == len(await journal(store, life.entity))
            assert Duplicate(1) == await store.append(born)
            assert isinstance(await store.append(step), Appended)
            assert life.snapshot == await snapshot(store, life.entity)
        await store.close()

    assert 0 == ending
    assert statements > 20


async def _until_full(store: SqliteStore, life: Life) -> Append:
    """Append until there is no room; the append that found none."""
    while True:
        append = life.stepped("written", {"text": "x" * 2_000}, key=f"k{life.time_ms}")
        try:
            await kept(store, append)
        except UnavailableError as error:
            if error.code != "store.full":
                raise
            return append


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    """No page can be had: callers hear UnavailableError, what was acknowledged stays, and the same keys go on later."""
    path = tmp_path / "full.db"
    store = SqliteStore(path)
    connection = store._writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    await asyncio.to_thread(connection.execute, f"PRAGMA max_page_count = {pages + 40}")
    life = Life("parcel/1")
    await kept(store, life.created())
    refused = await _until_full(store, life)
    others = [Life(f"parcel/other{each}") for each in range(100)]
    full = await asyncio.gather(*(store.append(each.created()) for each in others), return_exceptions=True)
    assert {UnavailableError} == {type(each) for each in full}
    assert refused.expected == len(await journal(store, "parcel/1"))

    await asyncio.to_thread(connection.execute, "PRAGMA max_page_count = 1000000")
    await kept(store, refused)
    await asyncio.gather(*(kept(store, each.created()) for each in others))
    assert life.snapshot == await snapshot(store, "parcel/1")
    await store.close()
