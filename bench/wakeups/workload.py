"""How soon work of one process starts in another, and how soon that of a killed worker starts again.

    python -m bench.wakeups.workload URL ORDERS KILLS

Rule 1: the sender runs no effects, and the worker sends nothing; both are opened as users open them.
Rule 2: the time is from the receipt of the event, or from the kill, to the first line of the handler, by the monotonic
clock that the processes of a machine share.
Rule 3: an order is sent when the one before has started and a pause has passed, so that nothing is coalesced.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import IO

import interlock

PAUSE_S = 0.02
ORDER = """
interlock: 1
kind: order
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid}}
  paid: {}
"""


class Worker:
    """A worker in its own process."""

    def __init__(self, url: str, mode: str) -> None:
        command = [sys.executable, "-m", "bench.wakeups.workload", "worker", url, mode]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.out: IO[str] = self.process.stdout
        assert self.out.readline() == "ready\n"

    async def started_ns(self) -> int:
        """Return when the next attempt started."""
        return int(await asyncio.to_thread(self.out.readline))

    def kill(self) -> int:
        """Kill it, and return when."""
        killed_ns = time.monotonic_ns()
        self.process.kill()
        self.process.wait()
        self.out.close()
        return killed_ns


async def work(url: str, mode: str) -> None:
    """Run a worker until it is killed."""
    chart = interlock.loads(ORDER)

    @chart.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> None:
        print(time.monotonic_ns(), flush=True)
        if mode == "hangs":
            await asyncio.Event().wait()

    async with interlock.open(url, charts=[chart], work=True):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def measured(url: str, orders: int, kills: int) -> dict[str, float]:
    """Send orders one by one, then kill workers in the middle of one; return the measures."""
    late_ms: list[float] = []
    killed_ms: list[float] = []
    async with interlock.open(url, charts=[interlock.loads(ORDER)], work=False) as runtime:
        worker = Worker(url, "works")
        for number in range(orders):
            await runtime.create(f"order/{number}")
            await runtime.send(f"order/{number}", "pay")
            sent_ns = time.monotonic_ns()
            late_ms.append((await worker.started_ns() - sent_ns) / 1e6)
            await asyncio.sleep(PAUSE_S)
        worker.kill()
        for number in range(kills):
            hanging = Worker(url, "hangs")
            await runtime.create(f"order/k{number}")
            await runtime.send(f"order/k{number}", "pay")
            await hanging.started_ns()
            survivor = Worker(url, "works")
            killed_ns = hanging.kill()
            killed_ms.append((await survivor.started_ns() - killed_ns) / 1e6)
            survivor.kill()
    late_ms.sort()
    killed_ms.sort()
    return {
        "orders": orders,
        "start_p50_ms": round(late_ms[len(late_ms) // 2], 2),
        "start_p99_ms": round(late_ms[len(late_ms) * 99 // 100], 2),
        "kills": kills,
        "killed_p50_ms": round(killed_ms[len(killed_ms) // 2], 2),
        "killed_max_ms": round(killed_ms[-1], 2),
    }


def main() -> None:
    """Measure, and print the measures; or be a worker."""
    if sys.argv[1] == "worker":
        asyncio.run(work(sys.argv[2], sys.argv[3]))
    else:
        url, orders, kills = sys.argv[1:]
        print(json.dumps(asyncio.run(measured(url, int(orders), int(kills)))))


if __name__ == "__main__":
    main()
