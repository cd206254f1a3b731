"""Messages from producer processes to one consumer process: rings, a pipe, and `multiprocessing.Queue`.

All carry the same bytes, have the same capacity where it can be chosen, and give the consumer `bytes` objects. The pipe
is raw: messages of one size, split by length, without frames. Times are wall time, from the start of the producers to
the last message received.
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
"""Carries so many messages from so many producers, and returns the nanoseconds."""


def name_of(size: int, producers: int) -> str:
    """Return the name of the workload."""
    return f"rings-{size}-{producers}"


def drives(carry: Carry) -> dict[str, Drive]:
    """Return all workloads for one kind of queue."""

    def drive(size: int, producers: int, count: int) -> Answer:
        each = max(1, count // producers)
        took = carry(bytes(range(256)) * (size // 256) or bytes(range(size)), producers, each)
        return {"value": 1e6 * each * producers / took}

    return {name_of(size, producers): partial(drive, size, producers) for size in SIZES for producers in PRODUCERS}


def rings(message: bytes, producers: int, each: int) -> int:
    """Through an inbox; a producer whose ring is full yields its processor and tries again."""

    def produce() -> None:
        producer = inbox.producer()
        push, yield_processor = producer.push, os.sched_yield
        for _ in range(each):
            while not push(message):
                yield_processor()
        producer.close()

    total = each * producers
    with (
        MemoryRegion.create(slots=4, areas_bytes=(producers + 1) * ROOM_BYTES) as region,
        Inbox(region, producers=producers, ring_bytes=ROOM_BYTES) as inbox,
        children([produce] * producers) as start_all,
    ):
        inbox.take()  # become the consumer
        start, taken, last = start_all(), 0, b""
        while taken < total:
            batch = inbox.take()
            if batch is not None:
                taken += len(batch)
                last = batch.messages[-1]
            elif not inbox.wait(WAIT_SECONDS):
                break
        took = perf_counter_ns() - start
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
        with children([produce] * producers) as start_all:
            start, taken, left, last = start_all(), 0, b"", b""
            while taken < total:
                data = left + os.read(reader, ROOM_BYTES)
                whole = len(data) - len(data) % size
                messages = [data[at : at + size] for at in range(0, whole, size)]
                left = data[whole:]
                if messages:
                    taken += len(messages)
                    last = messages[-1]
            took = perf_counter_ns() - start
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
    with children([produce] * producers) as start_all:
        start = start_all()
        for _ in range(total):
            last = channel.get(timeout=WAIT_SECONDS)
        took = perf_counter_ns() - start
        check(message, last)
    channel.close()
    return took


LINES = {
    "rings": lambda: Line(name="interlock, rings", version=interlock.__version__, drives=drives(rings)),
    "pipe": lambda: Line(name="os.pipe, raw", version=platform.python_version(), drives=drives(pipe)),
    "queue": lambda: Line(name="multiprocessing.Queue", version=platform.python_version(), drives=drives(queue)),
}
