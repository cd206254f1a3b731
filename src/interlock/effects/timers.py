"""Timers: when a row is due, the runtime reads the snapshot and fires every timer of the entity that is due.

Rule 1: a timer cannot fire twice or after it was cancelled: the swap decides, and the timer (its name and the version
that set it) must still be in the snapshot. A row without its timer is removed. A row whose timer still waits is
postponed, never removed: the clock that found it due may be ahead of the runtime's. A timer whose step cannot be stored
blocks no other timer.
Rule 2: what downtime does to a timer is stated by the timer (S39). A timer that downtime shifts is shifted when it
comes due, once for all downtimes since it was set, and then counts from the end of the last of them: none counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from interlock.effects.lanes import RunningWork
from interlock.model.journal.cause import NO_CAUSES
from interlock.model.limits import POLL_MS_MAX
from interlock.model.snapshot import Timer
from interlock.ports.clock import Clock
from interlock.ports.delivery import EventDelivery
from interlock.ports.leases import Downtime
from interlock.ports.work import Settlement

MOVED = {"code": "timer.moved", "message": "it was set by a clock that was ahead and counts from now"}
"""What is stored with the work of a timer that is due earlier than when it was set."""


class TimerShift(Struct, frozen=True):
    """When a timer is due after downtime, and from when it counts now."""

    due_ms: int
    since_ms: int


def shift_for_downtime(downtimes: tuple[Downtime, ...], timer: Timer, since_ms: int) -> TimerShift | None:
    """Return how downtimes, in order, shift a timer that counts from `since_ms`; None when they do not.

    A downtime that started after the timer was due does not shift it: the timer was late for another reason.
    """
    if timer.restore == "deadline":
        return None
    delay_ms, shift = timer.due_ms - since_ms, TimerShift(timer.due_ms, since_ms)
    for each in downtimes:
        if each.ended_ms <= shift.since_ms or each.started_ms >= shift.due_ms:
            continue
        if timer.restore == "restart":
            due_ms = each.ended_ms + delay_ms
        else:
            due_ms = shift.due_ms + each.ended_ms - max(each.started_ms, shift.since_ms)
        shift = TimerShift(due_ms, each.ended_ms)
    return None if shift.since_ms == since_ms else shift


def shift_for_times(times: Iterable[Downtime], timer: Timer, since_ms: int) -> TimerShift | None:
    """Return how times shift a timer, in the order in which they started: downtimes, and holds by an operator.

    A timer with a deadline is shifted as one with `restore: remaining`: the caller gives only times that shift it.
    """
    shifted = timer if timer.restore != "deadline" else replace(timer, restore="remaining")
    return shift_for_downtime(tuple(sorted(times, key=lambda each: each.started_ms)), shifted, since_ms)


class Timers:
    """Fires due timers."""

    def __init__(self, delivery: EventDelivery, clock: Clock) -> None:
        self._delivery = delivery
        self._clock = clock

    async def perform(self, work: RunningWork) -> Settlement | None:
        """Fire the due timers of the entity; each ends with its own entry."""
        work.deliver_result()
        claim, work_id = work.claim, work.claim.work.id
        causes = NO_CAUSES if work.cause is None else {work_id: work.cause}
        timers = await self._delivery.fire_timers(claim.entity, causes=causes)
        if work_id in timers.fired:
            return None
        if work_id in timers.refused:
            raise timers.refused[work_id]
        due_ms = timers.waiting.get(work_id)
        if due_ms is None:
            return Settlement(claim, "done")
        now_ms = self._clock.now_ms()
        next_ms = due_ms if due_ms > now_ms else now_ms + POLL_MS_MAX
        # With a note, because a store may skip writing a mere delay, and this row would then be due much later.
        is_earlier = claim.work.due_ms is not None and due_ms < claim.work.due_ms
        return Settlement(claim, "again", next_ms, error=MOVED if is_earlier else None, without_failure=True)
