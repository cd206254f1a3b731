"""Signs of life: workers note in their store that they are there, so that downtime is known when it is over.

Rule 1: the first note comes before any work is taken up: a timer that came due meanwhile must find the downtime kept.
Rule 2: a process that slept knows it no sooner than others: whoever needs the downtimes notes first.
Rule 3: a note that cannot be written stops nobody; the next one tells of the silence.
Rule 4: a last sign of life in the future means that a clock was ahead. Whoever puts times right hears of it, and a
downtime that ends in the future is not believed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from interlock.errors import InterlockError
from interlock.model.limits import ALIVE_MS, CLOCK_AHEAD_MS_MAX, DOWNTIME_MS_MIN
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.leases import Downtime, LeaseStore

_log = logging.getLogger("interlock.runtime")


class DowntimeMonitor:
    """Notes that this worker is alive, from `begin` to `end`."""

    def __init__(self, store: LeaseStore, clock: Clock, *, on_ahead: Callable[[None], None] = lambda _: None) -> None:
        self._store = store
        self._on_ahead = on_ahead
        self._clock = clock
        self._noted_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Note it now, and every now and then."""
        await self._tried()
        self._task = asyncio.ensure_future(self._noting())

    async def end(self) -> None:
        """Note it no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """The downtimes that ended after a time, one that is only now over among them. Raises as the store does."""
        if self._noted_ms is None or not 0 <= self._clock.now_ms() - self._noted_ms < ALIVE_MS:
            await self._noted()
        latest_ms = self._clock.now_ms() + CLOCK_AHEAD_MS_MAX
        found = await self._store.downtimes(since_ms=since_ms)
        return tuple(each for each in found if each.ended_ms <= latest_ms)

    async def _noting(self) -> None:
        """An endless loop by intent; it ends with `end`."""
        while True:
            waited_ms = await wait_to_poll(self._clock, ALIVE_MS)
            await self._tried(gap_ms=DOWNTIME_MS_MIN + waited_ms - ALIVE_MS)  # a test clock may have waited longer

    async def _tried(self, gap_ms: float = DOWNTIME_MS_MIN) -> None:
        try:
            await self._noted(gap_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the work goes on
            expected = isinstance(error, InterlockError)
            code = error.code if isinstance(error, InterlockError) else type(error).__name__
            _log.warning("no sign of life can be noted", exc_info=None if expected else error, extra={"code": code})

    async def _noted(self, gap_ms: float = DOWNTIME_MS_MIN) -> None:
        now_ms = self._clock.now_ms()
        downtime = await self._store.alive(now_ms=now_ms, gap_ms=round(gap_ms))
        self._noted_ms = now_ms
        if downtime is not None and downtime.began_ms > downtime.ended_ms:
            ahead_ms = downtime.began_ms - downtime.ended_ms
            _log.error("the last sign of life is in the future: a clock was ahead", extra={"ahead_ms": ahead_ms})
            self._on_ahead(None)
        elif downtime is not None:
            facts = {"began_ms": downtime.began_ms, "ended_ms": downtime.ended_ms}
            _log.warning("no worker was alive for a while", extra=facts)
