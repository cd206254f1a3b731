"""Holds on every store: what waits while an entity or a kind is held, what does not, and what a resume does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import EntityQuery, Runtime
from interlock.errors import RejectedError, UnavailableError, UsageError
from interlock.observe.audit import export_audit
from interlock.observe.stuck import stuck_entities
from interlock.ports.clock import SystemClock
from interlock.ports.work import WorkQuery
from interlock.runtime.holds.held_work import NOTE
from interlock.runtime.worker.worker import Worker
from interlock.testing.clock import VirtualClock
from tests.support import postgres_server
from tests.support.eventually import eventually

ORDER = """
interlock: 1
kind: order
context: {count: {type: integer, default: 0}}
states:
  open:
    expect: {within: 1ms}
    on:
      charge: charging
      count: {actions: [{assign: {count: "= context.count + 1"}}]}
      wait: waiting
      tell: {target: told, actions: [{send: {event: heard, to: letter/1}}]}
  charging: {invoke: {src: charge, onDone: paid, onError: failed}}
  paid: {entry: [receipt], after: {300ms: late}}
  waiting: {after: {300ms: late}}
  told: {}
  late: {}
  failed: {type: final}
"""

LETTER = """
interlock: 1
kind: letter
states:
  unread: {on: {heard: read}}
  read: {}
"""

STORES = ("memory", "sqlite", "files", "postgresql")
ANN = {"id": "ann"}


def place(store: str, folder: Path) -> str:
    """The address of a new store."""
    if store == "postgresql":
        return postgres_server.store_or_skip()
    return {"memory": "memory:", "sqlite": f"sqlite:///{folder}/orders.db", "files": f"file:{folder}/orders"}[store]


class Bank:
    """Handlers that record their calls; a charge waits until it may end."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.receipts: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def charge(self, attempt: interlock.Attempt) -> None:
        """Charge an order."""
        self.charged.append(attempt.entity)
        await self.may_end.wait()

    async def receipt(self, attempt: interlock.Attempt) -> None:
        """Send a receipt."""
        self.receipts.append(attempt.entity)

    def charts(self) -> list[Any]:
        """The charts, with these handlers."""
        order = interlock.loads(ORDER)
        order.handler("charge")(self.charge)
        order.handler("receipt")(self.receipt)
        return [order, interlock.loads(LETTER)]


def put_back(runtime: Runtime, entity: str) -> Callable[[], Awaitable[bool]]:
    """Return whether all work of an entity waits for the end of a hold."""

    async def found() -> bool:
        assert runtime.store.work is not None
        rows = (await runtime.store.work.list_work(WorkQuery(entity=entity))).rows
        return bool(rows) and all(isinstance(each.error, dict) and NOTE in each.error for each in rows)

    return found


def is_in(runtime: Runtime, entity: str, state: str) -> Callable[[], Awaitable[bool]]:
    """Return whether an entity is in a state."""

    async def found() -> bool:
        return (await runtime.state(entity)).matches(state)

    return found


async def refusal(call: Awaitable[Any]) -> str:
    """Return the code with which a call has to wait."""
    with pytest.raises(UnavailableError) as refused:
        await call
    assert refused.value.retry_after_ms is not None
    return refused.value.code


