"""A program whose clients send refused events at full speed until it is killed: `python -m ... URL`.

It prints the time and the number of answers so far, some times a second.
"""

from __future__ import annotations

import asyncio
import sys

import interlock
from interlock.errors import UnavailableError
from interlock.ports.clock import SystemClock
from interlock.runtime.runtime import Runtime

CLIENTS = 64
CHART = interlock.loads("""
interlock: 1
kind: order
revision: 1.0.0
events: {pay: {roles: [clerk]}}
initial: unpaid
states: {unpaid: {on: {pay: paid}}, paid: {}}
""")
EVE = {"id": "eve", "kind": "user", "roles": []}
ADA = {"id": "ada", "kind": "user", "roles": []}


class Program:
    """The clients, and how many answers they have."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.answers = 0

    async def client(self) -> None:
        """Send without a pause."""
        while True:
            try:
                await self.runtime.send("order/1", "pay", principal=EVE)
            except UnavailableError:
                await asyncio.sleep(0)  # stopped: nothing was waited for
            self.answers += 1

    async def report(self) -> None:
        """Print the answers so far; and whether the quiet principal has its answer."""
        await self.runtime.send("order/1", "pay", principal=ADA)
        sys.stdout.write("quiet\n")
        clock = SystemClock()
        while True:
            answers = self.answers
            sys.stdout.write(f"{clock.now_ms()} {answers}\n")
            sys.stdout.flush()
            await clock.sleep_ms(50)


async def main(url: str) -> None:
    """Run until killed."""
    async with interlock.open(url, charts=[CHART], work=False) as runtime:
        await runtime.create("order/1")
        program = Program(runtime)
        await asyncio.gather(program.report(), *(program.client() for _ in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
