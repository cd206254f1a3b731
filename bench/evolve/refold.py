"""How fast recorded entries are compared with a new chart, and folded through a corrected one.

    python -m bench.evolve.refold FOLDER ENTRIES

Short journals of orders on SQLite, with a chart that only spells the behaviour differently. Rule: the run fails if
anything differs, or an entity is left out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import interlock
from bench.durable.large import ORDER, ORDER_EVENTS, REFACTORED, delete_store, filled_journals
from interlock.ports.clock import SystemClock
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.refold import Refold, RefoldSettings
from interlock.stores.sqlite.store import SqliteStore


async def measure(folder: Path, entries: int) -> dict[str, float]:
    """Return entries per second and processor time per entry of a shadow replay and of a refold."""
    text = ORDER.read_text(encoding="utf-8")
    changed = text
    for before, after in REFACTORED:
        changed = changed.replace(before, after)
    old, new = interlock.loads(text), interlock.loads(changed)
    path, count = folder / "refold.db", entries // (1 + len(ORDER_EVENTS))
    await filled_journals(path, old, count)
    store, clock = SqliteStore(path), SystemClock()
    runtime = Runtime(store, ChartRegistry([old.kernel, new.kernel]), clock)
    replayed = ShadowReplay(store, new.kernel, runtime.revisions, now_ms=clock.now_ms())
    shadow = await _took(replayed.run())
    refold = Refold(runtime.entities, runtime.mover, "order", RefoldSettings())
    fold = await _took(refold.run())
    found, report = replayed.tally.report(), refold.report()
    await store.close()
    delete_store(path)
    if found.divergences or found.gaps or found.evidence.entities != count:
        raise AssertionError(
            f"shadow: {found.divergences} divergences, {found.gaps}, {found.evidence.entities} entities"
        )
    if (report.same, report.gaps) != (count, ()):
        raise AssertionError(f"refold: {report.same} of {count} are the same, {report.gaps}")
    written = count * (1 + len(ORDER_EVENTS))
    return {
        "entries": written,
        "shadow_per_second": written / shadow[0],
        "shadow_cpu_us": 1e6 * shadow[1] / written,
        "refold_per_second": written / fold[0],
        "refold_cpu_us": 1e6 * fold[1] / written,
    }


async def _took(walk: AsyncIterator[object]) -> tuple[float, float]:
    """Seconds and processor seconds of a walk."""
    gc.collect()
    started = time.perf_counter(), time.process_time()
    async for _ in walk:
        pass
    return time.perf_counter() - started[0], time.process_time() - started[1]


def main() -> None:
    """Print the figures as JSON."""
    folder, entries = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(Path(folder), int(entries)))))


if __name__ == "__main__":
    main()