@pytest.mark.parametrize("store", STORES)
async def test_the_work_of_a_held_entity_waits_and_runs_once_after_the_resume(store: str, tmp_path: Path) -> None:
    """A running attempt ends, and what it causes waits; so do timers and sends. Other entities go on."""
    bank = Bank()
    bank.may_end.clear()
    async with interlock.open(place(store, tmp_path), charts=bank.charts()) as runtime:
        for name in ("held", "told", "free"):
            await runtime.create(f"order/{name}")
        await runtime.create("letter/1")
        await runtime.send("order/held", "charge", key="k-1")
        await eventually(lambda: bank.charged)
        held = ("order/held", "letter/1")
        await asyncio.gather(*(runtime.hold(each, reason="case 118", principal=ANN) for each in held))

        assert "entity.held" == await refusal(runtime.send("order/held", "count", key="k-2"))
        assert "duplicate" == (await runtime.send("order/held", "charge", key="k-1")).outcome
        bank.may_end.set()
        await eventually(is_in(runtime, "order/held", "paid"), "the result of the running attempt")
        await eventually(put_back(runtime, "order/held"), "the receipt and the timer wait")
        await runtime.send("order/told", "tell")
        await runtime.send("order/free", "charge")
        await eventually(lambda: bank.receipts == ["order/free"])
        await eventually(is_in(runtime, "order/free", "late"))
        assert ("unread",) == (await runtime.state("letter/1")).configuration

        found = {each.name: (each.by, each.reason) for each in await runtime.holds()}
        assert {"order/held": ("ann", "case 118"), "letter/1": ("ann", "case 118")} == found
        for each in ("order/held", "letter/1"):
            assert await runtime.resume(each, reason="cleared", principal=ANN)
        await eventually(is_in(runtime, "order/held", "late"))
        await eventually(is_in(runtime, "letter/1", "read"))
        await eventually(lambda: sorted(bank.receipts) == ["order/free", "order/held"])
        assert (["order/held", "order/free"], ()) == (bank.charged, await runtime.holds())
        for entity in ("order/held", "letter/1"):
            assert (await runtime.verify(entity)).problem is None


@pytest.mark.parametrize("store", STORES)
async def test_a_held_kind_accepts_no_event_and_no_new_entity_and_starts_nothing(store: str, tmp_path: Path) -> None:
    """Another process, with handlers, follows. The audit has who held it and why, in the write of the act."""
    bank, address = Bank(), place(store, tmp_path)
    async with interlock.open(address, charts=bank.charts(), work=False) as operator:
        await operator.create("order/1")
        await operator.create("letter/1")
        await operator.send("order/1", "wait")
        hold = await operator.hold_kind("order", reason="charges are lost", principal=ANN)
        assert ("order", "ann", "charges are lost", True) == (hold.name, hold.by, hold.reason, hold.is_kind)
        async with working(operator, address, bank) as worker:
            await eventually(put_back(worker, "order/1"), "the timer waits")
            assert "kind.held" == await refusal(worker.send("order/1", "count"))
            assert "kind.held" == await refusal(worker.create("order/2"))
            assert ("waiting",) == (await worker.state("order/1")).configuration
        assert (hold,) == await operator.holds()
        assert hold == await operator.hold_kind("order", reason="again")
        assert "applied" == (await operator.send("letter/1", "heard")).outcome

        assert await operator.resume_kind("order", reason="fixed", principal=ANN)
        assert not await operator.resume_kind("order")
        async with working(operator, address, bank) as worker:
            await eventually(is_in(worker, "order/1", "late"))
        assert "applied" == (await operator.create("order/2")).outcome
        acts = [each async for each in export_audit(operator.store) if each.event in ("_hold", "_resume")]
        assert [("_hold", "ann"), ("_resume", "ann")] == [(each.event, each.actor_id) for each in acts]


@asynccontextmanager
async def working(operator: Runtime, address: str, bank: Bank) -> AsyncIterator[Runtime]:
    """A process that runs effects on the same store; in memory, the worker of the same process."""
    if address != "memory:":
        async with interlock.open(address, charts=bank.charts()) as runtime:
            yield runtime
        return
    worker = Worker(operator, {})
    await worker.start()
    yield operator
    await worker.stop()


TIMERS = """
interlock: 1
kind: lease
states:
  a:
    after:
      1h: {target: over}
      2h: {target: over}
      3h: {target: over}
  over: {type: final}
""".replace("2h: {", "2h: {onRestore: remaining, ").replace("3h: {", "3h: {onRestore: restart, ")


