"""Workers that are killed one after the other: every order is paid in the end, each charge under one key.

Two workers share a store; a third process sends. The worker that runs effects is killed during an effect and started
again, and the other one takes over.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import interlock
from interlock.ports.work import WorkQuery
from tests.crash.kills.work_worker import charged, chart
from tests.crash.table import Row
from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
SETTLED_SECONDS_MAX = PATIENCE_SECONDS
"""How long the last work may take after the last kill."""


async def stormed(url: str, ledger: Path, *, kills: int, seed: int = 1) -> Row:
    """Kill workers while orders are paid, then wait until all are paid; return what is wrong."""
    chance, row, orders = random.Random(seed), Row(0), list[str]()
    workers = [await _started(url, ledger) for _ in range(2)]
    try:
        async with interlock.open(url, charts=[chart()], work=False) as sender:
            paying = asyncio.ensure_future(_pay(sender, orders))
            while row.count < kills:
                await asyncio.sleep(chance.uniform(0.05, 0.5))  # it waits for nothing: this is the storm
                last = {process for process, _ in charged(ledger)[-1:]}
                doomed = next((each for each in workers if each.pid in last), chance.choice(workers))
                await _killed(doomed)
                workers[workers.index(doomed)] = await _started(url, ledger)
                row.count += 1
            paying.cancel()
            await asyncio.wait({paying})
            row.found += await _unsettled(sender, orders)
        row.found += _strange(orders, ledger)
        charges = [key for _, key in charged(ledger)]
        row.note = f"{len(orders):,} orders, {len(charges) - len(set(charges)):,} charges asked for again"
    finally:
        for each in workers:
            await _killed(each)
    return row


async def _pay(sender: interlock.Runtime, orders: list[str]) -> None:
    """Pay one order after the other, until cancelled."""
    while True:
        orders.append(f"order/{len(orders)}")
        await asyncio.shield(sender.create(orders[-1], key="c"))
        await asyncio.shield(sender.send(orders[-1], "pay", key="p"))
        await asyncio.sleep(0.01)


async def _unsettled(sender: interlock.Runtime, orders: list[str]) -> list[str]:
    """Orders that are not paid and work that is left after the time limit."""
    order = ""
    try:
        async with asyncio.timeout(SETTLED_SECONDS_MAX):
            for order in orders:
                await sender.create(order, key="c")  # those that the storm ended with
                await sender.send(order, "pay", key="p")
                async for entry in sender.watch(order, poll_ms=50):
                    if entry.after == ("paid",):
                        break
    except TimeoutError:
        return [f"lost: {order} is not paid"]
    store = sender.store
    assert store.work is not None
    return [f"left: {row.entity} {row.work.name}" for row in (await store.work.works(WorkQuery())).rows]


def _strange(orders: list[str], ledger: Path) -> list[str]:
    """Charges under a wrong key, and orders without a charge."""
    keys = {key for _, key in charged(ledger)}
    expected = {f"{order}/2/0" for order in orders}
    return [f"doubled: {key}" for key in keys - expected] + [f"lost: {key}" for key in expected - keys]


async def _started(url: str, ledger: Path) -> Process:
    arguments = ("-m", "tests.crash.kills.work_worker", url, str(ledger), "slowly")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def _killed(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
