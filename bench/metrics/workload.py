"""What metrics cost: the CPU time of a send without and with an exporter, and the time of a scrape.

    python -m bench.metrics.workload URL SENDS BLOCKS SCRAPES

Rule 1: one runtime, and blocks of sends without and with an exporter in turn, so that drift of the machine meets both.
Rule 2: CPU time of the whole process, threads included. The first block of each kind is not counted.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

import interlock
from interlock.observe.metrics.exporter import CACHE_MS, MetricsExporter
from interlock.runtime.runtime import Runtime

LAMP = """
interlock: 1
kind: lamp
initial: dark
states:
  dark: {expect: {within: 1h}, on: {flip: lit}}
  lit: {on: {flip: dark}}
"""
ENTITIES = 100


async def measure(url: str, sends: int, blocks: int, scrapes: int) -> dict[str, float]:
    """Return the figures of a store."""
    found: dict[str, list[float]] = {"off": [], "on": []}
    async with interlock.open(url, charts=[interlock.loads(LAMP)], work=False) as lamps:
        for number in range(ENTITIES):
            await lamps.create(f"lamp/{number}")
        for _ in range(blocks + 1):
            found["off"].append(await _send(lamps, sends))
            exporter = MetricsExporter(lamps)
            await exporter.start()
            found["on"].append(await _send(lamps, sends))
            await exporter.stop()
        exporter = MetricsExporter(lamps)
        await exporter.start()
        await _send(lamps, ENTITIES)
        times = [await _scrape(exporter)]
        for _ in range(scrapes - 1):
            await asyncio.sleep(CACHE_MS / 1_000)  # until the text is made again
            times.append(await _scrape(exporter))
        await exporter.stop()
    off, on = (statistics.median(each[1:]) for each in found.values())
    ratios = [one / other for one, other in zip(found["on"][1:], found["off"][1:], strict=True)]
    return {
        "off_us": off,
        "on_us": on,
        "added_percent": 100 * (statistics.median(ratios) - 1),
        "scrape_ms": statistics.median(times),
    }


async def _send(lamps: Runtime, sends: int) -> float:
    """Return the microseconds of CPU time of a send."""
    started_ns = time.process_time_ns()
    for number in range(sends):
        await lamps.send(f"lamp/{number % ENTITIES}", "flip")
    return (time.process_time_ns() - started_ns) / sends / 1_000


async def _scrape(exporter: MetricsExporter) -> float:
    """Return the milliseconds of a scrape that uses no cached text."""
    started_ns = time.perf_counter_ns()
    await exporter.render()
    return (time.perf_counter_ns() - started_ns) / 1_000_000


if __name__ == "__main__":
    given = (int(each) for each in sys.argv[2:])
    print(json.dumps(asyncio.run(measure(sys.argv[1], *given))))
