"""What a SQLite file's writer does while it is idle: it forgets keys that are older than the window, and no others."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from interlock.errors import InternalError, UnavailableError
from interlock.model.encoding.codec import encode
from interlock.model.journal.record import chain_start, encode_record
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.clock import SystemClock
from interlock.ports.store import Append, Appended, Duplicate, EntityQuery, Loaded
from interlock.stores import key_boundary
from interlock.stores.key_boundary import KeyBoundary
from interlock.stores.registry import schema_of
from interlock.stores.sql import expired_keys
from interlock.stores.sql.database import Questions
from interlock.stores.sql.expired_keys import MOVE_MS
from interlock.stores.sql.schema import migrations
from interlock.stores.sqlite import commit_queue
from interlock.stores.sqlite.commit_queue import WriteJob
from interlock.stores.sqlite.connection import open_writer
from interlock.stores.sqlite.prefix import APPLICATION_ID
from interlock.stores.sqlite.store import SqliteStore, open_store
from interlock.stores.sqlite.writer import SqliteWriter
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.old_stores import return_sqlite_to_schema

NOW = 1_800_000_000_000
DAY_MS = 86_400_000


class Watch:
    """Hears each time that the writer has nothing left to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        real = SqliteWriter._checkpoint

        def noticed(ledger: SqliteWriter, statement: str) -> bool:
            done = real(ledger, statement)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.idle.set)
            return done

        monkeypatch.setattr(SqliteWriter, "_checkpoint", noticed)

    async def until(self, path: Path, expected: set[str]) -> None:
        """Wait until the file has these keys."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while _keys(path) != expected:
                await self.idle.wait()
                self.idle.clear()


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What is notified of an idle writer."""
    return Watch(monkeypatch)


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Watch) -> AsyncIterator[SqliteStore]:
    """A store that is idle immediately, on a clock that does not move."""
    monkeypatch.setattr(commit_queue, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(expired_keys, "DELETE_MAX", 2)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: NOW)
    made = open_store(f"sqlite:///{tmp_path}/x.db")
    yield made
    await made.close()


