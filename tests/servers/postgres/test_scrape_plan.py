"""What a scrape asks a PostgreSQL store: the begin of indexes and counters, whatever the number of entities."""

from __future__ import annotations

import re
from typing import cast

import pytest

from interlock.stores.postgres.connection import SETTINGS
from interlock.stores.sql.store import SqlStore
from interlock.testing.clock import VirtualClock
from tests.servers.postgres.work import raw
from tests.support.postgres_server import store_or_skip
from tests.support.questions import recorded
from tests.unit.observe.metrics.scrapes import CUSTOMER, names, scrape
from tests.unit.observe.metrics.test_exporter import STORE_WIDE, exported

FILLED = """
    INSERT INTO entity_state SELECT '', 'order', 'unpaid', n, 'x' || n FROM generate_series(1, 100000) AS n;
    INSERT INTO work (tenant, kind, id, lane, version, ordinal, line, name, body, next_ms)
      SELECT '', 'order', 'x' || n, 'timer', 1, 0, '', 'x', '{}', n FROM generate_series(1, 100000) AS n;
    ANALYZE entity_state, work, state_count, entity"""


async def test_a_scrape_scans_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    url, clock = store_or_skip(), VirtualClock()
    async with exported(url, clock) as (orders, exporter):
        for number in range(3):
            await orders.create(f"order/{number}")
        await orders.send("order/1", "pay", principal=CUSTOMER)
        with recorded(cast("SqlStore", orders.store), monkeypatch) as asked:
            found = await scrape(exporter, clock)
        async with raw(url, **SETTINGS) as connection:
            for statement in FILLED.split(";"):
                await connection.execute(statement)
            for ask in asked:
                rows = await connection.fetch(f"EXPLAIN {ask.statement}", *ask.values)
                plan = "\n".join(row[0] for row in rows)
                scanned = re.findall(r"Seq Scan on (?:entity_state|work|journal|entity)\b.*|Bitmap.*", plan)

                assert [] == scanned, (ask.statement, plan)

    assert STORE_WIDE <= names(found)
    assert len(asked) > 10
