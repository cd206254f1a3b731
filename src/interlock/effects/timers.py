"""Timers: work for the clock. A due row is a doorbell: the driver looks at the snapshot and fires all that is due.

Rule: a timer cannot fire twice or after it was cancelled: the swap decides, and (name, version set) must still stand in
the snapshot. A row whose timer is gone is dropped; one whose timer still stands is put off, and never dropped: the
clock that found it due may be ahead of the driver's, which then has not reached the time.
"""

from __future__ import annotations

from interlock.effects.lane import Held
from interlock.model.limits import LOOK_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.driver import Driver
from interlock.ports.work import Settled


class Timers:
    """Fires what is due."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock

    async def perform(self, held: Held) -> Settled | None:
        """Fire the due timers of the entity; each ends with its own entry."""
        claim, place = held.claim, held.claim.work.place
        timers = await self._driver.fire(claim.entity)
        if place in timers.fired:
            return None
        due_ms = timers.waiting.get(place)
        if due_ms is None:
            return Settled(claim, "done")
        now_ms = self._clock.now_ms()
        return Settled(claim, "again", due_ms if due_ms > now_ms else now_ms + LOOK_MS_MAX, lapsed=True)