def _keys(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM event_key")}


class Time:
    """A machine's two clocks: one that may be wrong, and one that only counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms = NOW
        self.ticks_ms = 7_000
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: self.wall_ms)
        monkeypatch.setattr(key_boundary, "monotonic_ns", lambda: self.ticks_ms * 1_000_000)

    def pass_ms(self, ms: int) -> None:
        """Time passes, and the clock shows it."""
        self.wall_ms += ms
        self.ticks_ms += ms


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Time, moved by the test."""
    return Time(monkeypatch)


class File:
    """A file and its open stores, each of which is idle when the test says so."""

    def __init__(self, path: Path, time: Time) -> None:
        self.path = path
        self.time = time
        self.count = 0
        self.ledger = self.opened()

    def opened(self, tenant: str = "") -> SqliteWriter:
        """One more who writes."""
        return SqliteWriter(open_writer(self.path), self.path, tenant)

    def reopen(self) -> None:
        """The process ends, and another starts."""
        self.ledger.close()
        self.ledger = self.opened()

    def keep(self, key: str, ledger: SqliteWriter | None = None) -> None:
        """One step of a new entity, now, by the clock."""
        self.count += 1
        append = SampleEntity(f"parcel/{self.count}", time_ms=self.time.wall_ms).create(key=key)
        (answer,) = (ledger or self.ledger).commit([append]).answers

        assert isinstance(answer, Appended)

    def idle(self, key: str, ledger: SqliteWriter | None = None) -> set[str]:
        """Keep one more step, then have nothing to do; the keys that are left."""
        self.keep(key, ledger)
        while (ledger or self.ledger).delete_expired_keys():
            pass
        return _keys(self.path)

    def boundary(self, tenant: str = "") -> int:
        """What the file has of it."""
        with closing(sqlite3.connect(self.path)) as connection:
            found = connection.execute("SELECT time_ms FROM key_boundary WHERE tenant = ?", (tenant,)).fetchone()
            return int(found[0])


@pytest.fixture
def file(tmp_path: Path, time: Time) -> Iterator[File]:
    """A new file."""
    made = File(tmp_path / "x.db", time)
    yield made
    made.ledger.close()


def test_a_clock_that_jumps_ahead_takes_no_fresh_keys_with_it(file: File, time: Time) -> None:
    """Entries are stamped by the same clock: they are not independent evidence. Nor is another start."""
    file.idle("pay")
    time.wall_ms += 31 * DAY_MS
    jumped = file.idle("during")
    file.reopen()
    again = file.idle("after another start")
    time.pass_ms(7 * DAY_MS)
    a_week = file.idle("a week later")
    time.wall_ms -= 31 * DAY_MS

    assert {"pay", "during"} == jumped
    assert {"pay", "during", "after another start"} == again
    assert "pay" in a_week
    assert {*a_week, "right again"} == file.idle("right again")


def test_a_clock_that_jumps_before_the_first_quiet_moment_takes_none_either(file: File, time: Time) -> None:
    """A new file has no boundary yet: its oldest key shows when it started."""
    file.keep("pay")
    time.wall_ms += 31 * DAY_MS

    assert {"pay", "during"} == file.idle("during")


def test_keys_are_forgotten_after_the_window_while_the_file_is_open(file: File, time: Time) -> None:
    """Not a day before, and each of many processes that end and start again does its part."""
    file.idle("pay")
    for _ in range(29):
        time.pass_ms(DAY_MS)
        file.idle(f"day {file.count}")
        file.reopen()
    before = _keys(file.path)
    time.pass_ms(2 * DAY_MS)
    after = file.idle("the end")

    assert "pay" in before
    assert before - {"pay"} | {"the end"} == after


def test_time_in_which_nobody_had_the_file_open_is_made_up_for(file: File, time: Time) -> None:
    """Keys are forgotten late then, and the lateness goes by a quarter of the time."""
    hour = DAY_MS // 24
    file.idle("pay")
    time.pass_ms(28 * DAY_MS)
    file.idle("before")
    file.ledger.close()
    time.wall_ms += DAY_MS
    file.ledger = file.opened()
    found = list[bool]()
    for number in range(1, 42):  # after 24 it is as old as the window; two days are passed in 38 hours and a half
        time.pass_ms(hour)
        found.append("pay" in file.idle(f"{number}"))

    assert [*[True] * 38, *[False] * 3] == found


def test_a_key_from_a_clock_that_was_years_behind_holds_nothing_up_for_years(file: File, time: Time) -> None:
    """Where nothing was kept there is nothing to wait for; but the window before the next key is."""
    time.wall_ms = DAY_MS
    file.keep("started in 1970")
    time.wall_ms = NOW
    started = file.idle("pay")
    time.pass_ms(DAY_MS)
    file.idle("next")
    time.pass_ms(31 * DAY_MS)
    gone = file.idle("a month later")
    file.idle("skipped")

    assert {"started in 1970", "pay"} == started
    assert {"pay", "next", "a month later"} == gone
    assert NOW - KEY_WINDOW_MS == file.boundary()


def test_two_who_have_a_file_open_move_its_boundary_no_faster_than_one(file: File, time: Time) -> None:
    """Each continues from what it read when it opened the file, so nothing counts twice."""
    file.idle("pay")
    started = file.boundary()
    with closing(file.opened()) as other:
        time.wall_ms += 365 * DAY_MS
        for number in range(8):
            time.ticks_ms += 3_600_000
            file.idle(f"a{number}")
            file.idle(f"b{number}", other)

    assert 10 * 3_600_000 == file.boundary() - started


def test_one_who_is_behind_moves_the_boundary_not_back(file: File, time: Time) -> None:
    """A clock that falls back makes a second process say less: what the first wrote stands."""
    file.idle("pay")
    with closing(file.opened()) as other:
        time.pass_ms(DAY_MS)
        file.idle("a day")
        time.wall_ms -= DAY_MS // 2
        file.idle("half a day", other)

    assert NOW + DAY_MS - KEY_WINDOW_MS == file.boundary()


def test_each_tenant_has_its_boundary(file: File, time: Time) -> None:
    """One that opens later starts then."""
    file.idle("pay")
    time.pass_ms(DAY_MS)
    file.idle("next")
    with closing(file.opened("two")) as two:
        file.idle("other", two)

        assert (NOW + DAY_MS - KEY_WINDOW_MS,) * 2 == (file.boundary(), file.boundary("two"))
        time.pass_ms(DAY_MS)
        file.idle("more", two)

        assert NOW + 2 * DAY_MS - KEY_WINDOW_MS == file.boundary("two")
    assert NOW + DAY_MS - KEY_WINDOW_MS == file.boundary()


def test_who_has_nothing_to_forget_writes_nothing(file: File, time: Time) -> None:
    """A quiet moment costs no flush, unless the boundary moved by a minute."""
    file.idle("pay")
    changes = file.ledger._connection.total_changes
    time.pass_ms(MOVE_MS - 1)
    file.ledger._newest_ms = time.wall_ms
    file.ledger.delete_expired_keys()
    nothing = file.ledger._connection.total_changes - changes
    time.pass_ms(1)
    file.ledger._newest_ms = time.wall_ms
    file.ledger.delete_expired_keys()

    assert (0, 1) == (nothing, file.ledger._connection.total_changes - changes)


def test_a_boundary_that_cannot_be_read_stops_no_store_from_opening(file: File) -> None:
    """It is read when it is needed."""
    file.ledger._connection.execute("ALTER TABLE key_boundary RENAME TO away")
    with closing(file.opened()) as other:
        file.ledger._connection.execute("ALTER TABLE away RENAME TO key_boundary")
        other._newest_ms = NOW

        assert other.delete_expired_keys() is False
        assert other.poison is None


def test_a_file_of_an_earlier_release_begins_at_its_oldest_key(tmp_path: Path, time: Time) -> None:
    """The history of its clock is unknown: keys stay for now, and expire as time passes."""
    path = tmp_path / "x.db"
    with closing(File(path, time).ledger) as ledger:
        for days in (40, 38, 1):
            append = SampleEntity(f"parcel/old-{days}", time_ms=NOW - days * DAY_MS).create(key=f"{days} days")
            ledger.commit([append])
        for each in (each for each in migrations("sqlite") if each.number >= 8):
            for name in re.findall(r"CREATE TABLE (\w+)", each.text):
                ledger._connection.execute(f"DROP TABLE {name}")
        for each in (each for each in migrations("sqlite") if each.number < 8):
            for statement in re.findall(r"^CREATE [^;]*audit_refusal[^;]*;", each.text, re.MULTILINE):
                ledger._connection.execute(statement)
        ledger._connection.execute("ALTER TABLE schema_version DROP COLUMN oldest_reader")
        ledger._connection.execute("DELETE FROM schema_version WHERE version >= 8")
    file = File(path, time)
    started, opened = file.boundary(), file.idle("opened")
    time.pass_ms(DAY_MS)
    a_day = file.idle("a day")
    file.ledger.close()

    assert NOW - 40 * DAY_MS == started
    assert {"40 days", "38 days", "1 days", "opened"} == opened
    assert {"38 days", "1 days", "opened", "a day"} == a_day


async def test_keys_older_than_the_window_are_forgotten_when_idle(
    store: SqliteStore, watch: Watch, tmp_path: Path
) -> None:
    """In batches, until none is left; the journal is untouched."""
    old, new = SampleEntity("parcel/1", time_ms=NOW - KEY_WINDOW_MS - 1_000), SampleEntity("parcel/2", time_ms=NOW)
    store.database.queue.writer._expired_keys._boundary = KeyBoundary(NOW - KEY_WINDOW_MS)
    await append_all(store, old.create(), *(old.step(key=f"old-{number}") for number in range(5)))
    await append_all(store, new.create(key="new"))
    await watch.until(tmp_path / "x.db", {"new"})

    assert isinstance(await store.load("parcel/1", key="old-1"), Loaded)
    assert Duplicate(1) == await store.load("parcel/2", key="new")
    assert 6 == len(await store.read("parcel/1"))


async def test_a_writer_that_is_busy_elsewhere_is_not_waited_for(store: SqliteStore, tmp_path: Path) -> None:
    """Another process holds the write lock: the keys are left for another time, and the writer is as good as before."""
    path = tmp_path / "x.db"
    await append_all(store, SampleEntity("parcel/1", time_ms=NOW - KEY_WINDOW_MS - 1_000).create(key="old"))
    await store.close()
    ledger = SqliteWriter(open_writer(path), path, "")
    ledger._newest_ms = NOW
    ledger._expired_keys._boundary = KeyBoundary(NOW - KEY_WINDOW_MS)
    with closing(ledger), closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        busy = ledger.delete_expired_keys(), ledger.poison, _keys(path)
        blocker.execute("ROLLBACK")
        ledger.delete_expired_keys()

    assert (False, None, {"old"}) == busy
    assert set() == _keys(path)


async def test_a_chore_that_ends_the_writer_is_answered(store: SqliteStore) -> None:
    """Whatever happens to the thread, no caller waits forever, and the store reports that it gave up."""

    def burst() -> Questions[bool]:
        raise MemoryError("no room for a thought")

    loop = asyncio.get_running_loop()
    chore = WriteJob(burst, loop, loop.create_future())
    store.database.queue.submit_job(chore)
    with pytest.raises(InternalError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await chore.future
    store.database.queue.close()
    with pytest.raises(UnavailableError):
        await store.release_journal("parcel/1", version=1, archive="file:///x")


async def test_chores_that_wait_when_the_store_closes_are_answered(tmp_path: Path) -> None:
    """No caller waits for a thread that has ended."""
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await store.close()
    with pytest.raises(UnavailableError):
        await store.release_journal("parcel/1", version=1, archive="file:///x")


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
    sample = SampleEntity("parcel/1")
    before = _written_by_hand(path, sample.create())
    store = open_store(f"sqlite:///{path}")
    listed = await store.find(EntityQuery(kind="parcel", state="packed"))
    await append_all(store, sample.step("shipped", key="s"), sample.step("delivered", key="d"))
    lines = [each.line for each in await store.read("parcel/1")]
    packed = await store.find(EntityQuery(kind="parcel", state="packed"))
    different = await store.differences("parcel/1")
    released = await store.release_journal("parcel/1", version=3, archive="file:///archive")
    await store.close()
    found = await schema_of(f"sqlite:///{path}")

    assert ["parcel/1"] == [each.entity for each in listed.rows]
    assert ((), ()) == (packed.rows, different)
    assert before == lines[0]
    assert released
    assert found is not None
    assert (found.newest, True) == (found.current, found.newest >= 2)


@pytest.mark.parametrize("number", [each.number for each in migrations("sqlite")][:-1])
async def test_a_file_of_every_earlier_schema_is_upgraded_with_its_entities(tmp_path: Path, number: int) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    sample, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    before = open_store(url)
    await append_all(before, sample.create(), sample.step("shipped", key="a"), other.create())
    entries = await before.read("parcel/1")
    found = await before.find(EntityQuery(kind="parcel"))
    await before.close()
    return_sqlite_to_schema(tmp_path / "x.db", number)
    store = open_store(url)

    assert (entries, found) == (await store.read("parcel/1"), await store.find(EntityQuery(kind="parcel")))
    assert isinstance(await store.append(SampleEntity("parcel/2").create()), Duplicate)
    await append_all(store, sample.step("delivered", key="b"), other.step(key="c"))
    assert [3, 2] == [len(await store.read(each)) for each in ("parcel/1", "parcel/2")]
    assert 5 == len((await store.feed(None, limit=10)).entries)
    assert [()] * 3 == [await store.differences(each) for each in (None, "parcel/1", "parcel/2")]
    await store.close()


def _written_by_hand(path: Path, append: Append) -> bytes:
    """One step in a file, by the statements of the first release."""
    record = encode_record(append.entry, durable=0, previous=chain_start(append.entity))
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
