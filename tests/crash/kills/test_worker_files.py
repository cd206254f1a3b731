"""The worker on files: one process runs effects; the next one continues its work."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import interlock
from tests.crash.kills.work_worker import charged, chart
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.worker.test_worker import Bank, order_chart, orders, rows, until

ROOT = Path(__file__).parents[3]


async def test_work_survives_the_process_that_left_it(tmp_path: Path) -> None:
    url, bank = f"file://{tmp_path}/orders", Bank()
    async with interlock.open(url, charts=[order_chart(bank)], work=False) as sender:
        await sender.create("order/1")
        await sender.send("order/1", "pay")

        assert [("effect", "payment.charge"), ("timer", "after.1m.charging")] == await rows(sender)
    async with orders(url, bank) as runtime:
        await until(runtime, "order/1", "paid")

    assert {"order/1/2/1": 3} == bank.deeds


async def test_one_of_two_workers_runs_all_work_and_the_other_continues_after_it(tmp_path: Path) -> None:
    url, first, second = f"file://{tmp_path}/orders", Bank(), Bank()
    async with orders(url, first) as one:
        await one.create("order/0")
        await one.send("order/0", "pay")
        await until(one, "order/0", "paid")
        async with orders(url, second) as two:
            for number in range(1, 7):
                await two.create(f"order/{number}")
            await asyncio.gather(*((one, two)[n % 2].send(f"order/{n}", "pay") for n in range(1, 7)))
            for number in range(1, 7):
                await until(one, f"order/{number}", "paid")
    assert (7, 7, []) == (len(first.asked), len(first.deeds), second.asked)
    async with orders(url, second) as two:
        await two.create("order/7")
        await two.send("order/7", "pay")
        await until(two, "order/7", "paid")

    assert {"order/7/2/1": 3} == second.deeds


async def test_the_work_of_a_killed_process_is_done_by_the_next_under_its_key(tmp_path: Path) -> None:
    """Real processes, killed in the middle of a handler. A third one only sends, and waits."""
    url, ledger = f"file://{tmp_path}/orders", tmp_path / "ledger"
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        interlock.open(url, charts=[chart()], work=False) as sender,
        worker(url, ledger, "hangs") as doomed,
    ):
        await sender.create("order/1")
        await sender.send("order/1", "pay")
        await _said(doomed, "hangs")
        async with worker(url, ledger, "charges") as heir:
            assert [(doomed.pid, "order/1/2/0")] == charged(ledger)
            doomed.kill()
            await until(sender, "order/1", "paid")

            assert [(doomed.pid, "order/1/2/0"), (heir.pid, "order/1/2/0")] == charged(ledger)
            await sender.create("order/2")
            await sender.send("order/2", "pay")
            await until(sender, "order/2", "paid")
            assert (heir.pid, "order/2/2/0") == charged(ledger)[-1]


@asynccontextmanager
async def worker(url: str, ledger: Path, way: str) -> AsyncIterator[Process]:
    """Start a worker process, wait until it reports, and kill it at the end."""
    arguments = ("-m", "tests.crash.kills.work_worker", url, str(ledger), way)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=PIPE)
    try:
        await _said(process, "performs")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _said(process: Process, word: str) -> None:
    assert process.stdout is not None
    assert f"{word}\n".encode() == await process.stdout.readline()
