"""The relay: what an entity sends, delivered in order: to other entities, to its parent, to its children.

Rule 1: the first row of an entity's outbox is delivered before the second is looked at; a row that fails holds back
its own entity only, and after `MESSAGE_ATTEMPTS_MAX` tries is a dead letter.
Rule 2: delivery may happen twice, and counts once: its key is the row's, and the target's journal remembers it.
Rule 3: a target that is not there, or that may not be sent to, is an error of delivery that the sender hears of;
`rejected` and `ignored` are answers, and count as delivered.
Rule 4: the work of a child that is to end is parked first: it waits, and stands for one restart more than there ever
was. So whoever saw it before that can do nothing to it any more, and answers of the child find that it is not theirs.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.effects.children import restarted
from interlock.effects.lanes import RunningWork
from interlock.effects.retry import Failure, RetryPolicy, backoff_ms, error_facts
from interlock.effects.waiting import ENDING
from interlock.effects.work_delta import CANCEL, work_id_of
from interlock.errors import InterlockError, NotFoundError
from interlock.model.driver_events import call_failed
from interlock.model.event import Event
from interlock.model.journal.work import CHILD_WORK, WorkId
from interlock.model.limits import LOOK_MS_MAX, MESSAGE_ATTEMPTS_MAX, SEND_BACKOFF_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.delivery import CHART_MISSING_CODES, EventDelivery
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkRow, WorkStore

_PUT_OFF = RetryPolicy(backoff_ms_min=200, backoff_ms_max=SEND_BACKOFF_MS_MAX)
"""How long a row that could not be delivered waits."""

_ENDING = {"code": ENDING, "message": "its state was left; it goes when the child has heard"}
"""What stands beside the work of a child while its end is delivered."""

_NEVER_MS = 36_500 * 86_400_000
"""A hundred years: for when parked work is due to a store that writes the two words of parking one after the other,
should it be killed between them."""


class OutboxRelay:
    """Delivers outboxes."""

    def __init__(self, store: WorkStore, driver: EventDelivery, clock: Clock) -> None:
        self._store = store
        self._driver = driver
        self._clock = clock

    async def perform(self, held: RunningWork) -> Settlement | None:
        """Deliver one row."""
        claim, held.bringing = held.claim, True
        try:
            return await self._delivered(claim)
        except InterlockError as error:
            if isinstance(error, NotFoundError):
                return await self._undeliverable(claim, "undeliverable")
            if error.code in CHART_MISSING_CODES:
                return self._later(claim, LOOK_MS_MAX)  # for a process that has the chart
            return self._put_off(claim, error)

    async def _delivered(self, claim: Claim) -> Settlement | None:
        address = claim.work.name
        event = msgspec.convert(claim.work.body["event"], Event)
        if address.startswith("child/"):
            return await self._to_child(claim, event)
        return await self._to_entity(claim, address.removeprefix("entity/"), event)

    async def _to_entity(self, claim: Claim, target: str, event: Event) -> Settlement | None:
        answers = None
        if event.type == "platform" and event.last:
            row = await self._row(target, work_id_of("effect", event.source or ""))
            if row is None or not await self._is_child(claim.entity, row):
                return Settlement(
                    claim, "done"
                )  # answered before, called off, or begun again since: nobody waits for it
            again = self._restarted(row, event)
            if again is not None:
                (kept,) = await self._store.settle((again,), now_ms=self._clock.now_ms())
                # Not kept: somebody has just taken that work up, to look whether its time is over.
                return Settlement(claim, "done") if kept else self._later(claim, LOOK_MS_MAX // 10)
            answers = row.work.place
        receipt = await self._driver.deliver(target, event, key=f"_sent/{claim.key}", answers=answers)
        if receipt.outcome == "denied":
            return await self._undeliverable(claim, "denied")
        return Settlement(claim, "done")

    async def _is_child(self, entity: str, row: WorkRow) -> bool:
        """Whether this is the child that the work stands for now, and not one that was begun before it."""
        child = await self._driver.find_child(row.entity, row.work.place, row.work.body, restarts=row.failures)
        return child is not None and child.entity == entity

    def _restarted(self, row: WorkRow, event: Event) -> Settlement | None:
        if not event.name.startswith("error."):
            return None
        data = event.data if isinstance(event.data, dict) else {}
        failed = Failure(str(data.get("code")), str(data.get("message")))
        work = Claim(row.entity, row.work, row.attempts, row.failures)
        return restarted(work, failed, now_ms=self._clock.now_ms(), jitter=self._clock.jitter())

    async def _to_child(self, claim: Claim, event: Event) -> Settlement | None:
        """To the child of an invoke, once it is there; with the last event for it goes the work that stands for it."""
        _, version, ordinal = claim.work.name.split("/")
        place = WorkId("effect", int(version), int(ordinal))
        row = await self._row(claim.entity, place)
        if row is None:  # it has answered: nobody is there to hear
            return Settlement(claim, "done")
        if (
            row.work.name != CHILD_WORK
        ):  # a handler hears nothing, and what is sent after this must not wait for its end
            return await self._undeliverable(claim, "undeliverable")
        restarts = row.failures - _is_ending(row)
        child = await self._driver.find_child(claim.entity, place, row.work.body, restarts=restarts)
        ready = child is not None if event.name != CANCEL else await self._is_parked(row, begun=child is not None)
        if not ready:
            return self._later(claim, LOOK_MS_MAX // 10)  # about to begin, or to begin anew
        if child is not None:
            await self._driver.deliver(child.entity, event, key=f"_sent/{claim.key}")
        if event.name == CANCEL:
            await self._store.settle((Settlement(_as_claim(row), "done"),), now_ms=self._clock.now_ms())
        return Settlement(claim, "done")

    async def _is_parked(self, row: WorkRow, *, begun: bool) -> bool:
        """Whether the work of a child that is to end can neither be taken up nor go on from now on.

        Removed without that, it could be claimed at the last moment, to begin the child, or to begin it anew because it
        has just failed: that one would live on, and nobody know of it. Killed after this, one finds it so.
        """
        if row.dead_ms is not None or _is_ending(row):
            return True
        if row.owner is not None and not begun:
            return False
        seen, now_ms = _as_claim(row), self._clock.now_ms()
        counted = Settlement(seen, "again", now_ms + _NEVER_MS, error=_ENDING)
        waiting = Settlement(replace(seen, failures=seen.failures + 1), "wait", error=_ENDING)
        parked, _ = await self._store.settle((counted, waiting), now_ms=now_ms)
        return parked

    def _later(self, claim: Claim, wait_ms: int) -> Settlement:
        """Not yet, and no failure."""
        return Settlement(claim, "again", self._clock.now_ms() + wait_ms, lapsed=True)

    async def _row(self, entity: str, place: WorkId) -> WorkRow | None:
        page = await self._store.works(WorkQuery(entity=entity, place=place))
        return page.rows[0] if page.rows else None

    async def _undeliverable(self, claim: Claim, code: str) -> Settlement | None:
        """The sender hears; when its chart has nothing to say to that, a person must."""
        if _is_answer(claim):
            return Settlement(claim, "done")  # whoever asked is gone
        place = claim.work.place
        event = call_failed("send", claim.key, code, sendid=claim.work.body["event"].get("sendid"))
        receipt = await self._driver.deliver(claim.entity, event, key=place.result_key, answers=place)
        if receipt.outcome in ("applied", "duplicate"):
            return None
        return Settlement(claim, "dead", error={"code": code, "message": f"nobody at {claim.work.name}"})

    def _put_off(self, claim: Claim, error: InterlockError) -> Settlement:
        facts = error_facts(error)
        if claim.failures + 1 >= MESSAGE_ATTEMPTS_MAX:
            return Settlement(claim, "dead", error=facts)
        wait = backoff_ms(_PUT_OFF, claim.failures, self._clock.jitter())
        return Settlement(claim, "again", self._clock.now_ms() + wait, error=facts)


def _is_answer(claim: Claim) -> bool:
    event: dict[str, Any] = claim.work.body["event"]
    return event["name"] == CANCEL or bool(event.get("last")) or bool(event.get("forwarded"))


def _is_ending(row: WorkRow) -> bool:
    """Whether it was parked: by this relay, or by one that was killed."""
    return row.dead_ms is None and isinstance(row.error, dict) and row.error.get("code") == _ENDING["code"]


def _as_claim(row: WorkRow) -> Claim:
    return Claim(row.entity, row.work, row.attempts, row.failures)
