"""What a SQLite file's writer does when nobody sends: it forgets keys that are older than the window, and no others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from interlock.errors import InternalError, UnavailableError
from interlock.model.codec import encode
from interlock.model.limits import KEY_WINDOW_MS
from interlock.model.record import encode_record, genesis
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Duplicate, Loaded, Query
from interlock.stores import sqlite_ledger, sqlite_upkeep, sqlite_writer
from interlock.stores.schema import schema_of
from interlock.stores.sqlite import SqliteStore, open_store
from interlock.stores.sqlite_connect import APPLICATION_ID, open_writer
from interlock.stores.sqlite_ledger import Ledger
from interlock.stores.sqlite_upkeep import Chore, expired_before_ms
from interlock.testing.store_samples import Life
from interlock.testing.store_subject import kept

NOW = 1_800_000_000_000


class Watch:
    """Hears each time that the writer has nothing left to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        real = Ledger._checkpoint

        def noticed(ledger: Ledger, statement: str) -> bool:
            done = real(ledger, statement)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.idle.set)
            return done

        monkeypatch.setattr(Ledger, "_checkpoint", noticed)

    async def until(self, path: Path, expected: set[str]) -> None:
        """Wait until the file has these keys."""
        async with asyncio.timeout(20):
            while _keys(path) != expected:
                await self.idle.wait()
                self.idle.clear()


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What hears of an idle writer."""
    return Watch(monkeypatch)


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Watch) -> AsyncIterator[SqliteStore]:
    """A store that is idle at once, on a clock that stands."""
    monkeypatch.setattr(sqlite_writer, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(sqlite_upkeep, "PURGE_MAX", 2)
    monkeypatch.setattr(sqlite_ledger, "PURGE_MAX", 2)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: NOW)
    made = open_store(f"sqlite:///{tmp_path}/x.db")
    yield made
    await made.close()


def _keys(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM event_key")}


async def test_keys_older_than_the_window_are_forgotten_when_idle(
    store: SqliteStore, watch: Watch, tmp_path: Path
) -> None:
    """In batches, until none is left; the journal is untouched."""
    old, new = Life("parcel/1", time_ms=NOW - KEY_WINDOW_MS - 1_000), Life("parcel/2", time_ms=NOW)
    await kept(store, old.created(), *(old.stepped(key=f"old-{number}") for number in range(5)))
    await kept(store, new.created(key="new"))
    await watch.until(tmp_path / "x.db", {"new"})

    assert isinstance(await store.load("parcel/1", key="old-1"), Loaded)
    assert Duplicate(1) == await store.load("parcel/2", key="new")
    assert 6 == len(await store.read("parcel/1"))


@pytest.mark.parametrize(
    ("now_ms", "newest_ms", "expected"),
    [
        (NOW, NOW, NOW - KEY_WINDOW_MS),
        (NOW * 2, NOW, NOW - KEY_WINDOW_MS),
        (NOW, NOW * 2, NOW - KEY_WINDOW_MS),
    ],
)
def test_one_clock_that_runs_ahead_makes_nobody_forget(now_ms: int, newest_ms: int, expected: int) -> None:
    """The earlier of the machine's clock and the newest entry counts."""
    assert expected == expired_before_ms(now_ms, newest_ms)


async def test_a_writer_that_is_busy_elsewhere_is_not_waited_for(store: SqliteStore, tmp_path: Path) -> None:
    """Another process holds the write lock: the keys are left for another time, and the writer is as good as before."""
    path = tmp_path / "x.db"
    await kept(store, Life("parcel/1", time_ms=NOW - KEY_WINDOW_MS - 1_000).created(key="old"))
    await store.close()
    ledger = Ledger(open_writer(path), path, "")
    ledger._newest_ms = NOW
    with closing(ledger), closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        busy = ledger.purge(), ledger.poison, _keys(path)
        blocker.execute("ROLLBACK")
        ledger.purge()

    assert (False, None, {"old"}) == busy
    assert set() == _keys(path)


async def test_a_chore_that_ends_the_writer_is_answered(store: SqliteStore) -> None:
    """Whatever happens to the thread, nobody is left waiting; and the store says that it gave up."""

    def burst(connection: sqlite3.Connection) -> bool:
        raise MemoryError("no room for a thought")

    loop = asyncio.get_running_loop()
    chore = Chore(burst, loop, loop.create_future())
    store._writer.submit_chore(chore)
    with pytest.raises(InternalError):
        async with asyncio.timeout(20):
            await chore.future
    store._writer.close()
    with pytest.raises(UnavailableError):
        await store.release("parcel/1", version=1, archive="file:///x")


async def test_chores_that_wait_when_the_store_closes_are_answered(tmp_path: Path) -> None:
    """Nobody is left waiting for a thread that has ended."""
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await store.close()
    with pytest.raises(UnavailableError):
        await store.release("parcel/1", version=1, archive="file:///x")


async def test_a_file_of_the_first_schema_is_brought_up_to_date_with_what_it_holds(
    tmp_path: Path,
) -> None:
    """Entities of an older release are read, written, and can be released; the schema is the newest."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        text = (files("interlock.stores") / "migrations" / "sqlite" / "0001_journals.sql").read_text(encoding="utf-8")
        connection.executescript(text)
        connection.execute("INSERT INTO schema_version (version, name) VALUES (1, 'journals')")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    life = Life("parcel/1")
    before = _written_by_hand(path, life.created())
    store = open_store(f"sqlite:///{path}")
    listed = await store.find(Query(kind="parcel", state="packed"))
    await kept(store, life.stepped("shipped", key="s"), life.stepped("delivered", key="d"))
    lines = [each.line for each in await store.read("parcel/1")]
    packed = await store.find(Query(kind="parcel", state="packed"))
    different = await store.differences("parcel/1")
    released = await store.release("parcel/1", version=3, archive="file:///archive")
    await store.close()
    found = await schema_of(f"sqlite:///{path}")

    assert ["parcel/1"] == [each.entity for each in listed.rows]
    assert ((), ()) == (packed.rows, different)
    assert before == lines[0]
    assert released
    assert found is not None
    assert (found.newest, True) == (found.current, found.newest >= 2)


def _written_by_hand(path: Path, append: Append) -> bytes:
    """One step in a file, by the statements of the first release."""
    record = encode_record(append.entry, durable=0, previous=genesis(append.entity))
    time_ms = append.entry.event.time_ms
    active = encode(dict.fromkeys(append.states, time_ms))
    name = ("", "parcel", "1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO entity VALUES (?, ?, ?, 1, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *name,
                append.snapshot.revision,
                encode(append.snapshot.configuration),
                active,
                encode(append.tags),
                encode(append.snapshot),
                record.head,
                len(record.line),
                time_ms,
                time_ms,
                time_ms,
            ),
        )
        journal = "INSERT INTO journal (tenant, kind, id, version, record, head, time_ms) VALUES (?, ?, ?, 1, ?, ?, ?)"
        connection.execute(journal, (*name, record.line, record.head, time_ms))
        connection.execute("INSERT INTO event_key VALUES (?, ?, ?, ?, 1, ?)", (*name, append.entry.key, time_ms))
        for state in append.states:
            connection.execute("INSERT INTO entity_state VALUES (?, ?, ?, ?, ?)", (*name, state, time_ms))
        for tag in append.tags:
            connection.execute("INSERT INTO entity_tag VALUES ('', 'parcel', ?, '1')", (tag,))
    return record.line
