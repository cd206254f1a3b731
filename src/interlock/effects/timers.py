"""Timers: work for the clock. A due row is a doorbell: the driver looks at the snapshot and fires all that is due.

Rule: a timer cannot fire twice or after it was cancelled: the swap decides, and (name, version set) must still stand in
the snapshot. A row whose timer is gone is dropped.
"""

from __future__ import annotations

from interlock.effects.lane import Held
from interlock.ports.driver import Driver
from interlock.ports.work import Settled


class Timers:
    """Fires what is due."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def perform(self, held: Held) -> Settled | None:
        """Fire the due timers of the entity; each ends with its own entry."""
        fired = await self._driver.fire(held.claim.entity)
        return None if held.claim.work.place in fired else Settled(held.claim, "done")
