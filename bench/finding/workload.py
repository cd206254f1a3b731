"""How long an indexed query takes among many entities, and how fast the feed is read and a projection built.

    python -m bench.finding.workload URL ENTITIES QUERIES ENTRIES

Rule 1: the entities that are searched are copies of one that the store wrote, made by one statement of the database:
a row and its key, four entities for each customer. Queries go through the runtime, on a store opened as users open it.
Rule 2: the entries of the feed are written by the runtime, step by step, before anything is measured. Both readings
start with the first entry.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types

import interlock
from interlock.ports.reading.journal_feed import FeedEntry
from interlock.runtime.runtime import Runtime

SEED = 1
CLIENTS = 32
PER_CUSTOMER = 4

ORDER = """
interlock: 1
kind: order
context: {customer: {type: string, required: true, index: true}}
initial: unpaid
states: {unpaid: {on: {noted: paid}}, paid: {on: {noted: unpaid}}}
"""
STEP = ORDER.replace("kind: order", "kind: step").replace(", index: true", "")

COPIED = (
    "kind, id, version, revision, configuration, ended, active, tags, snapshot, head, journal_bytes, created_ms, "
    "entered_ms, changed_ms"
)
"""The columns that both databases have."""

FILL_SQLITE = """
    INSERT INTO entity (tenant, {columns})
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
    SELECT e.tenant, {values} FROM n CROSS JOIN entity AS e WHERE e.kind = 'order' AND e.id = '0'""".format(
    columns=COPIED,
    values=COPIED.replace(" id,", " printf('%09d', n),").replace(
        " snapshot,",
        " CAST(replace(replace(CAST(snapshot AS TEXT), 'c-template', 'c-' || (n / 4)), '\"order/0\"',"
        " printf('\"order/%09d\"', n)) AS BLOB),",
    ),
)
FILL_SQLITE_KEYS = """
    INSERT INTO entity_field
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
    SELECT '', 'order', 'customer', CAST(' c-' || (n / 4) AS BLOB), printf('%09d', n) FROM n"""

FILL_POSTGRES = """
    INSERT INTO entity (tenant, {columns}, created_at, last_at)
    SELECT e.tenant, {values}, e.created_at, e.last_at
    FROM generate_series(1, $1::bigint) AS n CROSS JOIN entity AS e WHERE e.kind = 'order' AND e.id = '0'""".format(
    columns=COPIED,
    values=COPIED.replace(" id,", " lpad(n::text, 9, '0'),").replace(
        " snapshot,",
        " convert_to(replace(replace(convert_from(snapshot, 'UTF8'), 'c-template', 'c-' || (n / 4)), '\"order/0\"',"
        " '\"order/' || lpad(n::text, 9, '0') || '\"'), 'UTF8'),",
    ),
)
FILL_POSTGRES_KEYS = """
    INSERT INTO entity_field (tenant, kind, field, value, id)
    SELECT '', 'order', 'customer', convert_to(' c-' || (n / 4), 'UTF8'), lpad(n::text, 9, '0')
    FROM generate_series(1, $1::bigint) AS n"""


async def fill(url: str, entities: int) -> None:
    """Copy the entity `order/0`."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as file:
            file.execute(FILL_SQLITE, (entities,))
            file.execute(FILL_SQLITE_KEYS, (entities,))
            file.commit()
        return
    server, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(server, server_settings={"search_path": schema or "interlock"})
    await connection.execute(FILL_POSTGRES, entities)
    await connection.execute(FILL_POSTGRES_KEYS, entities)
    await connection.execute("VACUUM ANALYZE entity")
    await connection.execute("VACUUM ANALYZE entity_field")
    await connection.close()


