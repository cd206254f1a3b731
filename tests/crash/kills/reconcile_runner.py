"""A process that runs a reconciler: `python -m tests.crash.kills.reconcile_runner STORE NOTES hang|answer`.

Each call appends the process id to a file, and is reported on stdout. In mode `hang` it never returns.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import interlock

LEASE_MS = 1_000

ORDER = """
interlock: 1
kind: order
initial: charge_pending
states:
  charge_pending: {expect: {within: 5m}, on: {charge.confirmed: charged}}
  charged: {expect: {within: forever}}
"""


def report(word: str) -> None:
    """Print a line for the process that started this one."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def chart(notes: Path, *, answers: bool) -> interlock.BoundChart:
    """Return the chart with its reconciler."""
    order = interlock.loads(ORDER)

    @order.reconciler("stuck", state="charge_pending", every="50ms", timeout="10m")
    async def look(seen: interlock.ReconcileRequest) -> interlock.ReconcileResult:
        with notes.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        report("asked")
        if not answers:
            await asyncio.Event().wait()
        return interlock.ReconcileResult("charge.confirmed")

    return order


async def main(url: str, notes: str, mode: str) -> None:
    """Run until killed."""
    order = chart(Path(notes), answers=mode == "answer")
    async with interlock.open(url, charts=[order], lease_ms=LEASE_MS) as orders:
        report("open")
        async for entry in orders.watch("order/1", after=1):
            report(f"{entry.key} {entry.after[0]}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
