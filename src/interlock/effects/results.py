"""Answers of handlers, brought to their entities: again for a while, with the work in hand, when that fails.

Rule 1: a store that was away for a moment, or an entity that many write to, does not make a deed that is done be asked
for again. After `RESULT_TRIES_MAX` tries it is: the work is put off, under its key.
Rule 2: success counts from any attempt; a failure only from the newest, whichever that is when it is brought.
"""

from __future__ import annotations

from interlock.effects.lanes import RunningWork
from interlock.effects.retry import RetryPolicy, backoff_ms
from interlock.errors import ConflictError, UnavailableError
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, EventDelivery

RESULT_TRIES_MAX = 8
"""How often an answer is brought with its work in hand: for some ten seconds, which a restart of a database takes."""

_AGAIN = RetryPolicy(backoff_ms_min=100, backoff_ms_max=5_000)
"""How long an answer that could not be brought waits."""


class ResultDelivery:
    """Brings what became of an attempt to the entity that asked."""

    def __init__(self, driver: EventDelivery, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock

    async def bring_success(self, held: RunningWork, event: Event) -> Receipt:
        """It counts from any attempt. Raises as the driver does."""
        return await self._brought(held, event, fenced=False)

    async def bring_failure(self, held: RunningWork, event: Event) -> Receipt:
        """It counts from the newest attempt only. Raises as the driver does."""
        return await self._brought(held, event, fenced=True)

    async def _brought(self, held: RunningWork, event: Event, *, fenced: bool) -> Receipt:
        failures = 0
        while True:  # ends with an answer, or with the last try
            claim = held.claim
            place, fence = claim.work.place, claim.attempt if fenced else None
            try:
                return await self._driver.deliver(claim.entity, event, key=place.result_key, answers=place, fence=fence)
            except (ConflictError, UnavailableError) as error:
                failures += 1
                if error.code in CHART_MISSING_CODES or failures == RESULT_TRIES_MAX:
                    raise
            await self._clock.sleep_ms(backoff_ms(_AGAIN, failures - 1, self._clock.jitter()))