@pytest.mark.parametrize("store", STORES[:3])
@pytest.mark.parametrize(("timers", "due"), [("deadline", (60, 150, 210)), ("shift", (90, 150, 210))])
async def test_a_resume_shifts_timers_as_they_say(
    store: str, timers: Any, due: tuple[int, ...], tmp_path: Path
) -> None:
    """A hold from minute 10 to 40: remaining time goes on, a restart begins at minute 30 of the clock of the hold."""
    minute = 60_000
    clock = VirtualClock(SystemClock().now_ms(), autojump=True)
    async with interlock.open(
        place(store, tmp_path), charts=[interlock.loads(TIMERS)], clock=clock, work=False
    ) as leases:
        start_ms = clock.now_ms()
        await leases.create("lease/1")
        await clock.sleep_ms(10 * minute)
        hold = await leases.hold("lease/1", reason="why")
        await clock.sleep_ms(30 * minute)
        assert await leases.resume("lease/1", timers=timers)

        held_ms = clock.now_ms() - hold.at_ms
        found = [each.due_ms - start_ms for each in (await leases.state("lease/1")).timers]
        assert abs(held_ms - 30 * minute) < 5_000
        expected = (60 * minute + (held_ms if timers == "shift" else 0), 120 * minute + held_ms)
        assert expected == tuple(found[:2])
        assert abs(found[2] - (40 + 180) * minute) < 5_000
        assert (await leases.verify("lease/1")).problem is None


@pytest.mark.parametrize("timers", ["deadline", "shift"])
async def test_timers_of_a_resumed_kind_fire_late_or_later(timers: Any) -> None:
    clock = VirtualClock(SystemClock().now_ms(), autojump=True)
    chart = interlock.loads("{interlock: 1, kind: lease, states: {a: {after: {1h: b}}, b: {}}}")
    async with interlock.open("memory:", charts=[chart], clock=clock) as leases:
        start_ms = clock.now_ms()
        await leases.create("lease/1")
        await clock.sleep_ms(1_800_000)
        hold = await leases.hold_kind("lease", reason="why")
        await clock.sleep_ms(7_200_000)
        assert ("a",) == (await leases.state("lease/1")).configuration
        resumed_ms = clock.now_ms()
        await leases.resume_kind("lease", timers=timers)
        await clock.sleep_ms(14_400_000)

        fired = (await leases.journal("lease/1"))[-1].event.time_ms
        earliest = start_ms + 3_600_000 + (resumed_ms - hold.at_ms if timers == "shift" else 0)
        assert max(earliest, resumed_ms) <= fired <= max(earliest, resumed_ms) + 10_000


async def test_a_filter_holds_what_it_finds_and_not_what_has_ended() -> None:
    clock = VirtualClock(SystemClock().now_ms(), autojump=True)
    bank = Bank()
    async with interlock.open("memory:", charts=bank.charts(), clock=clock, work=False) as runtime:
        for number in range(30):
            await runtime.create(f"order/{number}")
        for number in range(10):
            await runtime.send(f"order/{number}", "wait")
        query = EntityQuery(kind="order", state="waiting")

        assert 10 == await runtime.hold_matching(query, reason="case 118", principal=ANN)
        assert 0 == await runtime.hold_matching(query, reason="case 118")
        page = await runtime.list(EntityQuery(kind="order", tag=":held"))
        assert {f"order/{number}" for number in range(10)} == {each.entity for each in page.rows}
        stuck = {each.entity for each in await stuck_entities(runtime, "order", 100)}
        assert {f"order/{number}" for number in range(10, 30)} == stuck
        assert 10 == await runtime.resume_matching(EntityQuery(kind="order"), reason="cleared")
        assert () == await runtime.holds()


async def test_only_the_driver_holds_and_a_hold_needs_an_entity_that_lives() -> None:
    clock = VirtualClock(SystemClock().now_ms(), autojump=True)
    chart = interlock.loads("{interlock: 1, kind: job, states: {a: {on: {stop: b}}, b: {type: final}}}")
    async with interlock.open("memory:", charts=[chart], clock=clock) as jobs:
        await jobs.create("job/1")
        for event in ("_hold", "_resume"):
            with pytest.raises(UsageError) as refused:
                await jobs.send("job/1", event)
            assert "event.reserved" == refused.value.code
        await jobs.hold("job/1", reason="why")
        assert "entity.held" == await refusal(jobs.dry_run("job/1", "stop"))
        assert await jobs.resume("job/1")
        assert not await jobs.resume("job/1")
        await jobs.send("job/1", "stop")
        with pytest.raises(RejectedError) as ended:
            await jobs.hold("job/1", reason="why")
        assert "entity.ended" == ended.value.code
        with pytest.raises(UsageError) as builtin:
            await jobs.hold_kind("interlock-job", reason="why")
        assert "hold.builtin" == builtin.value.code
