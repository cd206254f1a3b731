"""Steps in place: when a lone caller commits to SQLite itself, when it does not, and that nothing else changes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import InternalError, UnavailableError
from interlock.model.journal.work import WorkId
from interlock.ports.store import Append, Appended, Conflict, Duplicate
from interlock.stores.sqlite import batch_rows, commit_queue, writer
from interlock.stores.sqlite import connection as sqlite_connect
from interlock.stores.sqlite.store import SqliteStore
from interlock.stores.sqlite.writer import COMMIT, ROLLBACK, SqliteWriter
from interlock.stores.threads import inline_policy
from interlock.stores.threads.inline_policy import InlinePolicy
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, journal
from tests.support.eventually import eventually
from tests.unit.stores.faulty import Faulty, failing


class Watched(Faulty):
    """A connection that can fail, with the threads that started transactions and those that committed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.begun_by: list[int] = []
        self.committed_by: list[int] = []

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Records which thread starts and commits."""
        if statement == sqlite_connect.BEGIN:
            self.begun_by.append(threading.get_ident())
        if statement == COMMIT:
            self.committed_by.append(threading.get_ident())
        return super().execute(statement, *values)


Opened = tuple[SqliteStore, Watched, SampleEntity]
HERE = threading.get_ident


async def begun(path: Path) -> Opened:
    """A store whose thread has written a first step."""
    store = SqliteStore(path)
    watched = Watched(store.database.queue.writer._connection)
    store.database.queue.writer._connection = watched  # type: ignore[assignment]  # it is one in all that matters
    sample = SampleEntity("parcel/1")
    await append_all(store, sample.create())
    watched.begun_by.clear()
    watched.committed_by.clear()
    return store, watched, sample


@pytest.fixture
async def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    """A store on a disk that is quick on every machine, whose thread was there just now."""
    monkeypatch.setattr(InlinePolicy, "is_quick", True)
    monkeypatch.setattr(writer, "INLINE_NS_MAX", 10**18)
    monkeypatch.setattr(commit_queue, "IDLE_SECONDS", 3_600.0)
    store, watched, sample = await begun(tmp_path / "x.db")
    yield store, watched, sample
    watched.faults.clear()
    await store.close()


def steps(sample: SampleEntity, count: int) -> list[Append]:
    """The next steps of a life."""
    return [sample.step(key=f"k{sample.time_ms}") for _ in range(count)]


async def test_a_lone_caller_commits_in_place(quick: Opened) -> None:
    """No hop to the writer's thread: it would take longer than the flush."""
    store, watched, sample = quick
    answers = [await store.append(each) for each in steps(sample, 4)]

    assert [2, 3, 4, 5] == [answer.version for answer in answers if isinstance(answer, Appended)]
    assert [HERE()] * 4 == watched.committed_by
    assert 5 == len(await journal(store, sample.entity))


