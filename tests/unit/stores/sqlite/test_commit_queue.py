"""The writer thread: what it groups, whom it answers, and what it does when the disk or its own code fails."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from interlock.errors import CorruptionError, InterlockError, InternalError, UnavailableError
from interlock.ports.store import Appended, Duplicate, EntityQuery
from interlock.stores.sqlite import batch_rows, commit_queue, connection, writer
from interlock.stores.sqlite.store import SqliteStore
from interlock.stores.threads.inline_policy import InlinePolicy
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.stores.faulty import Faulty, failing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of a test lies."""
    return tmp_path / "x.db"


@pytest.fixture
def opened(path: Path) -> Iterator[tuple[SqliteStore, Faulty]]:
    """A store whose writer has a connection that can fail."""
    store = SqliteStore(path)
    faulty = Faulty(store.database.queue.writer._connection)
    store.database.queue.writer._connection = faulty  # type: ignore[assignment]  # which is its purpose
    yield store, faulty
    store.database._close()


async def _many(store: SqliteStore, count: int = 5) -> list[object]:
    lives = [SampleEntity(f"parcel/{each}") for each in range(count)]
    return list(await asyncio.gather(*(store.append(each.create()) for each in lives), return_exceptions=True))


def codes(answers: list[object]) -> set[str]:
    """The codes of errors, and the names of other answers."""
    return {each.code if isinstance(each, InterlockError) else type(each).__name__ for each in answers}


async def test_what_arrives_together_is_committed_together(opened: tuple[SqliteStore, Faulty]) -> None:
    """Many callers, few transactions; each caller gets its answer after COMMIT."""
    store, faulty = opened
    started, go = faulty.held(connection.BEGIN)
    first = asyncio.ensure_future(store.append(SampleEntity("parcel/first").create()))
    await asyncio.to_thread(started.wait)
    rest = asyncio.ensure_future(_many(store, 40))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert not first.done()
    go.set()
    assert {"Appended"} == codes([await first, *await rest])
    assert 2 == faulty.statements.count(writer.COMMIT)


