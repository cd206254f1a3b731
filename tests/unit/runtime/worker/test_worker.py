"""The whole runtime: effects run, and their results come back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock import BoundChart, Runtime
from interlock.effects.handlers import Attempt
from interlock.errors import UnavailableError, UsageError
from interlock.model.limits import ATTEMPTS_MAX, POLL_MS_MAX
from interlock.observe.work_status import retries_max
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry, child_entity
from interlock.runtime.worker.worker import Worker
from interlock.shm import Lifecycle, MemoryRegion
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.support.audit import audit_rows
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking

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
      input: {amount: 3}
      retry: {max: 2, backoff: 1s, jitter: none}
      timeout: 10s
      onDone: {target: paid, actions: [{assign: {receipt: "= event.data.receipt"}}]}
      onError: {target: declined, actions: [{assign: {why: "= event.data.code"}}]}
    on: {cancel: cancelled}
    after: {1m: stuck}
  paid: {entry: [receipt.mail], after: {1h: archived}}
  declined: {}
  stuck: {}
  cancelled: {type: final}
  archived: {type: final}
"""

VM = """
interlock: 1
kind: vm
initial: starting
states:
  starting:
    invoke: {id: net, type: chart, src: network, input: {size: 2}, onDone: up, onError: broken}
    on: {stop: stopped, poke: {actions: [{send: {event: poked, to: net}}]}}
  up: {}
  broken: {}
  stopped: {}
"""

NETWORK = """
interlock: 1
kind: network
context: {size: {type: integer, required: true}, pokes: {type: integer, default: 0}}
initial: making
states:
  making: {on: {made: ready, poked: {actions: [{assign: {pokes: "= context.pokes + 1"}}]}}}
  ready: {type: final, output: {size: "= context.size"}}
"""


class Bank:
    """A payment service that honours keys, and fails as configured."""

    def __init__(self) -> None:
        self.deeds: dict[str, int] = {}
        self.asked: list[str] = []
        self.mails: list[str] = []
        self.mailed = asyncio.Event()
        self.failures: list[Exception] = []

    async def charge(self, attempt: Attempt) -> dict[str, str]:
        """Charges once per key."""
        self.asked.append(attempt.key)
        if self.failures:
            raise self.failures.pop(0)
        self.deeds[attempt.key] = attempt.input["amount"]
        return {"receipt": f"r-{attempt.key}"}

    async def mail(self, attempt: Attempt) -> None:
        """Sends a mail."""
        self.mails.append(attempt.key)
        self.mailed.set()


def order_chart(bank: Bank) -> BoundChart:
    """The order with its handlers."""
    chart = interlock.loads(ORDER)
    chart.handler("payment.charge")(bank.charge)
    chart.handler("receipt.mail")(bank.mail)
    return chart


@asynccontextmanager
async def orders(url: str, bank: Bank, clock: VirtualClock | None = None) -> AsyncIterator[Runtime]:
    """A runtime for orders that performs its work."""
    async with interlock.open(url, charts=[order_chart(bank)], clock=clock) as runtime:
        yield runtime


async def until(runtime: Runtime, entity: str, *states: str) -> None:
    """Wait, for twenty seconds at most, until an entity is in one of these states."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for entry in runtime.watch(entity, poll_ms=20):
            if set(entry.after) & set(states):
                return


async def rows(runtime: Runtime) -> list[tuple[str, str]]:
    """The work that is left: lane and name."""
    assert runtime.store.work is not None
    found = await runtime.store.work.list_work(WorkQuery())
    return [(each.work.id.lane, each.work.name) for each in found.rows]


@pytest.fixture(params=["memory:", "sqlite:///{}/orders.db", "file://{}/orders"], ids=["memory", "sqlite", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where work is kept."""
    address: str = request.param
    return address.format(tmp_path)


