"""The SQLite store beyond the suite: what it refuses, what it notices, and what its lists cost."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import CorruptionError, InternalError, UnavailableError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append, Appended, Conflict, EntityQuery
from interlock.stores.sql import lists
from interlock.stores.sqlite import connection as sqlite_connect
from interlock.stores.sqlite.store import SqliteStore, open_store
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, expect, journal, list_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of a test lies."""
    return tmp_path / "x.db"


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """What a statement gives on the closed or open file, through a separate connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


async def _some(path: Path, count: int = 3) -> SampleEntity:
    """A store with one entity of some entries, closed again."""
    sample = SampleEntity("parcel/1")
    store = SqliteStore(path)
    await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(count - 1)))
    await store.close()
    return sample


async def test_a_commit_is_flushed_and_the_file_is_private(path: Path) -> None:
    """WAL with synchronous=FULL and foreign keys; no other user may read it; no log is left after a close."""
    store = SqliteStore(path)
    connection = store.database.queue.writer._connection
    settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")]
    await store.close()

    assert [2, 1] == settings
    assert [("wal",)] == rows(path, "PRAGMA journal_mode")
    assert 0o600 == mode(path)


async def test_a_file_behind_a_link_has_its_log_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite keeps the log next to the file; code that flushes and measures it looks there, too."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "x.db")
    flushed = list[Path]()
    monkeypatch.setattr(sqlite_connect, "_flush", flushed.append)
    store = SqliteStore(tmp_path / "link.db")
    store.database.queue.writer._checkpoint_at = 1
    await append_all(store, SampleEntity("parcel/1").create())
    is_long = store.database.queue.writer._wal.reaches(1)
    await store.close()

    assert [tmp_path / "data" / "x.db"] == flushed
    assert is_long


async def test_readers_cannot_write(path: Path) -> None:
    """A statement that changes something is refused on their connections."""
    store = SqliteStore(path)
    with pytest.raises(UnavailableError, match="readonly"):
        await store.database._read(lambda connection: connection.execute("DELETE FROM entity"))
    await store.close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    """A file that a later release wrote is left alone, with a hint."""
    await _some(path)
    rows(path, "INSERT INTO schema_version (version, name) VALUES (999, 'later')")
    with pytest.raises(UsageError, match="999") as raised:
        SqliteStore(path)

    assert "schema.newer" == raised.value.code


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (a)", "SELECT 1"])
def test_another_programs_database_is_refused(path: Path, statement: str) -> None:
    """One that is marked as such: nothing in it is touched."""
    rows(path, "PRAGMA application_id = 7")
    rows(path, statement)
    before = path.read_bytes()
    with pytest.raises(UsageError) as raised:
        SqliteStore(path)

    assert "store.foreign" == raised.value.code
    assert before == path.read_bytes()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """The bytes stay as evidence."""
    path.write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(CorruptionError) as raised:
        SqliteStore(path)

    assert "store.corrupt" == raised.value.code


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """The store cannot be opened there, and says so."""
    with pytest.raises(UnavailableError) as raised:
        SqliteStore(tmp_path)

    assert "store.open" == raised.value.code


async def test_an_address_may_be_escaped_and_name_a_tenant(tmp_path: Path) -> None:
    """Two tenants of one file do not see each other."""
    addresses = [f"sqlite:///{tmp_path}/my%20doors.db?tenant={each}" for each in "ab"]
    first, second = map(open_store, addresses)
    sample = SampleEntity("parcel/1")
    await first.append(sample.create())

    assert (tmp_path / "my doors.db").is_file()
    assert await second.load("parcel/1") is None
    assert (1, 0) == (
        len(await list_all(first, EntityQuery(kind="parcel"))),
        len(await list_all(second, EntityQuery(kind="parcel"))),
    )
    await second.append(SampleEntity("parcel/1").create())
    assert 1 == len(await first.read("parcel/1"))
    await first.close()
    await second.close()


DAMAGE = {
    "altered": "UPDATE journal SET record = CAST(replace(CAST(record AS TEXT), 'noted', 'voted') AS BLOB)",
    "missing in the middle": "DELETE FROM journal WHERE version = 2",
    "missing at the end": "DELETE FROM journal WHERE version = 3",
    "missing altogether": "DELETE FROM journal",
    "swapped": "UPDATE journal SET version = CASE version WHEN 2 THEN 30 ELSE 2 END WHERE version IN (2, 3)",
    "renumbered": "UPDATE journal SET version = 30 WHERE version = 3",
    "head of the entity": "UPDATE entity SET head = 'x'",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_journal_is_noticed_when_read(path: Path, damage: str) -> None:
    """Altered, missing, swapped or cut at the end: CorruptionError, and nothing is repaired."""
    await _some(path)
    rows(path, damage)
    store = SqliteStore(path)
    with pytest.raises(CorruptionError) as raised:
        await journal(store, "parcel/1")

    assert "journal.chain" == raised.value.code
    await store.close()


async def test_a_missing_record_is_noticed_by_a_page_behind_it(path: Path) -> None:
    """The page after version 2 needs version 2 to start."""
    await _some(path)
    rows(path, "DELETE FROM journal WHERE version = 2")
    store = SqliteStore(path)
    with pytest.raises(CorruptionError):
        await store.read("parcel/1", after=2)
    await store.close()


@pytest.mark.parametrize(
    "statement", ["UPDATE entity SET version = 2", "UPDATE entity SET snapshot = CAST('{}' AS BLOB)"]
)
async def test_a_damaged_snapshot_is_noticed_when_loaded(path: Path, statement: str) -> None:
    """A row that holds another version, or no snapshot at all."""
    await _some(path)
    rows(path, statement)
    store = SqliteStore(path)
    with pytest.raises(CorruptionError):
        await store.load("parcel/1")
    await store.close()


async def test_counts_follow_what_entities_leave_and_enter(path: Path) -> None:
    """One counter per active state and revision, compounds too."""
    store = SqliteStore(path)
    lives = [SampleEntity(f"parcel/{each}") for each in range(3)]
    for sample in lives:
        await append_all(store, sample.create())
    await append_all(store, lives[0].step("shipped", key="s"), lives[1].step("shipped", key="s"))
    await append_all(store, lives[1].step("boarded", key="b"), lives[1].step("noted", key="n"))
    await store.close()

    assert [("moving", 2), ("moving.road", 1), ("moving.sea", 1), ("packed", 1)] == rows(
        path, "SELECT state, entities FROM state_count WHERE entities != 0 ORDER BY state"
    )
    assert [("moving.sea",), ("moving",)] == rows(
        path, "SELECT state FROM entity_state WHERE id = '1' ORDER BY entered_ms DESC"
    )
    assert [("outside",), ("wet",)] == rows(path, "SELECT tag FROM entity_tag WHERE id = '1' ORDER BY tag")


async def test_counts_follow_a_change_of_revision(path: Path) -> None:
    """An entity that continues under another revision is counted there."""
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    step = sample.step(key="k")
    moved = Snapshot(**{each: getattr(step.snapshot, each) for each in Snapshot.__struct_fields__} | {"revision": "r2"})
    await append_all(store, Append(step.kind, step.entity, step.expected, step.entry, moved, step.states, step.tags))
    await store.close()

    assert [("r2", 1)] == rows(path, "SELECT revision, entities FROM state_count WHERE entities != 0")


async def test_an_attempt_on_a_damaged_entity_is_recorded(path: Path) -> None:
    """Without its states; the store continues."""
    store = SqliteStore(path)
    await append_all(store, SampleEntity("parcel/1").create())
    hand = sqlite3.connect(path)
    hand.execute("UPDATE entity SET configuration = x'ff'")
    hand.commit()
    hand.close()
    await store.append_audit((AuditRow("parcel/1", "noted", "denied", "roles", 1),))
    await append_all(store, SampleEntity("parcel/2").create())
    (row,) = await store.audit_after(0)
    await store.close()

    assert row.decode().state_from is None


async def test_rows_of_the_audit_are_never_changed_deleted_or_left_out(path: Path) -> None:
    """Not by a program that opens the file, either; but a gate lets retention delete a range."""
    store = SqliteStore(path)
    rows_given = tuple(AuditRow("parcel/1", "noted", "denied", "roles", each, actor="ada") for each in range(4))
    await store.append_audit(rows_given)
    await store.close()
    hand = sqlite3.connect(path)
    refused = []
    for statement in (
        "UPDATE audit SET time_ms = 0",
        "DELETE FROM audit WHERE sequence = 4",
        "INSERT INTO audit VALUES ('', 6, 0, NULL, x'', '', NULL)",
        "INSERT INTO audit VALUES ('', 5, 0, NULL, x'', '', 7)",
        "INSERT OR REPLACE INTO audit VALUES ('', 2, 0, NULL, x'', '', NULL)",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only") as caught:
            hand.execute(statement)
        refused.append(caught.value)
    hand.execute("INSERT INTO audit_gate VALUES (1, '', 3)")
    hand.execute("DELETE FROM audit WHERE sequence < 3")
    with pytest.raises(sqlite3.IntegrityError):
        hand.execute("DELETE FROM audit WHERE sequence = 3")
    hand.commit()
    hand.close()

    assert 5 == len(refused)
    assert [(3,), (4,)] == rows(path, "SELECT sequence FROM audit")


async def test_a_walk_stops_and_goes_on_from_its_cursor(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter without an index answers what it found in a bounded walk; following the cursors finds all."""
    monkeypatch.setattr(lists, "WALK_MAX", 5)
    monkeypatch.setattr(lists, "FEW_MAX", 5)
    store = SqliteStore(path)
    for number in range(23):
        await append_all(
            store, SampleEntity(f"parcel/{number:02}", revision="2.0.0" if number % 9 == 8 else "1.0.0").create()
        )
    revision = SampleEntity("parcel/x", revision="2.0.0").kernel.chart.revision
    for query in (
        EntityQuery(kind="parcel", revision=revision),
        EntityQuery(kind="parcel", revision=revision, tag="inside", prefix=""),
        EntityQuery(kind="parcel", revision=revision, state="packed"),
    ):
        first = await store.find(query)
        found = await list_all(store, query)

        assert ((), True) == (first.rows, first.after is not None)
        assert ["parcel/08", "parcel/17"] == [each.entity for each in found]
    many = await list_all(store, EntityQuery(kind="parcel", prefix="0", tag="inside"))
    few = await list_all(store, EntityQuery(kind="parcel", prefix="2", tag="inside"))

    assert ([f"parcel/0{each}" for each in range(10)], 3) == ([each.entity for each in many], len(few))
    await store.close()


