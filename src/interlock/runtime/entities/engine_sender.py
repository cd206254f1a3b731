"""How an event is sent to an entity that an engine runs: the engine decides and writes, this process asks and records.

Rule 1: creation is an append like on any store: entry 1 is conditional on nothing but the id.
Rule 2: what an engine does not answer itself is answered by a dry run here, on the newest snapshot: an event for an
entity that has ended, or whose key was used before. Nothing is written.
"""

from __future__ import annotations

from interlock.model.journal.entry import Receipt
from interlock.ports.clock import SystemClock
from interlock.ports.engine import Engine, EngineRequest
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.entities.send_request import SendRequest
from interlock.runtime.entities.sender import EntitySender


class EngineSender(EntitySender):
    """Creates the entities of an engine, and asks it for their steps."""

    def __init__(self, entities: Entities, mover: EntityMover, engine: Engine) -> None:
        super().__init__(entities, mover)
        self._engine = engine

    async def send(self, entity: str, request: SendRequest) -> Receipt:
        """Step an entity by an event."""
        entities = self._entities
        async with entities.turn(entity, request.priority):
            asked = EngineRequest(
                request.event,
                request.key,
                request.expected,
                request.trace,
                request.refusal,
                request.reason,
                request.finishes,
                request.fence,
                request.sent_ms,
                None if isinstance(entities.clock, SystemClock) else entities.clock.now_ms(),
            )
            receipt = await self._engine.send(entity, asked)
        if receipt is None:
            receipt = await self.dry_run(entity, request)
        entities.announce(entity, ())
        if receipt.outcome in ("rejected", "denied"):
            await self.record_refusal(entity, request.event, receipt.outcome, receipt.reason or "", request.trace)
        return receipt
