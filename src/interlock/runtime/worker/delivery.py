"""The driver as its own work sees it: results, firings, sends and children, each an event through the same append.

Rule 1: everything has a key of the driver's own, made from the work it answers: done twice, it counts once.
Rule 2: timers fire in the order in which they are due, one step each, on the snapshot as it then is.
Rule 3: a timer that downtime moves is moved by an entry of its own before anything fires; replay sees the same.
Where the store notes no downtime, every timer goes by its deadline.
Rule 4: a timer that counts from a time in the future was set under a wrong clock: it is moved likewise, to count from
now. Only an entity whose time is ahead of the clock can have one.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Any

from interlock.effects.timers import shift_for_downtime
from interlock.errors import NotFoundError, RejectedError, UnavailableError
from interlock.model.driver_events import timer_fired, timer_moved
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkId
from interlock.model.limits import CHILD_DEPTH_MAX, CLOCK_AHEAD_MS_MAX, TIMERS_MAX
from interlock.model.snapshot import Parent, Snapshot, Timer
from interlock.ports.delivery import Child, TimersFired
from interlock.ports.work import Claim
from interlock.runtime.children import child_context, child_entity
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.downtime import DowntimeMonitor

_log = logging.getLogger("interlock.runtime")

_ANSWERED_LATE = "compensated"
"""The reason of an entry that calls the compensation of a deed which nobody waited for any more."""


class EntityDelivery:
    """Brings back to entities what their work came to."""

    def __init__(self, runtime: Runtime, alive: DowntimeMonitor | None = None) -> None:
        self._runtime = runtime
        self._alive = alive

    async def is_here(self, entity: str) -> bool:
        """Whether this process has the entity's chart."""
        return await self._runtime.is_here(entity)

    async def deliver(
        self, entity: str, event: Event, *, key: str, answers: WorkId | None = None, fence: int | None = None
    ) -> Receipt:
        """Give an entity an event of the driver's own."""
        return await self._runtime.deliver(entity, event, key=key, answers=answers, fence=fence)

    async def fire(self, entity: str) -> TimersFired:
        """Fire every timer that is due."""
        fired: set[WorkId] = set()
        waiting: dict[WorkId, int] = {}
        refused: dict[WorkId, RejectedError] = {}
        for _ in range(3 * TIMERS_MAX):  # each may be moved, twice, and each may fire
            try:
                snapshot, last_ms = await self._runtime.timed(entity)
            except NotFoundError:
                return TimersFired(frozenset(fired), {})
            if last_ms > self._runtime.clock.now_ms() + CLOCK_AHEAD_MS_MAX and await self._rebased(snapshot, refused):
                continue
            waiting = {WorkId("timer", each.version, each.ordinal): each.due_ms for each in snapshot.timers}
            timer = _due(snapshot, self._runtime.clock.now_ms(), refused)
            if timer is None:
                break
            place = WorkId("timer", timer.version, timer.ordinal)
            moved = await self._moved(entity, timer)
            try:
                if moved is not None:
                    key = f"_moved{place.result_key}/{moved.data['since_ms']}"
                    receipt = await self.deliver(entity, moved, key=key)
                else:
                    event = timer_fired(timer, time_ms=timer.due_ms)
                    receipt = await self.deliver(entity, event, key=place.result_key, answers=place)
            except RejectedError as error:  # the step would be too large: the others still fire
                refused[place] = error
                continue
            if receipt.version <= snapshot.version:  # another was there first, or it has just been cancelled
                break
            if moved is None:
                fired.add(place)
        return TimersFired(frozenset(fired), waiting, refused)

    async def _rebased(self, snapshot: Snapshot, refused: dict[WorkId, RejectedError]) -> bool:
        """Move the first timer that counts from the future, to count from now; False when there is none."""
        now_ms = self._runtime.clock.now_ms()
        for timer in snapshot.timers:
            place = WorkId("timer", timer.version, timer.ordinal)
            if timer.due_ms <= now_ms or place in refused:
                continue
            since_ms = await self._since_ms(snapshot.entity, timer)
            if since_ms <= now_ms + CLOCK_AHEAD_MS_MAX:
                continue
            moved = timer_moved(timer, due_ms=now_ms + max(0, timer.due_ms - since_ms), since_ms=now_ms)
            try:
                receipt = await self.deliver(snapshot.entity, moved, key=f"_moved{place.result_key}/{now_ms}")
            except RejectedError as error:  # the step would be too large
                refused[place] = error
                continue
            facts = {"entity_id": snapshot.entity, "timer": timer.name, "ahead_ms": since_ms - now_ms}
            _log.warning("a timer that a wrong clock had set is moved", extra=facts)
            return receipt.version > snapshot.version
        return False

    async def _since_ms(self, entity: str, timer: Timer) -> int:
        """From when a timer counts."""
        if timer.since_ms is not None:
            return timer.since_ms
        (entry,) = await self._runtime.journal(entity, after=timer.version - 1, limit=1)
        return entry.event.time_ms

    async def _moved(self, entity: str, timer: Timer) -> Event | None:
        """The event by which downtime moves a timer that came due; None when it fires."""
        if timer.restore == "deadline" or self._alive is None:
            return None
        since_ms = await self._since_ms(entity, timer)
        moved = shift_for_downtime(await self._alive.downtimes(since_ms=since_ms), timer, since_ms)
        return None if moved is None else timer_moved(timer, due_ms=moved.due_ms, since_ms=moved.since_ms)

    async def is_compensation(self, claim: Claim) -> bool:
        """Whether a saga asked for this work, to answer one of its deeds.

        The chart says which states do that; a call does when its entry came of a deed that turned out to be done late.
        Where its entity, entry or state is gone, with an archive or a revision, it cannot be said, and counts as one.
        """
        body, version = claim.work.body, claim.work.place.version
        try:
            if "id" not in body:
                entries = await self._runtime.journal(claim.entity, after=version - 1, limit=1)
                return all(entry.version != version or entry.reason == _ANSWERED_LATE for entry in entries)
            snapshot = await self._runtime.state(claim.entity)
        except NotFoundError:
            return True
        states = self._runtime.charts.revision(snapshot.kind, snapshot.revision).chart.states
        sagas = (each.saga_unwind for each in states if each.saga_unwind is not None)
        answering = {states[each.state].id for saga in sagas for each in saga.compensations}
        return body["state"] in answering or all(each.id != body["state"] for each in states)

    async def begin_child(self, parent: str, place: WorkId, payload: Any, *, restarts: int) -> Child:
        """The child that an invoke asks for, created unless it is there."""
        above = await self._runtime.state(parent)
        await self._check_depth(above)
        kernel = self._runtime.charts.child(self._runtime.charts.revision(above.kind, above.revision), payload["src"])
        entity = child_entity(kernel.chart.kind, payload["id"], _key(parent, place), restarts=restarts)
        context = child_context(kernel, payload.get("input"))
        asked = Parent(parent, payload["id"], _key(parent, place))
        await self._runtime.begin(entity, kernel, context, asked)
        child = await self._child(entity, asked)
        if child is None:
            raise RejectedError(f"`{entity}` was created by somebody else", code="child.taken")
        return child

    async def find_child(self, parent: str, place: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """The child that an invoke began, if it was begun."""
        try:
            above = await self._runtime.state(parent)
        except NotFoundError:
            return None
        charts = self._runtime.charts
        try:
            kernel = charts.child(charts.revision(above.kind, above.revision), payload["src"])
        except NotFoundError as error:  # not here is not nowhere: another process may have begun it
            raise UnavailableError(error.message, code=error.code, hint=error.hint) from error
        entity = child_entity(kernel.chart.kind, payload["id"], _key(parent, place), restarts=restarts)
        try:
            return await self._child(entity, Parent(parent, payload["id"], _key(parent, place)))
        except NotFoundError:
            return None

    async def _child(self, entity: str, asked: Parent) -> Child | None:
        """The entity, if that invoke began it: ids can be guessed, and a stranger's entity is nobody's child."""
        (created,) = await self._runtime.journal(entity, limit=1)
        snapshot = await self._runtime.state(entity)
        return Child(entity, created.event.time_ms, snapshot.ended is not None) if snapshot.parent == asked else None

    async def _check_depth(self, above: Snapshot) -> None:
        """Raises RejectedError when charts invoke charts too deep."""
        depth, parent = 1, above.parent
        while parent is not None and depth <= CHILD_DEPTH_MAX:
            above = await self._runtime.state(parent.entity)
            depth, parent = depth + 1, above.parent
        if depth > CHILD_DEPTH_MAX:
            raise RejectedError(f"charts invoke charts more than {CHILD_DEPTH_MAX} deep", code="invoke.depth")


def _due(snapshot: Snapshot, now_ms: int, refused: Container[WorkId]) -> Timer | None:
    late = (each for each in snapshot.timers if each.due_ms <= now_ms)
    due = [each for each in late if WorkId("timer", each.version, each.ordinal) not in refused]
    return min(due, key=lambda each: (each.due_ms, each.version, each.ordinal), default=None)


def _key(entity: str, place: WorkId) -> str:
    return f"{entity}/{place.version}/{place.ordinal}"
