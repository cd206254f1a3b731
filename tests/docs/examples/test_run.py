"""The examples as workers: `interlock run` runs effects of other processes and stops on a signal."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.order.order import CUSTOMER, ENDS, app
from interlock.assemble.runtimes import open as opening
from tests.docs.examples.scene import reached
from tests.support.eventually import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]


async def _end(url: str) -> str:
    """Where an order ends that is placed by a process which performs nothing."""
    async with opening(url, charts=[app()], work=False) as orders:
        await orders.create("order/1", {"amount": 4_990, "item": "lamp"}, key="created")
        await orders.send("order/1", "order.placed", key="placed", principal=CUSTOMER)
        return (await reached(orders, "order/1", ENDS))[-1]


@pytest.mark.slow
def test_a_worker_process_ships_orders_of_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    command = [sys.executable, "-W", "error", "-m", "interlock", "run", "examples.order.order:app", "--store", url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as worker:
        try:
            assert "shipped" == asyncio.run(_end(url))
            worker.send_signal(signal.SIGTERM)
            said, _ = worker.communicate(timeout=PATIENCE_SECONDS)
        finally:
            worker.kill()

    assert ["running:", "draining:", "stopped;"] == [line.partition(" ")[0] for line in said.splitlines()]
    assert 0 == worker.returncode
