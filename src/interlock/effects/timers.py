"""Timers: work for the clock. A due row is a doorbell: the driver looks at the snapshot and fires all that is due.

Rule 1: a timer cannot fire twice or after it was cancelled: the swap decides, and (name, version set) must still stand
in the snapshot. A row whose timer is gone is dropped; one whose timer still stands is put off, and never dropped: the
clock that found it due may be ahead of the driver's, which then has not reached the time. One whose step cannot be kept
holds the others up no more than any bad row does.
Rule 2: what downtime means is the timer's own to say (S39). One that downtime moves is moved when it comes due, once
for all the downtimes since it counts, and counts from the end of the last of them on: none is counted twice.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.effects.lanes import RunningWork
from interlock.model.limits import LOOK_MS_MAX
from interlock.model.snapshot import Timer
from interlock.ports.clock import Clock
from interlock.ports.delivery import EventDelivery
from interlock.ports.leases import Downtime
from interlock.ports.work import Settlement

MOVED = {"code": "timer.moved", "message": "it was set by a clock that was ahead, and counts anew"}
"""What is noted beside the work of a timer that is due earlier than it was when it was set."""


class TimerShift(Struct, frozen=True):
    """When a timer is due after downtime, and from when it counts now."""

    due_ms: int
    since_ms: int


def shift_for_downtime(downtimes: tuple[Downtime, ...], timer: Timer, since_ms: int) -> TimerShift | None:
    """What downtimes, in order, do to a timer that counts since then; None when they do nothing.

    A downtime that began when the timer was due already does nothing: it was late for another reason.
    """
    if timer.restore == "deadline":
        return None
    delay_ms, moved = timer.due_ms - since_ms, TimerShift(timer.due_ms, since_ms)
    for each in downtimes:
        if each.ended_ms <= moved.since_ms or each.began_ms >= moved.due_ms:
            continue
        if timer.restore == "restart":
            due_ms = each.ended_ms + delay_ms
        else:
            due_ms = moved.due_ms + each.ended_ms - max(each.began_ms, moved.since_ms)
        moved = TimerShift(due_ms, each.ended_ms)
    return None if moved.since_ms == since_ms else moved


class Timers:
    """Fires what is due."""

    def __init__(self, driver: EventDelivery, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock

    async def perform(self, held: RunningWork) -> Settlement | None:
        """Fire the due timers of the entity; each ends with its own entry."""
        claim, place, held.bringing = held.claim, held.claim.work.place, True
        timers = await self._driver.fire(claim.entity)
        if place in timers.fired:
            return None
        if place in timers.refused:
            raise timers.refused[place]
        due_ms = timers.waiting.get(place)
        if due_ms is None:
            return Settlement(claim, "done")
        now_ms = self._clock.now_ms()
        next_ms = due_ms if due_ms > now_ms else now_ms + LOOK_MS_MAX
        # A note, so that a store which writes nothing for a mere delay keeps this one: its row is due much later.
        is_earlier = claim.work.due_ms is not None and due_ms < claim.work.due_ms
        return Settlement(claim, "again", next_ms, error=MOVED if is_earlier else None, lapsed=True)
