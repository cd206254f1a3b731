"""faster-fifo, as its manual advises for speed: `get_many`; and without pickling, so that it carries bytes as we do."""

from __future__ import annotations

from importlib.metadata import version
from time import perf_counter_ns

import faster_fifo

from bench.shm.line import Line, check, children
from bench.shm.lines.queues import ROOM_BYTES, WAIT_SECONDS, drives


def fifo(message: bytes, producers: int, each: int) -> int:
    """Through a queue of faster-fifo."""
    channel = faster_fifo.Queue(max_size_bytes=ROOM_BYTES, dumps=lambda data: data, loads=bytes)

    def produce() -> None:
        put = channel.put
        for _ in range(each):
            put(message, timeout=WAIT_SECONDS)

    total = each * producers
    with children([produce] * producers) as start_all:
        start, taken, messages = start_all(), 0, [b""]
        while taken < total:
            messages = channel.get_many(timeout=WAIT_SECONDS)
            taken += len(messages)
        took = perf_counter_ns() - start
        check((total, message), (taken, messages[-1]))
    channel.close()
    return took


LINES = {"fifo": lambda: Line(name="faster-fifo, get_many", version=version("faster-fifo"), drives=drives(fifo))}
