"""A task pool whose worker processes are killed repeatedly: every task returns its result, once."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool
from tests.crash.shm.storm import Outcome, RandomTimes, run
from tests.support.eventually import PATIENCE_SECONDS, eventually

WORKERS = 3
CALLERS = 24


def triple(number: int) -> int:
    """The handler."""
    return number * 3


def storm(kills: int, seed: int) -> Outcome:
    """Run callers that keep the pool busy while its workers die."""
    return asyncio.run(_storm(kills, seed))


async def _storm(kills: int, seed: int) -> Outcome:
    outcome, times = Outcome("pool: worker processes"), RandomTimes(seed)
    with MemoryRegion.create(slots=2 + WORKERS) as region:
        async with TaskPool(region, triple, workers=WORKERS, tasks_max=64, claims_max=255) as pool:
            ended = asyncio.Event()
            callers = [asyncio.create_task(_call(pool, outcome, ended, place)) for place in range(CALLERS)]
            while outcome.kills < kills and not outcome.notes:
                await _wait_for_progress(outcome)  # otherwise all workers die at their start, and the pool gives up
                await asyncio.sleep(times.chance.random() * 0.02)
                victims = sorted(pool.pids)
                if not victims:
                    continue
                running = len(pool)
                os.kill(times.chance.choice(victims), signal.SIGKILL)
                outcome.kills += 1
                outcome.inside += running > 0
            ended.set()
            results = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), PATIENCE_SECONDS)
            _check(results, outcome)
            if len(pool):
                outcome.lost += len(pool)
    return outcome


async def _wait_for_progress(outcome: Outcome) -> None:
    """Wait until some more tasks have finished."""
    wanted = outcome.work + CALLERS
    try:
        await eventually(lambda: outcome.work >= wanted)
    except AssertionError:
        outcome.note(f"no task ended within {PATIENCE_SECONDS:g} seconds")


async def _call(pool: TaskPool, outcome: Outcome, ended: asyncio.Event, place: int) -> None:
    number = place
    while not ended.is_set():
        outcome.torn += await pool.run(number) != number * 3
        outcome.work += 1
        number += CALLERS


def _check(results: list[Any], outcome: Outcome) -> None:
    for result in results:
        if result is not None:
            outcome.lost += 1
            outcome.note(repr(result))


if __name__ == "__main__":
    run(storm)
