"""A step of a saga that succeeds after the entity ended: it is recorded and compensated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.model.journal.work import Work, WorkId
from interlock.ports.work import Claim, WorkQuery
from interlock.runtime.worker.delivery import EntityDelivery
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS

TRIP = """
interlock: 1
kind: trip
context: {room: {type: string, nullable: true}}
initial: booking_pending
states:
  booking_pending:
    allow: {saga.left_midway: this is what the test is about}
    on: {trip.cancelled: cancelled}
    expect: {within: 1h}
    saga:
      steps:
        - {id: room, do: {src: hotel.book, output: room}, timeout: 1m,
           compensate: {src: hotel.free, input: {room: "= context.room"}}}
      onDone: booked
      onCompensated: refused
      onError: refused
  booked: {expect: {within: forever}}
  refused: {expect: {within: forever}}
  cancelled: {type: final}
"""


class Hotel:
    """Books when it is released, and cancels bookings."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.freed: asyncio.Queue[Any] = asyncio.Queue()

    async def book(self, attempt: Attempt) -> str:
        """A room, some time after it was asked for."""
        self.asked.set()
        await self.let.wait()
        return "r-9"

    async def free(self, attempt: Attempt) -> None:
        """Takes the room back."""
        self.freed.put_nowait(attempt.input)


def _trip(hotel: Hotel, free: Callable[[Attempt], Awaitable[None]] | None = None) -> interlock.BoundChart:
    chart = interlock.loads(TRIP)
    chart.handler("hotel.book")(hotel.book)
    chart.handler("hotel.free")(free or hotel.free)
    return chart


@pytest.mark.parametrize("prefix", ["", "eu/"])
@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/trips.db"], ids=["memory", "sqlite"])
async def test_a_step_that_succeeds_after_the_end_is_compensated(address: str, prefix: str, tmp_path: Path) -> None:
    hotel = Hotel()
    async with interlock.open(address.format(tmp_path), charts=[_trip(hotel)], key_prefix=prefix) as trips:
        await trips.create("trip/1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await hotel.asked.wait()
            await trips.send("trip/1", "trip.cancelled")
            hotel.let.set()
            freed = await hotel.freed.get()
        last = (await trips.journal("trip/1"))[-1]
        proof = await trips.verify("trip/1")

        assert {"compensates": f"{prefix}trip/1/1/booking_pending.room", "room": "r-9"} == freed
        assert ("done.invoke.booking_pending.room", "compensated") == (last.event.name, last.reason)
        assert (("cancelled",), "done") == (last.after, (await trips.state("trip/1")).ended)
        assert (3, None) == (proof.entries, proof.problem)


async def test_a_compensation_after_the_end_that_fails_for_good_is_a_dead_letter() -> None:
    hotel, clock = Hotel(), VirtualClock()

    async def refuse(attempt: Attempt) -> None:
        raise interlock.RejectedError("nobody there", code="hotel.closed")

    async with interlock.open("memory:", charts=[_trip(hotel, refuse)], clock=clock) as trips:
        await trips.create("trip/1")
        await clock.advance()
        await trips.send("trip/1", "trip.cancelled")
        hotel.let.set()
        await clock.advance()
        assert trips.store.work is not None
        (row,) = (await trips.store.work.works(WorkQuery(dead=True))).rows

        assert ("hotel.free", "hotel.closed") == (row.work.name, row.error["code"])


@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/trips.db", "file://{}/trips"])
async def test_a_late_result_is_compensated_after_the_journal_was_archived(address: str, tmp_path: Path) -> None:
    async with interlock.open(address.format(tmp_path), charts=[_trip(Hotel())], work=False) as trips:
        receipt = await trips.create("trip/1")
        await trips.send("trip/1", "trip.cancelled")
        assert trips.store.journal_release is not None
        assert await trips.store.journal_release.release("trip/1", version=2, archive="file:///elsewhere")
        booked = interlock.done_event(receipt.effects[0], "r-9")
        late = await trips.sender.deliver("trip/1", booked, key="_effect/1/0")
        again = await trips.sender.deliver("trip/1", booked, key="_effect/1/0")

        assert ("applied", "compensated", 3) == (late.outcome, late.reason, late.version)
        assert ("duplicate", 3) == (again.outcome, again.version)
        assert ["hotel.free"] == [each.name for each in late.effects]
        assert [3] == [each.version for each in await trips.journal("trip/1", after=2)]
        assert None is (await trips.verify("trip/1")).problem


async def test_compensations_are_recognised_by_who_asked_for_the_work() -> None:
    async with interlock.open("memory:", charts=[_trip(Hotel())], work=False) as trips:
        await trips.create("trip/1")
        driver = EntityDelivery(trips)

        async def answers(entity: str, version: int, **body: Any) -> bool:
            return await driver.is_compensation(
                Claim(entity, Work(WorkId("effect", version, 0), "hotel.free", body, 0), 1)
            )

        assert not await answers("trip/1", 1, id="x", state="booking_pending.room")
        assert await answers("trip/1", 1, id="x", state="booking_pending.room_compensation")
        assert await answers("trip/1", 1, id="x", state="of_another_revision")
        assert await answers("trip/7", 1, id="x", state="booking_pending.room")
        assert not await answers("trip/1", 1, name="hotel.free")
        assert await answers("trip/1", 9, name="hotel.free")
        assert await answers("trip/7", 1, name="hotel.free")
        await trips.send("trip/1", "trip.cancelled")
        assert trips.store.journal_release is not None
        assert await trips.store.journal_release.release("trip/1", version=2, archive="file:///elsewhere")
        assert await answers("trip/1", 1, name="hotel.free")
