"""The people of the demo: customers who order, owners who want machines, and a support that comes late.

Rule 1: they go by what stands in the store, not by what they remember: a demo that ends and begins again goes on.
Rule 2: newcomers are numbered, and the next number follows from how many there are; under its key none begins twice.
Rule 3: they make mistakes, too: they send twice, too late, and what they may not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from interlock.demo.census import entities_of
from interlock.demo.services import Services
from interlock.errors import ConflictError, RejectedError, UnavailableError
from interlock.ports.store import EntityQuery
from interlock.runtime.runtime import Runtime

CROWD = 40
"""Newcomers at once on an empty store: there is something to see from the first second."""

LATE_MS = 20_000
"""How long support lets an alert wait."""

LIFE_MS = 25_000
"""How long an owner keeps a machine at least."""

HANDS = 2
"""Entities that support or owners take care of at each look."""

LOOK_MS = 1_000
RATE_MAX = 200
"""Newcomers per second at most: beyond, one process and one file are the limit, and not what the demo is about."""

CUSTOMER = {"id": "ada", "roles": ["customer"]}
OWNER = {"id": "grace", "roles": ["owner"]}
SUPPORT = {"id": "joan", "roles": ["support", "operator"]}
STRANGER = {"id": "mallory", "roles": []}
ITEMS = ("lamp", "chair", "desk", "kettle", "clock")
IMAGES = ("debian", "fedora", "alpine")

CARE = (
    ("order", "charge_unresolved", "lookup.repeated"),
    ("order", "fulfilment_unsettled", "fulfilment.settled"),
    ("order", "refund_failed", "refund.repeated"),
    ("vm", "boot_unsettled", "removal.repeated"),
    ("vm", "removal_unsettled", "removal.repeated"),
    ("network", "unsettled", "network.settled"),
    ("storage", "unsettled", "storage.settled"),
)
"""What support does about which state."""


class Traffic:
    """Everybody who wants something of a runtime. `sent` counts what they asked for, by outcome."""

    def __init__(self, runtime: Runtime, services: Services, rate: float) -> None:
        self._runtime = runtime
        self._chance = services.chance
        self._rate = rate
        self.sent: Counter[str] = Counter()

    async def run(self) -> None:
        """Go on until cancelled."""
        store, clock = self._runtime.store, self._runtime.clock
        orders = await entities_of(store, self._runtime.charts.for_new_entity("order").chart)
        machines = await entities_of(store, self._runtime.charts.for_new_entity("vm").chart)
        number = orders + machines + 1
        if number == 1:
            await asyncio.gather(*(self.newcomer(each) for each in range(1, CROWD + 1)))
            number += CROWD
        looked_ms, owed, last_ms = clock.now_ms(), 0.0, clock.now_ms()
        while True:  # ends with the demo
            await clock.sleep_ms(min(LOOK_MS, 1_000 / self._rate))
            now_ms = clock.now_ms()
            # What is owed by the clock, but never a backlog: after a pause of the machine the rate goes on.
            owed = min(owed + max(0, now_ms - last_ms) * self._rate / 1_000, self._rate)
            last_ms = now_ms
            for _ in range(int(owed)):
                await self.newcomer(number)
                number, owed = number + 1, owed - 1
            if now_ms - looked_ms >= LOOK_MS:
                looked_ms = now_ms
                await self.look(now_ms)

    async def newcomer(self, number: int) -> None:
        """Whoever comes with this number: an order mostly, a machine at times."""
        mood = self._chance("mood", number)
        if number % 5 == 0:
            entity = f"vm/{number:06}"
            await self._create(entity, {"image": IMAGES[number % len(IMAGES)]})
            await self._send(entity, "setup.requested", "wanted", OWNER)
            if mood < 0.1:  # changed their mind
                await self._send(entity, "delete.requested", "unwanted", OWNER)
            return
        entity = f"order/{number:06}"
        amount = 100 + round(9_900 * self._chance("amount", number))
        await self._create(entity, {"amount": amount, "item": ITEMS[number % len(ITEMS)]})
        if mood < 0.06:  # walks away; its timer ends it
            return
        if mood < 0.10:
            await self._send(entity, "order.cancelled", "cancelled", CUSTOMER)
            return
        await self._send(entity, "order.placed", "placed", CUSTOMER)
        if mood < 0.14:  # clicks twice
            await self._send(entity, "order.placed", "placed", CUSTOMER)
        elif mood < 0.18:
            await self._send(entity, "order.cancelled", "too-late", CUSTOMER)
        elif mood < 0.21:
            await self._send(entity, "refund.repeated", "cheeky", STRANGER)

    async def look(self, now_ms: int) -> None:
        """Support and owners look at what is there, and take care of the oldest."""
        for kind, state, event in CARE:
            for entity, version in await self._oldest(kind, state, now_ms - LATE_MS):
                if self._chance("care", entity, version, now_ms // LATE_MS) < 0.3:
                    await self._send(entity, event, f"support/{version}", SUPPORT)
        for entity, version in await self._oldest("vm", "live", now_ms - LIFE_MS):
            if self._chance("end", entity, now_ms // LIFE_MS) < 0.5:
                await self._send(entity, "delete.requested", f"ended/{version}", OWNER)

    async def _oldest(self, kind: str, state: str, before_ms: int) -> list[tuple[str, int]]:
        query = EntityQuery(kind=kind, state=state, entered_before_ms=before_ms, limit=HANDS)
        return [(each.entity, each.version) for each in (await self._runtime.list(query)).rows]

    async def _create(self, entity: str, context: Mapping[str, Any]) -> None:
        await self._tried(entity, None, "created", None, context)

    async def _send(self, entity: str, event: str, key: str, principal: Mapping[str, Any]) -> None:
        await self._tried(entity, event, key, principal, None)

    async def _tried(
        self, entity: str, event: str | None, key: str, principal: Mapping[str, Any] | None, context: Any
    ) -> None:
        """Ask once; what a busy or an ending runtime cannot take is counted, and not asked again."""
        try:
            if event is None:
                receipt = await self._runtime.create(entity, context, key=key)
            else:
                receipt = await self._runtime.send(entity, event, key=key, principal=principal)
        except (ConflictError, RejectedError, UnavailableError):
            self.sent["missed"] += 1
        else:
            self.sent[receipt.outcome] += 1
