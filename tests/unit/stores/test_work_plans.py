"""A million pending timers: no statement that a worker runs walks a table, or sorts."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.work import WorkQuery
from interlock.stores.sqlite import work as sqlite_work
from interlock.stores.sqlite.connection import open_writer

STATEMENTS = {
    name: text
    for name, text in vars(sqlite_work).items()
    if name.isupper() and isinstance(text, str) and re.match(r"\s*(SELECT|UPDATE|DELETE)", text)
}
"""Every statement over work that does not simply insert."""


def plan(connection: sqlite3.Connection, text: str) -> str:
    """How SQLite would do it, in one line."""
    numbered = [int(each) for each in re.findall(r"\?(\d+)", text)]
    count = max(numbered, default=text.count("?"))
    return " | ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * count))


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_walks_the_table(name: str, tmp_path: Path) -> None:
    """Each goes by the key of its row, or along the index by time."""
    connection = open_writer(tmp_path / "plans.db")
    found = plan(connection, STATEMENTS[name])
    connection.close()

    assert "SEARCH work" in found
    assert "SCAN" not in found
    assert "TEMP B-TREE" not in found


def test_what_is_due_is_read_off_an_index() -> None:
    """The statements that find the next timer name it: a plan that changed with the statistics would be a scan."""
    asked = {name for name, text in STATEMENTS.items() if "INDEXED BY work_by_time" in text}

    assert {"SELECT_DUE", "SELECT_SOONEST"} <= asked


def test_the_work_of_one_entity_is_found_by_its_name(tmp_path: Path) -> None:
    """Whatever else the store holds: the relay asks so for every answer of a child. Page by page, too."""
    connection = open_writer(tmp_path / "plans.db")
    asked: list[str] = []
    for number in range(3):
        for own in ("1", "2", "3"):
            work = Work(WorkId("effect", number + 1, 0), "charge", {}, 0)
            sqlite_work.keep(connection, ("", "order", own), WorkDelta(born=(work,)))
    found: list[int] = []
    after = None
    connection.set_trace_callback(asked.append)
    for _ in range(3):
        page = sqlite_work.works(connection, "", WorkQuery(entity="order/2", after=after, limit=1))
        found, after = [*found, *(each.work.place.version for each in page.rows)], page.after
    connection.set_trace_callback(None)
    plans = {row[3] for each in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")}
    connection.close()

    assert ([1, 2, 3], None) == (found, after)
    assert {"SEARCH work USING PRIMARY KEY (tenant=? AND kind=? AND id=?)"} == plans


def test_work_of_one_name_is_looked_for_in_a_walk_with_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beside it are read, so an answer reads no more than its bound, and says where the next one begins."""
    monkeypatch.setattr(sqlite_work, "WALK_MAX", 4)
    connection = open_writer(tmp_path / "plans.db")
    for number in range(10):
        name = "refund" if number in (6, 9) else "charge"
        work = Work(WorkId("effect", 1, 0), name, {}, 0)
        sqlite_work.keep(connection, ("", "order", str(number)), WorkDelta(born=(work,)))
    pages: list[list[str]] = []
    after: str | None = None
    while not pages or after is not None:
        page = sqlite_work.works(connection, "", WorkQuery(name="refund", after=after, limit=5))
        pages, after = [*pages, [each.entity for each in page.rows]], page.after
    connection.close()

    assert [[], ["order/6"], ["order/9"]] == pages


@pytest.mark.parametrize(
    ("statement", "index"), [("SELECT_WORKS", "PRIMARY KEY"), ("SELECT_WORKS_DEAD", "INDEX work_dead")]
)
def test_a_walk_over_work_goes_along_the_order_of_lists(statement: str, index: str, tmp_path: Path) -> None:
    """From its cursor on; the dead are walked without the living between them."""
    connection = open_writer(tmp_path / "plans.db")
    found = plan(connection, STATEMENTS[statement])
    connection.close()

    assert f"USING {index} (tenant=? AND (kind,id,lane,version,ordinal)>(?,?,?,?,?))" in found.replace("COVERING ", "")
