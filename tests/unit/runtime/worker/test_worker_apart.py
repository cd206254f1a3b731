"""Workers that lack charts or handlers, and results that no caller could send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import interlock
from interlock import Runtime
from interlock.effects.handlers import Attempt, Handler
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.worker.worker import Worker
from interlock.testing.clock import VirtualClock
from tests.unit.runtime.scene import WithoutDefinitions

DOOR = "{interlock: 1, kind: door, initial: shut, states: {shut: {}}}"

LAMP = "{interlock: 1, kind: lamp, initial: lit, states: {lit: {after: {1m: dark}}, dark: {}}}"

PARENT = """
interlock: 1
kind: vm
initial: starting
states:
  starting: {invoke: {id: net, type: chart, src: network, onDone: up, onError: broken}}
  up: {}
  broken: {}
"""

CHILD = """
interlock: 1
kind: network
initial: making
states:
  making: {on: {made: ready}}
  ready: {type: final}
"""

TELLER = """
interlock: 1
kind: teller
initial: idle
states:
  idle: {on: {tell: {actions: [{send: {event: touched, to: lamp/1}}]}}}
"""

PAID = """
interlock: 1
kind: order
initial: charging
states:
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid, onError: declined}}
  paid: {}
  declined: {}
"""

GUARDED = """
interlock: 1
kind: claim
events:
  closed: {roles: [clerk], payload: {number: integer}, dedupe: "= event.data.number"}
initial: open
states:
  open:
    entry:
      - send: {event: closed, data: {number: 7}, delay: 1m}
    on: {closed: {actions: [{assign: {closings: "= context.closings + 1"}}]}}
context: {closings: {type: integer, default: 0}}
"""


class Shared:
    """A store that several processes work on, one after the other."""

    def __init__(self) -> None:
        self.store = WithoutDefinitions()
        self.clock = VirtualClock()

    def idle(self, *charts: str) -> Runtime:
        """A process with some charts that performs nothing."""
        return Runtime(self.store, ChartRegistry(interlock.loads(text).kernel for text in charts), self.clock)

    @asynccontextmanager
    async def working(self, *charts: str, **handlers: Handler) -> AsyncIterator[Runtime]:
        """A process with some charts that performs what it finds."""
        runtime = self.idle(*charts)
        worker = Worker(runtime, {f"payment.{name}": each for name, each in handlers.items()})
        await worker.start()
        try:
            yield runtime
        finally:
            await worker.stop()

    async def left(self) -> list[str]:
        """Return the names of the unfinished work."""
        return [each.work.name for each in (await self.store.list_work(WorkQuery(dead=False))).rows]


async def test_a_timer_waits_for_a_process_that_has_its_chart() -> None:
    """A process with other charts, on the same store, finds it due and leaves it to others."""
    shared = Shared()
    await shared.idle(LAMP).create("lamp/1")
    shared.clock.time_ms += 60_000
    async with shared.working(DOOR):
        await shared.clock.advance(3_000)

        assert 1 == len(await shared.left())
    async with shared.working(LAMP) as lamps:
        await shared.clock.advance(3_000)

        assert ("dark",) == (await lamps.state("lamp/1")).configuration


async def test_a_send_waits_for_a_process_that_has_the_targets_chart() -> None:
    shared = Shared()
    both = shared.idle(TELLER, LAMP)
    await both.create("lamp/1")
    await both.create("teller/1")
    await both.send("teller/1", "tell")
    async with shared.working(TELLER) as tellers:
        await shared.clock.advance(3_000)

        assert "entity/lamp/1" in await shared.left()
        assert 2 == (await tellers.state("teller/1")).version


@pytest.mark.parametrize("here", [PARENT, CHILD], ids=["parent", "child"])
async def test_the_answer_of_a_child_waits_for_a_process_that_has_both_charts(here: str) -> None:
    """A process with one of the two cannot know whose answer it is, so it drops nothing."""
    shared = Shared()
    async with shared.working(PARENT, CHILD) as both:
        await both.create("vm/1")
        await shared.clock.advance(1_000)
    (child,) = (await shared.store.find(EntityQuery(kind="network"))).rows
    await shared.idle(CHILD).send(child.entity, "made")
    async with shared.working(here):
        await shared.clock.advance(3_000)

        assert {"_child", "entity/vm/1"} == set(await shared.left())
    async with shared.working(PARENT, CHILD) as both:
        await shared.clock.advance(3_000)

        assert ("up",) == (await both.state("vm/1")).configuration


async def test_a_timer_needs_neither_a_role_nor_a_new_key() -> None:
    shared = Shared()
    async with shared.working(GUARDED) as claims:
        await claims.create("claim/1")
        sent = await claims.send("claim/1", "closed", {"number": 7}, principal={"id": "ada", "roles": ["clerk"]})
        await shared.clock.advance(61_000)
        snapshot = await claims.state("claim/1")

    assert "applied" == sent.outcome
    assert (2, ()) == (snapshot.context["closings"], snapshot.timers)


async def test_a_handler_waits_for_a_process_that_can_deliver_its_result() -> None:
    shared, asked = Shared(), list[str]()

    async def charge(attempt: Attempt) -> None:
        asked.append(attempt.key)

    await shared.idle(PAID).create("order/1")
    async with shared.working(DOOR, charge=charge):
        await shared.clock.advance(100_000)

        assert [] == asked
    async with shared.working(PAID, charge=charge) as orders:
        await shared.clock.advance(3_000)

        assert (["order/1/1/0"], ("paid",)) == (asked, (await orders.state("order/1")).configuration)
