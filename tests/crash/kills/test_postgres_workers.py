"""Real worker processes on a real server: one is killed in its handlers, the other continues with its keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import interlock
from tests.crash.kills.postgres_workers import LEASE_MS, Ledger, order
from tests.crash.kills.postgres_writers import waited
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import private_server, store_or_skip

ORDERS = tuple(f"order/{each}" for each in range(4))
KEYS = [f"{each}/1/0" for each in ORDERS]


@contextmanager
def worker(url: str, ledger: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process, and end it with the test."""
    command = [sys.executable, "-m", "tests.crash.kills.postgres_workers", url, str(ledger), name]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_work_of_a_killed_worker_is_taken_up_under_the_same_key(tmp_path: Path) -> None:
    url, path = store_or_skip(), tmp_path / "ledger.db"
    ledger = Ledger(path)
    with ExitStack() as processes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with interlock.open(url, charts=[order(ledger, "nobody")], work=False) as runtime:
                victim = processes.enter_context(worker(url, path, "hangs"))
                await asyncio.gather(*(runtime.create(each) for each in ORDERS))
                await eventually(
                    lambda: {key for key, _ in ledger.asks()} == set(KEYS) and len(ledger.operations()) == 2
                )
                processes.enter_context(worker(url, path, "works"))
                victim.kill()
                victim.wait()
                for each in ORDERS:
                    await paid(runtime, each)
                journals = [len(await runtime.journal(each)) for each in ORDERS]

    assert [2] * len(ORDERS) == journals
    assert KEYS == [key for key, _ in ledger.operations()]
    assert ["hangs", "works", "hangs", "works"] == [who for _, who in ledger.operations()]
    assert set(KEYS) == {key for key, who in ledger.asks() if who == "works"}


async def test_workers_go_on_after_the_server_was_killed(tmp_path: Path) -> None:
    ledger, names = Ledger(tmp_path / "ledger.db"), [f"order/{each}" for each in range(30)]
    with private_server() as server:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            interlock.open(server.url(), charts=[order(ledger, "works")], lease_ms=LEASE_MS) as runtime,
        ):
            await asyncio.gather(*(runtime.create(each) for each in names[:20]))
            await eventually(lambda: len(ledger.asks()) > 3)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.start)
            await asyncio.gather(*(waited(partial(runtime.create, each, key="created")) for each in names[20:]))
            for each in names:
                await waited(partial(paid, runtime, each))
            journals = [len(await runtime.journal(each)) for each in names]

    assert [2] * len(names) == journals
    assert sorted(f"{each}/1/0" for each in names) == sorted(key for key, _ in ledger.operations())


async def paid(runtime: interlock.Runtime, entity: str) -> None:
    """Wait until an order is paid."""
    async for entry in runtime.watch(entity, poll_ms=50):
        if entry.after == ("paid",):
            return
