"""What old revisions cost a process that has only the newest chart.

    python -m bench.evolve.revisions URL REVISIONS ROUNDS

Rule 1: a store is filled by REVISIONS programs, one after the other, each with its own revision and one entity of it.
Rule 2: opening is opening a runtime as users do, and one event to an entity of the newest revision. It is compared with
a store that has this one revision only.
Rule 3: a first touch is the first event to an entity of an old revision in a new runtime, less an event to an entity of
the newest one in that runtime: reading the definition, compiling it, making its kernel.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import interlock

CHART = Path(__file__).parents[1] / "charts" / "fulfilment.interlock.yaml"
"""A saga of three steps: 21 states once it is compiled."""


def text_of(revision: int) -> str:
    """Return the definition of a revision: each has its own field."""
    text = CHART.read_text(encoding="utf-8")
    changed = text.replace("context:\n", f"context:\n  r{revision}: {{type: integer, default: 0}}\n")
    assert changed != text
    return changed


def _runtime(url: str, revision: int) -> interlock.PendingRuntime:
    return interlock.open(url, charts=[interlock.loads(text_of(revision))], work=False)


async def fill(url: str, first: int, last: int) -> None:
    """Create an entity on each of these revisions."""
    for revision in range(first, last + 1):
        async with _runtime(url, revision) as runtime:
            await runtime.create(f"fulfilment/{revision}")


async def opening_ms(url: str, newest: int, number: int) -> float:
    """Return how long it takes to open a runtime and send one event; the chart is loaded before."""
    pending = _runtime(url, newest)
    started_ns = time.perf_counter_ns()
    async with pending as runtime:
        await runtime.create(f"fulfilment/new-{newest}-{number}")
        return (time.perf_counter_ns() - started_ns) / 1e6


async def touch_ms(url: str, newest: int, old: int) -> tuple[float, float]:
    """Return how much longer the first event to an entity of an old revision takes, and its processor time."""
    async with _runtime(url, newest) as runtime:
        await runtime.dry_run(f"fulfilment/{newest}", "start")
        started_ns = time.perf_counter_ns()
        await runtime.dry_run(f"fulfilment/{newest}", "start")
        between_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        await runtime.dry_run(f"fulfilment/{old}", "start")
        elapsed_ns = time.perf_counter_ns() - between_ns - (between_ns - started_ns)
        return elapsed_ns / 1e6, (time.process_time_ns() - cpu_ns) / 1e6


async def measured(url: str, revisions: int, rounds: int) -> dict[str, float]:
    """Fill the store, and return the measures. The same store is measured with one revision first."""
    await fill(url, revisions, revisions)  # the newest: it must be the same chart in both measurements
    one = [await opening_ms(url, revisions, each) for each in range(rounds)]
    await fill(url, 0, revisions - 1)
    many = [await opening_ms(url, revisions, rounds + each) for each in range(rounds)]
    touches = [await touch_ms(url, revisions, each % revisions) for each in range(rounds)]
    return {
        "revisions": revisions,
        "open_one_ms": round(statistics.median(one), 2),
        "open_many_ms": round(statistics.median(many), 2),
        "open_more_ms": round(statistics.median(many) - statistics.median(one), 2),
        "touch_ms": round(statistics.median(each for each, _ in touches), 2),
        "touch_cpu_ms": round(statistics.median(each for _, each in touches), 2),
    }


if __name__ == "__main__":
    address, revisions_text, rounds_text = sys.argv[1:]
    print(json.dumps(asyncio.run(measured(address, int(revisions_text), int(rounds_text)))))