@pytest.mark.parametrize(
    "query",
    [
        EntityQuery(kind="parcel", prefix="\ud800"),
        EntityQuery(kind="\ud800"),
        EntityQuery(kind="k", entered_before_ms=2**70),
    ],
)
async def test_a_question_that_cannot_be_asked_is_the_callers_mistake(query: EntityQuery, path: Path) -> None:
    """Half a surrogate pair and numbers beyond 64 bits are refused; the connection continues."""
    store = SqliteStore(path)
    with pytest.raises(UsageError):
        await store.find(query)

    assert () == (await store.find(EntityQuery(kind="parcel"))).rows
    await store.close()


async def test_a_step_that_cannot_be_written_fails_alone(path: Path) -> None:
    """Its neighbours in the batch are kept."""
    store = SqliteStore(path)
    good, bad = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    odd = bad.create()
    broken = Append(odd.kind, odd.entity, 0, odd.entry, odd.snapshot, odd.states, ("\ud800",))
    answers = await asyncio.gather(store.append(good.create()), store.append(broken), return_exceptions=True)

    expect(Appended, type(answers[0]))
    assert isinstance(answers[1], InternalError)
    assert await store.load("parcel/2") is None
    assert [("packed", 1)] == rows(path, "SELECT state, entities FROM state_count")
    await store.close()


