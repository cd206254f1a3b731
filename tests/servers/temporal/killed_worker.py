"""A worker process that a test kills: it books trips, and writes what it performs to a ledger outside of Temporal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import interlock
from interlock.assemble.charts import BoundChart
from interlock.errors import RejectedError
from tests.servers.temporal.lives import TRIP

HANDLERS = ("flight.book", "hotel.book", "car.rent", "hotel.cancel", "flight.cancel")


def tours(ledger: str | None) -> BoundChart[Any]:
    """The chart, with handlers that write one line to the ledger for each call: its name and its key."""
    tour = interlock.loads(TRIP)

    def perform(name: str) -> Callable[[interlock.Attempt], Awaitable[str]]:
        async def run(effect: interlock.Attempt) -> str:
            assert ledger is not None
            file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, f"{name} {effect.entity} {effect.key}\n".encode())
            finally:
                os.close(file)
            await asyncio.sleep(0.02)  # a service takes a while, in which its caller may be killed
            if name == "car.rent":
                raise RejectedError("no car is left", code="sold_out")
            return f"{name} {effect.key}"

        return run

    for name in HANDLERS if ledger is not None else ():
        tour.handler(name)(perform(name))
    return tour


async def main(url: str, ledger: str) -> None:
    """Work until the process is killed."""
    async with interlock.open(url, charts=[tours(ledger)], lease_ms=1_000):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
