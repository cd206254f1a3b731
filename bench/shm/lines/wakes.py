"""From another process or thread into an event loop that sleeps: one message a millisecond, from send to receipt.

The clock is the system's monotonic one, which all processes share. Every message is eight bytes.

Rule 1: the inbox is measured as it is used: `push` in another process, and a task in `async for` here.
Rule 2: `call_soon_threadsafe` is measured alone: its callback is the receipt. It is called by a thread of the same
process and resumes no task, which is less than the inbox does; so this is the harder comparison.
Rule 3: it is also measured as programs use it: the callback puts into an `asyncio.Queue`, from which a task gets.
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
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.inbox import Inbox

PACE_SECONDS = 0.001
WAIT_SECONDS = 20.0


def _send(count: int, send: Callable[[bytes], object]) -> None:
    for _ in range(count):
        time.sleep(PACE_SECONDS)
        send(time.perf_counter_ns().to_bytes(8, "little"))


def _latency(message: bytes) -> int:
    return time.perf_counter_ns() - int.from_bytes(message, "little")


def _answer(latencies: list[int], count: int) -> Answer:
    check(count, len(latencies))
    latencies.sort()
    return {"value": latencies[count // 2] / 1e3, "p99": latencies[count * 99 // 100] / 1e3}


def inbox_wake(count: int) -> Answer:
    """A process pushes, and notifies the loop."""
    latencies: list[int] = []

    def produce() -> None:
        producer = inbox.producer()
        _send(count, lambda each: producer.push(each))  # noqa: PLW0108  # called like the others
        producer.close()

    async def consume(start_all: Callable[[], int]) -> None:
        start_all()
        async for batch in inbox.batches():
            latencies.extend(map(_latency, batch))
            if len(latencies) >= count:
                return

    with MemoryRegion.create(slots=4) as region, Inbox(region, producers=1) as inbox, children([produce]) as start_all:
        asyncio.run(asyncio.wait_for(consume(start_all), WAIT_SECONDS))
    return _answer(latencies, count)


def threadsafe_wake(count: int) -> Answer:
    """A thread of the loop's own process calls `call_soon_threadsafe`."""
    latencies: list[int] = []

    async def consume() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def receive(message: bytes) -> None:
            latencies.append(_latency(message))
            if len(latencies) == count:
                ended.set()

        sender = threading.Thread(target=_send, args=(count, lambda each: loop.call_soon_threadsafe(receive, each)))
        sender.start()
        await ended.wait()
        sender.join()

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    return _answer(latencies, count)


def threadsafe_task_wake(count: int) -> Answer:
    """The same, and the callback passes the message to a task that waits for it."""
    latencies: list[int] = []

    async def consume() -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        put = queue.put_nowait
        sender = threading.Thread(target=_send, args=(count, lambda each: loop.call_soon_threadsafe(put, each)))
        sender.start()
        while len(latencies) < count:
            latencies.append(_latency(await queue.get()))
        sender.join()

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    return _answer(latencies, count)


def executor_wake(count: int) -> Answer:
    """A process puts into a `multiprocessing.Queue`, from which a thread receives for the loop."""
    latencies: list[int] = []
    channel: multiprocessing.Queue[bytes] = multiprocessing.get_context("fork").Queue()

    def produce() -> None:
        _send(count, channel.put)
        channel.close()
        channel.join_thread()

    async def consume(start_all: Callable[[], int]) -> None:
        loop = asyncio.get_running_loop()
        start_all()
        while len(latencies) < count:
            latencies.append(_latency(await loop.run_in_executor(None, channel.get)))

    with children([produce]) as start_all:
        asyncio.run(asyncio.wait_for(consume(start_all), WAIT_SECONDS))
    channel.close()
    return _answer(latencies, count)


LINES = {
    "inbox": lambda: Line(
        name="interlock, process to inbox", version=interlock.__version__, drives={"wake": inbox_wake}
    ),
    "threadsafe": lambda: Line(
        name="thread, call_soon_threadsafe", version=platform.python_version(), drives={"wake": threadsafe_wake}
    ),
    "threadsafe-task": lambda: Line(
        name="thread, call_soon_threadsafe to a task",
        version=platform.python_version(),
        drives={"wake": threadsafe_task_wake},
    ),
    "executor": lambda: Line(
        name="process, Queue.get in an executor", version=platform.python_version(), drives={"wake": executor_wake}
    ),
}
