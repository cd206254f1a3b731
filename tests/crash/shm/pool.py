"""A task pool whose worker processes are killed again and again: every task gives its result, once."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool
from tests.crash.shm.storm import Moments, Outcome, run
from tests.support.eventually import PATIENCE_SECONDS, eventually

WORKERS = 3
CALLERS = 24


def tripled(number: int) -> int:
    """What the workers do."""
    return number * 3


def storm(kills: int, seed: int) -> Outcome:
    """Callers that keep the pool busy while its workers die."""
    return asyncio.run(_storm(kills, seed))


async def _storm(kills: int, seed: int) -> Outcome:
    outcome, moments = Outcome("pool: worker processes"), Moments(seed)
    with MemoryRegion.create(slots=2 + WORKERS) as region:
        async with TaskPool(region, tripled, workers=WORKERS, tasks_max=64, claims_max=255) as pool:
            ended = asyncio.Event()
            callers = [asyncio.create_task(_call(pool, outcome, ended, place)) for place in range(CALLERS)]
            while outcome.kills < kills and not outcome.notes:
                await _progress(outcome)  # else they all die young, and the pool rightly gives up
                await asyncio.sleep(moments.chance.random() * 0.02)
                victims = sorted(pool.pids)
                if not victims:
                    continue
                running = len(pool)
                os.kill(moments.chance.choice(victims), signal.SIGKILL)
                outcome.kills += 1
                outcome.inside += running > 0
            ended.set()
            results = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), PATIENCE_SECONDS)
            _judge(results, outcome)
            if len(pool):
                outcome.lost += len(pool)
    return outcome


async def _progress(outcome: Outcome) -> None:
    """Until some more tasks have ended."""
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


def _judge(results: list[Any], outcome: Outcome) -> None:
    for result in results:
        if result is not None:
            outcome.lost += 1
            outcome.note(repr(result))


if __name__ == "__main__":
    run(storm)
