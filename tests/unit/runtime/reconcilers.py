"""A chart with a reconciler, a function that records its calls, and loops on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import interlock
from interlock import BoundChart, ReconcileRequest, Runtime
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.reconcile.runner import ReconcilerGroup
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock

SECOND = 1_000
MINUTE = 60 * SECOND

ORDER = """
interlock: 1
kind: order
context: {size: {type: integer, default: 2}, seen: {type: integer, default: 0}, plan: {type: object, default: {a: 1}}}
initial: charge_pending
states:
  charge_pending:
    on:
      charge.confirmed: charged
      touched: {actions: [{assign: {seen: "= context.seen + 1"}}]}
      size.drifted: {actions: [{assign: {size: "= event.data.observed"}}]}
      waved: {}
  charged: {}
"""

Function = Callable[[ReconcileRequest], Awaitable[Any]]


class Asked:
    """A function of a reconciler that notes whom it was asked about, and when."""

    def __init__(self, clock: VirtualClock, answer: Any = None) -> None:
        self.clock = clock
        self.answer = answer
        self.seen: list[ReconcileRequest] = []

    async def look(self, seen: ReconcileRequest) -> Any:
        """Return the configured result; an exception is raised."""
        self.seen.append(seen)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @property
    def entities(self) -> list[str]:
        """Whom it was asked about, in order."""
        return [each.entity for each in self.seen]

    @property
    def times(self) -> list[int]:
        """How long after the first time it was asked, each time."""
        return [each.now_ms - self.seen[0].now_ms for each in self.seen]


def orders(function: Function, **wishes: Any) -> BoundChart:
    """The chart with one reconciler."""
    chart = interlock.loads(ORDER)
    given = {"state": "charge_pending", "every": "1m", **wishes}
    chart.reconciler("stuck-charges", **given)(function)
    return chart


def runtime_of(chart: BoundChart, clock: VirtualClock, store: MemoryStore | None = None) -> Runtime:
    """A runtime that performs nothing."""
    return Runtime(store or MemoryStore(), ChartRegistry((chart.kernel,)), clock)


@asynccontextmanager
async def reconciling(chart: BoundChart, runtime: Runtime) -> AsyncIterator[ReconcilerGroup]:
    """The reconcilers of a chart at work."""
    loops = ReconcilerGroup(runtime, tuple(chart.reconcilers.values()))
    await loops.start()
    yield loops
    await loops.stop()


async def created(runtime: Runtime, count: int = 1) -> None:
    """Some orders, all together."""
    for number in range(count):
        await runtime.create(f"order/{number}")
