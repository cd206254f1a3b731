"""The whole runtime on a PostgreSQL server: any process runs effects, and results come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import interlock
from interlock import BoundChart, Runtime
from interlock.effects.handlers import Attempt
from interlock.ports.work import WorkQuery
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.postgres_server import store_or_skip

ORDER = """
interlock: 1
kind: order
context: {receipt: {type: string, nullable: true, default: null}, why: {type: string, default: ""}}
initial: unpaid
states:
  unpaid: {on: {pay: charging}}
  charging:
    invoke:
      id: charge
      src: payment.charge
      retry: {max: 2, backoff: 10ms, jitter: none}
      onDone: {target: paid, actions: [{assign: {receipt: "= event.data.receipt"}}]}
      onError: {target: declined, actions: [{assign: {why: "= event.data.code"}}]}
    on: {cancel: cancelled}
  paid: {entry: [receipt.mail], after: {20ms: archived}}
  declined: {}
  cancelled: {}
  archived: {}
"""

VM = """
interlock: 1
kind: vm
initial: starting
states:
  starting:
    invoke: {id: net, type: chart, src: network, onDone: up, onError: broken}
    on: {poke: {actions: [{send: {event: poked, to: net}}]}}
  up: {}
  broken: {}
"""

NETWORK = """
interlock: 1
kind: network
context: {pokes: {type: integer, default: 0}}
initial: making
states:
  making:
    always: {target: ready, guard: "= context.pokes >= 3"}
    on: {poked: {actions: [{assign: {pokes: "= context.pokes + 1"}}]}}
  ready: {type: final}
"""


Charge = Callable[[Attempt], Awaitable[dict[str, str]]]


class Bank:
    """A payment service that honours keys, and fails as configured."""

    def __init__(self, *failures: Exception) -> None:
        self.asked: list[str] = []
        self.deeds: set[str] = set()
        self.mails: list[str] = []
        self._failures = list(failures)

    async def charge(self, attempt: Attempt) -> dict[str, str]:
        """Charges once per key."""
        self.asked.append(attempt.key)
        if self._failures:
            raise self._failures.pop(0)
        self.deeds.add(attempt.key)
        return {"receipt": f"r-{attempt.key}"}

    async def mail(self, attempt: Attempt) -> None:
        """Sends a mail."""
        self.mails.append(attempt.key)


def order(bank: Bank, charge: Charge | None = None) -> BoundChart:
    """The order with its handlers."""
    chart = interlock.loads(ORDER)
    chart.handler("payment.charge")(charge or bank.charge)
    chart.handler("receipt.mail")(bank.mail)
    return chart


@asynccontextmanager
async def working(url: str, bank: Bank, charge: Charge | None = None) -> AsyncIterator[Runtime]:
    """A runtime that performs the work of orders."""
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(url, charts=[order(bank, charge)]) as runtime:
        yield runtime


async def reached(runtime: Runtime, entity: str, state: str) -> None:
    """Wait until an entity was in a state."""
    async for entry in runtime.watch(entity, poll_ms=20):
        if state in entry.after:
            return


async def rest(runtime: Runtime) -> list[str]:
    """The names of the work that is left."""
    assert runtime.store.work is not None
    return [each.work.name for each in (await runtime.store.work.works(WorkQuery())).rows]


async def nothing_is_left(runtime: Runtime) -> None:
    """Wait until all work is done."""

    async def is_done() -> bool:
        return not await rest(runtime)

    await eventually(is_done)


@pytest.fixture
def url() -> str:
    """Where the store of a test lies."""
    return store_or_skip()


async def test_an_invoke_an_action_and_a_timer_run(url: str) -> None:
    bank = Bank()
    async with working(url, bank) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await reached(runtime, "order/1", "archived")
        await nothing_is_left(runtime)
        snapshot = await runtime.state("order/1")

    assert (["order/1/2/0"], ["order/1/3/0"]) == (bank.asked, bank.mails)
    assert "r-order/1/2/0" == snapshot.context["receipt"]


async def test_a_failing_handler_is_tried_again_under_one_key(url: str) -> None:
    bank = Bank(ConnectionError("one"), ConnectionError("two"))
    async with working(url, bank) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await reached(runtime, "order/1", "paid")

    assert (["order/1/2/0"] * 3, {"order/1/2/0"}) == (bank.asked, bank.deeds)


async def test_a_failure_for_good_reaches_the_chart(url: str) -> None:
    bank = Bank(*[ConnectionError("gone")] * 3)
    async with working(url, bank) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await reached(runtime, "order/1", "declined")
        left = await rest(runtime)
        snapshot = await runtime.state("order/1")

    assert ("ConnectionError", []) == (snapshot.context["why"], left)


async def test_work_survives_the_process_that_left_it(url: str) -> None:
    bank = Bank()
    async with interlock.open(url, charts=[order(bank)], work=False) as sender:
        await sender.create("order/1")
        await sender.send("order/1", "pay")
        left = await rest(sender)
    async with working(url, bank) as runtime:
        await reached(runtime, "order/1", "paid")

    assert (["payment.charge"], ["order/1/2/0"]) == (left, bank.asked)


async def test_two_workers_share_the_work_and_do_each_piece_once(url: str) -> None:
    bank, names = Bank(), [f"order/{each}" for each in range(20)]
    async with working(url, bank) as one, working(url, bank) as two:
        await asyncio.gather(*(one.create(each) for each in names))
        await asyncio.gather(*((one, two)[n % 2].send(each, "pay") for n, each in enumerate(names)))
        await asyncio.gather(*(reached(one, each, "archived") for each in names))
        await nothing_is_left(one)

    assert (20, 20, 20) == (len(bank.deeds), len(bank.asked), len(bank.mails))


async def test_leaving_a_state_cancels_its_handler(url: str) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang(attempt: Attempt) -> dict[str, str]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    chart = order(Bank(), hang)
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(url, charts=[chart], lease_ms=300) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await begun.wait()
        await runtime.send("order/1", "cancel")
        await stopped.wait()
        await nothing_is_left(runtime)

        assert ("cancelled",) == (await runtime.state("order/1")).configuration


async def test_a_child_receives_events_in_order_and_returns_a_result(url: str) -> None:
    charts = [interlock.loads(VM), interlock.loads(NETWORK)]
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open(url, charts=charts) as runtime:
        await runtime.create("vm/1")
        for _ in range(3):
            await runtime.send("vm/1", "poke")
        await reached(runtime, "vm/1", "up")
        await nothing_is_left(runtime)
        (child,) = (await runtime.list(interlock.EntityQuery(kind="network"))).rows

        assert ("done", 3) == (child.ended, (await runtime.state(child.entity)).context["pokes"])
