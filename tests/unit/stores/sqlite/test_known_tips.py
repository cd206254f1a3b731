"""Where journals end is remembered between transactions: never longer than it is true, and nothing else changes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkId
from interlock.ports.store import Append, Appended, Conflict, Duplicate
from interlock.ports.work import Claim
from interlock.stores.sql.database import Questions
from interlock.stores.sqlite import writer as writers
from interlock.stores.sqlite.batch_rows import INSERT_KEY, SELECT_ENTITY, UPDATE_ENTITY
from interlock.stores.sqlite.store import SqliteStore
from interlock.stores.sqlite.writer import COMMIT, SqliteWriter
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import journal
from tests.unit.stores.faulty import Faulty, failing

WORK = WorkId("effect", 1, 0)


class Subject:
    """A store whose writer the test calls itself, in its own thread."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path)
        self.connection = Faulty(self.writer._connection)
        self.writer._connection = self.connection  # type: ignore[assignment]  # it is one in all that matters

    @property
    def writer(self) -> SqliteWriter:
        return self.store.database.queue.writer

    def answers(self, *appends: Append) -> list[object]:
        """Commit these together."""
        return list(self.writer.commit(appends).answers)

    def queries(self, *appends: Append) -> int:
        """Commit these together; return how many of them asked where their journal ends."""
        del self.connection.statements[:]
        assert [Appended] * len(appends) == [type(each) for each in self.answers(*appends)]
        return self.connection.statements.count(SELECT_ENTITY)

    async def check(self, *lives: SampleEntity) -> None:
        """The journals are whole and linked, and every derived row agrees with them."""
        for sample in lives:
            assert sample.snapshot is not None
            assert sample.snapshot.version == len(await journal(self.store, sample.snapshot.entity))
            assert () == await self.store.differences(sample.snapshot.entity)
        assert () == await self.store.differences()


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[Subject]:
    made = Subject(tmp_path / "x.db")
    yield made
    made.connection.faults.clear()
    await made.store.close()


@contextmanager
def another(path: Path) -> Iterator[SqliteWriter]:
    """The writer of a second store on the same file."""
    store = SqliteStore(path)
    try:
        yield store.database.queue.writer
    finally:
        store.database._close()


async def test_an_entity_that_was_written_last_is_not_queried(subject: Subject) -> None:
    one, two = SampleEntity("parcel/1"), SampleEntity("parcel/2")

    assert 2 == subject.queries(one.create(), two.create())
    assert 0 == subject.queries(one.step(key="a"), two.step("shipped", key="a"))
    assert 0 == subject.queries(one.step("shipped", key="b"))
    await subject.check(one, two)


async def test_an_entity_is_assumed_to_be_new(subject: Subject) -> None:
    """Once the writer remembers where journals end."""
    one, two = SampleEntity("parcel/1"), SampleEntity("parcel/2")

    assert 1 == subject.queries(one.create())
    assert 0 == subject.queries(two.create(), one.step(key="a"))
    await subject.check(one, two)


