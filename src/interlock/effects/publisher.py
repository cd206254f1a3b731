"""Messages to the bus: in order per entity, at least once, each with one id.

Rule 1: a message that fails blocks only its own entity. After `MESSAGE_ATTEMPTS_MAX` failures, or immediately when the
bus will never accept it, it is a dead letter and the next message is sent; consumers see the gap in `sequence`.
Rule 2: an unreachable bus is not a failure of any message. Nothing is claimed for a while, longer each time, and no
message becomes a dead letter. Events between entities continue meanwhile.
Rule 3: personal values are opened when a message is published, and sealed until then. A message whose personal data was
erased before is a dead letter.
Rule 4: after a kill between the bus's confirmation and the end of the row, the message is sent again with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from interlock.effects.lanes import RunningWork
from interlock.effects.retry import error_facts
from interlock.errors import InterlockError, RejectedError, UnavailableError
from interlock.model.backoff import Backoff
from interlock.model.journal.message import SOURCE, message_of
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX, POLL_MS_MAX, SEND_BACKOFF_MS_MAX
from interlock.model.personal_token import contains_token
from interlock.ports.admission import AdmissionGate, AdmissionPermit
from interlock.ports.bus import Bus
from interlock.ports.clock import Clock
from interlock.ports.work import Claim, Settlement

PUBLISHED_MAX = 256
"""Messages that one runtime publishes at a time, each of another entity: they share the round trips of the bus."""

Opened = Callable[[Any], Awaitable[Any]]
"""Returns a value with its personal data opened; `EventDelivery.opened`."""

_FAILED = Backoff(200, SEND_BACKOFF_MS_MAX)
"""The wait before a failed message is published again."""

_UNREACHABLE = Backoff(500, 30_000, jitter=0.0)
"""How long an unreachable bus is left alone."""

_log = logging.getLogger("interlock.effects")


class BusPublisher:
    """Publishes messages. It is also an admission gate, closed while the bus is unreachable: then none is claimed."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        *,
        source: str = SOURCE,
        gate: AdmissionGate | None = None,
        opened: Opened | None = None,
    ) -> None:
        self._bus = bus
        self._opened = opened
        self._clock = clock
        self._source = source
        self._gate = gate
        self._absences = 0
        self._closed_until_ms = 0

    async def perform(self, work: RunningWork) -> Settlement:
        """Publish one message."""
        claim = work.claim
        body = claim.work.body
        if contains_token(body.get("data")):
            try:
                body = {**body, "data": await self._open(body["data"])}
            except UnavailableError as error:  # a process that has the keys publishes it
                next_ms = self._clock.now_ms() + POLL_MS_MAX
                return Settlement(
                    claim, "again", next_ms, error=error_facts(error), without_failure=True, started=False
                )
            except InterlockError as error:
                return self._retry(claim, error)
        try:
            await self._bus.publish(message_of(claim.entity, claim.work.id, body, source=self._source))
        except UnavailableError as error:
            return self._postpone(claim, error)
        except InterlockError as error:
            return self._retry(claim, error)
        if self._absences:
            self._absences = self._closed_until_ms = 0
            _log.info("the bus is reachable again")
        return Settlement(claim, "done")

    async def _open(self, data: Any) -> Any:
        if self._opened is None:
            raise UnavailableError("this process cannot open personal data", code="keyring.missing")
        return await self._opened(data)

    def try_enter(self) -> AdmissionPermit | None:
        """Return a permit of the gate behind this one, unless the bus is unreachable."""
        left_ms = self._closed_until_ms - self._clock.now_ms()
        if 0 < left_ms <= _UNREACHABLE.ms_max:  # a longer time comes from a clock that was ahead
            return None
        return nullcontext() if self._gate is None else self._gate.try_enter()

    def _postpone(self, claim: Claim, error: UnavailableError) -> Settlement:
        now_ms = self._clock.now_ms()
        # Of many messages that fail together, the first counts.
        if not 0 < self._closed_until_ms - now_ms <= _UNREACHABLE.ms_max:
            self._closed_until_ms = now_ms + round(_UNREACHABLE.wait_ms(self._absences, 1.0))
            self._absences += 1
            extra = {"code": error.code, "absences": self._absences}
            _log.warning("the bus is unreachable; messages wait", extra=extra)
        return Settlement(
            claim, "again", self._closed_until_ms, error=error_facts(error), without_failure=True, started=False
        )

    def _retry(self, claim: Claim, error: InterlockError) -> Settlement:
        if isinstance(error, RejectedError) or claim.failures + 1 >= MESSAGE_ATTEMPTS_MAX:
            return Settlement(claim, "dead", error=error_facts(error))
        wait_ms = round(_FAILED.wait_ms(claim.failures, self._clock.jitter()))
        return Settlement(claim, "again", self._clock.now_ms() + wait_ms, error=error_facts(error))
