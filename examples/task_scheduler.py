"""A scheduler of CPU work for an event loop: priorities, work stealing, and workers that may die.

The loop submits and awaits; worker processes take the most urgent task, steal from each other when idle, and wake the
loop when a task has ended. A task that kills its worker runs again, and fails after three attempts.

Run it with `python examples/task_scheduler.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

from interlock.errors import RejectedError, UnavailableError
from interlock.shm import MemoryRegion, TaskPool

URGENT, NORMAL, WHENEVER = 0, 1, 2


def primes_below(limit: int) -> int:
    """The number of primes below a number: work that would block an event loop."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(min(2, limit))
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return sum(sieve)


def handler(task: Any) -> Any:
    """The handler that runs in a worker."""
    match task:
        case {"primes_below": int(limit)}:
            return primes_below(limit)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise ValueError(f"no such task: {task}")
    return None


def note(ended: list[int], priority: int, _: asyncio.Future[Any]) -> None:
    """Record the order in which tasks ended."""
    ended.append(priority)


async def main() -> None:
    """Submit three kinds of tasks, including failing ones."""
    with MemoryRegion.create(slots=4) as region:
        async with TaskPool(region, handler, workers=2) as pool:
            ended: list[int] = []
            tasks = []
            for number in range(60):
                priority = (URGENT, NORMAL, WHENEVER)[number % 3]
                task = pool.submit({"primes_below": 20_000}, priority=priority)
                task.add_done_callback(partial(note, ended, priority))
                tasks.append(task)
            results = await asyncio.gather(*tasks)
            urgent = [place for place, priority in enumerate(ended) if priority == URGENT]
            whenever = [place for place, priority in enumerate(ended) if priority == WHENEVER]
            print(f"{len(results)} tasks, each found {results[0]} primes below 20000")
            print(f"urgent tasks ended before the others: {sum(urgent) / 20 < sum(whenever) / 20}")

            try:
                await pool.submit("nonsense")
            except RejectedError as error:
                print(f"an error comes back: {error}")

            try:
                await pool.submit("crash")
            except UnavailableError as error:
                print(f"a crash is contained: {error.message}")
            print(f"and the pool goes on: {await pool.submit({'primes_below': 100})} primes below 100")
        print("drained: every task has ended, no worker is left")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(), 60))
