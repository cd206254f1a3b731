"""A process that performs orders: `python -m tests.crash.kills.work_worker URL LEDGER WAY [LEASE]`.

WAY is `charges`, `slowly`, `hangs` or `dies`. Each charge is a line in the ledger: the process and the key. In mode
`hangs` the handler never returns after that; in mode `slowly` it returns a little later, so that the process can be
killed in between; in mode `dies` it kills its process. LEASE is the lease of claimed work in milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import interlock
from interlock import BoundChart
from interlock.effects.handlers import Attempt
from interlock.model.limits import LEASE_MS

ORDER = """
interlock: 1
kind: order
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid}}
  paid: {}
"""


def chart() -> BoundChart:
    """Return the chart without its handler."""
    return interlock.loads(ORDER)


def charged(ledger: Path) -> list[tuple[int, str]]:
    """Return the processes and keys of the charges, in order."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return [(int(process), key) for process, key in (line.split() for line in lines)]


async def perform(url: str, ledger: Path, way: str, lease_ms: int = LEASE_MS) -> None:
    """Run effects until the process is killed."""
    order = chart()

    @order.handler("payment.charge")
    async def charge(attempt: Attempt) -> None:
        file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{os.getpid()} {attempt.key}\n".encode())
        os.close(file)
        if way == "slowly":
            await asyncio.sleep(0.02)
        if way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "hangs":
            _say("hangs")
            await asyncio.Event().wait()

    async with interlock.open(url, charts=[order], lease_ms=lease_ms):
        _say("performs")
        await asyncio.Event().wait()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(perform(sys.argv[1], Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:])))