async def test_several_steps_of_one_entity_share_a_batch(path: Path) -> None:
    """Each is written on the one before; one that is out of order is a conflict, and so are those behind it."""
    store = SqliteStore(path)
    sample = SampleEntity("parcel/1")
    born, first, second, third = sample.create(), *(sample.step(key=each) for each in "abc")
    answers = await asyncio.gather(*map(store.append, (born, first, third, second)))

    assert [Appended, Appended, Conflict, Appended] == [type(each) for each in answers]
    await store.close()


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """A table of file systems with a network one under `net`."""
    table = tmp_path / "mounts"
    table.write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path}/net nfs4 rw 0 0\nshort\nd {tmp_path}/a\\040b ext4 rw\n")
    return table


def test_a_network_file_system_is_refused(tmp_path: Path, mounts: Path) -> None:
    """Locks there cannot be trusted; a local disk, or a machine that does not say, is fine."""
    from interlock.stores.sqlite.connection import check_file_system

    check_file_system(tmp_path / "x.db", str(mounts))
    check_file_system(tmp_path / "net" / "x.db", str(tmp_path / "none"))
    with pytest.raises(UsageError) as raised:
        check_file_system(tmp_path / "net" / "x.db", str(mounts))

    assert "store.network" == raised.value.code


def test_an_old_library_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without STRICT tables the schema cannot be kept."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(UsageError) as raised:
        SqliteStore(path)

    assert "sqlite.version" == raised.value.code


