"""The pulse of the fleet: for each kind a number that is another when its counters are.

Rule: however many streams ask, the store is looked at once in `LOOK_MS`; those who come in between get the last look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from interlock.ports.statistics import MINUTE_MS, Statistics
from interlock.runtime.runtime import Runtime

LOOK_MS = 250
"""Between two looks: half of what lies between two events of a stream, so that none waits much longer for others."""


class ChangeMarks:
    """What streams of the fleet compare."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._looking = asyncio.Lock()
        self._looked_ms: int | None = None
        self._marks: dict[str, int] = {}

    async def marks(self) -> Mapping[str, int]:
        """A number for each kind that there is a chart of; none on a store that keeps no counters."""
        async with self._looking:
            now_ms = self._runtime.clock.now_ms()
            if self._looked_ms is None or not 0 <= now_ms - self._looked_ms < LOOK_MS:
                self._marks = await self._look(now_ms)
                self._looked_ms = now_ms
            return self._marks

    async def _look(self, now_ms: int) -> dict[str, int]:
        store, found = self._runtime.store, {}
        if isinstance(store, Statistics):
            for kind in self._runtime.charts.kinds():
                counts = await store.counts(kind)
                found[kind] = hash((counts, await store.rates(kind, since_ms=now_ms - 2 * MINUTE_MS)))
        return found
