"""The query plans of the SQLite store: no statement scans a table or sorts, whatever the size of the file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.ports.work import WorkQuery
from interlock.stores.sql import work_lists
from interlock.stores.sql.work_lists import list_work
from interlock.stores.sqlite import batch_rows, feed, statements, store, work
from interlock.stores.sqlite.connection import open_writer, run_questions
from interlock.stores.sqlite.statements import STATEMENTS

SHARED = {
    each.name: text
    for each in fields(STATEMENTS)
    for text in [getattr(STATEMENTS, each.name)]
    if isinstance(text, str) and "INSERT INTO" not in text
}
OWN = {
    f"{module.__name__.rpartition('.')[2]}.{name}": text
    for module in (batch_rows, feed, statements, store, work)
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and re.match(r"\s*(SELECT|UPDATE|DELETE)", text)
}
ALL = {**SHARED, **OWN, **{f"correct_statistics.{n}": each for n, each in enumerate(STATEMENTS.correct_statistics)}}

WALKS = {"walk_states", "walk_tags", "walk_keys", "walk_work", "walk_fields", "journal_keys"}
"""Statements of `verify`: they sort or index one page of at most some thousand rows."""

SORTS = {"stamped_after", "records"}
"""Statements that sort the rows of one answer."""

INDEXES = {
    "list_by_age": ["SEARCH e USING INDEX entity_by_age"],
    "list_by_state": ["SEARCH s USING PRIMARY KEY", "SEARCH e USING INDEX sqlite_autoindex_entity_1"],
    "list_by_id": ["SEARCH e USING INDEX sqlite_autoindex_entity_1"],
    "list_by_tag": ["SEARCH t USING PRIMARY KEY", "SEARCH e USING INDEX sqlite_autoindex_entity_1"],
    "list_by_field": [
        "SEARCH f USING PRIMARY KEY (tenant=? AND kind=? AND field=? AND (value,id)>(?,?) AND value<?)",
        "SEARCH e USING INDEX sqlite_autoindex_entity_1 (tenant=? AND kind=? AND id=?)",
    ],
    "entities_after": ["SEARCH entity USING INDEX sqlite_autoindex_entity_1 (tenant=? AND kind=? AND id>?)"],
    "entities_named": ["SEARCH entity USING INDEX sqlite_autoindex_entity_1 (tenant=? AND kind=? AND id=?)"],
    "present_fields": ["SEARCH entity_field USING PRIMARY KEY (tenant=? AND kind=? AND field=? AND value=? AND id=?)"],
    "batch_rows.DELETE_FIELD": [
        "SEARCH entity_field USING PRIMARY KEY (tenant=? AND kind=? AND field=? AND value=? AND id=?)"
    ],
    "has_many_tagged": ["SEARCH entity_tag USING PRIMARY KEY"],
    "work": ["SEARCH work USING PRIMARY KEY (tenant=? AND (kind,id,lane,version,ordinal)>(?,?,?,?,?))"],
    "dead_work": ["SEARCH work USING INDEX work_dead (tenant=? AND (kind,id,lane,version,ordinal)>(?,?,?,?,?))"],
    "work_of_entity": ["SEARCH work USING PRIMARY KEY (tenant=? AND kind=? AND id=?)"],
    "work.SELECT_DUE": ["SEARCH work USING INDEX work_by_time"],
    "work.SELECT_NEXT_DUE": ["SEARCH work USING INDEX work_by_time"],
}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An empty store."""
    with closing(open_writer(tmp_path / "plans.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """An empty store for all tests that only ask for plans."""
    with closing(open_writer(tmp_path_factory.mktemp("plans") / "plans.db")) as opened:
        yield opened


def plan_of(connection: sqlite3.Connection, text: str) -> list[str]:
    """Return the steps of SQLite's plan for a statement."""
    count = max((int(each) for each in re.findall(r"\?(\d+)", text)), default=text.count("?"))
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", [1] * count)]


@pytest.mark.parametrize("name", ALL)
def test_no_statement_scans_a_table(name: str, planner: sqlite3.Connection) -> None:
    plan = plan_of(planner, ALL[name])
    scans = [each for each in plan if each.startswith("SCAN") and not re.match(r"SCAN (\(|CONSTANT|found|p$|k )", each)]
    if name == "last_refusal":  # one step from the end of the table
        scans = []
    sorts = [each for each in plan if "TEMP B-TREE" in each]

    assert (plan, []) == (plan, scans)
    assert name in WALKS | SORTS or not sorts, plan


@pytest.mark.parametrize("name", INDEXES)
def test_lists_follow_the_index_of_their_order(name: str, planner: sqlite3.Connection) -> None:
    plan = [each.replace("COVERING ", "") for each in plan_of(planner, ALL[name])]

    assert len(INDEXES[name]) == len(plan), plan
    assert all(found.startswith(wanted) for wanted, found in zip(INDEXES[name], plan, strict=True)), plan


def test_the_work_of_one_entity_is_found_by_its_name(connection: sqlite3.Connection) -> None:
    for number in range(3):
        for own in ("1", "2", "3"):
            created = Work(WorkId("effect", number + 1, 0), "charge", {}, 0)
            work.write_work(connection, [(("", "order", own), WorkDelta(created=(created,)))])
    asked: list[str] = []
    found: list[int] = []
    after = None
    connection.set_trace_callback(asked.append)
    for _ in range(3):
        page = run_questions(connection, list_work(STATEMENTS, "", WorkQuery(entity="order/2", after=after, limit=1)))
        found, after = [*found, *(each.work.id.version for each in page.rows)], page.after
    connection.set_trace_callback(None)
    plans = {row[3] for each in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")}

    assert ([1, 2, 3], None) == (found, after)
    assert {"SEARCH work USING PRIMARY KEY (tenant=? AND kind=? AND id=?)"} == plans


def test_a_page_of_work_reads_a_bounded_number_of_rows(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_lists, "WALK_MAX", 4)
    for number in range(10):
        created = Work(WorkId("effect", 1, 0), "refund" if number in (6, 9) else "charge", {}, 0)
        work.write_work(connection, [(("", "order", str(number)), WorkDelta(created=(created,)))])
    pages: list[list[str]] = []
    after: str | None = None
    while not pages or after is not None:
        page = run_questions(connection, list_work(STATEMENTS, "", WorkQuery(name="refund", after=after, limit=5)))
        pages, after = [*pages, [each.entity for each in page.rows]], page.after

    assert [[], ["order/6"], ["order/9"]] == pages