def test_a_file_that_cannot_be_flushed_is_not_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could be lost by a power cut is not answered from."""

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(UnavailableError) as raised:
        SqliteStore(path)

    assert "store.io" == raised.value.code


async def test_a_file_that_is_gone_cannot_be_read(path: Path) -> None:
    """A reader makes no new file where the old one was."""
    store = SqliteStore(path)
    await append_all(store, SampleEntity("parcel/1").create())
    await asyncio.to_thread(path.unlink)
    with pytest.raises(UnavailableError):
        await store.load("parcel/1")
    await store.close()

    assert not await asyncio.to_thread(path.exists)


@pytest.mark.parametrize("column", ["active", "tags"])
async def test_a_damaged_row_stops_its_own_entity_only(path: Path, column: str) -> None:
    """Its steps and lists are CorruptionErrors; others in the same batch continue."""
    sample = await _some(path)
    rows(path, f"UPDATE entity SET {column} = CAST('{{' AS BLOB)")
    store = SqliteStore(path)
    damaged, whole = await asyncio.gather(
        store.append(sample.step(key="k")), store.append(SampleEntity("parcel/2").create()), return_exceptions=True
    )

    assert isinstance(damaged, CorruptionError)
    assert isinstance(whole, Appended)
    with pytest.raises(CorruptionError):
        await store.find(EntityQuery(kind="parcel", state="packed", tag="inside"))
    await append_all(store, SampleEntity("parcel/3").create())
    await store.close()


async def test_two_threads_that_create_a_file_at_once_both_write_to_it(path: Path) -> None:
    """Closing the descriptor that made the file would drop the locks that the other one has on it by then."""
    stores = await asyncio.gather(*(asyncio.to_thread(SqliteStore, path) for _ in range(4)))
    lives = [SampleEntity(f"parcel/{each}") for each in range(len(stores))]
    for store, sample in zip(stores, lives, strict=True):
        await append_all(store, sample.create(), *(sample.step(key=f"k{each}") for each in range(3)))
    counts = [len(await journal(stores[0], sample.entity)) for sample in lives]
    for store in stores:
        await store.close()

    assert ([4] * 4, [("ok",)]) == (counts, rows(path, "PRAGMA integrity_check"))
