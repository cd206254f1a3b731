"""The users of the demo: customers with orders, owners of machines, and support that answers late.

Rule 1: they read the store and keep no state, so a demo that is stopped and started again continues.
Rule 2: entities are numbered, and the next number follows from their count; with its key none is created twice.
Rule 3: users make mistakes: they send events twice, too late, or without the role.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from interlock.demo.services import Services
from interlock.errors import ConflictError, RejectedError, UnavailableError
from interlock.observe.population import population
from interlock.ports.store import EntityQuery
from interlock.runtime.runtime import Runtime

INITIAL_ENTITIES = 40
"""Entities created immediately in an empty store, so that there is something to see from the first second."""

LATE_MS = 20_000
"""How long support lets an entity wait."""

MACHINE_LIFE_MS = 25_000
"""How long an owner keeps a machine at least."""

ENTITIES_PER_ROUND = 2
"""Entities of a state that support or owners handle in one round."""

ROUND_MS = 1_000
RATE_MAX = 200
"""New entities per second at most: more is limited by one process and one file."""

CUSTOMER = {"id": "ada", "roles": ["customer"]}
OWNER = {"id": "grace", "roles": ["owner"]}
SUPPORT = {"id": "joan", "roles": ["support", "operator"]}
STRANGER = {"id": "mallory", "roles": []}
ITEMS = ("lamp", "chair", "desk", "kettle", "clock")
IMAGES = ("debian", "fedora", "alpine")

SUPPORT_EVENTS = (
    ("order", "charge_unresolved", "lookup.repeated"),
    ("order", "fulfilment_unsettled", "fulfilment.settled"),
    ("order", "refund_failed", "refund.repeated"),
    ("vm", "boot_unsettled", "removal.repeated"),
    ("vm", "removal_unsettled", "removal.repeated"),
    ("network", "unsettled", "network.settled"),
    ("storage", "unsettled", "storage.settled"),
)
"""The event that support sends to entities of a kind in a state."""


class Traffic:
    """All users. `sent` counts their requests by outcome; `missed` are failed requests."""

    def __init__(self, runtime: Runtime, services: Services, rate: float) -> None:
        self._runtime = runtime
        self._chance = services.chance
        self._rate = rate
        self.sent: Counter[str] = Counter()

    async def run(self) -> None:
        """Run until cancelled."""
        clock = self._runtime.clock
        counts = [(await population(self._runtime, kind)).entities or 0 for kind in ("order", "vm")]
        number = sum(counts) + 1
        if number == 1:
            await asyncio.gather(*(self.create_next(each) for each in range(1, INITIAL_ENTITIES + 1)))
            number += INITIAL_ENTITIES
        round_ms, owed, last_ms = clock.now_ms(), 0.0, clock.now_ms()
        while True:  # ends with the demo
            await clock.sleep_ms(min(ROUND_MS, 1_000 / self._rate))
            now_ms = clock.now_ms()
            # As many as the elapsed time allows, but one second at most: a pause of the machine gives no backlog.
            owed = min(owed + max(0, now_ms - last_ms) * self._rate / 1_000, self._rate)
            last_ms = now_ms
            for _ in range(int(owed)):
                await self.create_next(number)
                number, owed = number + 1, owed - 1
            if now_ms - round_ms >= ROUND_MS:
                round_ms = now_ms
                await self.run_round(now_ms)

    async def create_next(self, number: int) -> None:
        """Create the entity of this number: every fifth is a machine, the others are orders."""
        mood = self._chance("mood", number)
        if number % 5 == 0:
            entity = f"vm/{number:06}"
            await self._create(entity, {"image": IMAGES[number % len(IMAGES)]})
            await self._send(entity, "setup.requested", "wanted", OWNER)
            if mood < 0.1:  # the owner changed their mind
                await self._send(entity, "delete.requested", "unwanted", OWNER)
            return
        entity = f"order/{number:06}"
        amount = 100 + round(9_900 * self._chance("amount", number))
        await self._create(entity, {"amount": amount, "item": ITEMS[number % len(ITEMS)]})
        if mood < 0.06:  # abandoned; its timer ends it
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

    async def run_round(self, now_ms: int) -> None:
        """Let support and owners handle the oldest entities."""
        for kind, state, event in SUPPORT_EVENTS:
            for entity, version in await self._oldest(kind, state, now_ms - LATE_MS):
                if self._chance("care", entity, version, now_ms // LATE_MS) < 0.3:
                    await self._send(entity, event, f"support/{version}", SUPPORT)
        for entity, version in await self._oldest("vm", "live", now_ms - MACHINE_LIFE_MS):
            if self._chance("end", entity, now_ms // MACHINE_LIFE_MS) < 0.5:
                await self._send(entity, "delete.requested", f"ended/{version}", OWNER)

    async def _oldest(self, kind: str, state: str, before_ms: int) -> list[tuple[str, int]]:
        query = EntityQuery(kind=kind, state=state, entered_before_ms=before_ms, limit=ENTITIES_PER_ROUND)
        return [(each.entity, each.version) for each in (await self._runtime.list(query)).rows]

    async def _create(self, entity: str, context: Mapping[str, Any]) -> None:
        await self._request(entity, None, "created", None, context)

    async def _send(self, entity: str, event: str, key: str, principal: Mapping[str, Any]) -> None:
        await self._request(entity, event, key, principal, None)

    async def _request(
        self, entity: str, event: str | None, key: str, principal: Mapping[str, Any] | None, context: Any
    ) -> None:
        """Send once; a request that a busy or stopping runtime refuses is counted and not repeated."""
        try:
            if event is None:
                receipt = await self._runtime.create(entity, context, key=key)
            else:
                receipt = await self._runtime.send(entity, event, key=key, principal=principal)
        except (ConflictError, RejectedError, UnavailableError):
            self.sent["missed"] += 1
        else:
            self.sent[receipt.outcome] += 1
