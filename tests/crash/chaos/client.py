"""The client of a storm: creates orders and machines, sends them events, and loses some answers.

Rule: every acknowledged event is remembered with its version, and must be in the journal once at the end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from examples.order.order import CUSTOMER
from examples.vm.vm import OWNER
from interlock.errors import UnavailableError
from interlock.model.journal.entry import Receipt
from interlock.runtime.runtime import Runtime

INSISTED_MAX = 10


@dataclass(frozen=True)
class Letter:
    """An event that the client sends to an entity, with a key."""

    entity: str
    event: str
    key: str
    principal: dict[str, Any]


class Client:
    """Creates entities, sends them events, and loses some answers."""

    def __init__(self, runtime: Runtime, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self._runtime = runtime
        self._chance = chance
        self._later: list[Letter] = []
        self._sent: list[Letter] = []
        self._count = 0
        self.kept: dict[tuple[str, str], int] = {}

    async def begin(self) -> None:
        """Create one more entity, and plan its events."""
        self._count += 1
        if self._count % 3:
            entity, context, letters = self._order(f"order/o-{self._count}")
        else:
            entity, context, letters = self._machine(f"vm/m-{self._count}")
        for _ in range(1 + (self._chance.random() < 0.2)):  # the answer was lost: send it again
            self._note(entity, "created", await self._insist(self._runtime.create, entity, context, key="created"))
        for letter in letters:
            await self._post(letter)

    async def deliver(self) -> None:
        """Send some of the delayed events."""
        self._chance.shuffle(self._later)
        for _ in range(self._chance.randrange(len(self._later) + 1)):
            await self._send(self._later.pop())

    async def deliver_all(self) -> None:
        """Send all delayed events."""
        while self._later:
            await self._send(self._later.pop())

    async def repeat_all(self) -> None:
        """Send every event once more: each applied one must be a duplicate."""
        for letter in self._sent:
            receipt = await self._told(letter)
            known = self.kept.get((letter.entity, letter.key))
            if known is not None and (receipt.outcome, receipt.version) != ("duplicate", known):
                said = f"{letter.entity}: `{letter.key}` again is {receipt.outcome} at {receipt.version}, not {known}"
                self.found.append(f"double: {said}")

    def _order(self, entity: str) -> tuple[str, dict[str, Any], list[Letter]]:
        letters = [Letter(entity, "order.placed", "placed", CUSTOMER)]
        if self._chance.random() < 0.15:
            letters.append(Letter(entity, "order.cancelled", "cancelled", CUSTOMER))
        return entity, {"amount": 4_990, "item": "lamp"}, letters

    def _machine(self, entity: str) -> tuple[str, dict[str, Any], list[Letter]]:
        letters = [Letter(entity, "setup.requested", "wanted", OWNER)]
        if self._chance.random() < 0.4:
            letters.append(Letter(entity, "delete.requested", "unwanted", OWNER))
        return entity, {"image": "debian"}, letters

    async def _post(self, letter: Letter) -> None:
        """Send it now, twice, or later."""
        fate = self._chance.random()
        if fate < 0.25:
            self.counts["held back"] += 1
            self._later.append(letter)
            return
        if fate < 0.5:
            self.counts["sent twice"] += 1
            await self._send(letter)
        await self._send(letter)

    async def _send(self, letter: Letter) -> None:
        receipt = await self._told(letter)
        self._sent.append(letter)
        self._note(letter.entity, letter.key, receipt)

    async def _told(self, letter: Letter) -> Receipt:
        return await self._insist(
            self._runtime.send, letter.entity, letter.event, key=letter.key, principal=letter.principal
        )

    async def _insist(self, call: Callable[..., Awaitable[Receipt]], *arguments: Any, **more: Any) -> Receipt:
        """Retry with the same key while the store is unavailable: a suspended worker may block it."""
        for _ in range(INSISTED_MAX):
            with suppress(UnavailableError):
                return await call(*arguments, **more)
            self.counts["asked the store again"] += 1
        return await call(*arguments, **more)

    def _note(self, entity: str, key: str, receipt: Receipt) -> None:
        """Remember an acknowledged event with its version."""
        self.counts[receipt.outcome] += 1
        if receipt.outcome not in ("applied", "duplicate"):
            return
        known = self.kept.setdefault((entity, key), receipt.version)
        if known != receipt.version:
            self.found.append(f"double: {entity}: `{key}` is at {known} and at {receipt.version}")
