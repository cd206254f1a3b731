"""A child whose parent leaves during a saga: every charge is refunded, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.operate.dead_letters import WorkOperations
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkQuery
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import store_or_skip

TRIP = """
interlock: 1
kind: trip
initial: planned
states:
  planned:
    expect: {within: 1h}
    invoke: {id: booking, type: chart, src: booking, onDone: booked, onError: refused}
    on: {trip.dropped: dropped}
  booked: {expect: {within: forever}}
  refused: {expect: {within: forever}}
  dropped: {expect: {within: forever}}
"""

BOOKING = """
interlock: 1
kind: booking
initial: charging
states:
  charging:
    expect: {within: 1h}
    saga:
      steps:
        - {id: room, do: {src: charge}, timeout: 1m, compensate: {src: refund}}
        - {id: flight, do: {src: charge}, timeout: 1m, compensate: {src: refund}}
        - {id: taxi, do: {src: charge}, timeout: 1m, compensate: {src: refund}}
      onDone: booked
      onCompensated: refused
      onError: refused
  booked: {type: final}
  refused: {type: final}
"""

STORES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/trips.db", "file://{}/trips", "postgresql:"],
    ids=["memory", "sqlite", "files", "postgresql"],
)
CHARGES = ("room", "flight", "taxi")


class Bank:
    """A ledger. It blocks at the operation of a number until it is released; the last charge may be refused."""

    def __init__(self, halt: int, *, refuses_taxi: bool = False) -> None:
        self.halt, self.refuses_taxi = halt, refuses_taxi
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.stands: dict[str, str] = {}
        self.refunded: list[str] = []
        self.operations = 0
        self.closed = False

    async def _comes(self) -> None:
        self.operations += 1
        if self.operations == self.halt:
            self.asked.set()
            await self.let.wait()

    async def charge(self, attempt: Attempt) -> None:
        """Charge, under the key of the step."""
        await self._comes()
        step = attempt.key.rpartition(".")[2]
        if step == "taxi" and self.refuses_taxi:
            raise interlock.RejectedError("no taxi", code="taxi.none")
        self.stands[attempt.key] = step

    async def refund(self, attempt: Attempt) -> None:
        """Refund the charge of a key, if there is one."""
        await self._comes()
        if self.closed:
            raise interlock.RejectedError("closed for today", code="bank.closed")
        self.refunded.append(self.stands.pop(attempt.input["compensates"], "nothing"))


def _charts(bank: Bank) -> list[interlock.BoundChart]:
    trip, booking = interlock.loads(TRIP), interlock.loads(BOOKING)
    booking.handler("charge")(bank.charge)
    booking.handler("refund")(bank.refund)
    return [trip, booking]


async def _works(trips: Any, **query: Any) -> Any:
    assert trips.store.work is not None
    return (await trips.store.list_work(WorkQuery(**query))).rows


async def _child(trips: Any) -> str:
    return str((await trips.store.find(EntityQuery(kind="booking"))).rows[0].entity)


async def _settled(trips: Any, bank: Bank) -> None:
    """Wait until the ledger is empty and no work is left."""

    async def is_settled() -> bool:
        return not (bank.stands or await _works(trips))

    await eventually(is_settled)


async def _until_ended(trips: Any, entity: str) -> None:
    """Wait until an entity has ended: a cancellation of a child comes through the outbox."""

    async def has_ended() -> bool:
        return (await trips.state(entity)).ended is not None

    await eventually(has_ended)


@STORES
@pytest.mark.parametrize("halt", range(1, 6))
async def test_a_child_cancelled_at_any_step_of_its_saga_leaves_the_ledger_balanced(
    address: str, halt: int, tmp_path: Path
) -> None:
    bank = Bank(halt, refuses_taxi=halt > 3)
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    async with interlock.open(url, charts=_charts(bank)) as trips:
        await trips.create("trip/1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bank.asked.wait()
        await trips.send("trip/1", "trip.dropped")
        child = await _child(trips)
        await _until_ended(trips, child)
        bank.let.set()
        await _settled(trips, bank)
        proof = await trips.verify(child)

        assert {} == bank.stands
        assert sorted(CHARGES[: min(halt, 2 if bank.refuses_taxi else 3)]) == sorted(bank.refunded)
        assert "cancelled" == (await trips.state(child)).ended
        assert None is proof.problem
        assert () == await _works(trips)


async def test_finished_steps_are_compensated_in_reverse_order() -> None:
    bank, clock = Bank(3), VirtualClock()
    async with interlock.open("memory:", charts=_charts(bank), clock=clock) as trips:
        await trips.create("trip/1")
        await clock.advance()
        await trips.send("trip/1", "trip.dropped")
        await clock.advance(1_000)
        bank.let.set()
        child = await _child(trips)
        told = [(each.event.name, each.reason) for each in await trips.journal(child)][-3:]

        assert ["flight", "room"] == bank.refunded
        assert [
            ("_cancel", "cancelled"),
            ("done.invoke.charging.flight_compensation", "compensated"),
            ("done.invoke.charging.room_compensation", "compensated"),
        ] == told


async def test_a_compensation_that_fails_for_good_is_a_dead_letter_and_blocks_the_others() -> None:
    bank, clock = Bank(3), VirtualClock()
    bank.closed = True
    async with interlock.open("memory:", charts=_charts(bank), clock=clock) as trips:
        await trips.create("trip/1")
        await clock.advance()
        await trips.send("trip/1", "trip.dropped")
        await clock.advance(1_000)
        (row,) = await _works(trips, dead=True)
        blocked = list(bank.refunded)
        bank.closed = False
        bank.let.set()
        assert trips.store.work is not None
        await WorkOperations(trips.store, clock).act("retry", row, principal="ann")
        await clock.advance(10_000)

        assert ("refund", "bank.closed", []) == (row.work.name, row.error["code"], blocked)
        assert ["flight", "room"] == [each for each in bank.refunded if each != "taxi"]  # that one came late
        assert {} == bank.stands
        assert () == await _works(trips, dead=True)


@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/trips.db", "file://{}/trips"])
async def test_a_compensation_that_others_wait_for_is_deleted_only_with_force(address: str, tmp_path: Path) -> None:
    bank = Bank(3)
    bank.closed = True
    async with interlock.open(address.format(tmp_path), charts=_charts(bank)) as trips:
        await trips.create("trip/1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bank.asked.wait()
            await trips.send("trip/1", "trip.dropped")
        await eventually(lambda: _works(trips, dead=True, name="refund"))
        (row,) = await _works(trips, dead=True, name="refund")
        desk = WorkOperations(trips.store, trips.clock)
        with pytest.raises(interlock.RejectedError, check=lambda error: error.code == "work.compensation") as caught:
            await desk.act("drop", row, principal="ann")
        kept = await _works(trips, dead=True, name="refund")
        await desk.act("drop", row, principal="ann", force=True)
        left = await _works(trips, dead=True, name="refund")
        bank.let.set()

    assert ("work.compensation", 1, ()) == (caught.value.code, len(kept), left)


@pytest.mark.parametrize("address", ["sqlite:///{}/trips.db", "file://{}/trips"], ids=["sqlite", "files"])
async def test_another_process_continues_a_saga_that_was_stopped_during_a_compensation(
    address: str, tmp_path: Path
) -> None:
    bank = Bank(4)  # three charges, of which the last is refused; the first refund is under way
    bank.refuses_taxi = True
    url = address.format(tmp_path)
    async with interlock.open(url, charts=_charts(bank)) as trips:
        await trips.create("trip/1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bank.asked.wait()
        child = await _child(trips)
        await trips.send("trip/1", "trip.dropped")
        await _until_ended(trips, child)
        await trips.drain(0)
    before = list(bank.refunded)
    async with interlock.open(url, charts=_charts(bank)) as trips:
        await _settled(trips, bank)
        proof = await trips.verify(child)

    assert ([], ["flight", "room"], {}) == (before, bank.refunded, bank.stands)
    assert None is proof.problem
