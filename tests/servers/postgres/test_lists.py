"""Lists from a PostgreSQL server: along an index at any size, and in bounded walks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from interlock.ports.store import EntityQuery
from interlock.stores.postgres import commit
from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.postgres.opening import open_store
from interlock.stores.postgres.statements import STATEMENTS
from interlock.stores.postgres.store import PostgresStore
from interlock.stores.sql import lists
from interlock.testing.store_suite.samples import Life
from interlock.testing.store_suite.subject import kept, listed
from tests.support.postgres_server import asked, store_or_skip

LISTS = {
    "by age": (STATEMENTS.list_by_age, ("", "parcel", 5_000, "x", 9_000, 51)),
    "by state": (STATEMENTS.list_by_state, ("", "parcel", 5_000, "x", 9_000, 51, "moving")),
    "by id": (STATEMENTS.list_by_id, ("", "parcel", "7", "", 500)),
    "by tag": (STATEMENTS.list_by_tag, ("", "parcel", "rare")),
    "many with a tag": (STATEMENTS.has_many_tagged, ("", "parcel", "rare", 1_000)),
    "kinds": (STATEMENTS.kinds, ("",)),
    "load": (commit.SELECT_LOADED, ("", "parcel", "77", "k")),
    "records": (commit.SELECT_RECORDS, ("", "parcel", "77", 0, 1_000)),
    "a record": (commit.SELECT_RECORD, ("", "parcel", "77", 1)),
    "tips": (commit.SELECT_TIPS, ("", ["parcel"] * 9, [str(n) for n in range(9)], ["k"] * 9)),
    "release": (commit.RELEASE, ("", "parcel", "77", 1, "file:///x")),
}
FILLED = """
    INSERT INTO entity SELECT '', CASE n % 10 WHEN 0 THEN 'letter' ELSE 'parcel' END, n::text, 1, 'r', '["packed"]',
      NULL, '{}', '[]', '', repeat('0', 32), 1, NULL, NULL, NULL, n, n, n, now(), now()
      FROM generate_series(1, 20000) AS n;
    INSERT INTO entity_state SELECT tenant, kind, state, entered_ms, id
      FROM entity, unnest(ARRAY['', 'packed', 'moving']) AS state;
    INSERT INTO entity_tag SELECT tenant, kind, tag, id FROM entity, unnest(ARRAY['common', 'rare']) AS tag
      WHERE tag = 'common' OR id LIKE '%000';
    INSERT INTO event_key SELECT tenant, kind, id, 'k', 1, now() FROM entity;
    INSERT INTO journal SELECT tenant, kind, id, 1, 'x', now() FROM entity;
    ANALYZE entity, entity_state, entity_tag, event_key, journal"""


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    """A store, closed in the end."""
    opened = await open_store(store_or_skip())
    yield opened
    await opened.close()


async def _connected(url: str, settings: dict[str, str]) -> Any:
    bare, _, options = url.partition("?")
    return await asyncpg.connect(bare, server_settings=settings | {"search_path": options.partition("=")[2]})


async def _plan(url: str, statement: str, values: tuple[Any, ...]) -> str:
    """The plan for these values, by a server as it is."""
    connection = await _connected(url, {})
    rows = await connection.fetch(f"EXPLAIN {statement}", *values)
    await connection.close()
    return "\n".join(row[0] for row in rows)


async def _kept_plan(url: str, statement: str) -> str:
    """The plan for any values, as one of our connections keeps it."""
    connection = await _connected(url, SETTINGS | {"plan_cache_mode": "force_generic_plan"})
    await connection.execute(f"PREPARE kept AS {statement}")
    count = max(int(each) for each in re.findall(r"\$(\d+)", statement))
    rows = await connection.fetch(f"EXPLAIN EXECUTE kept ({', '.join(['NULL'] * count)})")
    await connection.close()
    return "\n".join(row[0] for row in rows)


@pytest.mark.slow
async def test_no_question_scans_a_table() -> None:
    """On 20,000 rows the server's own planner takes an index for each, and sorts none of the lists."""
    url = store_or_skip()
    await (await open_store(url)).close()
    for statement in FILLED.split(";"):
        asked(url, statement)
    plans = {name: await _plan(url, *question) for name, question in LISTS.items()}

    (this,) = asked(url, "SELECT DISTINCT tableoid::regclass::text FROM journal")[0]
    scanned = {each for plan in plans.values() for each in re.findall(r"Seq Scan on (\w+)", plan)}

    # Months to come are empty, and so a scan is as good as an index there.
    assert set() == {each for each in scanned if each == this or not each.startswith("journal_")}
    assert {} == {name: plan for name, plan in plans.items() if name.startswith("by") and "Sort" in plan}


