"""Work of several entries that are written in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.model.journal.work import Lane, Work, WorkDelta, WorkId
from interlock.stores.sqlite.connection import open_writer, run_questions
from interlock.stores.sqlite.work import SqliteWork, write_work

ONE, TWO = ("", "order", "1"), ("", "order", "2")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database with the newest schema."""
    opened = open_writer(tmp_path / "orders.db")
    yield opened
    opened.close()


def created(lane: Lane, *versions: int) -> WorkDelta:
    """Entries that create one piece of work each."""
    return WorkDelta(created=tuple(Work(WorkId(lane, version, 0), "charge", {}, 5) for version in versions))


def rows(connection: sqlite3.Connection) -> list[tuple[str, int, int]]:
    """The id of the entity, the version and whether it is cancelled, of all work."""
    return list(connection.execute("SELECT id, version, cancelled FROM work ORDER BY id, version"))


def test_cancelled_work_is_deleted_unless_it_was_started(connection: sqlite3.Connection) -> None:
    write_work(connection, [(ONE, created("effect", 1)), (TWO, created("effect", 1))])
    claims = run_questions(
        connection, SqliteWork("").claim("effect", ("charge",), owner="w", now_ms=9, until_ms=99, limit=1)
    )
    write_work(connection, [(each, WorkDelta(cancelled=(WorkId("effect", 1, 0),))) for each in (ONE, TWO)])

    assert [(claims[0].entity.removeprefix("order/"), 1, 1)] == rows(connection)


def test_finished_work_of_several_entries_is_deleted(connection: sqlite3.Connection) -> None:
    write_work(connection, [(ONE, created("timer", 1, 2)), (TWO, created("timer", 1, 2))])
    write_work(connection, [(each, WorkDelta(finished=(WorkId("timer", 1, 0),))) for each in (ONE, TWO)])

    assert [("1", 2, 0), ("2", 2, 0)] == rows(connection)


def test_the_next_row_of_an_ordered_lane_becomes_due_for_each_entry(connection: sqlite3.Connection) -> None:
    write_work(connection, [(ONE, created("outbox", 1, 2)), (TWO, created("outbox", 1, 2))])
    finished, cancelled = WorkDelta(finished=(WorkId("outbox", 1, 0),)), WorkDelta(cancelled=(WorkId("outbox", 1, 0),))
    write_work(connection, [(ONE, finished), (TWO, cancelled)])

    claims = run_questions(connection, SqliteWork("").claim("outbox", None, owner="w", now_ms=9, until_ms=99, limit=9))
    assert {("order/1", 2), ("order/2", 2)} == {(each.entity, each.work.id.version) for each in claims}
