"""Events of `expect.then` on every store: sent once, to entities that are still in the state, and to no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import Runtime
from interlock.model.actor import Actor
from interlock.model.audit import actor_of_event
from interlock.model.journal.entry import Entry
from interlock.model.keys import expect_key
from interlock.model.limits import EXPECT_AGAIN_MS, EXPECT_LEASE_MS, EXPECT_SENT_MAX, HELD_WORK_MS_MIN, KEY_WINDOW_MS
from interlock.ports.store import EntityPage, EntityQuery, EntityRow
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.conformance.runtime.test_holds import STORES, place
from tests.support.eventually import eventually

ORDER = """
interlock: 1
kind: order
context: {count: {type: integer, default: 0}}
states:
  unpaid:
    expect: {within: 1m, then: late}
    on:
      late: {actions: [{assign: {count: "= context.count + 1"}}]}
      touch: {actions: [{assign: {count: "= context.count"}}]}
      pay: paid
  paid:
    on: {back: unpaid, late: lost}
  lost: {}
"""

MINUTE_MS = 60_000

CLOCKED = STORES[:-1]
"""The stores whose calls a virtual clock waits for."""


def late_entries(entries: tuple[Entry, ...]) -> list[Entry]:
    """The entries of the event."""
    return [each for each in entries if each.event.name == "late"]


async def count(runtime: Runtime, entity: str) -> int:
    """How often an entity got the event."""
    return len(late_entries(await runtime.journal(entity)))


def opened(url: str, clock: VirtualClock, text: str = ORDER, **fields: Any) -> Any:
    """Open a runtime with its worker."""
    return interlock.open(url, charts=[interlock.loads(text)], clock=clock, **fields)


@pytest.mark.parametrize("store", CLOCKED)
async def test_an_overdue_entity_gets_the_event_once_while_it_is_in_the_state(store: str, tmp_path: Path) -> None:
    """Not before the time, not again after the list is read again, and again when it has left and come back."""
    clock = VirtualClock()
    async with opened(place(store, tmp_path), clock) as runtime:
        await runtime.create("order/1")
        await runtime.create("order/2")
        await runtime.send("order/2", "pay")
        await clock.advance(MINUTE_MS)
        before = await count(runtime, "order/1")
        await clock.advance(2_000)
        after = [await count(runtime, each) for each in ("order/1", "order/2")]
        await clock.advance(3 * EXPECT_AGAIN_MS)
        later = await count(runtime, "order/1")
        await runtime.send("order/1", "pay")
        await runtime.send("order/1", "back")
        await clock.advance(MINUTE_MS + 2_000)
        second = await count(runtime, "order/1")

    assert (0, [1, 0], 1, 2) == (before, after, later, second)


@pytest.mark.parametrize("store", STORES[1:])
async def test_a_restarted_worker_does_not_send_the_event_again(store: str, tmp_path: Path) -> None:
    """The store knows the key. The list is in the order of age, so the third order is last."""
    url, text, chart = place(store, tmp_path), ORDER.replace("within: 1m", "within: 1ms"), interlock.loads
    async with interlock.open(url, charts=[chart(text)], work=False) as runtime:
        await runtime.create("order/1")
        await runtime.create("order/2")
        await runtime.send("order/2", "pay")
    async with interlock.open(url, charts=[chart(text)]) as runtime:
        await eventually(has_event(runtime, "order/1"))
    async with interlock.open(url, charts=[chart(text)], work=False) as runtime:
        await runtime.create("order/3")
    async with interlock.open(url, charts=[chart(text)]) as runtime:
        await eventually(has_event(runtime, "order/3"))

        assert [1, 0, 1] == [await count(runtime, f"order/{number}") for number in (1, 2, 3)]


def has_event(runtime: Runtime, entity: str) -> Callable[[], Awaitable[bool]]:
    """Return whether an entity got the event."""

    async def found() -> bool:
        return bool(await count(runtime, entity))

    return found


@pytest.mark.parametrize("store", CLOCKED)
async def test_a_held_entity_gets_the_event_after_the_resume(store: str, tmp_path: Path) -> None:
    clock = VirtualClock(autojump=True)
    async with opened(place(store, tmp_path), clock) as runtime:
        await runtime.create("order/1")
        await runtime.hold("order/1", reason="case 118")
        await clock.sleep_ms(5 * MINUTE_MS)
        held = await count(runtime, "order/1")
        await runtime.resume("order/1")
        await clock.sleep_ms(2 * HELD_WORK_MS_MIN)
        resumed = await count(runtime, "order/1")
        await runtime.create("order/2")
        await runtime.hold_kind("order", reason="case 119")
        await clock.sleep_ms(5 * MINUTE_MS)
        kind_held = await count(runtime, "order/2")
        await runtime.resume_kind("order")
        await clock.sleep_ms(2 * HELD_WORK_MS_MIN)

        assert (0, 1, 0, 1) == (held, resumed, kind_held, await count(runtime, "order/2"))


class SlowList(MemoryStore):
    """A store in which something happens to the entities of a list after it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[EntityRow], Awaitable[object]] | None = None

    async def find(self, query: EntityQuery) -> EntityPage:
        """List entities."""
        page = await super().find(query)
        meanwhile, limit = self.meanwhile, query.entered_before_ms
        if meanwhile is not None and limit is not None:
            self.meanwhile = None
            for row in page.rows:
                await meanwhile(row)
        return page


