"""Many pending timers in one SQLite file, and one process that fires the due ones.

    python -m bench.timers.workload FOLDER ENTITIES TIMERS_EACH DUE PER_SECOND

Rule 1: the file is filled by the store's own code, only without a flush for each step; what is measured afterwards is
an ordinary store, opened as users open it, with an ordinary worker.
Rule 2: lateness is from the time a timer is due to the moment its entry is durable, by one clock.
Rule 3: nothing is measured while the file is filled; a shifted clock lets the due times start when the runtime is
open.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path

import interlock
from interlock.effects.work_delta import work_delta
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE, Entry
from interlock.ports.clock import SystemClock
from interlock.ports.store import (
    Append,
    Appended,
    AppendResult,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.sqlite.batch_rows import Counts, write_counts, write_steps
from interlock.stores.sqlite.connection import begin, open_writer
from interlock.stores.sqlite.store import SqliteStore

BATCH = 2_000
LEAD_MS = 2_000
"""From the opening of the runtime to the first due time: so that a slow start does not count as lateness."""

PATIENCE_S = 120
"""How long the last timer may take beyond its time before the run counts as stuck."""

FAR_DAYS = 30

CHART = """
interlock: 1
kind: lamp
context: {wait: {type: integer, required: true}, rung: {type: integer, default: 0}}
initial: lit
states:
  lit:
    expect: {within: forever}
    entry:
      - {send: {event: lamp.rang, delay: "= context.wait", id: near}}
FAR
    on:
      lamp.rang: {actions: [{assign: {rung: "= context.rung + 1"}}]}
      lamp.faded: out
  out: {type: final}
"""


def chart_text(timers_each: int) -> str:
    """Return the chart of a lamp that sets so many timers when it is lit: one soon, the others in a month or later."""
    far = [
        f"      - {{send: {{event: lamp.faded, delay: {FAR_DAYS + each}d, id: far{each}}}}}"
        for each in range(timers_each - 1)
    ]
    return CHART.replace("FAR", "\n".join(far))


class Shifted:
    """The machine's clock, shifted: the time at which the file was filled is the time at which the runtime opens."""

    def __init__(self, behind_ms: int) -> None:
        self._clock = SystemClock()
        self._behind_ms = behind_ms

    def now_ms(self) -> int:
        """The shifted time."""
        return self._clock.now_ms() - self._behind_ms

    async def sleep_ms(self, ms: float) -> None:
        """Wait."""
        await self._clock.sleep_ms(ms)

    def jitter(self) -> float:
        """Chance."""
        return self._clock.jitter()

    def token(self) -> str:
        """A fresh name."""
        return self._clock.token()


class Noting(SqliteStore):
    """Notes how late each firing is durable."""

    def __init__(self, path: Path, due_ms: dict[str, int], clock: Shifted) -> None:
        super().__init__(path)
        self._due_ms = due_ms
        self._shifted = clock
        self.late_ms: list[int] = []
        self.all_fired = asyncio.Event()

    async def append(self, append: Append) -> AppendResult:
        """Append and note the time, even if the worker stops waiting because its renewal finds the timer fired."""
        return await asyncio.shield(asyncio.ensure_future(self._noted(append)))

    async def _noted(self, append: Append) -> AppendResult:
        answer = await super().append(append)
        if isinstance(answer, Appended):
            self.late_ms.append(self._shifted.now_ms() - self._due_ms.pop(append.entity))
            if not self._due_ms:
                self.all_fired.set()
        return answer


def filled(path: Path, lamp: interlock.BoundChart, waits_ms: list[int], began_ms: int) -> None:
    """A file of so many lamps; the near timer of each is due `waits_ms` after the start."""
    connection = open_writer(path)
    connection.execute("PRAGMA synchronous = OFF")
    for start in range(0, len(waits_ms), BATCH):
        counts: Counts = {}
        begin(connection)
        steps = [
            _created(lamp, number, waits_ms[number], began_ms)
            for number in range(start, min(len(waits_ms), start + BATCH))
        ]
        write_steps(connection, "", steps, counts)
        write_counts(connection, "", counts)
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _created(lamp: interlock.BoundChart, number: int, wait_ms: int, began_ms: int) -> Append:
    entity = f"lamp/{number:08d}"
    step = lamp.start({"wait": wait_ms}, entity=entity, time_ms=began_ms)
    event = Event(CREATE, {"context": {"wait": wait_ms}}, time_ms=began_ms, type="platform")
    after = step.snapshot.configuration
    entry = Entry(1, event, "applied", (), after, step.snapshot.revision, "create", None, None, step.effects)
    return Append("lamp", entity, 0, entry, step.snapshot, ("lit",), (), work_delta(None, step, began_ms))


def resident_mb() -> float:
    """What this process holds in memory, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measured(folder: Path, entities: int, timers_each: int, due: int, per_second: int) -> dict[str, float]:
    """Fill the file, open it, wait until every due timer has fired, and return the measures."""
    lamp = interlock.loads(chart_text(timers_each))
    path = folder / "lamps.db"
    began_ms = SystemClock().now_ms()
    gap_ms = 1_000 / per_second
    month_ms = FAR_DAYS * 86_400_000
    # Due timers are spread over all entities: timers that are close in time are not close in the file.
    stride = max(1, entities // due)
    waits = [month_ms] * entities
    for turn in range(due):
        waits[turn * stride] = LEAD_MS + round((turn * 7919 % due) * gap_ms)
    filling = time.perf_counter()
    filled(path, lamp, waits, began_ms)
    fill_s = time.perf_counter() - filling
    del waits[:]
    gc.collect()
    before_mb = resident_mb()

    clock = Shifted(SystemClock().now_ms() - began_ms)
    due_ms = {
        f"lamp/{turn * stride:08d}": began_ms + LEAD_MS + round((turn * 7919 % due) * gap_ms) for turn in range(due)
    }
    store = Noting(path, due_ms, clock)
    runtime = Runtime(store, ChartRegistry([lamp.kernel]), clock)
    worker = Worker(runtime, {})
    began_cpu = time.process_time()
    await worker.start()
    async with asyncio.timeout(LEAD_MS / 1_000 + due / per_second + PATIENCE_S):
        await store.all_fired.wait()
    cpu_us = 1e6 * (time.process_time() - began_cpu) / due
    after_mb = resident_mb()
    await worker.stop()
    megabytes = path.stat().st_size / 1e6
    await runtime.close()
    late_ms = sorted(store.late_ms)
    return {
        "entities": entities,
        "due": due,
        "per_second": per_second,
        "fill_s": round(fill_s, 1),
        "megabytes": round(megabytes, 1),
        "resident_before_mb": round(before_mb, 1),
        "resident_after_mb": round(after_mb, 1),
        "cpu_us": round(cpu_us, 1),
        "late_p50_ms": late_ms[len(late_ms) // 2],
        "late_p90_ms": late_ms[len(late_ms) * 9 // 10],
        "late_p99_ms": late_ms[len(late_ms) * 99 // 100],
        "late_max_ms": late_ms[-1],
    }


def main() -> None:
    """Measure, and print the measures."""
    folder, *numbers = sys.argv[1:]
    found = asyncio.run(measured(Path(folder), *map(int, numbers)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
