"""What a PostgreSQL schema keeps beside its journals is held against them."""

from __future__ import annotations

import asyncio
import re

import pytest

import interlock
from interlock.runtime.history.verify import Verification
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.sql import verification
from tests.servers.postgres.scene import raw
from tests.support.postgres_server import asked, store_or_skip

CHART = """
interlock: 1
kind: door
states:
  closed: {tags: [shut], on: {opened: open}}
  open: {on: {closed: closed, left: {actions: [door.watch]}}}
"""
door = interlock.loads(CHART)


async def kept() -> str:
    """A schema with two doors, one of them opened and left to be watched."""
    url = store_or_skip()
    async with interlock.open(url, charts=[door], work=False) as doors:
        await doors.create("door/1", key="first")
        await doors.create("door/2")
        await doors.send("door/2", "opened", key="second")
        await doors.send("door/2", "left")
    return url


async def proofs(url: str) -> list[Verification]:
    """What is proven of all that is there."""
    async with interlock.open(url, charts=[door], work=False) as doors:
        assert doors.store.verification is not None
        return [each async for each in doors.verify_all()]


@pytest.mark.parametrize("page", [1, 2, 2_000])
async def test_a_schema_that_nobody_touched_agrees(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PAGE", page)
    found = await proofs(await kept())

    assert [("door/1", None), ("door/2", None)] == sorted((each.entity, each.problem) for each in found)


@pytest.mark.parametrize(
    ("statement", "entity", "told"),
    [
        ("UPDATE entity SET configuration = '[\"open\"]' WHERE id = '1'", "door/1", "`configuration`"),
        ("UPDATE entity SET revision = 'other' WHERE id = '1'", "door/1", "`revision`"),
        ("UPDATE entity SET ended = 'done' WHERE id = '1'", "door/1", "`ended`"),
        ("UPDATE entity SET active = '{}' WHERE id = '1'", "door/1", "`active` lacks closed"),
        ("UPDATE entity SET active = '{' WHERE id = '1'", "door/1", "cannot be decoded"),
        ("UPDATE entity SET tags = '{' WHERE id = '1'", "door/1", "cannot be decoded"),
        (
            "DELETE FROM entity_state WHERE id = '2' AND state = 'open'",
            "door/2",
            "has no row for the state `open`",
        ),
        ("DELETE FROM entity_state WHERE id = '2' AND state = ''", "the store", "no row for door/2 as a whole"),
        ("UPDATE entity SET entered_ms = 7 WHERE id = '2'", "door/2", "has no row for the entity as a whole"),
        (
            "UPDATE entity_state SET entered_ms = 7 WHERE id = '2' AND state = 'open'",
            "door/2",
            "has no row for the state `open`",
        ),
        ("DELETE FROM entity_tag", "door/1", "`entity_tag` has no row for the tag `shut`"),
        ("DELETE FROM event_key WHERE key = 'second'", "door/2", "the key of version 2 is missing"),
        ("UPDATE event_key SET key = 'another' WHERE key = 'first'", "door/1", "stored as `another`"),
        ("UPDATE state_count SET entities = 7 WHERE state = 'open'", "the store", "has 7 of door in open, expected 1"),
        ("DELETE FROM state_count WHERE state = 'closed'", "the store", "has 0 of door in closed, expected 1"),
        (
            "INSERT INTO entity_state VALUES ('', 'door', 'open', 5, '1')",
            "the store",
            "row for the state `open` of door/1 since 5",
        ),
        (
            "INSERT INTO entity_state VALUES ('', 'door', '', 5, '1')",
            "the store",
            "row for the entity as a whole of door/1 since 5",
        ),
        (
            "INSERT INTO entity_state VALUES ('', 'door', 'open', 5, '9')",
            "the store",
            "`entity_state` has orphaned rows for door/9",
        ),
        ("INSERT INTO entity_tag VALUES ('', 'door', 'shut', '2')", "the store", "row for `shut` of door/2"),
        (
            "INSERT INTO entity_tag VALUES ('', 'door', 'shut', '9')",
            "the store",
            "`entity_tag` has orphaned rows for door/9",
        ),
        (
            "INSERT INTO event_key VALUES ('', 'door', '9', 'k', 1, now())",
            "the store",
            "`event_key` has orphaned rows for door/9",
        ),
        ("UPDATE work SET id = '9'", "the store", "`work` has orphaned rows for door/9"),
    ],
)
async def test_a_row_that_says_something_else_is_told(statement: str, entity: str, told: str) -> None:
    """With the entity it belongs to; lists, counts and known keys would be answered wrongly from it."""
    url = await kept()
    asked(url, statement)
    problems = [each.problem for each in await proofs(url) if each.entity == entity and each.problem is not None]

    assert {"store.beside"} == {each.code for each in problems}
    assert any(told in each.message for each in problems), problems


async def test_what_is_written_meanwhile_is_no_difference() -> None:
    url = await kept()
    async with interlock.open(url, charts=[door], work=False) as doors:

        async def move() -> None:
            for _ in range(15):
                await doors.send("door/2", "closed")
                await doors.send("door/2", "opened")

        moving = asyncio.ensure_future(move())
        assert doors.store.verification is not None
        found: list[str] = []
        while not moving.done():
            found += [
                *await doors.store.verification.differences("door/2"),
                *await doors.store.verification.differences(),
            ]
        await moving

    assert [] == found


async def test_many_differences_are_told_in_part() -> None:
    url = await kept()
    asked(url, "INSERT INTO entity_tag SELECT '', 'door', n::text, '1' FROM generate_series(1, 30) AS n")
    async with interlock.open(url, charts=[door], work=False) as doors:
        assert doors.store.verification is not None
        found = await doors.store.verification.differences()

    assert (11, "and 20 more") == (len(found), found[-1])


async def test_an_entity_that_is_not_there_differs_in_nothing() -> None:
    async with interlock.open(await kept(), charts=[door], work=False) as doors:
        assert doors.store.verification is not None
        assert () == await doors.store.verification.differences("door/7")


async def test_no_walk_scans_a_table() -> None:
    """Every question goes along a key, and every entity that it meets is looked up by its own."""
    url = await kept()
    names = ("derived_row", "present_states", "present_tags", "journal_keys", "state_counts")
    walks = ("walk_entities", "walk_states", "walk_tags", "walk_keys", "walk_work")
    statements = {name: getattr(STATEMENTS, name) for name in (*names, *walks)}
    async with raw(url, **SETTINGS, plan_cache_mode="force_generic_plan") as connection:
        for name, statement in statements.items():
            await connection.execute(f"PREPARE {name} AS {statement}")
            count = max(int(each) for each in re.findall(r"\$(\d+)", statement))
            rows = await connection.fetch(f"EXPLAIN EXECUTE {name} ({', '.join(['NULL'] * count)})")
            plan = "\n".join(row[0] for row in rows)

            assert [] == re.findall(r"Seq Scan.*|Bitmap.*", plan), plan
