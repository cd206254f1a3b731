"""A SQLite store with two tenants that have entities, work, refusals and definitions of the same names."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.ports.store import EntityQuery, Loaded
from interlock.ports.work import WorkQuery
from interlock.runtime.runtime import Runtime
from interlock.stores.sqlite.store import open_store
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually

SECRET = "canary"
"""A text in everything that the other tenant has: ids, fields, payloads, keys, principals, reasons, names of states."""

NOW_MS = 1_700_000_000_000
"""In the past, because commands read the clock of the machine."""

ORDER = """
interlock: 1
kind: order
revision: {revision}
context: {{amount: {{type: integer, required: true}}, customer: {{type: string, default: none, index: true}}}}
create: {{roles: [support, payments]}}
events:
  payment.confirmed: {{roles: [payments], payload: {{id: {{type: string, required: true}}}}}}
  order.cancelled: {{roles: [support]}}
initial: unpaid
states:
  unpaid:
    after: {{48h: {late}}}
    on: {{payment.confirmed: paid, order.cancelled: cancelled}}
  paid: {{entry: [send_receipt], expect: {{within: forever}}}}
  {late}: {{type: final}}
  cancelled: {{type: final}}
"""
OWN_CHART = ORDER.format(revision="2.0.0", late="expired")
OTHER_CHART = ORDER.format(revision=f"9.0.0-{SECRET}", late=f"{SECRET}_state")


async def _fail(attempt: Any) -> None:
    raise interlock.RejectedError(f"no such mailbox {attempt.entity}", code="mailbox.gone")


def chart(text: str) -> BoundChart:
    """Return the chart with a handler that fails permanently."""
    found = interlock.loads(text)
    found.handler("send_receipt")(_fail)
    return found


def address(folder: Path, tenant: str) -> str:
    """Return the address of the store of a tenant."""
    return f"sqlite:///{folder}/shared.db?tenant={tenant}"


async def fill(url: str, text: str, prefix: str) -> None:
    """Create three entities; the second has a dead letter, the first a refused event, and the third has ended."""
    names = {"id": f"ada {prefix}", "roles": ["payments"]}
    async with interlock.open(url, charts=[chart(text)], clock=VirtualClock(NOW_MS), work=True) as runtime:
        for number in (1, 2, 3):
            context = {"amount": number, "customer": f"c {prefix}"}
            made = await runtime.create(
                f"order/{prefix}-{number}", context, key=f"key {prefix} {number}", principal=names
            )
            made.expect()
        paid = {"id": f"p {prefix}"}
        await runtime.send(f"order/{prefix}-2", "payment.confirmed", paid, principal=names, reason=f"why {prefix}")
        await runtime.send(f"order/{prefix}-1", "order.cancelled", principal=names)  # denied: it needs another role
        await runtime.send(f"order/{prefix}-3", "order.cancelled", principal={**names, "roles": ["support"]})
        await eventually(lambda: _has_dead_letter(runtime))


async def _has_dead_letter(runtime: Runtime) -> bool:
    assert runtime.store.work is not None
    return bool((await runtime.store.work.list_work(WorkQuery(dead=True, limit=10))).rows)


def build(folder: Path) -> None:
    """Make the store and the files that commands read."""
    (folder / "order.yaml").write_text(OWN_CHART, encoding="utf-8")
    (folder / "newer.yaml").write_text(ORDER.format(revision="3.0.0", late="lapsed"), encoding="utf-8")
    (folder / "script.txt").write_text("send order.cancelled\n", encoding="utf-8")

    async def both() -> None:
        await fill(address(folder, "acme"), OWN_CHART, "A")
        await fill(address(folder, SECRET), OTHER_CHART, SECRET)

    asyncio.run(both())


async def contents(folder: Path, tenant: str) -> list[str]:
    """Return everything that a tenant has: entities, entries, work, definitions, refusals."""
    store, found = open_store(address(folder, tenant)), []
    try:
        for kind in await store.kinds():
            for row in (await store.find(EntityQuery(kind=kind, limit=1_000))).rows:
                loaded = await store.load(row.entity)
                assert isinstance(loaded, Loaded)
                found += [row, loaded, *await store.read(row.entity, after=0, limit=1_000)]
        found += (await store.list_work(WorkQuery(limit=1_000))).rows
        found += await store.list_definitions()
        found += await store.audit_after(0)
    finally:
        await store.close()
    return [repr(each) for each in found]


def rows(folder: Path) -> str:
    """Return every row of the database, of all tenants."""
    with closing(sqlite3.connect(folder / "shared.db")) as database:
        return "\n".join(database.iterdump())
