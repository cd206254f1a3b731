"""Work of another process starts by a signal, and that of a killed worker immediately. Polls are hours apart here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pytest

import interlock
from interlock.model.journal.work import LANES
from interlock.stores.wakeup_pipes import WakeupPipes
from tests.support.eventually import PATIENCE_SECONDS, eventually

ORDER = """
interlock: 1
kind: order
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid}}
  paid: {}
"""

WORKER = """
import asyncio, sys
import interlock
import interlock.effects.lanes as lanes

lanes.POLL_MS_MAX = 3_600_000  # a poll would come after the test
chart = interlock.load("order.yaml")

@chart.handler("payment.charge")
async def charge(attempt):
    print("started", attempt.number, flush=True)
    if sys.argv[2] == "hangs":
        await asyncio.Event().wait()
    return attempt.number

async def main():
    async with interlock.open(sys.argv[1], charts=[chart], work=True) as runtime:
        print("ready", flush=True)
        await runtime.run_until_signal(drain_ms=0)

asyncio.run(main())
"""

LISTENERS = """
import asyncio, os, signal, sys
from pathlib import Path
from interlock.stores.wakeup_pipes import WakeupPipes

async def listen(number):
    async def release(owner):
        return 0
    pipes = WakeupPipes(Path(sys.argv[1]), "", release)
    assert await pipes.listen(f"worker{number}", lambda lanes: None) is not None
    os.write(1, b".")
    await asyncio.Event().wait()

for number in range(int(sys.argv[2])):
    if os.fork() == 0:
        asyncio.run(listen(number))
signal.pause()
"""


@pytest.fixture(params=["sqlite:///{}/orders.db", "file://{}/orders"], ids=["sqlite", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new store."""
    (tmp_path / "order.yaml").write_text(ORDER, encoding="utf-8")
    return str(request.param).format(tmp_path)


class Worker:
    """A worker process that prints when an attempt starts."""

    def __init__(self, url: str, folder: Path, mode: str) -> None:
        command = [sys.executable, "-c", WORKER, url, mode]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.out: IO[str] = self.process.stdout

    async def line(self) -> str:
        """The next line that it prints."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await asyncio.to_thread(self.out.readline)).strip()

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self.process.kill()
        self.process.wait()


StartWorker = Callable[[str], Worker]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers, which end with the test."""
    workers: list[Worker] = []

    def start_worker(mode: str) -> Worker:
        workers.append(Worker(url, tmp_path, mode))
        return workers[-1]

    yield start_worker
    for each in workers:
        each.kill()
        each.out.close()


async def test_work_of_another_process_starts_by_the_signal(url: str, start: StartWorker, tmp_path: Path) -> None:
    worker = start("works")
    assert "ready" == await worker.line()
    async with interlock.open(url, charts=[interlock.load(tmp_path / "order.yaml")], work=False) as orders:
        for number in range(3):
            await orders.create(f"order/{number}")
            await orders.send(f"order/{number}", "pay")
            assert "started 1" == await worker.line()
            await eventually(partial(is_in, orders, f"order/{number}", "paid"))


async def test_the_work_of_a_killed_worker_starts_at_once_in_another(
    url: str, start: StartWorker, tmp_path: Path
) -> None:
    async with interlock.open(url, charts=[interlock.load(tmp_path / "order.yaml")], work=False) as orders:
        first = start("hangs")
        assert "ready" == await first.line()
        await orders.create("order/1")
        await orders.send("order/1", "pay")
        assert "started 1" == await first.line()
        second = start("works")
        assert "ready" == await second.line()
        first.kill()
        assert "started 2" == await second.line()  # its lease has 30 s left, and the next poll is in an hour
        await eventually(lambda: is_in(orders, "order/1", "paid"))


async def test_a_worker_that_drains_passes_its_work_on_by_a_signal(
    url: str, start: StartWorker, tmp_path: Path
) -> None:
    if url.startswith("file:"):
        pytest.skip("on files one process runs the work: the next one takes over when that has closed the store")
    async with interlock.open(url, charts=[interlock.load(tmp_path / "order.yaml")], work=False) as orders:
        first = start("hangs")
        assert "ready" == await first.line()
        await orders.create("order/1")
        await orders.send("order/1", "pay")
        assert "started 1" == await first.line()
        second = start("works")
        assert "ready" == await second.line()
        first.process.send_signal(signal.SIGTERM)
        assert "started 2" == await second.line()


async def test_a_hundred_killed_workers_block_no_sender_and_leave_no_file(tmp_path: Path) -> None:
    released: list[str] = []

    async def release(owner: str) -> int:
        released.append(owner)
        return 0

    sender = WakeupPipes(tmp_path / "orders.db", "", release)
    with listeners(tmp_path / "orders.db", 100):
        await eventually(lambda: len(sender.owners()) == 100)

    def is_empty() -> bool:
        sender.ring(frozenset(LANES))  # it opens the pipes of those that are left; none has a reader, once it has ended
        return not any(sender.folder.iterdir())

    await eventually(is_empty)
    await sender.close()

    assert len(released) == len(set(released)), "each is released once"


@contextmanager
def listeners(store: Path, count: int) -> Iterator[None]:
    """Run workers that listen, each in its own process, for a block; then kill all of them."""
    command = [sys.executable, "-c", LISTENERS, str(store), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        assert count == len(process.stdout.read(count))
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.read()  # until the last of them has ended
        process.stdout.close()


async def is_in(orders: interlock.Runtime, entity: str, state: str) -> bool:
    """Whether another process has moved the entity into a state."""
    entries = await orders.journal(entity)
    return entries[-1].after == (state,)
