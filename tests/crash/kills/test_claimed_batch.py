"""A worker is killed between the claim of a batch and its results: every effect still runs, under its key."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery, WorkRow
from interlock.runtime.runtime import Runtime
from tests.crash.kills.work_worker import charged, chart
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.worker.test_worker import until

ROOT = Path(__file__).parents[3]
ORDERS = [f"order/{number}" for number in range(16)]
KEYS = sorted(f"{order}/2/0" for order in ORDERS)
LEASE_MS = 1_000


@pytest.mark.parametrize("way", ["dies", "hangs"])
async def test_every_effect_of_a_killed_batch_runs_again(tmp_path: Path, way: str) -> None:
    """It dies in its first handler, with the others claimed and not started; or is killed while all of them run."""
    url, ledger = f"sqlite:///{tmp_path}/orders.db", tmp_path / "ledger"
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(url, charts=[chart()], work=False) as sender:
        for order in ORDERS:
            await sender.create(order)
            await sender.send(order, "pay")
        async with started(url, ledger, way) as doomed:
            if way == "hangs":
                await _read_lines(doomed, "hangs", len(ORDERS))
                doomed.kill()
            await doomed.wait()
        claimed = await _work(sender)
        latest_ms = SystemClock().now_ms() + LEASE_MS

        assert [1] * len(ORDERS) == [each.attempts for each in claimed]
        assert all(each.next_ms is not None and each.next_ms <= latest_ms for each in claimed)
        ran = sorted(key for _, key in charged(ledger))
        assert ran == KEYS if way == "hangs" else len(ran) == 1

        async with started(url, ledger, "charges") as heir:
            for order in ORDERS:
                await until(sender, order, "paid")

        assert KEYS == sorted(key for process, key in charged(ledger) if process == heir.pid)
        assert () == await _work(sender)


async def _work(runtime: Runtime) -> tuple[WorkRow, ...]:
    assert runtime.store.work is not None
    return (await runtime.store.work.list_work(WorkQuery())).rows


@asynccontextmanager
async def started(url: str, ledger: Path, way: str) -> AsyncIterator[Process]:
    """Start a worker process; it is dead at the end."""
    arguments = ("-m", "tests.crash.kills.work_worker", url, str(ledger), way, str(LEASE_MS))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _read_lines(process: Process, word: str, count: int) -> None:
    assert process.stdout is not None
    while count:
        line = await process.stdout.readline()
        assert line, "the process ended"
        count -= line == f"{word}\n".encode()
