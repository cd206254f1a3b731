"""Pools of worker processes under one event loop: as many workers as processors, 64 callers, each awaits its task.

Starting the workers is not measured; a quarter of the tasks is done before the clock starts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import platform
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import perf_counter_ns
from typing import Any

import interlock
from bench.shm.line import Answer, Drive, Line, check
from bench.shm.lines.tasks import burn
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.pool import TaskPool

CALLERS = 64
MICROSECONDS = {"pool-1ms": 1_000, "pool-10us": 10}
"""What a task takes, by workload."""

Call = Callable[[int], Awaitable[int]]


async def _called(call: Call, microseconds: int, count: int) -> int:
    """Nanoseconds for so many tasks."""
    numbers = iter(range(count))

    async def caller() -> None:
        for _ in numbers:
            check(microseconds, await call(microseconds))

    start = perf_counter_ns()
    await asyncio.gather(*[caller() for _ in range(CALLERS)])
    return perf_counter_ns() - start


async def _measured(call: Call, microseconds: int, count: int) -> Answer:
    await _called(call, microseconds, max(CALLERS, count // 4))
    return {"value": 1e9 * count / await _called(call, microseconds, count)}


async def task_pool(microseconds: int, count: int) -> Answer:
    """Interlock's."""
    with MemoryRegion.create(slots=16, areas_bytes=8 << 20) as region:
        async with TaskPool(region, "bench.shm.lines.tasks:burn", workers=_workers()) as pool:
            return await _measured(pool.submit, microseconds, count)


async def executor(microseconds: int, count: int) -> Answer:
    """The standard library's."""
    with ProcessPoolExecutor(_workers(), mp_context=multiprocessing.get_context("spawn")) as processes:
        loop = asyncio.get_running_loop()
        return await _measured(lambda each: loop.run_in_executor(processes, burn, each), microseconds, count)


def _workers() -> int:
    return os.cpu_count() or 1


def _drives(pool: Callable[[int, int], Coroutine[Any, Any, Answer]]) -> dict[str, Drive]:
    def drive(microseconds: int, count: int) -> Answer:
        return asyncio.run(pool(microseconds, count))

    return {workload: partial(drive, microseconds) for workload, microseconds in MICROSECONDS.items()}


LINES = {
    "tasks": lambda: Line(name="interlock, TaskPool", version=interlock.__version__, drives=_drives(task_pool)),
    "executor": lambda: Line(name="ProcessPoolExecutor", version=platform.python_version(), drives=_drives(executor)),
}
