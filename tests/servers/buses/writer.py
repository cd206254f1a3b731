"""A process that steps orders and publishes until it is killed: `python -m tests.servers.buses.writer STORE BUS`."""

from __future__ import annotations

import asyncio
import sys

import interlock
from tests.servers.buses.test_buses import ORDER

ORDERS, ROUNDS = 8, 50


async def write(store: str, bus: str) -> None:
    """Step eight orders in turn, some rounds, then wait to be killed."""
    async with interlock.open(store, charts=[interlock.loads(ORDER)], bus=bus, lease_ms=1_000) as orders:
        names = [f"order/{number}" for number in range(ORDERS)]
        await asyncio.gather(*(orders.create(name, key="begin") for name in names))
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        for _ in range(ROUNDS):
            await asyncio.gather(*(orders.send(name, "step") for name in names))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2]))