async def test_an_entity_that_exists_is_not_created_again(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not remembered, so only the row itself says that it exists. The other steps of the batch are kept."""
    monkeypatch.setattr(writers, "TIPS_MAX", 1)
    one, two, three = (SampleEntity(f"parcel/{each}") for each in range(3))
    subject.answers(one.create(), two.create())

    found = subject.answers(
        two.step(key="a"),
        SampleEntity("parcel/0").create(),
        SampleEntity("parcel/0").create(key="other"),
        three.create(),
    )

    assert [Appended, Duplicate(1), Conflict(1), Appended] == [
        type(each) if isinstance(each, Appended) else each for each in found
    ]
    await subject.check(one, two, three)


async def test_a_missing_row_of_a_list_is_written_again(subject: Subject, tmp_path: Path) -> None:
    """A step moves the row of the state that its entity was in; if there is none, it is inserted."""
    lives = [SampleEntity(f"parcel/{each}") for each in range(3)]
    subject.answers(*(each.create() for each in lives))
    with closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("DELETE FROM entity_state WHERE id = '1'")
        other.commit()
    assert () != await subject.store.differences("parcel/1")
    subject.answers(*(each.step("shipped", key="a") for each in lives))

    await subject.check(*lives)


async def test_a_known_key_is_a_duplicate_and_the_others_are_kept(subject: Subject) -> None:
    """The query would have found it; without one the key itself does."""
    one, two = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    subject.answers(one.create(), two.create())
    subject.answers(one.step(key="a"))
    again = SampleEntity("parcel/1")
    again.create()
    again.step(key="b")
    repeated = again.step(key="a")

    assert [Duplicate(2), Appended] == [
        each if isinstance(each, Duplicate) else type(each) for each in subject.answers(repeated, two.step(key="a"))
    ]
    await subject.check(one, two)


async def test_a_lost_swap_is_a_conflict(subject: Subject) -> None:
    sample = SampleEntity("parcel/1")
    subject.answers(sample.create())
    first = sample.step(key="a")
    subject.answers(first)
    rival = SampleEntity("parcel/1")
    rival.create()

    assert [Conflict(2)] == subject.answers(rival.step(key="b"))
    await subject.check(sample)


async def test_a_step_of_another_connection_is_seen(subject: Subject, tmp_path: Path) -> None:
    sample = SampleEntity("parcel/1")
    subject.answers(sample.create())
    rival = SampleEntity("parcel/1")
    rival.create()
    with another(tmp_path / "x.db") as other:
        other.commit([sample.step(key="theirs")])

    assert [Conflict(2)] == subject.answers(rival.step(key="mine"))
    assert 1 == subject.queries(sample.step(key="next"))
    await subject.check(sample)


async def test_a_wrong_tip_changes_no_row(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if SQLite did not report that another connection wrote: the update is conditional."""
    monkeypatch.setattr(writers, "DATA_VERSION", "SELECT 0")
    sample, rival = SampleEntity("parcel/1"), SampleEntity("parcel/1")
    subject.answers(sample.create())
    rival.create()
    with another(tmp_path / "x.db") as other:
        other.commit([sample.step(key="theirs")])

    assert [Conflict(2)] == subject.answers(rival.step(key="mine"))
    await subject.check(sample)


@pytest.mark.parametrize("statement", [UPDATE_ENTITY, INSERT_KEY, COMMIT])
async def test_a_step_that_was_undone_is_forgotten(subject: Subject, statement: str) -> None:
    sample, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    subject.answers(sample.create(), other.create())
    step = sample.step(key="a")
    subject.connection.faults[statement] = failing(sqlite3.SQLITE_FULL)
    assert [UnavailableError] == [type(each) for each in subject.answers(step)]
    subject.connection.faults.clear()

    assert 1 == subject.queries(step)
    assert 1 == subject.queries(other.step(key="a"))
    await subject.check(sample, other)


async def test_a_job_forgets_all(subject: Subject) -> None:
    """What it changed is not known."""
    sample = SampleEntity("parcel/1")
    subject.answers(sample.create())
    subject.writer.commit([], (), [lambda: subject.store.database.work.delete("parcel/1", WORK)])

    assert 1 == subject.queries(sample.step(key="a"))
    await subject.check(sample)


async def test_claims_forget_nothing(subject: Subject) -> None:
    """A worker claims all the time; the next step still needs no query."""
    sample = SampleEntity("parcel/1")
    subject.answers(sample.create())
    work = subject.store.database.work

    def claim() -> Questions[tuple[Claim, ...]]:
        return work.claim("effect", None, owner="w", now_ms=0, until_ms=1, limit=1)

    subject.writer.commit([], (), [claim], keeps_journals=True)

    assert 0 == subject.queries(sample.step(key="a"))
    await subject.check(sample)


async def test_two_steps_of_one_entity_in_a_batch_follow_each_other(subject: Subject) -> None:
    sample = SampleEntity("parcel/1")
    subject.answers(sample.create())
    subject.queries(sample.step("shipped", key="a"), sample.step(key="b"))
    subject.queries(sample.step(key="c"))

    await subject.check(sample)


async def test_only_so_many_are_remembered(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TIPS_MAX", 2)
    lives = [SampleEntity(f"parcel/{each}") for each in range(3)]
    subject.answers(*(each.create() for each in lives))

    assert 0 == subject.queries(lives[2].step(key="a"), lives[1].step(key="a"))
    assert 1 == subject.queries(lives[0].step(key="a"))
    await subject.check(*lives)