@asynccontextmanager
async def working(store: MemoryStore, clock: VirtualClock) -> AsyncIterator[Runtime]:
    """A runtime with a worker on a store."""
    chart = interlock.loads(ORDER)
    runtime = Runtime(store, ChartRegistry([chart.kernel]), clock=clock)
    worker = Worker(runtime, {})
    await worker.start()
    try:
        yield runtime
    finally:
        await worker.stop()
        await runtime.close()


async def test_the_event_does_not_reach_the_next_state() -> None:
    """The entity leaves the state after it was found. Its next state would take the event."""
    store, clock = SlowList(), VirtualClock()
    async with working(store, clock) as runtime:
        await runtime.create("order/1")
        await clock.advance(MINUTE_MS)
        store.meanwhile = lambda row: runtime.send(row.entity, "pay")
        await clock.advance(10 * MINUTE_MS)
        names = [each.event.name for each in await runtime.journal("order/1")]

    assert store.meanwhile is None
    assert ["_create", "pay"] == names


async def test_an_entity_that_changed_but_stays_is_found_again() -> None:
    store, clock = SlowList(), VirtualClock()
    async with working(store, clock) as runtime:
        await runtime.create("order/1")
        await clock.advance(MINUTE_MS)
        store.meanwhile = lambda row: runtime.send(row.entity, "touch")
        await clock.advance(MINUTE_MS)
        names = [each.event.name for each in await runtime.journal("order/1")]

    assert ["_create", "touch", "late"] == names


async def test_the_chart_sends_the_event_without_a_principal_and_past_its_roles() -> None:
    """As a timer does. Callers without the role are denied."""
    text = """
interlock: 1
kind: order
events: {late: {roles: [system]}, pay: {roles: [clerk]}}
states:
  unpaid: {expect: {within: 1m, then: late}, on: {late: lost, pay: lost}}
  lost: {}
"""
    clock = VirtualClock()
    async with opened("memory:", clock, text) as runtime:
        await runtime.create("order/1")
        refused = await runtime.send("order/1", "late", principal={"id": "bob", "roles": ["clerk"]})
        await clock.advance(MINUTE_MS + 2_000)
        (entry,) = late_entries(await runtime.journal("order/1"))

    assert "denied" == refused.outcome
    assert ("applied", ("lost",), None) == (entry.outcome, entry.after, entry.event.principal)
    assert expect_key("unpaid", 1_000_000) == entry.key
    assert Actor("worker", "system") == actor_of_event(entry.event)


async def test_more_entities_than_one_look_sends_are_all_reached() -> None:
    """Also those behind a whole page of entities that stay in the state after the event."""
    clock, total = VirtualClock(), EXPECT_SENT_MAX + 20
    async with opened("memory:", clock) as runtime:
        for number in range(total):
            await runtime.create(f"order/{number}")
        await clock.advance(2 * MINUTE_MS)
        counts = [await count(runtime, f"order/{number}") for number in range(total)]

    assert [1] * total == counts


async def test_an_entity_that_waited_before_there_was_a_worker_gets_the_event(tmp_path: Path) -> None:
    """Keys are older than the store remembers: who has not changed since cannot have got the event."""
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    async with opened(url, clock, work=False) as runtime:
        await runtime.create("order/still")
        await runtime.create("order/changed")
        await clock.advance(1_000)
        await runtime.send("order/changed", "touch")
    await clock.advance(KEY_WINDOW_MS + 2 * MINUTE_MS)
    async with opened(url, clock) as runtime:
        await clock.advance(MINUTE_MS)

        assert [1, 0] == [await count(runtime, each) for each in ("order/still", "order/changed")]


async def test_one_of_two_workers_sends_and_the_other_one_takes_over(tmp_path: Path) -> None:
    """The second one has no lease while the first one renews it, and gets it after that has stopped."""
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    async with opened(url, clock) as first:
        await clock.advance(1_000)
        async with opened(url, clock) as second:
            await clock.advance(1_000)
            assert second.store.leases is not None
            now_ms = clock.now_ms()
            other = await second.store.leases.acquire_lease(
                "expect/order", owner="other", now_ms=now_ms, until_ms=now_ms + 1
            )
            await first.close()
            await second.create("order/1")
            await clock.advance(MINUTE_MS + EXPECT_LEASE_MS)
            taken = await count(second, "order/1")

    assert (None, 1) == (other, taken)


async def test_a_chart_without_events_for_overdue_states_takes_no_lease(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    text = ORDER.replace("then: late", "then: alert")
    async with opened(url, clock, text) as runtime:
        await runtime.create("order/1")
        await clock.advance(5 * MINUTE_MS)
        now_ms = clock.now_ms()
        assert runtime.store.leases is not None
        lease = await runtime.store.leases.acquire_lease(
            "expect/order", owner="other", now_ms=now_ms, until_ms=now_ms + 1
        )

        assert 1 == len(await runtime.journal("order/1"))
        assert lease is not None


async def test_an_entity_that_its_next_step_moves_gets_the_event_after_the_move(tmp_path: Path) -> None:
    """The move changes the version, so the event waits for the next look; the time in the state goes on."""
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()
    async with opened(url, clock, work=False) as runtime:
        await runtime.create("order/1")
    await clock.advance(2 * MINUTE_MS)
    newer = interlock.loads(ORDER.replace("context.count + 1", "context.count + 2"))
    charts = [interlock.loads(ORDER), newer]
    async with interlock.open(url, charts=charts, clock=clock, upgrade="safe") as runtime:
        await clock.advance(MINUTE_MS)
        entries = await runtime.journal("order/1")
        snapshot = await runtime.state("order/1")

    assert ["_create", "_revision.moved", "late"] == [each.event.name for each in entries]
    assert {"count": 2} == snapshot.context
