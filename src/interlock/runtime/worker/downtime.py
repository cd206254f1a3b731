"""Downtime: workers record in the store that they are alive, so that the time without any worker is known afterwards.

Rule 1: the first heartbeat is written before any work is claimed: a timer that came due meanwhile must find the
downtime recorded.
Rule 2: a process that was suspended notices that no sooner than others. So a heartbeat is written before downtimes are
read.
Rule 3: a heartbeat that cannot be written stops nothing; the next one shows the gap.
Rule 4: a last heartbeat in the future means that a clock was ahead. The clock repair is started, and a downtime that
ends in the future is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from interlock.effects.waiting import log_failure
from interlock.model.limits import ALIVE_MS, CLOCK_AHEAD_MS_MAX, DOWNTIME_MS_MIN
from interlock.ports.clock import Clock, wait_to_poll
from interlock.ports.leases import Downtime, Leases

_log = logging.getLogger("interlock.runtime")


class DowntimeMonitor:
    """Records that this worker is alive, from `start` to `stop`."""

    def __init__(self, leases: Leases, clock: Clock, *, on_ahead: Callable[[None], None] = lambda _: None) -> None:
        self._leases = leases
        self._on_ahead = on_ahead
        self._clock = clock
        self._written_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Write a heartbeat now, and then regularly."""
        await self._try_write()
        self._task = asyncio.ensure_future(self._write_forever())

    async def stop(self) -> None:
        """Write no more heartbeats."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def downtimes(self, *, since_ms: int) -> tuple[Downtime, ...]:
        """Return the downtimes that ended after a time, including one that ends just now. Raises as the store does."""
        if self._written_ms is None or not 0 <= self._clock.now_ms() - self._written_ms < ALIVE_MS:
            await self._write()
        latest_ms = self._clock.now_ms() + CLOCK_AHEAD_MS_MAX
        found = await self._leases.downtimes(since_ms=since_ms)
        return tuple(each for each in found if each.ended_ms <= latest_ms)

    async def _write_forever(self) -> None:
        """The loop is endless on purpose; `stop` cancels it."""
        while True:
            waited_ms = await wait_to_poll(self._clock, ALIVE_MS)
            await self._try_write(gap_ms=DOWNTIME_MS_MIN + waited_ms - ALIVE_MS)  # a test clock may have waited longer

    async def _try_write(self, gap_ms: float = DOWNTIME_MS_MIN) -> None:
        try:
            await self._write(gap_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the worker continues
            log_failure(_log, "the heartbeat of the worker cannot be written", error)

    async def _write(self, gap_ms: float = DOWNTIME_MS_MIN) -> None:
        now_ms = self._clock.now_ms()
        downtime = await self._leases.record_heartbeat(now_ms=now_ms, gap_ms=round(gap_ms))
        self._written_ms = now_ms
        if downtime is not None and downtime.started_ms > downtime.ended_ms:
            ahead_ms = downtime.started_ms - downtime.ended_ms
            _log.error("the last worker heartbeat is in the future: a clock was ahead", extra={"ahead_ms": ahead_ms})
            self._on_ahead(None)
        elif downtime is not None:
            facts = {"began_ms": downtime.started_ms, "ended_ms": downtime.ended_ms}
            _log.warning("no worker was running for a while", extra=facts)
