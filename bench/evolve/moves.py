"""How fast a migration moves entities, next to plain sends of the same process.

    python -m bench.evolve.moves URL ENTITIES

Rule 1: one process, and as many sends as moves at the same time.
Rule 2: each entity gets one event, then moves once. The move changes a timer, a state's name and adds a field.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time

import interlock
from interlock.evolve.mapping.document import read_mapping
from interlock.model.limits import MIGRATION_RUNNING_MAX
from interlock.operate.migrations.migration import Migration
from interlock.runtime.runtime import Runtime

OLD = """
interlock: 1
kind: ticket
context: {count: {type: integer, default: 0}}
states:
  open: {after: {2d: late}, on: {counted: {actions: [{assign: {count: "= context.count + 1"}}]}}}
  late: {}
"""
NEW = OLD.replace("open:", "waiting:").replace("2d", "3d").replace("context: {", "context: {note: {default: new}, ")
MAPPING = "interlock-mapping: 1\nkind: ticket\nstates: {open: waiting}\ntimers: {open: {2d: 3d}}\n"


async def measure(url: str, entities: int) -> dict[str, float]:
    """Return sends and moves per second, and the processor time of each."""
    names = [f"ticket/{number:07}" for number in range(entities)]
    async with interlock.open(url, charts=[interlock.loads(OLD)], work=False) as runtime:
        await _each(runtime, names, event=None)
        started = time.perf_counter(), time.process_time()
        await _each(runtime, names, event="counted")
        sent = time.perf_counter() - started[0], time.process_time() - started[1]
    async with interlock.open(url, charts=[interlock.loads(NEW)], work=False) as runtime:
        migration = Migration(runtime, "ticket", mappings=[read_mapping(MAPPING)], rate=math.inf)
        started = time.perf_counter(), time.process_time()
        async for _ in migration.apply(once=True):
            pass
        moved = time.perf_counter() - started[0], time.process_time() - started[1]
        assert migration.report().moved == entities, migration.report()
    return {
        "sends_per_second": entities / sent[0],
        "moves_per_second": entities / moved[0],
        "send_cpu_us": sent[1] / entities * 1e6,
        "move_cpu_us": moved[1] / entities * 1e6,
        "ratio": sent[0] / moved[0],
    }


async def _each(runtime: Runtime, names: list[str], *, event: str | None) -> None:
    rest = iter(names)

    async def run() -> None:
        for name in rest:
            if event is None:
                await runtime.create(name)
            else:
                await runtime.send(name, event)

    await asyncio.gather(*(run() for _ in range(MIGRATION_RUNNING_MAX)))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
