"""Children: an invoke of a chart begins an entity, waits for its answer, begins it again when it failed, and ends it.

One piece of work stands for a child from the entry that invoked it to the entry that its answer makes, or to its end.

Rule 1: a child's id comes from the work and the number of restarts, so that creating it again finds it created.
Rule 2: parent and child talk by events only, in the order sent: what is sent to a child that is not there yet waits.
Rule 3: a child that failed is begun anew while the invoke's `retry` has tries left (restart); then its parent hears
(escalate).
Rule 4: a process that does not have the child's chart leaves it to others, and says so beside the work; it may be that
nobody has it, as with a handler, and then a person must.
Rule 5: a child that takes longer than the invoke's `timeout` is ended, and its parent hears `timeout`. The time of one
that was created under a wrong clock, in the future, counts from when that is noticed; a note beside the work says so.
"""

from __future__ import annotations

from interlock.effects.lanes import RunningWork
from interlock.effects.retry import Failure, RetryAt, RetryPolicy, decide_retry, error_facts, failure_from, retry_policy
from interlock.effects.work_delta import CANCEL
from interlock.errors import NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.driver_events import invoke_failed
from interlock.model.event import Event
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LOOK_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, Child, EventDelivery
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkStore

COUNTS_ANEW = "clock.ahead"
"""The code of that note."""


class Children:
    """Performs the work that stands for children."""

    def __init__(self, driver: EventDelivery, clock: Clock, *, store: WorkStore | None = None) -> None:
        self._driver = driver
        self._clock = clock
        self._store = store

    async def perform(self, held: RunningWork) -> Settlement | None:
        """Begin the child, or end it when its time is up."""
        claim = held.claim
        place, payload, timeout = claim.work.place, claim.work.body, claim.work.body.get("timeout_ms")
        try:
            child = await self._driver.begin_child(claim.entity, place, payload, restarts=claim.failures)
        except (NotFoundError, RejectedError, UnavailableError, UsageError) as error:
            if error.code in CHART_MISSING_CODES:
                later_ms = self._clock.now_ms() + LOOK_MS_MAX
                return Settlement(claim, "again", later_ms, error=error_facts(error), lapsed=True, begun=False)
            if isinstance(error, UnavailableError):
                raise
            return await self._failed(held, failure_from(error))
        if child.ended or timeout is None:
            return Settlement(claim, "wait")
        now_ms, since_ms, note = self._clock.now_ms(), child.created_ms, None
        if since_ms > now_ms + CLOCK_AHEAD_MS_MAX:
            since_ms = await self._noted_ms(claim, now_ms)
            note = {"code": COUNTS_ANEW, "message": "it was created by a clock that was ahead", "since_ms": since_ms}
        if since_ms + timeout > now_ms:
            return Settlement(claim, "again", since_ms + timeout, error=note, lapsed=True)
        return await self._timed_out(held, child, timeout)

    async def _noted_ms(self, claim: Claim, now_ms: int) -> int:
        """From when the time of a child counts whose creation is in the future."""
        if self._store is not None:
            page = await self._store.works(WorkQuery(entity=claim.entity, place=claim.work.place))
            kept = page.rows[0].error if page.rows else None
            if isinstance(kept, dict) and kept.get("code") == COUNTS_ANEW:
                noted_ms = kept.get("since_ms")
                return noted_ms if type(noted_ms) is int and noted_ms <= now_ms else now_ms
        return now_ms

    async def _timed_out(self, held: RunningWork, child: Child, timeout_ms: int) -> Settlement | None:
        held.bringing = True
        # The child first: killed in between, this is done again; the other way round, the child would live on.
        await self._driver.deliver(child.entity, Event(CANCEL, type="platform"), key=CANCEL)
        return await self._failed(held, Failure("timeout", f"no answer in {timeout_ms} ms"))

    async def _failed(self, held: RunningWork, failed: Failure) -> Settlement | None:
        claim, held.bringing = held.claim, True
        receipt = await self._driver.deliver(
            claim.entity,
            invoke_failed(
                claim.work.body["id"],
                claim.key,
                failed.code,
                failed.message,
                done=failed.done,
                attempts=claim.failures + 1,
            ),
            key=claim.work.place.result_key,
            answers=claim.work.place,
            fence=claim.attempt,
        )
        return None if receipt.outcome in ("applied", "duplicate") else Settlement(claim, "done")


def restarted(claim: Claim, failed: Failure, *, now_ms: int, jitter: float) -> Settlement | None:
    """How the work of a failed child goes on: begun anew at some time, or None when its tries are spent."""
    policy = retry_policy(claim.work.body, otherwise=RetryPolicy())
    answer = decide_retry(
        policy, failed, failures=claim.failures, attempts=claim.failures + 1, now_ms=now_ms, jitter=jitter
    )
    return Settlement(claim, "again", answer.next_ms) if isinstance(answer, RetryAt) else None
