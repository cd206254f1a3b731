"""The outbox relay: delivers what an entity sends, in order, to other entities, to its parent and to its children.

Rule 1: the rows of an entity's outbox are delivered one after another. A row that fails blocks only its own entity, and
after `MESSAGE_ATTEMPTS_MAX` tries it is a dead letter.
Rule 2: a delivery may happen twice and counts once: its key comes from the row, and the target's journal records it.
Rule 3: a target that does not exist, or that denies the event, is an error of delivery, and the sender gets an error
event. `rejected` and `ignored` are valid outcomes and count as delivered.
Rule 4: before a child is ended, its work is parked: it waits, and counts one restart more than there were. A worker
that read the row before can no longer change it, and results of the child no longer match it.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec.structs import replace

from interlock.effects.children import restart_child
from interlock.effects.lanes import RunningWork
from interlock.effects.retry import Failure, error_facts
from interlock.effects.wait_limits import ENDING
from interlock.effects.work_delta import CANCEL, invoke_of_address, is_answer, outbox_event, work_id_of
from interlock.errors import InterlockError, NotFoundError, PrunedError
from interlock.model.backoff import Backoff
from interlock.model.driver_events import call_failed
from interlock.model.event import Event
from interlock.model.journal.cause import Cause, cause_of
from interlock.model.journal.work import CHILD_WORK, WorkId
from interlock.model.limits import HELD_TARGET_MS, MESSAGE_ATTEMPTS_MAX, POLL_MS_MAX, SEND_BACKOFF_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, EventDelivery, is_held
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkQueue, WorkRow

_BACKOFF = Backoff(200, SEND_BACKOFF_MS_MAX)
"""The wait before a row is delivered again."""

_ENDING = {"code": ENDING, "message": "its state was left; it is removed when the child has been cancelled"}
"""What is stored with the work of a child while its end is delivered."""

Received = Literal["done", "denied", "later"]
"""The result of an event at its receiver: delivered or not needed, denied, or to be delivered again soon."""

_NEVER_MS = 36_500 * 86_400_000
"""A hundred years: when parked work is due in a store that writes the two settlements of parking one after the other
and is killed between them."""


class Receiver(Protocol):
    """What delivers an event to another entity, wherever that is."""

    async def receive(
        self, sender: str, key: str, target: str, event: Event, *, cause: Cause | None = None
    ) -> Received:
        """Deliver an event that the outbox of the sender has under this key. Raises NotFoundError."""


class OutboxRelay:
    """Delivers outboxes. `receiver`: what delivers to entities whose work is not in this queue."""

    def __init__(
        self, queue: WorkQueue, delivery: EventDelivery, clock: Clock, *, receiver: Receiver | None = None
    ) -> None:
        self._receiver = receiver or self
        self._queue = queue
        self._delivery = delivery
        self._clock = clock

    async def perform(self, work: RunningWork) -> Settlement | None:
        """Deliver one row."""
        work.deliver_result()
        claim = work.claim
        try:
            return await self._deliver(claim)
        except InterlockError as error:
            if isinstance(error, PrunedError):  # it had ended, and an entity that has ended takes no event
                return Settlement(claim, "done")
            if isinstance(error, NotFoundError):
                return await self._report_undeliverable(claim, "undeliverable")
            if error.code in ("personal.undeclared", "personal.erased"):  # another try would end alike
                return await self._report_undeliverable(claim, error.code)
            if error.code in CHART_MISSING_CODES:
                return self._postpone(claim, POLL_MS_MAX)  # for a process that has the chart
            if is_held(error):
                return self._postpone(claim, HELD_TARGET_MS)
            return self._retry(claim, error)

    async def _deliver(self, claim: Claim) -> Settlement | None:
        event, invoke = outbox_event(claim.work), invoke_of_address(claim.work.name)
        if invoke is not None:
            return await self._deliver_to_child(claim, event, invoke)
        return await self._deliver_to_entity(claim, claim.work.name.removeprefix("entity/"), event)

    async def _deliver_to_entity(self, claim: Claim, target: str, event: Event) -> Settlement | None:
        cause = cause_of(claim.work.body)
        received = await self._receiver.receive(claim.entity, claim.key, target, event, cause=cause)
        if received == "denied":
            return await self._report_undeliverable(claim, "denied")
        return Settlement(claim, "done") if received == "done" else self._postpone(claim, POLL_MS_MAX // 10)

    async def receive(
        self, sender: str, key: str, target: str, event: Event, *, cause: Cause | None = None
    ) -> Received:
        """Deliver an event of another entity, whose outbox has it under this key. `target` is in this queue."""
        finishes = None
        if event.type == "platform" and event.last:
            row = await self._row(target, work_id_of("effect", event.source or ""))
            if row is None or not await self._is_child(sender, row):
                # The invoke has finished, was cancelled, or has a newer child: the result is not needed.
                return "done"
            restart = self._restart(row, event)
            if restart is not None:
                (is_settled,) = await self._queue.settle((restart,), now_ms=self._clock.now_ms())
                # Otherwise a worker has just claimed that work, to check the child's timeout.
                return "done" if is_settled else "later"
            finishes = row.work.id
        receipt = await self._delivery.deliver(target, event, key=f"_sent/{key}", finishes=finishes, cause=cause)
        return "denied" if receipt.outcome == "denied" else "done"

    async def _is_child(self, entity: str, row: WorkRow) -> bool:
        """Whether the entity is the current child of this work, not an earlier one."""
        child = await self._delivery.find_child(row.entity, row.work.id, row.work.body, restarts=row.failures)
        return child is not None and child.entity == entity

    def _restart(self, row: WorkRow, event: Event) -> Settlement | None:
        """Return how the work of a failed child is settled for a restart; None when there is no restart."""
        if not event.name.startswith("error."):
            return None
        data = event.data if isinstance(event.data, dict) else {}
        failure = Failure(str(data.get("code")), str(data.get("message")))
        return restart_child(_as_claim(row), failure, now_ms=self._clock.now_ms(), chance=self._clock.jitter())

    async def _deliver_to_child(self, claim: Claim, event: Event, work_id: WorkId) -> Settlement | None:
        """Deliver to the child of an invoke, once it exists. The last event for it removes the work of the child."""
        row = await self._row(claim.entity, work_id)
        if row is None:  # the child has finished
            return Settlement(claim, "done")
        if row.work.name != CHILD_WORK:  # a handler receives no events, and later rows must not wait for its end
            return await self._report_undeliverable(claim, "undeliverable")
        restarts = row.failures - _is_ending(row)
        child = await self._delivery.find_child(claim.entity, work_id, row.work.body, restarts=restarts)
        is_ready = child is not None if event.name != CANCEL else await self._park(row, is_started=child is not None)
        if not is_ready:
            return self._postpone(claim, POLL_MS_MAX // 10)  # the child is about to start or restart
        if child is not None:
            cause = cause_of(claim.work.body)
            await self._delivery.deliver(child.entity, event, key=f"_sent/{claim.key}", cause=cause)
        if event.name == CANCEL:
            await self._queue.settle((Settlement(_as_claim(row), "done"),), now_ms=self._clock.now_ms())
        return Settlement(claim, "done")

    async def _park(self, row: WorkRow, *, is_started: bool) -> bool:
        """Park the work of a child that is to end, so that it is no longer claimed; whether it is parked now.

        If the row were removed without that, a worker could claim it at the last moment and start or restart the child,
        which would then run with no parent waiting. A relay that is killed after this finds the row parked.
        """
        if row.dead_ms is not None or _is_ending(row):
            return True
        if row.owner is not None and not is_started:
            return False
        claim, now_ms = _as_claim(row), self._clock.now_ms()
        count = Settlement(claim, "again", now_ms + _NEVER_MS, error=_ENDING)
        wait = Settlement(replace(claim, failures=claim.failures + 1), "wait", error=_ENDING)
        is_parked, _ = await self._queue.settle((count, wait), now_ms=now_ms)
        return is_parked

    def _postpone(self, claim: Claim, wait_ms: int) -> Settlement:
        """Try later, without a failure."""
        return Settlement(claim, "again", self._clock.now_ms() + wait_ms, without_failure=True)

    async def _row(self, entity: str, work_id: WorkId) -> WorkRow | None:
        page = await self._queue.list_work(WorkQuery(entity=entity, id=work_id))
        return page.rows[0] if page.rows else None

    async def _report_undeliverable(self, claim: Claim, code: str) -> Settlement | None:
        """Send the sender an error event; if its chart does not handle that, the row becomes a dead letter."""
        sent, work_id = outbox_event(claim.work), claim.work.id
        if is_answer(sent) and not code.startswith("personal."):
            return Settlement(claim, "done")  # the receiver no longer exists
        event = call_failed("send", claim.key, code, sendid=sent.sendid)
        cause = cause_of(claim.work.body)
        receipt = await self._delivery.deliver(
            claim.entity, event, key=work_id.result_key, finishes=work_id, cause=cause
        )
        if receipt.outcome in ("applied", "duplicate"):
            return None
        return Settlement(claim, "dead", error={"code": code, "message": f"cannot deliver to {claim.work.name}"})

    def _retry(self, claim: Claim, error: InterlockError) -> Settlement:
        facts = error_facts(error)
        if claim.failures + 1 >= MESSAGE_ATTEMPTS_MAX:
            return Settlement(claim, "dead", error=facts)
        wait_ms = round(_BACKOFF.wait_ms(claim.failures, self._clock.jitter()))
        return Settlement(claim, "again", self._clock.now_ms() + wait_ms, error=facts)


def _is_ending(row: WorkRow) -> bool:
    """Whether it was parked, by this relay or by one that was killed."""
    return row.dead_ms is None and isinstance(row.error, dict) and row.error.get("code") == _ENDING["code"]


def _as_claim(row: WorkRow) -> Claim:
    return Claim(row.entity, row.work, row.attempts, row.failures)
