"""The work of a child: starts the entity that an invoke of a chart names, and ends it when its timeout is over.

One piece of work represents a child from the entry that invoked it to the entry of its result, or to its end. The
result itself does not pass through this module: a child that ends writes a message to its own outbox, and the relay
(`outbox.py`) delivers it to the parent and finishes, or with `restart_child` restarts, this work.

Rule 1: the id of a child comes from the work and the number of restarts, so that creating it again finds it.
Rule 2: parent and child exchange only events, in the order sent. Events for a child that does not exist yet wait.
Rule 3: a failed child is restarted while the `retry` of the invoke has tries left; then the parent gets the error.
Rule 4: a process without the child's chart leaves the work to others, and stores that with the work. If no process has
the chart, as with a handler, an operator must act.
Rule 5: a child that exceeds the invoke's `timeout` is ended, and its parent gets `timeout`. When the creation time of a
child lies in the future, because of a wrong clock, its time counts from when that is noticed, as stored with the work.
"""

from __future__ import annotations

from interlock.effects.lanes import RunningWork
from interlock.effects.retry import (
    Failure,
    RetryAt,
    decide_retry,
    error_facts,
    failure_from,
    policy_of,
    timeout_failure,
)
from interlock.effects.work_delta import CANCEL
from interlock.errors import NotFoundError, RejectedError, UnavailableError, UsageError
from interlock.model.driver_events import invoke_failed
from interlock.model.event import Event
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, POLL_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, Child, EventDelivery
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkQueue

CLOCK_AHEAD = "clock.ahead"
"""The code stored with the work of a child whose creation time was in the future."""


class Children:
    """Runs the work that represents children."""

    def __init__(self, delivery: EventDelivery, clock: Clock, *, work: WorkQueue | None = None) -> None:
        self._delivery = delivery
        self._clock = clock
        self._work = work

    async def perform(self, work: RunningWork) -> Settlement | None:
        """Start the child, or end it when its timeout is over."""
        claim = work.claim
        work_id, payload, timeout_ms = claim.work.id, claim.work.body, claim.work.body.get("timeout_ms")
        try:
            child = await self._delivery.start_child(claim.entity, work_id, payload, restarts=claim.failures)
        except (NotFoundError, RejectedError, UnavailableError, UsageError) as error:
            if error.code in CHART_MISSING_CODES:
                next_ms = self._clock.now_ms() + POLL_MS_MAX
                return Settlement(
                    claim, "again", next_ms, error=error_facts(error), without_failure=True, started=False
                )
            if isinstance(error, UnavailableError):
                raise
            return await self._fail(work, failure_from(error))
        if child.ended or timeout_ms is None:
            return Settlement(claim, "wait")
        now_ms, since_ms, note = self._clock.now_ms(), child.created_ms, None
        if since_ms > now_ms + CLOCK_AHEAD_MS_MAX:
            since_ms = await self._noticed_ms(claim, now_ms)
            note = {"code": CLOCK_AHEAD, "message": "it was created by a clock that was ahead", "since_ms": since_ms}
        if since_ms + timeout_ms > now_ms:
            return Settlement(claim, "again", since_ms + timeout_ms, error=note, without_failure=True)
        return await self._time_out(work, child, timeout_ms)

    async def _noticed_ms(self, claim: Claim, now_ms: int) -> int:
        """Return from when the timeout counts for a child that was created in the future."""
        if self._work is not None:
            page = await self._work.list_work(WorkQuery(entity=claim.entity, id=claim.work.id))
            stored = page.rows[0].error if page.rows else None
            if isinstance(stored, dict) and stored.get("code") == CLOCK_AHEAD:
                since_ms = stored.get("since_ms")
                return since_ms if type(since_ms) is int and since_ms <= now_ms else now_ms
        return now_ms

    async def _time_out(self, work: RunningWork, child: Child, timeout_ms: int) -> Settlement | None:
        work.deliver_result()
        # The child first: after a kill in between, this is repeated. In the other order the child would keep running.
        cancel = Event(CANCEL, type="platform")
        await self._delivery.deliver(child.entity, cancel, key=CANCEL, cause=work.cause)
        return await self._fail(work, timeout_failure(timeout_ms))

    async def _fail(self, work: RunningWork, failure: Failure) -> Settlement | None:
        work.deliver_result()
        claim = work.claim
        event = invoke_failed(
            claim.work.body["id"],
            claim.key,
            failure.code,
            failure.message,
            done=failure.done,
            attempts=claim.failures + 1,
        )
        work_id = claim.work.id
        receipt = await self._delivery.deliver(
            claim.entity, event, key=work_id.result_key, finishes=work_id, fence=claim.attempt, cause=work.cause
        )
        return None if receipt.outcome in ("applied", "duplicate") else Settlement(claim, "done")


def restart_child(claim: Claim, failure: Failure, *, now_ms: int, chance: float) -> Settlement | None:
    """Return how the work of a failed child is settled for its restart; None when no tries are left."""
    decision = decide_retry(
        policy_of(claim.work),
        failure,
        failures=claim.failures,
        attempts=claim.failures + 1,
        now_ms=now_ms,
        chance=chance,
    )
    return Settlement(claim, "again", decision.next_ms) if isinstance(decision, RetryAt) else None