async def query(runtime: Runtime, entities: int, queries: int) -> dict[str, float]:
    """Ask for the orders of one customer after the other."""
    chance = random.Random(SEED)
    spent_ms: list[float] = []
    for _ in range(queries):
        customer = f"c-{chance.randrange(1, entities // PER_CUSTOMER)}"
        start_ns = time.perf_counter_ns()
        page = await runtime.list(interlock.EntityQuery(kind="order", where={"customer": customer}))
        spent_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
        assert len(page.rows) == PER_CUSTOMER, (customer, page)
    spent_ms.sort()
    return {
        "query_p50_ms": round(spent_ms[len(spent_ms) // 2], 3),
        "query_p99_ms": round(spent_ms[len(spent_ms) * 99 // 100], 3),
    }


async def write(runtime: Runtime, entries: int) -> None:
    """Write entries of as many entities as there are clients."""

    async def client(number: int) -> None:
        await runtime.create(f"step/{number}", {"customer": "c"})
        for _ in range(entries // CLIENTS - 1):
            await runtime.send(f"step/{number}", "noted")

    await asyncio.gather(*map(client, range(CLIENTS)))


async def read(runtime: Runtime, entries: int) -> dict[str, float]:
    """Read the feed from its start."""
    start = time.perf_counter()
    found = 0
    async for _ in runtime.feed(kinds=["step"], follow=False):
        found += 1
    spent = time.perf_counter() - start
    assert found == entries, found
    return {"feed_per_s": round(found / spent)}


async def project(runtime: Runtime, url: str, entries: int) -> dict[str, float]:
    """Build a projection from the start of the feed: a row per entity, updated by each of its entries."""
    is_async = not url.startswith("sqlite:")
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    taken = 0

    def note(count: int) -> None:
        nonlocal taken
        taken += count
        if taken >= entries:
            loop.call_soon_threadsafe(done.set)

    table = "CREATE TABLE IF NOT EXISTS {}finding (entity text PRIMARY KEY, version bigint NOT NULL)"
    upsert = """
        INSERT INTO {}finding VALUES ({}, {}) ON CONFLICT (entity) DO UPDATE SET version = excluded.version"""

    def fill_sqlite(connection: sqlite3.Connection, batch: Sequence[FeedEntry]) -> None:
        connection.execute(table.format(""))
        rows = [(each.entity, each.entry.version) for each in batch]
        connection.executemany(upsert.format("", "?", "?"), rows)
        note(len(batch))

    async def fill_postgres(connection: Any, batch: Sequence[FeedEntry]) -> None:
        await connection.execute(table.format("public."))
        rows = [(each.entity, each.entry.version) for each in batch]
        await connection.executemany(upsert.format("public.", "$1", "$2"), rows)
        note(len(batch))

    start = time.perf_counter()
    runtime.projection("finding", kinds=["step"])(fill_postgres if is_async else fill_sqlite)
    await done.wait()
    return {"projection_per_s": round(entries / (time.perf_counter() - start))}


async def measured(url: str, entities: int, queries: int, entries: int) -> dict[str, float]:
    """Fill the store and return the measures."""
    charts = [interlock.loads(ORDER), interlock.loads(STEP)]
    entries -= entries % CLIENTS
    found: dict[str, float] = {"entities": entities, "entries": entries}
    if not url.startswith("file:"):
        async with interlock.open(url, charts=charts, work=False) as runtime:
            await runtime.create("order/0", {"customer": "c-template"})
        await fill(url, entities)
        async with interlock.open(url, charts=charts, work=False) as runtime:
            await query(runtime, entities, 20)
            found |= await query(runtime, entities, queries)
    async with interlock.open(url, charts=charts, work=False) as runtime:
        await write(runtime, entries)
    async with interlock.open(url, charts=charts, work=False) as runtime:
        found |= await read(runtime, entries)
        if runtime.store.projections is not None:
            found |= await project(runtime, url, entries)
    return found


def main() -> None:
    """Measure, and print the measures."""
    url, entities, queries, entries = sys.argv[1:]
    print(json.dumps(asyncio.run(measured(url, int(entities), int(queries), int(entries)))))


if __name__ == "__main__":
    main()
