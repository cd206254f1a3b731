"""Work that ends here, by an append, while its lease is renewed: a missing row means that it ended, not a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.effects.children import Children
from interlock.effects.handlers import Attempt, HandlerRunner
from interlock.effects.lanes import LaneWorker, Perform, RunningWork
from interlock.effects.outbox import OutboxRelay
from interlock.effects.timers import Timers
from interlock.errors import RejectedError
from interlock.model.encoding.codec import to_builtins
from interlock.model.event import Event
from interlock.model.journal.cause import NO_CAUSES, Cause
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import CHILD_WORK, Work, WorkId
from interlock.ports.delivery import Child, TimersFired
from interlock.ports.work import Settlement, WorkQuery
from interlock.testing.clock import VirtualClock
from tests.unit.effects.scene import RecordingDelivery
from tests.unit.effects.test_lanes import LEASE_MS, TableStore

UNDELIVERABLE = {"event": to_builtins(Event("open"))}
INVOKE = {"id": "net", "src": "network", "type": "chart", "timeout_ms": 0}


class SlowDelivery(RecordingDelivery):
    """Its append is durable long before its caller continues; then it wakes lanes, as the runtime does."""

    def __init__(self, store: TableStore, clock: VirtualClock) -> None:
        super().__init__()
        self.store, self.clock = store, clock
        self.woken: list[str] = []

    async def deliver(self, entity: str, event: Event, **fields: Any) -> Receipt:
        """Ends the work that it answers immediately."""
        receipt = await super().deliver(entity, event, **fields)
        await self._kept(fields.get("finishes"))
        return receipt

    async def fire_timers(self, entity: str, *, causes: Mapping[WorkId, Cause] = NO_CAUSES) -> TimersFired:
        """Ends every timer immediately."""
        rows = self.store.table.list_work(WorkQuery(lane="timer")).rows
        for row in rows:
            await self._kept(row.work.id)
        return TimersFired(frozenset(row.work.id for row in rows), {})

    async def _kept(self, finishes: WorkId | None) -> None:
        if finishes is None:
            return
        self.store.table.delete_work("order/1", finishes)
        await self.clock.sleep_ms(LEASE_MS)
        self.woken.append(finishes.lane)


def _paid(driver: SlowDelivery) -> Perform:
    async def charge(attempt: Attempt) -> str:
        return "paid"

    return HandlerRunner({"charge": charge}, driver, driver.clock).perform


def _refused(driver: SlowDelivery) -> Perform:
    async def charge(attempt: Attempt) -> str:
        raise RejectedError("no", code="card.refused")

    return HandlerRunner({"charge": charge}, driver, driver.clock).perform


def _late(driver: SlowDelivery) -> Perform:
    driver.children["network/0"] = Child("network/net-1", driver.clock.now_ms(), ended=False)
    return Children(driver, driver.clock).perform


def _unknown(driver: SlowDelivery) -> Perform:
    driver.missing.add("door/7")
    return OutboxRelay(driver.store, driver, driver.clock).perform


def _fired(driver: SlowDelivery) -> Perform:
    return Timers(driver, driver.clock).perform


def _invoke(name: str, body: dict[str, Any]) -> Work:
    return Work(WorkId("effect", 2, 0), name, body, 0)


@asynccontextmanager
async def _working(store: TableStore, work: Work, perform: Perform, clock: VirtualClock) -> AsyncIterator[LaneWorker]:
    lane = work.id.lane
    names = (work.name,) if lane == "effect" else None
    loop = LaneWorker(store, lane, perform, clock, owner="w1", running_max=4, names=names, lease_ms=LEASE_MS)
    task = asyncio.ensure_future(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("work", "performer"),
    [
        (Work(WorkId("timer", 2, 0), "due", {}, 0), _fired),
        (_invoke("charge", {"id": "pay", "src": "charge", "type": "handler"}), _paid),
        (_invoke("charge", {"id": "pay", "src": "charge", "type": "handler"}), _refused),
        (_invoke("charge", {"id": "pay", "src": "charge", "type": "handler", "late": True}), _paid),
        (_invoke("charge", {"name": "charge"}), _refused),
        (_invoke(CHILD_WORK, INVOKE), _late),
        (Work(WorkId("outbox", 2, 0), "entity/door/7", UNDELIVERABLE, 0), _unknown),
    ],
    ids=["timer", "answer", "failure", "step of a saga", "call", "child", "send"],
)
async def test_a_renewal_that_meets_the_append_stops_nothing(
    work: Work, performer: Callable[[SlowDelivery], Perform]
) -> None:
    """What follows the append is done: others are woken, who would otherwise look only later."""
    clock = VirtualClock(0)
    store = TableStore(work)
    driver = SlowDelivery(store, clock)
    async with _working(store, work, performer(driver), clock) as loop:
        await clock.advance(2 * LEASE_MS)

        assert ([work.id.lane], 0) == (driver.woken, loop.running)


@pytest.mark.parametrize("settled", [True, False], ids=["by its settlement", "not here"])
async def test_a_renewal_during_the_settlement_stops_nothing(settled: bool) -> None:
    work, clock, ends = _invoke("charge", {}), VirtualClock(0), []
    store = TableStore(work)
    settle, renew = store.settle, store.renew

    async def slow_settle(those: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        kept = await settle(those, now_ms=now_ms)
        await clock.sleep_ms(LEASE_MS)
        ends.append("settled")
        return kept

    async def slow_renew(claims: Any, *, until_ms: int) -> Any:
        await clock.sleep_ms(LEASE_MS / 3)
        return await renew(claims, until_ms=until_ms)

    async def perform(held: RunningWork) -> Settlement:
        try:
            await clock.sleep_ms(LEASE_MS / 2 if settled else 10 * LEASE_MS)
        except asyncio.CancelledError:
            ends.append("stopped")
            raise
        return Settlement(held.claim, "done")

    store.settle = slow_settle  # type: ignore[method-assign,assignment]  # a store far away
    store.renew = slow_renew  # type: ignore[method-assign]  # a store far away
    async with _working(store, work, perform, clock):
        await clock.advance(LEASE_MS / 2)
        if not settled:
            store.table.delete_work("order/1", work.id)
        await clock.advance(2 * LEASE_MS)

    assert ["settled" if settled else "stopped"] == ends


async def test_an_attempt_is_stopped_when_another_worker_has_claimed_its_work() -> None:
    work, clock, ends = _invoke("charge", {"id": "pay", "src": "charge", "type": "handler"}), VirtualClock(0), []
    store = TableStore(work)
    driver = SlowDelivery(store, clock)

    async def charge(attempt: Attempt) -> str:
        try:
            await clock.sleep_ms(10 * LEASE_MS)
        finally:
            ends.append(clock.now_ms())
        return "paid"

    async with _working(store, work, HandlerRunner({"charge": charge}, driver, clock).perform, clock):
        await clock.advance()
        store.table.claim("effect", ("charge",), owner="w2", now_ms=10**9, until_ms=2 * 10**9, limit=1)
        await clock.advance(LEASE_MS)

    assert ([LEASE_MS / 3], []) == (ends, driver.given)


async def test_the_lease_is_renewed_while_a_result_is_delivered() -> None:
    work, clock = _invoke("charge", {"id": "pay", "src": "charge", "type": "handler"}), VirtualClock(0)
    store = TableStore(work)
    driver = SlowDelivery(store, clock)
    kept = driver._kept

    async def slow(finishes: WorkId | None) -> None:
        await clock.sleep_ms(3 * LEASE_MS)
        await kept(finishes)

    driver._kept = slow  # type: ignore[method-assign]  # the store takes its time before it is durable
    async with _working(store, work, _paid(driver), clock):
        await clock.advance(2 * LEASE_MS)
        (row,) = store.table.list_work(WorkQuery()).rows
        await clock.advance(3 * LEASE_MS)

    assert ((1, "w1"), ["effect"]) == ((row.attempts, row.owner), driver.woken)
    assert row.next_ms is not None
    assert 2 * LEASE_MS < row.next_ms
    assert () == store.table.list_work(WorkQuery()).rows
