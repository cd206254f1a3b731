"""Messages from producer processes to one consumer process: lanes, a pipe, and `multiprocessing.Queue`.

All carry the same bytes, have the same room where room can be chosen, and give the consumer `bytes` objects. The pipe
is raw: messages of one size, cut by counting, without frames. Times are of the wall, from letting the producers go to
the last message taken.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import platform
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

import interlock
from bench.shm.line import Answer, Drive, Line, check, children
from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.inbox import Inbox

SIZES = (64, 1024)
PRODUCERS = (1, 2)
ROOM_BYTES = 1 << 20
WAIT_SECONDS = 20.0
F_SETPIPE_SZ = 1031
"""From the system's headers; the module `fcntl` names it on newer builds only."""

Carry = Callable[[bytes, int, int], int]
"""Carries so many messages from so many producers; gives the nanoseconds."""


def name_of(size: int, producers: int) -> str:
    """The workload."""
    return f"lanes-{size}-{producers}"


def drives(carry: Carry) -> dict[str, Drive]:
    """All workloads by one way of carrying."""

    def drive(size: int, producers: int, count: int) -> Answer:
        each = max(1, count // producers)
        took = carry(bytes(range(256)) * (size // 256) or bytes(range(size)), producers, each)
        return {"value": 1e6 * each * producers / took}

    return {name_of(size, producers): partial(drive, size, producers) for size in SIZES for producers in PRODUCERS}


def lanes(message: bytes, producers: int, each: int) -> int:
    """Through an inbox; a producer that finds its lane full gives its processor away and tries again."""

    def produce() -> None:
        producer = inbox.producer()
        push, rest = producer.push, os.sched_yield
        for _ in range(each):
            while not push(message):
                rest()
        producer.close()

    total = each * producers
    with (
        MemoryRegion.create(slots=4, areas_bytes=(producers + 1) * ROOM_BYTES) as region,
        Inbox(region, producers=producers, ring_bytes=ROOM_BYTES) as inbox,
        children([produce] * producers) as let_go,
    ):
        inbox.take()  # the consumer from now on
        began, taken, last = let_go(), 0, b""
        while taken < total:
            batch = inbox.take()
            if batch is not None:
                taken += len(batch)
                last = batch.messages[-1]
            elif not inbox.wait(WAIT_SECONDS):
                break
        took = perf_counter_ns() - began
        check((total, message), (taken, last))
    return took


def pipe(message: bytes, producers: int, each: int) -> int:
    """Through a pipe: a write for each message, reads as large as the pipe."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, ROOM_BYTES)
    size = len(message)

    def produce() -> None:
        write = os.write
        for _ in range(each):
            write(writer, message)

    total = each * producers
    try:
        with children([produce] * producers) as let_go:
            began, taken, rest, last = let_go(), 0, b"", b""
            while taken < total:
                data = rest + os.read(reader, ROOM_BYTES)
                whole = len(data) - len(data) % size
                messages = [data[start : start + size] for start in range(0, whole, size)]
                rest = data[whole:]
                if messages:
                    taken += len(messages)
                    last = messages[-1]
            took = perf_counter_ns() - began
            check((total, message), (taken, last))
    finally:
        os.close(reader)
        os.close(writer)
    return took


def queue(message: bytes, producers: int, each: int) -> int:
    """Through `multiprocessing.Queue`."""
    channel: multiprocessing.Queue[bytes] = multiprocessing.get_context("fork").Queue()

    def produce() -> None:
        put = channel.put
        for _ in range(each):
            put(message)
        channel.close()
        channel.join_thread()

    total = each * producers
    last = b""
    with children([produce] * producers) as let_go:
        began = let_go()
        for _ in range(total):
            last = channel.get(timeout=WAIT_SECONDS)
        took = perf_counter_ns() - began
        check(message, last)
    channel.close()
    return took


LINES = {
    "lanes": lambda: Line(name="interlock, lanes", version=interlock.__version__, drives=drives(lanes)),
    "pipe": lambda: Line(name="os.pipe, raw", version=platform.python_version(), drives=drives(pipe)),
    "queue": lambda: Line(name="multiprocessing.Queue", version=platform.python_version(), drives=drives(queue)),
}
