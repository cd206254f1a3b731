"""How long a saturated inbox occupies an event loop: the CPU time of every callback that the loop runs."""

from __future__ import annotations

import asyncio
import os
from asyncio.events import Handle
from collections.abc import Awaitable, Callable
from time import perf_counter_ns, thread_time_ns

import interlock
from bench.shm.line import Answer, Line, check, children
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.inbox import DRAIN_US_MAX, Inbox

MESSAGE = bytes(64)
PRODUCERS = 2
RING_BYTES = 1 << 20
WAIT_SECONDS = 60.0


async def _timed_callbacks(work: Callable[[], Awaitable[object]]) -> list[int]:
    """Return the CPU nanoseconds of each callback while `work` runs. Only the standard event loop supports it."""
    run = Handle._run
    found: list[int] = []

    def timed(handle: Handle) -> None:
        start = thread_time_ns()
        run(handle)
        found.append(thread_time_ns() - start)

    Handle._run = timed  # type: ignore[method-assign,assignment]  # restored below
    try:
        await asyncio.sleep(0)  # otherwise the first work would run in a callback that started before the clock
        await work()
    finally:
        Handle._run = run  # type: ignore[method-assign]  # restored
    return found


def callback(count: int) -> Answer:
    """Two processes push as fast as they can; the consumer counts."""
    each = count // PRODUCERS
    total = each * PRODUCERS

    def produce() -> None:
        producer = inbox.producer()
        for _ in range(each):
            while not producer.push(MESSAGE):
                os.sched_yield()
        producer.close()

    async def consume() -> None:
        taken = 0
        async for batch in inbox.batches(budget_us=DRAIN_US_MAX):
            taken += len(batch)
            if taken == total:
                return

    async def timed(start_all: Callable[[], int]) -> tuple[list[int], int]:
        start = start_all()
        found = await asyncio.wait_for(_timed_callbacks(consume), WAIT_SECONDS)
        return found, perf_counter_ns() - start

    with (
        MemoryRegion.create(slots=4, areas_bytes=(PRODUCERS + 1) * RING_BYTES) as region,
        Inbox(region, producers=PRODUCERS, ring_bytes=RING_BYTES) as inbox,
        children([produce] * PRODUCERS) as start_all,
    ):
        found, took = asyncio.run(timed(start_all))
    found.sort()
    check(True, len(found) > 0)
    return {
        "value": found[-1] / 1e3,
        "p99": found[len(found) * 99 // 100] / 1e3,
        "messages_per_ms": 1e6 * total / took,
    }


LINES = {
    "inbox": lambda: Line(
        name=f"interlock, budget {DRAIN_US_MAX} us", version=interlock.__version__, drives={"callback": callback}
    )
}
