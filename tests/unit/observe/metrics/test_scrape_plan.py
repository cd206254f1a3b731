"""What a scrape asks a SQLite store: counters and the begin of indexes, whatever the number of entities.

The planner of SQLite chooses by the indexes alone, because stores have no statistics of tables: the plan is the same
for ten entities and for a million.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from interlock.observe.metrics.families import FAMILIES
from interlock.stores.sql.store import SqlStore
from interlock.testing.clock import VirtualClock
from tests.support.questions import recorded
from tests.unit.observe.metrics.scrapes import CUSTOMER, names, scrape
from tests.unit.observe.metrics.test_exporter import exported


async def test_a_scrape_scans_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = VirtualClock(), tmp_path / "orders.db"
    async with exported(f"sqlite:///{path}", clock) as (orders, exporter):
        for number in range(3):
            await orders.create(f"order/{number}")
        await orders.send("order/1", "pay", principal=CUSTOMER)
        with recorded(cast("SqlStore", orders.store), monkeypatch) as asked:
            found = await scrape(exporter, clock)

    assert {each.name for each in FAMILIES if each.is_store_wide} <= names(found)
    assert len(asked) > 10
    with closing(sqlite3.connect(path)) as connection:
        for ask in asked:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {ask.statement}", ask.values)]
            scans = [each for each in plan if re.match(r"SCAN (?!\(|CONSTANT|found)", each)]
            assert [] == scans, (ask.statement, plan)
            assert not any("TEMP B-TREE" in each for each in plan), (ask.statement, plan)


async def test_a_scrape_asks_as_much_for_many_entities_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    async with exported(f"sqlite:///{tmp_path}/orders.db", clock) as (orders, exporter):
        counts = []
        for first, last in ((0, 2), (2, 40)):
            for number in range(first, last):
                await orders.create(f"order/{number}")
                await orders.send(f"order/{number}", "pay", principal=CUSTOMER)
                await orders.create(f"order/{number}b")
            with recorded(cast("SqlStore", orders.store), monkeypatch) as asked:
                await scrape(exporter, clock)
            counts.append(len(asked))

    assert counts[0] == counts[1]