async def test_the_result_of_an_invoke_moves_the_chart(url: str) -> None:
    bank = Bank()
    async with asyncio.timeout(PATIENCE_SECONDS), orders(url, bank) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await until(runtime, "order/1", "paid")
        await bank.mailed.wait()

        assert "r-order/1/2/1" == (await runtime.state("order/1")).context["receipt"]
    assert ({"order/1/2/1": 3}, ["order/1/3/1"]) == (bank.deeds, bank.mails)


async def test_a_failing_handler_is_tried_again_under_one_key_and_counts_once() -> None:
    """With its backoff between attempts."""
    bank, clock = Bank(), VirtualClock()
    bank.failures = [ConnectionError("one"), ConnectionError("two")]
    async with orders("memory:", bank, clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance(3_500)

        assert ("paid",) == (await runtime.state("order/1")).configuration
        assert ["order/1/2/1"] * 3 == bank.asked
        assert {"order/1/2/1": 3} == bank.deeds
        await _closed(runtime, clock)


async def test_a_failure_for_good_reaches_the_chart() -> None:
    """With its code."""
    bank, clock = Bank(), VirtualClock()
    bank.failures = [ConnectionError("gone")] * 3
    async with orders("memory:", bank, clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance(10_000)
        snapshot = await runtime.state("order/1")

        assert (("declined",), "ConnectionError") == (snapshot.configuration, snapshot.context["why"])
        await _closed(runtime, clock)


async def test_timers_fire_when_they_are_due_and_are_cancelled_with_their_state() -> None:
    """An hour in no time."""
    bank, clock = Bank(), VirtualClock()
    async with orders("memory:", bank, clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance(61_000)

        assert ("paid",) == (await runtime.state("order/1")).configuration
        await clock.advance(3_600_000)
        assert ("archived",) == (await runtime.state("order/1")).configuration
        assert [] == await rows(runtime)
        await _closed(runtime, clock)


async def test_work_survives_the_process_that_left_it(tmp_path: Path) -> None:
    """The next process that opens the store runs it, under the same key."""
    url, bank = f"sqlite:///{tmp_path}/orders.db", Bank()
    async with interlock.open(url, charts=[order_chart(bank)], work=False) as sender:
        await sender.create("order/1")
        await sender.send("order/1", "pay")

        assert [("effect", "payment.charge"), ("timer", "after.1m.charging")] == await rows(sender)
    assert [] == bank.asked
    async with orders(url, bank) as runtime:
        await until(runtime, "order/1", "paid")

    assert {"order/1/2/1": 3} == bank.deeds


async def test_two_workers_share_the_work_and_do_each_piece_once(tmp_path: Path) -> None:
    """Leases, on one file."""
    url, bank = f"sqlite:///{tmp_path}/orders.db", Bank()
    async with orders(url, bank) as one, orders(url, bank) as two:
        for number in range(20):
            await one.create(f"order/{number}")
        await asyncio.gather(*((one, two)[n % 2].send(f"order/{n}", "pay") for n in range(20)))
        for number in range(20):
            await until(one, f"order/{number}", "paid")

    assert (20, 20) == (len(bank.deeds), len(bank.asked))


async def test_leaving_a_state_cancels_its_handler() -> None:
    clock, stopped = VirtualClock(), asyncio.Event()

    async def hang(attempt: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    chart = interlock.loads(ORDER)
    chart.handler("payment.charge")(hang)
    async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance()
        await runtime.send("order/1", "cancel")
        await clock.advance(30_000)

        assert stopped.is_set()
        assert ("cancelled",) == (await runtime.state("order/1")).configuration
        assert [] == await rows(runtime)
        await _closed(runtime, clock)


GROWING = f"""
interlock: 1
kind: heap
context: {{all: {{type: string, default: {"earth" * 400}}}}}
initial: a
states:
  a: {{after: {{1m: {{actions: [{{assign: {{all: "= context.all + context.all"}}}}]}}, 2m: b}}}}
  b: {{}}
"""


async def test_a_handler_is_stopped_as_soon_as_its_state_is_left() -> None:
    """Time does not pass: it does not wait for the next renewal of its lease."""
    chart, ended = interlock.loads(ORDER), asyncio.Event()

    @chart.handler("payment.charge")
    async def charge(attempt: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    chart.handler("receipt.mail")(Bank().mail)
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.settle()
        assert not ended.is_set()
        await runtime.send("order/1", "cancel")
        await clock.settle()

        assert ended.is_set()
        assert [] == await rows(runtime)


async def test_a_plain_handler_is_told_as_soon_as_its_state_is_left() -> None:
    chart, told = interlock.loads(ORDER), threading.Event()

    @chart.handler("payment.charge")
    def charge(attempt: Attempt) -> None:
        eventually_blocking(lambda: attempt.cancelled)
        told.set()

    chart.handler("receipt.mail")(Bank().mail)
    clock = VirtualClock(handler_seconds=0.01)
    async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.settle()
        await runtime.send("order/1", "cancel")
        await asyncio.to_thread(told.wait, PATIENCE_SECONDS)

        assert told.is_set()


@pytest.mark.parametrize("stubborn", [False, True])
async def test_closing_under_a_clock_that_nobody_moves_does_not_wait_for_a_stalled_handler(stubborn: bool) -> None:
    chart, started, end = interlock.loads(ORDER), asyncio.Event(), asyncio.Event()

    @chart.handler("payment.charge")
    async def charge(attempt: Attempt) -> None:
        started.set()
        while True:
            try:
                await end.wait()
                return
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    chart.handler("receipt.mail")(Bank().mail)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with interlock.open("memory:", charts=[chart], clock=VirtualClock()) as runtime:
            await runtime.create("order/1")
            await runtime.send("order/1", "pay")
            await started.wait()
    end.set()


async def test_closing_under_a_clock_that_nobody_moves_does_not_wait_for_a_stalled_thread() -> None:
    chart, started, end = interlock.loads(ORDER), threading.Event(), threading.Event()

    @chart.handler("payment.charge")
    def charge(attempt: Attempt) -> None:
        started.set()
        end.wait(PATIENCE_SECONDS)

    chart.handler("receipt.mail")(Bank().mail)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with interlock.open("memory:", charts=[chart], clock=VirtualClock(handler_seconds=0.01)) as runtime:
            await runtime.create("order/1")
            await runtime.send("order/1", "pay")
            await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
    end.set()


async def test_a_timer_whose_step_cannot_be_stored_does_not_block_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    monkeypatch.setattr("interlock.runtime.entities.append_builder.SNAPSHOT_BYTES_MAX", 3_500)
    async with interlock.open("memory:", charts=[interlock.loads(GROWING)], clock=clock) as runtime:
        await runtime.create("heap/1")
        await clock.advance(60_000 + ATTEMPTS_MAX * POLL_MS_MAX)
        assert runtime.store.work is not None
        page = await runtime.store.work.list_work(WorkQuery(dead=True))
        await clock.advance(60_000)

        assert [("after.1m.a", "snapshot.size")] == [(each.work.name, each.error["code"]) for each in page.rows]
        assert (("b",), []) == ((await runtime.state("heap/1")).configuration, await rows(runtime))
        assert isinstance(runtime.store, MemoryStore)
        assert [] == await audit_rows(runtime.store)  # it has no sender, and each attempt would be one
        await _closed(runtime, clock)


@asynccontextmanager
async def machines(clock: VirtualClock) -> AsyncIterator[Runtime]:
    """A runtime for machines and their networks."""
    charts = [interlock.loads(VM), interlock.loads(NETWORK)]
    async with interlock.open("memory:", charts=charts, clock=clock) as runtime:
        await runtime.create("vm/1")
        await clock.advance()
        yield runtime
        await _closed(runtime, clock)


async def _child(runtime: Runtime) -> str:
    page = await runtime.list(interlock.EntityQuery(kind="network"))
    return page.rows[-1].entity


async def test_a_child_starts_receives_events_and_returns_a_result() -> None:
    clock = VirtualClock()
    async with machines(clock) as runtime:
        child = await _child(runtime)
        await runtime.send("vm/1", "poke")
        await clock.advance(1_000)

        assert {"size": 2, "pokes": 1} == (await runtime.state(child)).context
        await runtime.send(child, "made")
        await clock.advance(1_000)
        assert ("up",) == (await runtime.state("vm/1")).configuration
        assert [] == await rows(runtime)


async def test_an_entity_created_by_another_caller_is_not_a_child() -> None:
    """Its id can be guessed; the parent gets an error instead of waiting without end."""
    clock = VirtualClock()
    vm, network = interlock.loads(VM), interlock.loads(NETWORK)
    async with interlock.open("memory:", charts=[vm, network], clock=clock) as runtime:
        taken = child_entity("network", "net", "vm/1/1/0")
        other = Runtime(runtime.store, ChartRegistry([network.kernel]), clock)  # it does not know who invokes it
        await other.create(taken, {"size": 2})
        await runtime.create("vm/1")
        await clock.advance(1_000)

        (entry,) = await runtime.journal("vm/1", after=1)
        assert ("error.invoke.net", "child.taken") == (entry.event.name, entry.event.data["code"])
        assert (await runtime.state(taken)).ended is None
        await _closed(runtime, clock)


async def test_a_child_ends_with_the_state_that_invoked_it() -> None:
    """It is cancelled, and answers nothing."""
    clock = VirtualClock()
    async with machines(clock) as runtime:
        child = await _child(runtime)
        await runtime.send("vm/1", "stop")
        await clock.advance(1_000)

        assert "cancelled" == (await runtime.state(child)).ended
        assert (("stopped",), []) == ((await runtime.state("vm/1")).configuration, await rows(runtime))


async def test_a_missing_chart_of_a_child_is_not_a_failure() -> None:
    clock, store = VirtualClock(), MemoryStore()
    async with worked(store, clock, VM) as alone:
        await alone.create("vm/1")
        await clock.advance(30_000)
        (row,) = (await store.list_work(WorkQuery())).rows

        assert ("starting",) == (await alone.state("vm/1")).configuration
        assert (0, 0, "kind.unknown") == (row.attempts, row.failures, row.error["code"])
    async with worked(store, clock, VM, NETWORK) as both:
        await clock.advance(2_000)

        assert 1 == len((await both.list(interlock.EntityQuery(kind="network"))).rows)


@asynccontextmanager
async def worked(store: MemoryStore, clock: VirtualClock, *charts: str) -> AsyncIterator[Runtime]:
    """A process with some charts that works on a store which outlives it."""
    runtime = Runtime(store, ChartRegistry(interlock.loads(text).kernel for text in charts), clock)
    worker = Worker(runtime, {})
    await worker.start()
    try:
        yield runtime
    finally:
        await worker.stop()


async def test_a_missing_handler_is_not_a_failure() -> None:
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[interlock.loads(ORDER)], clock=clock) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance(30_000)

        assert ("charging",) == (await runtime.state("order/1")).configuration
        assert ("effect", "payment.charge") in await rows(runtime)
        await _closed(runtime, clock)


async def test_closing_requeues_unfinished_work(tmp_path: Path) -> None:
    url, begun = f"sqlite:///{tmp_path}/orders.db", asyncio.Event()

    async def hang(attempt: Attempt) -> None:
        begun.set()
        await asyncio.Event().wait()

    chart = interlock.loads(ORDER)
    chart.handler("payment.charge")(hang)
    async with interlock.open(url, charts=[chart], work=False) as runtime:
        worker = Worker(runtime, chart.handlers, drain_ms=10)
        await worker.start()
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()

        assert 1 == (await worker.stop()).requeued
    bank = Bank()
    async with orders(url, bank) as runtime:
        await until(runtime, "order/1", "paid")

    assert ["order/1/2/1"] == bank.asked


def test_two_functions_of_one_name_are_refused() -> None:
    bank, other = Bank(), Bank()
    with pytest.raises(UsageError, check=lambda error: error.code == "handler.twice"):
        interlock.open("memory:", charts=[order_chart(bank), order_chart(other)])


async def test_names_without_a_function_are_logged_when_a_runtime_that_works_opens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chart = interlock.loads(ORDER)
    async with interlock.open("memory:", charts=[chart, chart], work=False):
        pass
    assert [] == caplog.messages

    async with interlock.open("memory:", charts=[chart, chart]):
        pass
    assert 1 == len(caplog.messages)
    assert all(f"`{name}`" in caplog.messages[0] for name in chart.chart.handlers)

    caplog.clear()
    async with interlock.open("memory:", charts=[order_chart(Bank())]):
        pass
    assert [] == caplog.messages


@pytest.mark.parametrize("of_the_chart", [False, True])
async def test_a_default_policy_retries_an_invoke_without_one(of_the_chart: bool) -> None:
    chart = interlock.loads(ORDER.replace("      retry: {max: 2, backoff: 1s, jitter: none}\n", ""))
    attempts: list[int] = []

    @chart.handler("payment.charge")
    async def charge(attempt: interlock.Attempt) -> dict[str, str]:
        attempts.append(attempt.number)
        if attempt.number < 3:
            raise ConnectionError("the bank is away")
        return {"receipt": "R-1"}

    chart.handler("receipt.mail")(Bank().mail)
    defaults = interlock.HandlerDefaults(retry={"max": 5, "backoff": "1s", "jitter": "none"})
    chart.handler_defaults = defaults if of_the_chart else None
    clock = VirtualClock()
    others = None if of_the_chart else defaults
    async with interlock.open("memory:", charts=[chart], clock=clock, handler_defaults=others) as runtime:
        await runtime.create("order/1")
        await runtime.send("order/1", "pay")
        await clock.advance(1_000)
        assert runtime.store.work is not None
        row = next(each for each in (await runtime.store.work.list_work(WorkQuery(name="payment.charge"))).rows)
        assert 5 == retries_max(row)
        await clock.advance(2_000)

        assert ("paid",) == (await runtime.state("order/1")).configuration
    assert [1, 2, 3] == attempts


class Journals(MemoryStore):
    """A store of another package: it keeps journals, and no work."""

    work = leases = None  # type: ignore[assignment]  # the point


async def test_a_store_without_work_logs_a_warning_or_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chart = order_chart(Bank())
    monkeypatch.setattr("interlock.stores.registry.store_plugins", lambda: {"plain": lambda: lambda url: Journals()})
    with caplog.at_level(logging.WARNING, logger="interlock"):
        async with interlock.open("plain:", charts=[chart]):
            pass

    assert [("timers, handlers, invokes", "order")] == [each.args for each in caplog.records]
    with pytest.raises(UsageError, check=lambda error: error.code == "store.work"):
        async with interlock.open("plain:", charts=[chart], work=True):
            pass


async def _closed(runtime: Runtime, clock: VirtualClock) -> None:
    """Close while the clock advances: draining waits on it."""
    closing = asyncio.ensure_future(runtime.close())
    await clock.advance(20_000)
    await closing


async def test_a_drained_lifecycle_refuses_sends_and_waits_for_running_work() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(attempt: Attempt) -> dict[str, str]:
        begun.set()
        await gate.wait()
        return {"receipt": "r"}

    chart = interlock.loads(ORDER)
    chart.handler("payment.charge")(slow)
    with MemoryRegion.create(slots=2) as region, Lifecycle(region) as life:
        life.start()
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            interlock.open("memory:", charts=[chart], lifecycle=life) as runtime,
        ):
            await runtime.create("order/1")
            await runtime.create("order/2")
            await runtime.send("order/1", "pay")
            await begun.wait()
            draining = life.drain(timeout=20)
            with pytest.raises(UnavailableError, check=lambda error: error.code == "runtime.draining"):
                await runtime.send("order/2", "pay")
            with pytest.raises(UnavailableError, check=lambda error: error.code == "runtime.draining"):
                await runtime.create("order/3")
            gate.set()
            report = await draining

            assert report.closed
            assert ("paid",) == (await runtime.state("order/1")).configuration
            assert ("effect", "receipt.mail") in await rows(runtime)
