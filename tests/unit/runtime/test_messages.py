"""Entries create messages, and the worker publishes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import RejectedError, UnavailableError, UsageError
from interlock.model.journal.message import Message
from interlock.ports.work import WorkQuery
from interlock.runtime.message_setting import CHECKED_MS, MESSAGES_FACT, bus_of, shown_address, turn_off
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock

ORDER = """
interlock: 1
kind: order
context: {n: {type: integer, default: 0}}
initial: unpaid
states:
  unpaid:
    on:
      pay: {target: paid, actions: [{emit: {type: order.paid, data: {n: "= context.n"}}}]}
      count: {actions: [{assign: {n: "= context.n + 1"}}]}
      tell: {actions: [{send: {event: heard, to: ear/1}}]}
      watch: watched
  paid: {type: final}
  watched:
    sensitive: true
    initial: deep
    states: {deep: {on: {count: {actions: [{assign: {n: "= context.n + 1"}}, {emit: {type: order.seen}}]}}}}
    on: {leave: unpaid}
"""
EAR = "interlock: 1\nkind: ear\ninitial: open\nstates: {open: {on: {heard: full}}, full: {}}"


class MoodyBus(MemoryBus):
    """A bus that can be set to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Callable[[Message], Exception | None] = lambda message: None

    async def publish(self, message: Message) -> None:
        """Fail as configured, or accept it."""
        problem = self.problem(message)
        if problem is not None:
            raise problem
        await super().publish(message)


def charts() -> list[interlock.BoundChart]:
    """An order, and an ear."""
    return [interlock.loads(ORDER), interlock.loads(EAR)]


def told(bus: MemoryBus) -> list[tuple[str, str]]:
    """Ids and types of what the bus has."""
    return [(each.id, each.type) for each in bus.messages]


async def left_over(runtime: interlock.Runtime) -> list[tuple[str, Any]]:
    """The messages that still wait, by key, each with its problem."""
    assert runtime.store.work is not None
    page = await runtime.store.work.list_work(WorkQuery(lane="message"))
    return [(f"{row.entity}/{row.work.id.version}", row.error and row.error["code"]) for row in page.rows]


async def test_every_entry_is_published_after_the_messages_it_emits() -> None:
    bus, clock = MemoryBus(), VirtualClock()
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "count")
        await orders.send("order/1", "pay")
        await clock.advance(1_000)

        assert [] == await left_over(orders)
    assert [
        ("order/1/1/0", "order.state.changed"),
        ("order/1/2/0", "order.context.changed"),
        ("order/1/3/0", "order.paid"),
        ("order/1/3/1", "order.state.changed"),
    ] == told(bus)
    assert [str(each.sequence) for each in bus.messages] == sorted(str(each.sequence) for each in bus.messages)


async def test_refusals_leave_no_message() -> None:
    """Nothing happened."""
    bus, clock = MemoryBus(), VirtualClock()
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        await orders.create("order/1", key="k")
        await orders.create("order/1", key="k")
        await orders.send("order/1", "leave")
        await clock.advance(1_000)

    assert 1 == len(bus.messages)


async def test_without_a_bus_nothing_is_left() -> None:
    """The table would only grow."""
    async with interlock.open("memory:", charts=charts()) as orders:
        await orders.create("order/1")

        assert [] == await left_over(orders)


async def test_a_hidden_state_publishes_only_the_messages_of_the_chart() -> None:
    bus, clock = MemoryBus(), VirtualClock()
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        await orders.create("order/1")
        for event in ("watch", "count", "leave", "count"):
            await orders.send("order/1", event)
        await clock.advance(1_000)

    assert ["order.state.changed", "order.seen", "order.context.changed"] == [each.type for each in bus.messages]


async def test_while_the_bus_is_unreachable_events_between_entities_continue_and_messages_wait() -> None:
    bus, clock = MoodyBus(), VirtualClock()
    bus.problem = lambda message: UnavailableError("away", code="bus.away")
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        await orders.create("ear/1")
        await orders.create("order/1")
        await orders.send("order/1", "tell")
        for _ in range(15):
            await clock.advance(60_000)
        heard = await orders.state("ear/1")
        waiting = await left_over(orders)
        bus.problem = lambda message: None
        await clock.advance(60_000)

        assert ("full",) == heard.configuration
        assert 4 == len(waiting)
        assert {None, "bus.away"} >= {code for _, code in waiting}
        assert [] == await left_over(orders)
    assert ["order/1/1/0", "order/1/2/1"] == [each.id for each in bus.messages if each.kind == "order"]


