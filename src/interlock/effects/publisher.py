"""Messages to the bus: in order per entity, at least once, each under one id.

Rule 1: a message that fails holds back its own entity only; after `MESSAGE_ATTEMPTS_MAX` failures, or at once when the
bus will never take it, it is a dead letter and the next one goes: the gap shows in `sequence`.
Rule 2: a bus that is away is no failure of any message. Nothing is taken up for a while, longer each time, and no
message dies of that; what entities send to each other goes on meanwhile.
Rule 3: killed between the bus's word and the row's end, the message goes again with the same id.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext

from interlock.effects.lanes import RunningWork
from interlock.effects.retry import RetryPolicy, backoff_ms, error_facts
from interlock.errors import InterlockError, RejectedError, UnavailableError
from interlock.model.journal.message import SOURCE, message_of
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX, SEND_BACKOFF_MS_MAX
from interlock.ports.admission import AdmissionGate, AdmissionPermit
from interlock.ports.bus import Bus
from interlock.ports.clock import Clock
from interlock.ports.work import Claim, Settlement

PUBLISHED_MAX = 256
"""Messages of one runtime under way at a time, each of another entity: they share the round trips of the bus."""

_FAILED = RetryPolicy(backoff_ms_min=200, backoff_ms_max=SEND_BACKOFF_MS_MAX)
"""How long a message that the bus did not take waits."""

_AWAY = RetryPolicy(backoff_ms_min=500, backoff_ms_max=30_000, full_jitter=False)
"""How long a bus that is away is left alone."""

_log = logging.getLogger("interlock.effects")


class BusPublisher:
    """Gives messages to a bus. It is a door, too: shut while the bus is away, so that nothing is taken up."""

    def __init__(self, bus: Bus, clock: Clock, *, source: str = SOURCE, door: AdmissionGate | None = None) -> None:
        self._bus = bus
        self._clock = clock
        self._source = source
        self._door = door
        self._absences = 0
        self._away_until_ms = 0

    async def perform(self, held: RunningWork) -> Settlement:
        """Publish one message."""
        claim = held.claim
        try:
            await self._bus.publish(message_of(claim.entity, claim.work.place, claim.work.body, source=self._source))
        except UnavailableError as error:
            return self._put_off(claim, error)
        except InterlockError as error:
            return self._failed(claim, error)
        if self._absences:
            self._absences = self._away_until_ms = 0
            _log.info("the bus is back")
        return Settlement(claim, "done")

    def try_enter(self) -> AdmissionPermit | None:
        """A permit of the door behind this one, unless the bus is away."""
        left_ms = self._away_until_ms - self._clock.now_ms()
        if 0 < left_ms <= _AWAY.backoff_ms_max:  # longer than that is from a clock that was ahead
            return None
        return nullcontext() if self._door is None else self._door.try_enter()

    def _put_off(self, claim: Claim, error: UnavailableError) -> Settlement:
        now = self._clock.now_ms()
        if not 0 < self._away_until_ms - now <= _AWAY.backoff_ms_max:  # of many that fail together the first counts
            self._away_until_ms = now + backoff_ms(_AWAY, self._absences, 1.0)
            self._absences += 1
            _log.warning("the bus is away; messages wait", extra={"code": error.code, "absences": self._absences})
        return Settlement(claim, "again", self._away_until_ms, error=error_facts(error), lapsed=True, begun=False)

    def _failed(self, claim: Claim, error: InterlockError) -> Settlement:
        if isinstance(error, RejectedError) or claim.failures + 1 >= MESSAGE_ATTEMPTS_MAX:
            return Settlement(claim, "dead", error=error_facts(error))
        wait = backoff_ms(_FAILED, claim.failures, self._clock.jitter())
        return Settlement(claim, "again", self._clock.now_ms() + wait, error=error_facts(error))