async def test_a_batch_has_a_bound_in_steps_and_in_bytes(
    opened: tuple[SqliteStore, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long queue is written in several transactions."""
    store, faulty = opened
    monkeypatch.setattr(commit_queue, "BATCH_STEPS_MAX", 4)
    await _many(store, 12)
    by_steps = faulty.statements.count(writer.COMMIT)
    monkeypatch.setattr(commit_queue, "BATCH_STEPS_MAX", 100)
    monkeypatch.setattr(commit_queue, "BATCH_BYTES_MAX", 1)
    faulty.statements.clear()
    lives = [SampleEntity(f"parcel/more{each}") for each in range(5)]
    await asyncio.gather(*(store.append(each.create()) for each in lives))

    assert by_steps >= 3
    assert 5 == faulty.statements.count(writer.COMMIT)


@pytest.mark.parametrize("statement", [writer.COMMIT, connection.BEGIN, batch_rows.INSERT_KEY])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, "store.full"),
        (sqlite3.SQLITE_BUSY, "store.busy"),
        (sqlite3.SQLITE_NOMEM, "store.open"),
        (sqlite3.SQLITE_ERROR, "store.statement"),
    ],
)
async def test_a_failed_commit_acknowledges_nobody_and_passes(
    opened: tuple[SqliteStore, Faulty], statement: str, code: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every caller in the batch gets it, nothing was kept, and the same keys are accepted later."""
    store, faulty = opened
    monkeypatch.setattr(connection, "BUSY_MS", 30)
    faulty.faults[statement] = failing(code)
    failed = await _many(store)
    found = [await store.load(f"parcel/{each}") for each in range(5)]
    faulty.faults.clear()
    later = await _many(store)

    assert {expected} == codes(failed)
    assert [None] * 5 == found
    assert {"Appended"} == codes(later)


@pytest.mark.parametrize(
    ("code", "error"), [(sqlite3.SQLITE_IOERR_FSYNC, UnavailableError), (sqlite3.SQLITE_CORRUPT, CorruptionError)]
)
async def test_after_an_error_of_the_disk_the_store_is_poisoned(
    opened: tuple[SqliteStore, Faulty], path: Path, code: int, error: type[InterlockError]
) -> None:
    """No caller is acknowledged, nothing is tried again, reads included; another opening finds what was kept."""
    store, faulty = opened
    sample = SampleEntity("parcel/kept")
    await append_all(store, sample.create())
    faulty.faults[writer.COMMIT] = failing(code)
    failed = await _many(store)
    faulty.faults.clear()

    assert {error} == {type(each) for each in failed}
    for call in (
        store.append(sample.step(key="k")),
        store.load("parcel/kept"),
        store.find(EntityQuery(kind="parcel")),
    ):
        with pytest.raises(UnavailableError) as raised:
            await call
        assert "store.poisoned" == raised.value.code
    await store.close()
    again = SqliteStore(path)
    assert 1 == len(await journal(again, "parcel/kept"))
    await again.close()


async def test_a_rollback_that_fails_poisons(opened: tuple[SqliteStore, Faulty]) -> None:
    """A transaction that can be neither ended nor undone leaves no way to continue."""
    store, faulty = opened
    faulty.faults[writer.COMMIT] = failing(sqlite3.SQLITE_FULL)
    faulty.faults[writer.ROLLBACK] = failing(sqlite3.SQLITE_BUSY)
    failed = await _many(store)
    with pytest.raises(UnavailableError) as raised:
        await store.append(SampleEntity("parcel/x").create())

    assert {"store.full"} == codes(failed)
    assert "store.poisoned" == raised.value.code


@pytest.mark.parametrize("statement", [connection.BEGIN, writer.COMMIT, batch_rows.INSERT_KEY])
async def test_an_exception_in_the_writer_answers_everybody(
    opened: tuple[SqliteStore, Faulty], statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours ends the thread; callers in the batch and in the queue all get the error."""
    store, faulty = opened
    monkeypatch.setattr(commit_queue, "BATCH_STEPS_MAX", 2)

    def crash() -> None:
        raise RuntimeError("a bug")

    faulty.faults[statement] = crash
    answers = await _many(store, 9)

    assert {"store.writer", "store.poisoned"} >= codes(answers)
    assert all(isinstance(each, InternalError | UnavailableError) for each in answers)


async def test_a_full_queue_sends_callers_away(
    opened: tuple[SqliteStore, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: waiting callers are served, the one too many must try again."""
    store, faulty = opened
    monkeypatch.setattr(commit_queue, "QUEUE_MAX", 3)
    started, go = faulty.held(connection.BEGIN)
    first = asyncio.ensure_future(store.append(SampleEntity("parcel/first").create()))
    await asyncio.to_thread(started.wait)
    waiting = [asyncio.ensure_future(store.append(SampleEntity(f"parcel/{each}").create())) for each in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError) as raised:
        await store.append(SampleEntity("parcel/late").create())
    go.set()

    assert "store.queue" == raised.value.code
    assert {"Appended"} == codes(await asyncio.gather(first, *waiting))


async def test_a_cancelled_caller_does_not_undo_its_step(opened: tuple[SqliteStore, Faulty]) -> None:
    """The step is kept; the same key again says so."""
    store, faulty = opened
    started, go = faulty.held(writer.COMMIT)
    append = SampleEntity("parcel/1").create()
    caller = asyncio.ensure_future(store.append(append))
    await asyncio.to_thread(started.wait)
    caller.cancel()
    go.set()

    assert Duplicate(1) == await store.append(append)
    assert caller.cancelled()


async def test_no_step_is_left_lying_while_the_writer_sleeps(
    opened: tuple[SqliteStore, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes before the thread falls asleep, in that moment, or when it wakes up to tidy."""
    store, _ = opened
    monkeypatch.setattr(commit_queue, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(InlinePolicy, "is_quick", False)  # no caller writes in place
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    async with asyncio.timeout(PATIENCE_SECONDS):
        for each in range(150):
            await append_all(store, sample.step(key=f"k{each}"))

    assert 151 == len(await journal(store, "parcel/1"))


def test_a_loop_that_is_gone_harms_nobody(path: Path) -> None:
    """A caller whose event loop was closed is passed over; others are answered."""
    store = SqliteStore(path)
    faulty = Faulty(store.database.queue.writer._connection)
    store.database.queue.writer._connection = faulty  # type: ignore[assignment]  # which is its purpose
    started, go = faulty.held(connection.BEGIN)

    async def leave() -> None:
        caller = asyncio.ensure_future(store.append(SampleEntity("parcel/1").create()))
        await asyncio.to_thread(started.wait)
        assert not caller.done()

    asyncio.run(leave())
    go.set()

    assert isinstance(asyncio.run(store.append(SampleEntity("parcel/2").create())), Appended)
    asyncio.run(store.close())


async def test_a_long_log_is_taken_into_the_file(
    opened: tuple[SqliteStore, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its size the log is restarted by the writer, under the write lock."""
    store, faulty = opened
    monkeypatch.setattr(writer, "WAL_BYTES_MAX", 1)
    store.database.queue.writer._checkpoint_at = 1
    await _many(store)
    await append_all(store, SampleEntity("parcel/x").create())

    assert writer.CHECKPOINT_RESTART in faulty.statements


async def test_a_checkpoint_in_the_way_of_a_reader_is_put_off(
    opened: tuple[SqliteStore, Faulty], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader holds the log: steps continue, and the next try comes when the log has grown again."""
    store, faulty = opened
    monkeypatch.setattr(writer, "CHECKPOINT_BUSY_MS", 1)
    await append_all(store, SampleEntity("parcel/0").create())
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entity").fetchone()
    await append_all(store, SampleEntity("parcel/1").create())
    store.database.queue.writer._checkpoint_at = 1
    await append_all(
        store, SampleEntity("parcel/2").create(), SampleEntity("parcel/3").create(), SampleEntity("parcel/4").create()
    )
    reader.close()

    assert 1 == faulty.statements.count(writer.CHECKPOINT_RESTART)


@pytest.mark.parametrize(("code", "ends"), [(sqlite3.SQLITE_BUSY, False), (sqlite3.SQLITE_IOERR, True)])
async def test_a_checkpoint_that_fails_is_no_failure_of_a_step(
    opened: tuple[SqliteStore, Faulty], code: int, ends: bool
) -> None:
    """The entry holds; only an error of the disk ends the writer and poisons what comes after."""
    store, faulty = opened
    store.database.queue.writer._checkpoint_at = 1
    faulty.faults[writer.CHECKPOINT_RESTART] = failing(code)
    await append_all(store, SampleEntity("parcel/1").create())
    if ends:
        await asyncio.to_thread(store.database.queue._thread.join)
    answers = await _many(store, 1)

    assert {"store.poisoned" if ends else "Appended"} == codes(answers)


def test_an_idle_store_cuts_its_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After idle time the log is empty, and the next reader finds everything in the file."""
    monkeypatch.setattr(commit_queue, "IDLE_SECONDS", 0.0)
    cut = threading.Event()
    original = writer.SqliteWriter._checkpoint

    def noted(self: writer.SqliteWriter, statement: str) -> bool:
        done = original(self, statement)
        cut.set()
        return done

    monkeypatch.setattr(writer.SqliteWriter, "_checkpoint", noted)
    store = SqliteStore(path)
    asyncio.run(append_all(store, SampleEntity("parcel/1").create(), SampleEntity("parcel/2").create()))
    while path.with_name("x.db-wal").stat().st_size:
        cut.wait()
        cut.clear()

    asyncio.run(store.close())


async def test_a_restarted_log_is_not_taken_in_after_each_batch(
    opened: tuple[SqliteStore, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted log keeps the size of its file; only what was written since calls for the next checkpoint."""
    store, faulty = opened
    monkeypatch.setattr(writer, "WAL_BYTES_MAX", 600_000)
    store.database.queue.writer._checkpoint_at = 600_000
    for number in range(60):
        await append_all(store, SampleEntity(f"parcel/{number}").create())

    assert 1 <= faulty.statements.count(writer.CHECKPOINT_RESTART) <= 12


async def test_steps_are_written_table_by_table(opened: tuple[SqliteStore, Faulty]) -> None:
    """A batch of forty steps needs one statement per table, and no savepoint."""
    store, faulty = opened
    started, go = faulty.held(connection.BEGIN)
    first = asyncio.ensure_future(store.append(SampleEntity("parcel/first").create()))
    await asyncio.to_thread(started.wait)
    rest = asyncio.ensure_future(_many(store, 40))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    await first
    await rest

    assert 2 == faulty.statements.count(batch_rows.INSERT_JOURNAL)
    assert 0 == faulty.statements.count(writer.SAVEPOINT)


async def test_a_batch_that_cannot_be_written_at_once_is_written_step_by_step(
    opened: tuple[SqliteStore, Faulty],
) -> None:
    """One bad value undoes what was written with it; then each step is tried alone, and only the bad one fails."""
    store, faulty = opened
    failures = iter([True])

    def fail_once() -> None:
        if next(failures, False):
            raise sqlite3.IntegrityError("injected")

    faulty.faults[batch_rows.INSERT_KEY] = fail_once
    answers = await _many(store, 5)
    journals = [len(await journal(store, f"parcel/{each}")) for each in range(5)]

    assert {"Appended"} == codes(answers)
    assert [1] * 5 == journals
    assert faulty.statements.count(writer.SAVEPOINT) >= 1


async def test_a_step_that_cannot_be_written_takes_no_neighbour_with_it(opened: tuple[SqliteStore, Faulty]) -> None:
    """A number that no column holds is that caller's error; the others of its batch are kept."""
    store, faulty = opened
    started, go = faulty.held(connection.BEGIN)
    first = asyncio.ensure_future(store.append(SampleEntity("parcel/first").create()))
    await asyncio.to_thread(started.wait)
    bad = SampleEntity("parcel/bad").create()
    event = msgspec.structs.replace(bad.entry.event, time_ms=2**70)
    bad = msgspec.structs.replace(bad, entry=msgspec.structs.replace(bad.entry, event=event))
    alone = asyncio.ensure_future(store.append(bad))
    rest = asyncio.ensure_future(_many(store, 10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    await first

    with pytest.raises(InternalError) as raised:
        await alone
    assert "store.unwritable" == raised.value.code
    assert {"Appended"} == codes(await rest)
    assert await store.load("parcel/bad") is None