async def test_a_conflict_and_a_known_key_are_told_in_place(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answers of the transaction, in any thread, and say nothing about the disk."""
    store, watched, sample = quick
    (first,) = steps(sample, 1)
    rival = SampleEntity("parcel/1")
    rival.create()
    took = list[int]()
    monkeypatch.setattr(store.database.queue.policy, "record", took.append)
    await store.append(first)
    heard = len(took)

    assert Duplicate(2) == await store.append(first)
    assert Conflict(2) == await store.append(rival.step(key="other"))
    assert (1, 1) == (heard, len(took))
    assert {HERE()} == set(watched.committed_by)


async def test_many_callers_are_one_batch_of_the_thread(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they share a flush; one by one in place they would not."""
    store, watched, _ = quick
    monkeypatch.setattr(inline_policy, "TURN_NS", 0)
    answers = await asyncio.gather(*(store.append(SampleEntity(f"parcel/many{each}").create()) for each in range(40)))

    assert {Appended} == set(map(type, answers))
    assert HERE() not in watched.committed_by
    assert len(watched.committed_by) <= 3


async def test_a_slow_disk_is_waited_for_by_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop continues meanwhile."""
    monkeypatch.setattr(InlinePolicy, "is_quick", False)
    store, watched, sample = await begun(tmp_path / "x.db")
    await append_all(store, *steps(sample, 3))
    await store.close()

    assert HERE() not in watched.committed_by


async def test_it_is_measured_which_disk_it_is(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread, too, and when it fails; a batch of many says nothing of a step alone."""
    store, watched, sample = quick
    took = list[int]()
    monkeypatch.setattr(store.database.queue.policy, "record", took.append)
    ledger = store.database.queue.writer
    ledger.commit([SampleEntity("parcel/2").create(), SampleEntity("parcel/3").create()])
    of_many = len(took)
    ledger.commit([SampleEntity("parcel/4").create()])
    of_one = len(took)
    watched.faults[COMMIT] = failing(sqlite3.SQLITE_FULL)
    with pytest.raises(UnavailableError):
        await store.append(*steps(sample, 1))

    assert (0, 1, 2, True) == (of_many, of_one, len(took), min(took) > 0)


# What the thread does all the same


async def test_the_thread_is_visited_now_and_then(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the statistics and checkpoints the log, also while no step needs it."""
    store, watched, sample = quick
    monkeypatch.setattr(writer, "INLINE_NS_MAX", -1)
    await append_all(store, *steps(sample, 2))

    assert 2 == len(watched.committed_by)
    assert HERE() not in watched.committed_by


async def test_a_long_log_is_taken_in_by_the_thread(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint may take long, and never holds up a loop."""
    store, watched, sample = quick
    store.database.queue.writer._checkpoint_at = 1
    monkeypatch.setattr(writer, "LOG_CHECK_STEPS", 1)
    await append_all(store, *steps(sample, 1))
    await asyncio.to_thread(store.database.queue.close)

    assert HERE() not in watched.committed_by
    assert writer.CHECKPOINT_RESTART in watched.statements


async def test_what_another_process_holds_is_waited_for_by_the_thread(quick: Opened, tmp_path: Path) -> None:
    """The loop waits for one short try and no more."""
    store, watched, sample = quick
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        watched.begun_by.clear()
        waiting = asyncio.ensure_future(store.append(*steps(sample, 1)))
        while len(watched.begun_by) < 2:  # noqa: ASYNC110 - a store has no signal that it waits
            await asyncio.sleep(0)
        rival.execute("ROLLBACK")

    assert 2 == (await waiting).version
    assert 1 == watched.begun_by.count(HERE())
    assert HERE() not in watched.committed_by


async def test_whoever_waits_already_goes_first(quick: Opened) -> None:
    """What the thread is at is not overtaken, nor waited for by a loop."""
    store, watched, sample = quick
    started, go = watched.held(sqlite_connect.BEGIN)
    chore = asyncio.ensure_future(store.delete_work("parcel/1", WorkId("effect", 1, 0)))
    await asyncio.to_thread(started.wait)
    waiting = asyncio.ensure_future(store.append(*steps(sample, 1)))
    await eventually(lambda: store.database.queue._steps)  # it may give way to others first, if the turn takes long
    watched.faults.clear()
    go.set()

    assert (False, 2) == (await chore, (await waiting).version)
    assert HERE() not in watched.committed_by


async def test_statistics_of_steps_in_place_are_told(quick: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next step that goes to the thread, and not before: after Ctrl-C they could be counted twice."""
    store, _, sample = quick
    monkeypatch.setattr(writer, "STATISTICS_MS", 0)
    await append_all(store, *steps(sample, 3))
    before = await store.minute_rates("parcel", since_ms=0)
    monkeypatch.setattr(writer, "INLINE_NS_MAX", -1)
    await append_all(store, *steps(sample, 1))
    minutes = await store.minute_rates("parcel", since_ms=0)

    assert () == before
    assert 4 == sum(each.steps for each in minutes)


# When it fails


async def test_a_disk_that_fails_in_place_poisons_the_store(quick: Opened) -> None:
    """The caller gets it, no further caller is served, and the thread closes the file."""
    store, watched, sample = quick
    watched.faults[COMMIT] = failing(sqlite3.SQLITE_IOERR)
    first, second = steps(sample, 2)
    with pytest.raises(UnavailableError) as failed:
        await store.append(first)
    await asyncio.to_thread(store.database.queue._thread.join, 30)
    has_ended = not store.database.queue._thread.is_alive()
    with pytest.raises(UnavailableError) as after:
        await store.append(second)

    assert ("store.io", True, "store.poisoned") == (failed.value.code, has_ended, after.value.code)


async def test_a_full_disk_is_over_when_there_is_room(quick: Opened) -> None:
    """Nothing was kept; the next step goes to the thread, which takes the log in first."""
    store, watched, sample = quick
    watched.faults[batch_rows.INSERT_KEY] = failing(sqlite3.SQLITE_FULL)
    (step,) = steps(sample, 1)
    with pytest.raises(UnavailableError) as full:
        await store.append(step)
    watched.faults.clear()
    watched.committed_by.clear()

    assert "store.full" == full.value.code
    assert isinstance(await store.append(step), Appended)
    assert HERE() not in watched.committed_by


async def test_a_step_that_cannot_be_written_is_its_callers_answer(quick: Opened) -> None:
    """No other caller gets it, and nothing of it is kept."""
    store, watched, sample = quick
    watched.faults[batch_rows.INSERT_KEY] = failing_value
    (step,) = steps(sample, 1)
    with pytest.raises(InternalError) as raised:
        await store.append(step)
    watched.faults.clear()

    assert "store.unwritable" == raised.value.code
    assert isinstance(await store.append(step), Appended)


def failing_value() -> None:
    """As a value that cannot be bound."""
    raise OverflowError("a number too large")


async def test_a_step_that_is_written_once_more_waits_for_nobody_in_place(quick: Opened, tmp_path: Path) -> None:
    """Another process takes the lock between the two: the thread waits for it, not the loop."""
    store, watched, sample = quick
    watched.faults[batch_rows.INSERT_KEY] = failing_value
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as rival:
        watched.faults[sqlite_connect.BEGIN] = lambda: begin_second(watched, rival)
        waiting = asyncio.ensure_future(store.append(*steps(sample, 1)))
        while len(watched.begun_by) < 3:  # noqa: ASYNC110 - a store has no signal that it waits
            await asyncio.sleep(0)
        rival.execute("ROLLBACK")
        watched.faults.clear()

        assert isinstance(await waiting, Appended)
    assert 2 == watched.begun_by.count(HERE())


def begin_second(watched: Watched, rival: sqlite3.Connection) -> None:
    """A rival that starts before the second transaction does."""
    if len(watched.begun_by) == 2:
        rival.execute("BEGIN IMMEDIATE")


async def test_a_closed_store_takes_nothing_in_place(quick: Opened) -> None:
    """It says so; it does not write to a closed connection."""
    store, _, sample = quick
    first, second = steps(sample, 2)
    await store.append(first)
    await store.close()
    with pytest.raises(UnavailableError) as raised:
        await store.append(second)

    assert "store.closed" == raised.value.code
    assert None is store.database.queue.writer.commit_inline(second)


async def test_a_closing_waits_for_a_step_in_place(quick: Opened) -> None:
    """Another thread closes while this one is in the middle of a transaction."""
    store, watched, sample = quick
    closing_thread = threading.Thread(target=store.database.queue.close)
    seen: list[bool] = []

    def close_meanwhile() -> None:
        watched.faults.clear()
        closing_thread.start()
        while not store.database.queue._is_closing:
            threading.Event().wait(0.001)
        seen.append(store.database.queue.writer._is_closed)

    watched.faults[COMMIT] = close_meanwhile
    answer = await store.append(*steps(sample, 1))
    await asyncio.to_thread(closing_thread.join)

    assert ([False], True) == (seen, store.database.queue.writer._is_closed)
    assert isinstance(answer, Appended)


# Ctrl-C


class Cut(Watched):
    """A connection whose caller is interrupted before or after the n-th call, as Ctrl-C does in the main thread."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        super().__init__(connection)
        self.at = at

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """As the connection."""
        return self._cut(super().execute, statement, *values)

    def executemany(self, statement: str, rows: list[Any]) -> sqlite3.Cursor:
        """As the connection."""
        return self._cut(super().executemany, statement, rows)

    def _cut(self, call: Callable[..., sqlite3.Cursor], *arguments: Any) -> sqlite3.Cursor:
        self._count()
        cursor = call(*arguments)
        self._count()
        return cursor

    def _count(self) -> None:
        self.at -= 1
        if self.at == -1:
            raise KeyboardInterrupt


def cut(ledger: SqliteWriter, connection: Watched, append: Append, at: int) -> bool:
    """Whether a step in place was interrupted at the n-th moment."""
    ledger._connection = Cut(connection.connection, at)  # type: ignore[assignment]  # it is one in all that matters
    try:
        ledger.commit_inline(append)
    except KeyboardInterrupt:
        return True
    finally:
        ledger._connection = connection  # type: ignore[assignment]  # the real one again
    return False


async def test_ctrl_c_at_any_statement_loses_and_doubles_nothing(quick: Opened, tmp_path: Path) -> None:
    """The turn is free again, no transaction holds others up, and the same key again is kept once."""
    store, watched, _ = quick
    ledger = store.database.queue.writer
    moments = 0
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=0)) as rival:
        while True:
            sample = SampleEntity(f"parcel/cut{moments}")
            await append_all(store, sample.create())
            append = sample.step("shipped", key="s")
            if not cut(ledger, watched, append, moments):
                break
            assert not ledger._turn.locked()
            rival.execute("BEGIN IMMEDIATE")  # raises if a connection still has the lock
            rival.execute("ROLLBACK")
            answer = await store.append(append)
            assert 2 == answer.version == len(await journal(store, sample.entity)), f"moment {moments}"
            moments += 1

    assert moments >= 16
    assert () == await store.differences()


async def test_a_second_ctrl_c_leaves_its_transaction_to_the_next_turn(quick: Opened, tmp_path: Path) -> None:
    """It came before the first one had undone what it left."""
    store, watched, sample = quick

    def interrupt() -> None:
        raise KeyboardInterrupt

    watched.faults = {COMMIT: interrupt, ROLLBACK: interrupt}
    (step,) = steps(sample, 1)
    with pytest.raises(KeyboardInterrupt):
        store.database.queue.append_inline(step)
    assert watched.connection.in_transaction
    watched.faults.clear()

    assert isinstance(await store.append(step), Appended)
    assert 2 == len(await journal(store, sample.entity))