async def test_a_rejected_message_is_a_dead_letter_and_the_next_is_published() -> None:
    bus, clock = MoodyBus(), VirtualClock()
    bus.problem = lambda message: (
        RejectedError("too large", code="bus.size", hint="emit less") if message.type == "order.paid" else None
    )
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        await orders.create("order/1")
        await orders.send("order/1", "pay")
        await clock.advance(1_000)

        assert orders.store.work is not None
        (dead,) = (await orders.store.work.list_work(WorkQuery(dead=True))).rows
        assert {"code": "bus.size", "message": "too large", "hint": "emit less"} == dead.error
    assert ["order/1/1/0", "order/1/2/1"] == [each.id for each in bus.messages]


async def test_a_failing_message_blocks_only_its_own_entity() -> None:
    bus, clock = MoodyBus(), VirtualClock()
    refused = interlock.DeniedError("no right", code="bus.denied")
    bus.problem = lambda message: refused if message.subject == "order/1" else None
    async with interlock.open("memory:", charts=charts(), clock=clock, bus=bus) as orders:
        for entity in ("order/1", "order/2"):
            await orders.create(entity)
            await orders.send(entity, "count")
        await clock.advance(30_000)
        others = [each.subject for each in bus.messages]
        waiting = await left_over(orders)
        await clock.advance(1_200_000)
        dead = await left_over(orders)

    assert ["order/2", "order/2"] == others
    assert [("order/1/1", "bus.denied"), ("order/1/2", None)] == waiting
    assert [("order/1/1", "bus.denied"), ("order/1/2", "bus.denied")] == dead


async def test_a_store_without_work_refuses_a_bus() -> None:
    class Plain(MemoryStore):
        work = None  # type: ignore[assignment]  # the point

    opening = interlock.open("memory:", charts=charts(), bus=MemoryBus())
    opening._opener = lambda url: Plain()
    with pytest.raises(UsageError) as caught:
        async with opening:
            pass

    assert "store.work" == caught.value.code


@pytest.mark.parametrize("bus", [5, object(), "nats://127.0.0.1", "nowhere"])
def test_an_invalid_bus_is_refused_by_open(bus: Any) -> None:
    with pytest.raises(UsageError):
        interlock.open("memory:", charts=charts(), bus=bus)


async def test_a_running_process_follows_the_setting_of_the_store(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/orders.db", VirtualClock()

    async def waiting(runtime: interlock.Runtime) -> set[str]:
        assert runtime.store.work is not None
        rows = (await runtime.store.work.list_work(WorkQuery(lane="message"))).rows
        return {each.entity for each in rows}

    async with interlock.open(url, charts=charts(), work=False, clock=clock) as web:
        await web.create("order/1")
        async with interlock.open(url, charts=charts(), bus=MemoryBus(), work=False):
            assert "" == await bus_of(web.store)  # an object has no address
        await web.create("order/2")  # it has read the setting just before
        await clock.advance(CHECKED_MS)
        await web.create("order/3")
        assert {"order/3"} == await waiting(web)
        await turn_off(web.store)
        await clock.advance(CHECKED_MS)
        await web.create("order/4")
        assert {"order/3"} == await waiting(web)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("nats://ada:secret@host:4222,other:4222?stream=orders&token=t", "nats://host:4222,other:4222"),
        ("https://hooks.example/orders#secret=NAME", "https://hooks.example/orders"),
        ("memory:", "memory:"),
    ],
)
def test_the_setting_contains_no_secret(address: str, shown: str) -> None:
    assert shown == shown_address(address)


async def test_a_damaged_setting_still_publishes() -> None:
    store = MemoryStore()
    await store.save_fact(MESSAGES_FACT, "{")
    assert "" == await bus_of(store)
    await store.save_fact(MESSAGES_FACT, "[]")
    assert "" == await bus_of(store)
    await store.save_fact(MESSAGES_FACT, None)
    assert await bus_of(store) is None
