"""From another process or thread into an event loop that sleeps: one message a millisecond, from send to receipt.

The clock is the system's monotonic one, which all processes share.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import platform
import threading
import time
from collections.abc import Callable

import interlock
from bench.shm.line import Answer, Line, check, children
from interlock.shm.inbox import Inbox
from interlock.shm.region import Region

PACE_SECONDS = 0.001
WAIT_SECONDS = 20.0


def _sent(count: int, send: Callable[[int], object]) -> None:
    for _ in range(count):
        time.sleep(PACE_SECONDS)
        send(time.perf_counter_ns())


def _answer(latencies: list[int], count: int) -> Answer:
    check(count, len(latencies))
    latencies.sort()
    return {"value": latencies[count // 2] / 1e3, "p99": latencies[count * 99 // 100] / 1e3}


def inbox_wake(count: int) -> Answer:
    """A process pushes; the loop is rung."""
    latencies: list[int] = []

    def produce() -> None:
        producer = inbox.producer()
        _sent(count, lambda stamp: producer.push(stamp.to_bytes(8, "little")))
        producer.close()

    async def consume(let_go: Callable[[], int]) -> None:
        let_go()
        async for batch in inbox.batches():
            now = time.perf_counter_ns()
            latencies.extend(now - int.from_bytes(message, "little") for message in batch)
            if len(latencies) >= count:
                return

    with Region.create(slots=4) as region, Inbox(region, producers=1) as inbox, children([produce]) as let_go:
        asyncio.run(asyncio.wait_for(consume(let_go), WAIT_SECONDS))
    return _answer(latencies, count)


def threadsafe_wake(count: int) -> Answer:
    """A thread of the loop's own process calls `call_soon_threadsafe`."""
    latencies: list[int] = []

    async def consume() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def receive(stamp: int) -> None:
            latencies.append(time.perf_counter_ns() - stamp)
            if len(latencies) == count:
                ended.set()

        sender = threading.Thread(target=_sent, args=(count, lambda stamp: loop.call_soon_threadsafe(receive, stamp)))
        sender.start()
        await ended.wait()
        sender.join()

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    return _answer(latencies, count)


def executor_wake(count: int) -> Answer:
    """A process puts into a `multiprocessing.Queue`, of which a thread takes for the loop."""
    latencies: list[int] = []
    channel: multiprocessing.Queue[int] = multiprocessing.get_context("fork").Queue()

    def produce() -> None:
        _sent(count, channel.put)
        channel.close()
        channel.join_thread()

    async def consume(let_go: Callable[[], int]) -> None:
        loop = asyncio.get_running_loop()
        let_go()
        for _ in range(count):
            stamp = await loop.run_in_executor(None, channel.get)
            latencies.append(time.perf_counter_ns() - stamp)

    with children([produce]) as let_go:
        asyncio.run(asyncio.wait_for(consume(let_go), WAIT_SECONDS))
    channel.close()
    return _answer(latencies, count)


LINES = {
    "inbox": lambda: Line(
        name="interlock, process to inbox", version=interlock.__version__, drives={"wake": inbox_wake}
    ),
    "threadsafe": lambda: Line(
        name="thread, call_soon_threadsafe", version=platform.python_version(), drives={"wake": threadsafe_wake}
    ),
    "executor": lambda: Line(
        name="process, Queue.get in an executor", version=platform.python_version(), drives={"wake": executor_wake}
    ),
}