KEPT = {name: text for name, text in vars(commit).items() if name.startswith("COMMIT_")}
JOINS = {
    "COMMIT_STEPS": 1,
    "COMMIT_STEPS_WITH_LISTS": 3,
    "COMMIT_STEPS_WITH_WORK": 4,
    "COMMIT_CREATIONS": 2,
    "COMMIT_CREATIONS_WITH_WORK": 2,
}
"""Loops in the plans for batches: one for each lookup. All else is joined by hash, or it would take squares of time."""


@pytest.mark.parametrize("filled", [False, True])
async def test_what_keeps_steps_finds_rows_by_their_key_whatever_the_size_of_the_tables(filled: bool) -> None:
    """The plan for any values, as it is kept with a connection, is the same for empty tables and for full ones."""
    url = store_or_skip()
    await (await open_store(url)).close()
    if filled:
        for statement in FILLED.split(";"):
            asked(url, statement.replace("20000", "3000"))
    for name, statement in KEPT.items():
        plan = await _kept_plan(url, statement)
        conditions = re.findall(r"Scan using (?:entity|event_key|work)_pkey .*\n\s+Index Cond: (.*)", plan)

        assert [] == re.findall(r"Seq Scan.*|Bitmap.*", plan), name
        assert bool(conditions) is ("CREATIONS" not in name), plan
        assert all("(id = " in each for each in conditions), plan
        assert JOINS.get(name, plan.count("Nested Loop")) == plan.count("Nested Loop"), plan


async def _crowd(store: PostgresStore, count: int) -> None:
    lives = [Life(f"parcel/{each:04}", time_ms=1_000 + each % 7) for each in range(count)]
    await asyncio.gather(*(kept(store, life.created()) for life in lives))
    await asyncio.gather(*(kept(store, life.stepped("shipped", key="s")) for life in lives[::2]))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        (EntityQuery(kind="parcel", limit=3), 40),
        (EntityQuery(kind="parcel", state="moving", limit=3), 20),
        (EntityQuery(kind="parcel", state="moving", tag="inside", limit=3), 0),
        (EntityQuery(kind="parcel", tag="outside", limit=3), 20),
        (EntityQuery(kind="parcel", prefix="000", limit=3), 10),
        (EntityQuery(kind="parcel", prefix="00", state="packed", tag="inside", limit=3), 20),
        (EntityQuery(kind="parcel", revision="none", limit=3), 0),
        (EntityQuery(kind="parcel", entered_before_ms=1_003, limit=3), 9),
    ],
)
@pytest.mark.parametrize("walk", [5_000, 8, 7])
async def test_a_walk_stops_and_goes_on_from_its_cursor(
    store: PostgresStore, query: EntityQuery, count: int, walk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _crowd(store, 40)
    monkeypatch.setattr(lists, "WALK_MAX", walk)
    monkeypatch.setattr(lists, "FEW_MAX", walk)
    rows = await listed(store, query)

    assert count == len(rows) == len({each.entity for each in rows})
    assert rows == sorted(rows, key=lambda each: (0 if query.prefix else each.entered_ms, each.entity))


async def test_kinds_are_found_one_step_each(store: PostgresStore) -> None:
    for kind in ("zebra", "Zebra", "apple", "zoo"):
        await kept(store, Life(f"{kind}/1").created(), Life(f"{kind}/2").created())

    assert ("Zebra", "apple", "zebra", "zoo") == await store.kinds()
