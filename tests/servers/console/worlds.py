"""Stores for browser tests: an interrupted bulk, and an entity with a long journal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import interlock
from interlock.cli.saved_reports import save_result
from interlock.runtime.charts.registry import JOB_KIND, ChartRegistry
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.refold import Refold, RefoldSettings
from tests.unit.web.consoles import ORDER

COUNTER = """
interlock: 1
kind: counter
revision: 1.0.0
context: {sum: {type: integer, default: 0}}
events: {more: {}}
initial: open
states:
  open: {expect: {within: forever}, on: {more: {actions: [{assign: {sum: "= context.sum + 1"}}]}}}
"""
JOB = "2026-01-5c1f0e7a9b22"


def interrupted(home: Path, *, orders: int = 1) -> None:
    """Create unpaid orders, and a bulk whose server was killed before its first send."""
    (home / "order.yaml").write_text(ORDER, encoding="utf-8")
    _run(_interrupted(f"sqlite:///{home}/o.db", orders))


async def _interrupted(url: str, orders: int) -> None:
    query = {"kind": "order", "state": "unpaid"}
    bulk = {"query": query, "event": "order.cancelled", "payload": None, "per_second": 50}
    task = {"what": "send order.cancelled to order", "who": "ada", "reason": "season is over", "bulk": bulk}
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        for number in range(orders):
            await runtime.create(f"order/A-{number + 1}", {"amount": 100})
        began_ms = runtime.clock.now_ms() - 600_000
        context = {"task": {**task, "began_ms": began_ms}, "owner": "gone", "noted_ms": began_ms}
        await runtime.create(f"{JOB_KIND}/{JOB}", context)


ACCOUNT = """
interlock: 1
kind: account
context: {balance: {type: integer, default: 0}}
events: {deposited: {payload: {amount: integer}}, withdrawn: {payload: {amount: integer}}, closed: {}, frozen: {}}
states:
  open:
    after: {30d: dormant}
    on:
      deposited: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}
      withdrawn: {actions: [{assign: {balance: "= context.balance + event.data.amount"}}]}
      frozen: frozen
      closed: done
  frozen: {expect: {within: forever}, on: {closed: done}}
  dormant: {expect: {within: forever}, on: {deposited: open}}
  done: {type: final}
"""
CORRECTED = ACCOUNT.replace(
    'withdrawn: {actions: [{assign: {balance: "= context.balance +',
    'withdrawn: {actions: [{assign: {balance: "= context.balance -',
)


def reported(home: Path, *, accounts: int = 6) -> None:
    """Create accounts with a wrong sign, and the reports of a shadow run, a shadow replay and a refold."""
    (home / "account.yaml").write_text(ACCOUNT, encoding="utf-8")
    (home / "corrected.yaml").write_text(CORRECTED.replace("frozen: frozen", "frozen: dormant"), encoding="utf-8")
    _run(_reported(f"sqlite:///{home}/o.db", accounts))


async def _reported(url: str, accounts: int) -> None:
    changed = CORRECTED.replace("frozen: frozen", "frozen: dormant")
    async with interlock.open(url, charts=[interlock.loads(ACCOUNT)], work=False) as runtime:
        run = runtime.shadow(interlock.loads(changed), share=1)
        for number in range(accounts):
            await runtime.create(f"account/{number}")
            await runtime.send(f"account/{number}", "deposited", {"amount": 100})
            await runtime.send(f"account/{number}", "withdrawn", {"amount": 10 + number})
            if number % 3 == 1:
                await runtime.send(f"account/{number}", "frozen")
            if number % 3 == 2:
                await runtime.send(f"account/{number}", "closed")
        await run.settled()
        await run.save(is_running=True)
        same = ShadowReplay(
            runtime.store, interlock.loads(ACCOUNT).kernel, runtime.revisions, now_ms=runtime.clock.now_ms()
        )
        async for _ in same.run():
            pass
        fixed = Runtime(runtime.store, ChartRegistry([interlock.loads(CORRECTED).kernel]), runtime.clock)
        refold = Refold(fixed.entities, fixed.mover, "account", RefoldSettings())
        async for _ in refold.run():
            pass
        began_ms = runtime.clock.now_ms()
        await save_result(runtime, "shadow.replay", same.tally.report(), same.recorded, began_ms=began_ms)
        await save_result(runtime, "refold", refold.report(), refold.recorded, began_ms=began_ms)


def long(home: Path, *, entries: int) -> None:
    """Create `counter/1` with this number of entries."""
    (home / "counter.yaml").write_text(COUNTER, encoding="utf-8")
    _run(_long(f"sqlite:///{home}/o.db", entries))


async def _long(url: str, entries: int) -> None:
    async with interlock.open(url, charts=[interlock.loads(COUNTER)], work=False) as runtime:
        await runtime.create("counter/1")
        for number in range(entries - 1):
            await runtime.send("counter/1", "more", key=f"k{number}")


def _run(filling: Coroutine[Any, Any, None]) -> None:
    """Fill a store in another thread: the browser driver has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(filling)).result()
