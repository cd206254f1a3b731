"""How an event is sent to an entity that an engine runs: the engine decides and writes, this process asks.

Rule 1: creation is an append like on any store: entry 1 is conditional on nothing but the id.
Rule 2: what an engine does not answer itself is answered by a dry run here, on the newest snapshot: an event for an
entity that has ended, or whose key was used before. Nothing is written.
Rule 3: an engine asks the policy of the chart. An authorizer of the program is asked here, on a snapshot, and the event
is sent for that version only: after a lost race it is asked again.
"""

from __future__ import annotations

from msgspec.structs import replace

from interlock.errors import ConflictError
from interlock.model.journal.entry import Receipt
from interlock.model.limits import CONFLICT_RETRIES_MAX
from interlock.ports.clock import SystemClock
from interlock.ports.engine import Engine, EngineRequest
from interlock.runtime.entities.conflicts import CONFLICT_WAIT, too_many_conflicts
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
        turn = entities.turn(entity, request.priority)
        if request.finishes is None:
            unseen = await self._permissions.refuse_unseen(entity, request)
            if unseen is not None:
                return unseen
        async with turn:
            if entities.process.authorizer is None or request.finishes is not None:
                receipt = await self._ask(entity, request, authorized=False)
            else:
                receipt = await self._send_authorized(entity, request)
        entities.announce(entity, ())
        return receipt

    async def _send_authorized(self, entity: str, request: SendRequest) -> Receipt:
        """Send an event for the very version on which the authorizer of the program allows it."""
        entities = self._entities
        for attempt in range(CONFLICT_RETRIES_MAX + 1):
            snapshot, _ = await entities.load_snapshot(entity)
            expected = snapshot.version if request.expected is None else request.expected
            allowed = await self.dry_run(entity, request)
            if allowed.outcome in ("denied", "duplicate"):
                return allowed
            try:
                return await self._ask(entity, replace(request, expected=expected), authorized=True)
            except ConflictError:
                if request.expected is not None:
                    raise
            await entities.clock.sleep_ms(CONFLICT_WAIT.wait_ms(attempt, entities.clock.jitter()))
        raise too_many_conflicts(entity, "this event was applied")

    async def _ask(self, entity: str, request: SendRequest, *, authorized: bool) -> Receipt:
        clock = self._entities.clock
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
            None if isinstance(clock, SystemClock) else clock.now_ms(),
            authorized,
        )
        receipt = await self._engine.send(entity, asked)
        return await self.dry_run(entity, request) if receipt is None else receipt
