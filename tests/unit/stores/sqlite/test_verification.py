"""`verify` compares the lists and counts of a SQLite file with its journals."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import interlock
from interlock.runtime.history.verify import Verification

CHART = """
interlock: 1
kind: door
states:
  closed: {tags: [shut], on: {opened: open}}
  open: {on: {closed: closed}}
"""
door = interlock.loads(CHART)


async def two_doors(folder: Path) -> Path:
    """A file with two doors, one of them opened."""
    path = folder / "doors.db"
    async with interlock.open(f"sqlite:///{path}", charts=[door]) as doors:
        await doors.create("door/1", key="first")
        await doors.create("door/2")
        await doors.send("door/2", "opened", key="second")
    return path


async def verified(path: Path) -> list[Verification]:
    """The verification of every entity of a file."""
    async with interlock.open(f"sqlite:///{path}", charts=[door]) as doors:
        return [each async for each in doors.verify_all()]


async def test_an_unchanged_file_has_no_problems(tmp_path: Path) -> None:
    found = await verified(await two_doors(tmp_path))

    assert ["door/1", "door/2"] == sorted(each.entity for each in found)
    assert [None, None] == [each.problem for each in found]


@pytest.mark.parametrize(
    ("statement", "entity", "expected"),
    [
        ("UPDATE entity SET configuration = '[\"open\"]' WHERE id = '1'", "door/1", "`configuration`"),
        ("UPDATE entity SET revision = 'other' WHERE id = '1'", "door/1", "`revision`"),
        ("UPDATE entity SET ended = 'done' WHERE id = '1'", "door/1", "`ended`"),
        ("UPDATE entity SET active = '{}' WHERE id = '1'", "door/1", "`active` lacks closed"),
        ("DELETE FROM entity_state WHERE id = '2'", "door/2", "`entity_state` has no row for the state `open`"),
        ("UPDATE entity_state SET state = 'closed' WHERE id = '2'", "door/2", "`entity_state`"),
        ("DELETE FROM entity_tag", "door/1", "`entity_tag` has no row for the tag `shut`"),
        ("DELETE FROM event_key WHERE key = 'second'", "door/2", "the key of version 2 is missing"),
        ("UPDATE event_key SET key = 'another' WHERE key = 'first'", "door/1", "stored as `another`"),
        ("UPDATE state_count SET entities = 7 WHERE state = 'open'", "the store", "has 7 of door in open, expected 1"),
        ("DELETE FROM state_count WHERE state = 'closed'", "the store", "has 0 of door in closed, expected 1"),
        (
            "INSERT INTO entity_state (tenant, kind, id, state, entered_ms) VALUES ('', 'door', '2', 'closed', 1)",
            "the store",
            "has a row for the state `closed` of door/2 since 1",
        ),
        (
            "INSERT INTO entity_tag (tenant, kind, tag, id) VALUES ('', 'door', 'shut', '9')",
            "the store",
            "`entity_tag` has orphaned rows for door/9",
        ),
    ],
)
async def test_a_changed_row_is_reported(tmp_path: Path, statement: str, entity: str, expected: str) -> None:
    """With the entity it belongs to; lists, counts and known keys would be answered wrongly from it."""
    path = await two_doors(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(_as_bytes(statement))
    connection.close()
    problems = [(each.entity, each.problem) for each in await verified(path) if each.problem is not None]

    assert {"store.beside"} == {problem.code for _, problem in problems}
    assert any(expected in problem.message for of, problem in problems if of == entity), problems
    assert {of for of, _ in problems} <= {entity, "the store"}


def _as_bytes(statement: str) -> str:
    """JSON in a statement, as the blob that the strict tables want."""
    for text in ('["open"]', "{}"):
        statement = statement.replace(f"'{text}'", f"x'{text.encode().hex()}'")
    return statement
