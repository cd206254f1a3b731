"""The end of a runtime: signals, requests in progress, running work, and what is refused meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt, Handler
from interlock.effects.lanes import StopReport
from interlock.errors import UnavailableError, UsageError
from interlock.ports.work import WorkQuery
from interlock.runtime.worker.worker import Worker
from interlock.shm import Lifecycle, MemoryRegion, Phase
from interlock.shm.lifecycle.asgi import shared_lifecycle
from interlock.shm.memory.file import region_directory
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.unit.runtime import busy
from tests.unit.runtime.entities.test_mailbox import Held
from tests.unit.runtime.scene import runtime

ORDER = """
interlock: 1
kind: order
initial: charging
states:
  charging: {invoke: {id: charge, src: payment.charge, onDone: paid, onError: declined}}
  paid: {}
  declined: {}
"""


def charging(handler: Handler | None = None) -> interlock.BoundChart:
    """An order with its handler, if it has one."""
    chart = interlock.loads(ORDER)
    if handler is not None:
        chart.handler("payment.charge")(handler)
    return chart


async def test_a_signal_lets_running_work_finish() -> None:
    gate, numbers, before = asyncio.Event(), list[int](), signal.getsignal(signal.SIGTERM)

    async def charge(attempt: Attempt) -> None:
        await eventually(lambda: signal.getsignal(signal.SIGTERM) is not before)  # a client listens
        signal.raise_signal(signal.SIGTERM)
        await gate.wait()

    def told(number: int) -> None:
        numbers.append(number)
        asyncio.get_running_loop().call_soon(gate.set)  # when it drains

    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[charging(charge)]) as orders:
        await orders.create("order/1")
        ended = await orders.run_until_signal(on_signal=told)

        assert ("paid",) == (await orders.state("order/1")).configuration  # reading continues
        with pytest.raises(UnavailableError, check=lambda error: error.code == "runtime.draining"):
            await orders.create("order/2")
    assert (1, 0, 0, 0) == (ended.finished, ended.requeued, ended.still_running, ended.unanswered)
    assert ([signal.SIGTERM], before) == (numbers, signal.getsignal(signal.SIGTERM))


async def test_close_completes_a_cancelled_drain() -> None:
    asked, started, let = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def charge(attempt: Attempt) -> None:
        asked.set()
        await let.wait()
        finished.append(attempt.number)

    async def noted() -> None:
        started.set()  # the worker is stopped next

    finished: list[int] = []
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[charging(charge)]) as orders:
        await orders.create("order/1")
        await asked.wait()
        orders.on_close(noted)
        draining = asyncio.ensure_future(orders.drain(20_000))
        await started.wait()
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        asyncio.get_running_loop().call_later(0.1, let.set)  # while it closes

    assert [1] == finished


def test_run_until_signal_works_without_an_event_loop() -> None:
    gate, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def charge(attempt: Attempt) -> None:
        for _ in range(2_000):
            if signal.getsignal(signal.SIGINT) is not before:
                break
            gate.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        gate.wait(PATIENCE_SECONDS)

    with interlock.open("memory:", charts=[charging(charge)]).blocking() as orders:
        orders.create("order/1")
        ended = orders.run_until_signal(on_signal=lambda number: gate.set())

        assert ("paid",) == orders.state("order/1").configuration
    assert (0, 0, before) == (ended.requeued, ended.still_running, signal.getsignal(signal.SIGINT))


def test_signals_are_handled_in_the_main_thread_only() -> None:
    raised: list[UsageError] = []

    def elsewhere() -> None:
        with interlock.open("memory:", charts=[charging()], work=False).blocking() as orders:
            try:
                orders.run_until_signal()
            except UsageError as error:
                raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE_SECONDS)

    assert ["signal.thread"] == [each.code for each in raised]


async def test_a_lifecycle_closed_by_another_process_ends_the_runtime() -> None:
    numbers: list[int] = []
    with MemoryRegion.create(slots=4) as region, Lifecycle(region) as life:
        life.start()
        with Lifecycle(region) as other:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                interlock.open("memory:", charts=[charging()], lifecycle=life) as orders,
            ):
                ending = asyncio.ensure_future(orders.run_until_signal(on_signal=numbers.append))
                await asyncio.sleep(0)
                await other.drain(timeout=20)
                ended = await ending

    assert ([0], 0) == (numbers, ended.finished)


async def test_draining_a_runtime_drains_its_shared_lifecycle() -> None:
    with MemoryRegion.create(slots=4) as region, Lifecycle(region) as life:
        life.start()
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            interlock.open("memory:", charts=[charging()], lifecycle=life) as orders,
        ):
            await orders.drain(20_000)

            assert Phase.CLOSED is life.phase


async def test_requests_in_progress_are_answered_during_a_drain() -> None:
    store, clock = Held(), VirtualClock()
    doors = runtime(store=store)
    doors.clock = clock
    await doors.create("door/1")
    store.gate.clear()
    under_way = asyncio.ensure_future(doors.send("door/1", "opened", key="k"))
    await clock.advance()
    draining = asyncio.ensure_future(doors.drain(1_000))
    await clock.advance()
    with pytest.raises(UnavailableError, check=lambda error: error.code == "runtime.draining") as refused:
        await doors.send("door/1", "opened")
    store.gate.set()
    await clock.advance()

    assert ("applied", 0, "runtime.draining") == (
        (await under_way).outcome,
        (await draining).unanswered,
        refused.value.code,
    )


async def test_requests_without_an_answer_in_time_are_counted() -> None:
    store, clock = Held(), VirtualClock()
    doors = runtime(store=store)
    doors.clock = clock
    await doors.create("door/1")
    store.gate.clear()
    under_way = asyncio.ensure_future(doors.send("door/1", "opened", key="k"))
    await clock.advance()
    draining = asyncio.ensure_future(doors.drain(1_000))
    await clock.advance(1_000)

    assert (1, 1_000) == ((await draining).unanswered, (await draining).duration_ms)
    store.gate.set()
    await under_way


async def test_work_in_a_process_of_the_pool_is_requeued_after_the_process_has_ended(tmp_path: Path) -> None:
    chart = interlock.loads(
        ORDER.replace("src: payment.charge", f'src: payment.charge, input: {{mark: "{tmp_path}/m"}}')
    )
    async with asyncio.timeout(PATIENCE_SECONDS), interlock.open("memory:", charts=[chart], work=False) as orders:
        worker = Worker(orders, {"payment.charge": busy.hangs}, cpu_handlers=frozenset({"payment.charge"}), drain_ms=10)
        await worker.start()
        await orders.create("order/1")
        await eventually((tmp_path / "m").exists)
        pid = int((tmp_path / "m").read_text())
        stopped = await worker.stop()
        assert orders.store.work is not None
        (row,) = (await orders.store.work.list_work(WorkQuery())).rows

        assert (StopReport(requeued=1), None) == (stopped, row.owner)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_handler_that_ignores_its_cancellation_does_not_block_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.effects.lanes.STOP_MS_MAX", 10)
    monkeypatch.setattr("interlock.runtime.blocking.STOP_MS_MAX", 10)
    started, tasks = threading.Event(), list[Any]()

    async def stubborn(attempt: Attempt) -> None:
        tasks.append(asyncio.current_task())
        started.set()
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3_600)

    with interlock.open("memory:", charts=[charging(stubborn)]).blocking() as orders:
        orders.create("order/1")
        started.wait(PATIENCE_SECONDS)
        drained = orders.drain(10)
    tasks[0]._log_destroy_pending = False  # it was left on purpose: no other test may get it
    tasks[0].get_coro().close()

    assert (0, 0, 1) == (drained.finished, drained.requeued, drained.still_running)


def test_a_runtime_that_is_not_open_refuses_its_methods() -> None:
    opening = interlock.open("memory:", charts=[charging()])
    with pytest.raises(UsageError, check=lambda error: error.code == "runtime.not_open") as raised:
        opening.send("order/1", "pay")  # type: ignore[attr-defined]  # the mistake in question
    with pytest.raises(AttributeError, match="no attribute `nonsense`"):
        opening.nonsense  # type: ignore[attr-defined]  # noqa: B018 - reading it is the mistake

    assert ("runtime.not_open", True) == (raised.value.code, "runtime.send(...)" in (raised.value.hint or ""))
    assert not hasattr(opening, "_nothing")


@pytest.mark.parametrize("lease_ms", [0, 99, 1.5, "30s", True])
def test_a_lease_is_whole_milliseconds(lease_ms: object) -> None:
    """And not so short that a busy machine loses it."""
    with pytest.raises(UsageError) as raised:
        interlock.open("memory:", charts=[charging()], lease_ms=lease_ms)  # type: ignore[arg-type]  # the mistake

    assert "lease.malformed" == raised.value.code


async def test_a_missing_heartbeat_ends_an_attempt_and_its_details_reach_the_next() -> None:
    clock, seen = VirtualClock(), list[object]()
    chart = interlock.loads(ORDER.replace("src: payment.charge", "src: payment.charge, retry: {max: 1, backoff: 1s}"))

    @chart.handler("payment.charge", heartbeat="2s")
    async def charge(attempt: Attempt) -> None:
        seen.append(attempt.details)
        attempt.heartbeat({"page": attempt.number})
        if attempt.number == 1:
            await asyncio.Event().wait()

    async with interlock.open("memory:", charts=[chart], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(5_000)

        assert ([None, {"page": 1}], ("paid",)) == (seen, (await orders.state("order/1")).configuration)
        closing = asyncio.ensure_future(orders.close())
        await clock.advance(20_000)
        await closing


async def test_a_shared_lifecycle_is_joined_by_name_and_reused() -> None:
    name = f"test-serving-{os.getpid()}"
    with shared_lifecycle(name) as one, shared_lifecycle(name) as two:
        report = await one.drain(timeout=20)
        phases = [two.phase]
    with shared_lifecycle(name) as again:
        phases.append(again.phase)

    assert report.closed
    assert [Phase.CLOSED, Phase.RUNNING] == phases
    assert name not in {each.name.partition(".")[0] for each in region_directory().iterdir()}


def test_a_heartbeat_is_a_duration() -> None:
    """Anything else is refused where it is written, and nothing is registered."""
    chart = interlock.loads(ORDER)
    refused = []
    for heartbeat in ("soon", 30, "0s", ""):
        with pytest.raises(UsageError) as raised:
            chart.handler("payment.charge", heartbeat=heartbeat)  # type: ignore[arg-type]  # one of the mistakes
        refused.append(raised.value.code)

    assert ["handler.heartbeat"] * 4 == refused
    assert {} == chart.heartbeats
