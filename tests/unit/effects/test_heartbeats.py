"""Heartbeats of long attempts, and attempts that cannot be stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.effects.handlers import Attempt, Handler, HandlerRunner
from interlock.effects.lanes import RunningWork
from interlock.effects.user_functions import HandlerThreads
from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkDelta
from interlock.model.limits import DETAILS_BYTES_MAX, STOP_MS_MAX
from interlock.ports.work import Settlement
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.effects.scene import NOW, ONE, Scene, invoke


@pytest.fixture
def scene() -> Scene:
    """A scene."""
    return Scene()


async def _fine(attempt: Attempt) -> Any:
    return {"charged": attempt.input}


async def _beating(attempt: Attempt, clock: VirtualClock, pages: int) -> None:
    """Reports a page every 400 ms, and then nothing."""
    for page in range(pages):
        await clock.sleep_ms(400)
        attempt.heartbeat({"page": page})
    await asyncio.Event().wait()


async def test_an_attempt_without_heartbeats_is_stopped_and_retried(scene: Scene) -> None:
    held = invoke(retry=ONE)
    settled = await scene.performed(
        lambda_coroutine(lambda attempt: _beating(attempt, scene.clock, 5)),
        held,
        advance_ms=4_000,
        heartbeats={"charge": 1_000},
    )
    why = {
        "code": "heartbeat",
        "message": "no heartbeat in 1000 ms",
        "attempts": 1,
        "done": "unknown",
        "details": {"page": 4},
    }

    assert settled is not None
    (failed,) = settled.error.pop("failed")
    assert ("again", why, "heartbeat") == (settled.verdict, settled.error, failed["code"])
    assert 3_000 <= settled.next_ms - NOW - 1_000 <= 3_500  # the last sign at 2,000; a quarter late at most


def lambda_coroutine(function: Any) -> Handler:
    """A coroutine function that does what another function's coroutine does."""

    async def run(attempt: Attempt) -> Any:
        return await function(attempt)

    return run


async def test_an_attempt_with_heartbeats_continues(scene: Scene) -> None:
    async def slow(attempt: Attempt) -> str:
        for _ in range(100):
            await scene.clock.sleep_ms(900)
            attempt.heartbeat()
        return "done"

    await scene.performed(slow, invoke(), advance_ms=90_000, heartbeats={"charge": 1_000})

    assert [("done.invoke.pay", "done", False)] == scene.delivered()


async def test_a_thread_without_heartbeats_is_the_last_attempt(scene: Scene) -> None:
    gate, told = threading.Event(), threading.Event()

    def work(attempt: Attempt) -> None:
        attempt.heartbeat({"page": 1})
        told.set()
        gate.wait(PATIENCE_SECONDS)

    handlers = HandlerRunner({"charge": work}, scene.driver, scene.clock, heartbeats={"charge": 1_000})
    held = invoke(retry=ONE)
    performing = asyncio.ensure_future(handlers.perform(held))
    try:
        await asyncio.to_thread(told.wait, 20)
        await scene.clock.advance(1_250)
        await asyncio.wait_for(performing, PATIENCE_SECONDS)
    finally:
        gate.set()

    assert [("heartbeat", "unknown")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]
    assert b'{"page":1}' == held.details


