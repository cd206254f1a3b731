"""The world of the demo from start to report: a runtime with workers, traffic and failing services.

Rule: it shuts down as a worker does. The first signal drains it; the report shows what was done and what is pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from interlock.assemble.charts import BoundChart
from interlock.assemble.runtimes import open as open_runtime
from interlock.demo.services import Services
from interlock.demo.traffic import Traffic
from interlock.observe.population import overview
from interlock.ports.clock import SystemClock
from interlock.runtime.runtime import Runtime
from interlock.runtime.shutdown import DrainReport

DRAIN_MS = 5_000
LEASE_MS = 5_000

COMPENSATED_STATES = {
    "order": ("refund_pending", "refund_failed", "refunded"),
    "network": ("refused",),
    "storage": ("refused",),
}
"""The states that a chart enters only after its saga was compensated."""

Companion = Callable[[Runtime], Coroutine[Any, Any, None]]
"""A task that runs as long as the world: the status line, the console."""


class WorldCounts(Struct, frozen=True):
    """The entities of the demo at one moment. `dead_letters` stops at `PAGE_MAX`."""

    entities: int = 0
    active: int = 0
    compensated: int = 0
    dead_letters: int = 0


class DemoReport(Struct, frozen=True, kw_only=True):
    """What happened from start to stop."""

    before: WorldCounts
    after: WorldCounts
    events: int
    effects: int
    drained: DrainReport


async def count_world(runtime: Runtime) -> WorldCounts:
    """Count the entities of all kinds."""
    found = await overview(runtime)
    compensated = sum(
        state.entities
        for kind in found.kinds
        for state in kind.states
        if state.id in COMPENSATED_STATES.get(kind.kind, ())
    )
    return WorldCounts(
        sum(each.entities or 0 for each in found.kinds),
        sum(each.active for each in found.kinds),
        compensated,
        found.dead_letters or 0,
    )


async def run_world(
    url: str,
    charts: list[BoundChart],
    services: Services,
    *,
    rate: float,
    duration_ms: int | None,
    stop: asyncio.Event,
    on_start: Callable[[WorldCounts], None],
    on_drain: Callable[[], None],
    status: Companion,
    console: Companion | None,
) -> DemoReport:
    """Run until `stop` is set, the duration is over, or a task fails; then drain and return the report."""
    async with open_runtime(url, charts=charts, work=True, clock=SystemClock(), lease_ms=LEASE_MS) as runtime:
        before = await count_world(runtime)
        on_start(before)
        traffic = Traffic(runtime, services, rate)
        work: list[Coroutine[Any, Any, Any]] = [traffic.run(), stop.wait(), status(runtime)]
        if console is not None:
            work.append(console(runtime))
        async with _run_together(work) as tasks:
            seconds = None if duration_ms is None else duration_ms / 1_000
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            if console is not None:
                await tasks[-1]  # it answers its current requests while everything still runs
        on_drain()
        drained = await runtime.drain(DRAIN_MS)
        after = await count_world(runtime)
    events = sum(traffic.sent.values()) - traffic.sent["missed"]
    return DemoReport(before=before, after=after, events=events, effects=services.done.total(), drained=drained)


@asynccontextmanager
async def _run_together(work: list[Coroutine[Any, Any, Any]]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run tasks until the block ends; then raise the error of the first one that failed, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield tasks
        for each in tasks:
            if each.done():
                each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