@pytest.mark.parametrize("garbage", [object(), {1: 2}, float("nan"), "x" * DETAILS_BYTES_MAX])
async def test_invalid_details_of_a_heartbeat_are_logged_and_the_attempt_continues(
    scene: Scene, garbage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(attempt: Attempt) -> str:
        attempt.heartbeat("fine")
        attempt.heartbeat(garbage)
        return "done"

    held = invoke()
    with caplog.at_level(logging.WARNING, logger="interlock.effects"):
        await scene.performed(work, held)

    assert ([("done.invoke.pay", "done", False)], 2, b'"fine"') == (scene.delivered(), held.heartbeats, held.details)
    assert ["the details of a heartbeat cannot be stored"] == [each.message for each in caplog.records]


async def test_details_are_encoded_when_the_heartbeat_is_sent(scene: Scene) -> None:
    async def work(attempt: Attempt) -> None:
        progress = {"page": 1}
        attempt.heartbeat(progress)
        progress["page"] = 2

    held = invoke()
    await scene.performed(work, held)

    assert b'{"page":1}' == held.details


async def test_the_next_attempt_gets_the_details_of_the_last_one(scene: Scene) -> None:
    store, seen = MemoryStore(), list[Any]()
    store._work.apply("order/1", WorkDelta(created=(invoke().claim.work,)))
    (first,) = await store.claim("effect", ("charge",), owner="w1", now_ms=NOW, until_ms=NOW + 1, limit=1)
    await store.save_details(first, {"code": "lost", "details": {"page": 7}})
    (second,) = await store.claim("effect", ("charge",), owner="w2", now_ms=NOW + 1, until_ms=NOW + 9, limit=1)

    async def work(attempt: Attempt) -> None:
        seen.append(attempt.details)
        raise ConnectionError("gone")

    held = RunningWork(replace(second, work=invoke(retry=ONE).claim.work))
    settled = await scene.performed(work, held, work=store)

    assert [{"page": 7}] == seen
    assert settled is not None
    assert ("ConnectionError", {"page": 7}) == (settled.error["code"], settled.error["details"])


async def test_postponed_work_keeps_its_details(scene: Scene) -> None:
    store = MemoryStore()
    store._work.apply("order/1", WorkDelta(created=(invoke().claim.work,)))
    (first,) = await store.claim("effect", ("charge",), owner="w1", now_ms=NOW, until_ms=NOW + 1, limit=1)
    await store.save_details(first, {"details": 7})
    (second,) = await store.claim("effect", ("charge",), owner="w2", now_ms=NOW + 1, until_ms=NOW + 9, limit=1)
    scene.driver.elsewhere.add("order/1")
    settled = await scene.performed(_fine, RunningWork(second), work=store)

    assert settled is not None
    assert ({"details": 7}, False) == (settled.error, settled.started)


async def test_a_coroutine_that_ignores_its_cancellation_is_the_last_attempt(scene: Scene) -> None:
    gate = asyncio.Event()

    async def stubborn(attempt: Attempt) -> str:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    held = invoke(timeout_ms=500, retry=ONE)
    await scene.performed(stubborn, held, advance_ms=500 + STOP_MS_MAX)

    assert [("timeout", "unknown")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]
    assert held.is_running
    gate.set()
    await scene.clock.advance()
    assert (False, 1) == (held.is_running, len(scene.delivered()))


async def test_an_error_of_a_stopped_coroutine_is_not_reported(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def sore(attempt: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("in the middle")

    held = invoke()
    handlers = HandlerRunner({"charge": sore}, scene.driver, scene.clock)
    performing = asyncio.ensure_future(handlers.perform(held))
    await scene.clock.advance()
    performing.cancel()
    await asyncio.gather(performing, return_exceptions=True)
    await scene.clock.advance()
    del held
    gc.collect()

    assert ([], [], set()) == (caplog.records, scene.delivered(), handlers._futures)


async def test_no_thread_is_started_beyond_the_limit(scene: Scene) -> None:
    gate = threading.Event()

    def block(attempt: Attempt) -> None:
        gate.wait(PATIENCE_SECONDS)

    handlers = HandlerRunner({"charge": block, "quick": _fine}, scene.driver, scene.clock)
    handlers._threads = HandlerThreads(threads_max=1)
    try:
        given_up = asyncio.ensure_future(handlers.perform(invoke(timeout_ms=500)))
        await scene.clock.advance(500)
        await asyncio.wait_for(given_up, PATIENCE_SECONDS)
        held = invoke()
        settled = await handlers.perform(held)
        quick = await handlers.perform(invoke(name="quick"))
        free = next(iter(handlers._threads._running))
    finally:
        gate.set()
    await asyncio.wait_for(free, PATIENCE_SECONDS)

    assert settled == Settlement(
        held.claim, "again", settled.next_ms if settled else 0, without_failure=True, started=False
    )
    assert quick is None
    assert 0 == len(handlers._threads)


@pytest.mark.parametrize("restore", ["restart", "fail"])
async def test_an_attempt_without_a_thread_does_not_count(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, restore: str
) -> None:
    handlers = HandlerRunner({"charge": lambda attempt: attempt.input}, scene.driver, scene.clock)
    held = invoke(restore=restore)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        settled = await handlers.perform(held)
    again = await handlers.perform(invoke(restore=restore))

    assert settled == Settlement(
        held.claim, "again", settled.next_ms if settled else 0, without_failure=True, started=False
    )
    assert (None, 0) == (again, len(handlers._threads))


async def test_a_process_is_killed_with_its_attempt_and_the_work_retried(scene: Scene) -> None:
    ended = []

    async def elsewhere(function: Handler, attempt: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(attempt.number)

    def busy(attempt: Attempt) -> None:
        raise AssertionError

    held = invoke(timeout_ms=500, retry=ONE)
    settled = await scene.performed(
        busy, held, advance_ms=500, cpu_handlers=frozenset({"charge"}), run_in_process=elsewhere
    )

    assert ([1], False) == (ended, held.is_running)
    assert settled is not None
    assert ("again", "timeout") == (settled.verdict, settled.error["code"])


@pytest.mark.parametrize(("code", "told"), [("pool.workers", []), ("pool.full", []), ("bank.away", ["bank.away"])])
async def test_work_is_postponed_when_the_process_pool_cannot_run_it(scene: Scene, code: str, told: list[str]) -> None:
    async def elsewhere(function: Handler, attempt: Attempt) -> None:
        raise UnavailableError("not now", code=code)

    def busy(attempt: Attempt) -> None:
        raise AssertionError

    with nullcontext() if told else pytest.raises(UnavailableError, match="not now"):
        await scene.performed(busy, invoke(), cpu_handlers=frozenset({"charge"}), run_in_process=elsewhere)

    assert told == [data["code"] for _, data, _ in scene.delivered()]


async def test_work_in_a_process_that_will_not_end_stays_alone(scene: Scene) -> None:
    """A process that cannot even be killed: its attempt is the last."""
    gate = asyncio.Event()

    async def elsewhere(function: Handler, attempt: Attempt) -> str:
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()
        return "late"

    def busy(attempt: Attempt) -> None:
        raise AssertionError

    held = invoke(timeout_ms=500, retry=ONE)
    late_ms = 500 + STOP_MS_MAX
    await scene.performed(busy, held, advance_ms=late_ms, cpu_handlers=frozenset({"charge"}), run_in_process=elsewhere)
    ran_on = held.is_running
    gate.set()
    await scene.clock.advance()

    assert [("timeout", "unknown")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]
    assert (True, False) == (ran_on, held.is_running)
