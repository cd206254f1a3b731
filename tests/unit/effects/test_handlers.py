"""Handlers: their input, results and failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.effects.handlers import RESULT_TRIES_MAX, Attempt, Handler, HandlerRunner
from interlock.effects.lanes import RunningWork
from interlock.effects.retry import HandlerDefaults
from interlock.errors import ConflictError, InterlockError, RejectedError, UnavailableError
from interlock.model.journal.attempts import PastAttempt, append_failed_attempt, failed_attempts
from interlock.model.limits import ATTEMPTS_MAX, PAYLOAD_BYTES_MAX, POLL_MS_MAX
from interlock.model.step import Outcome
from interlock.ports.work import Settlement
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.effects.scene import CHARGE, NOW, ONE, RecordingDelivery, Scene, call, invoke


@pytest.fixture
def scene() -> Scene:
    """A scene."""
    return Scene()


async def _fine(attempt: Attempt) -> Any:
    return {"charged": attempt.input}


async def test_a_result_is_delivered_as_an_event_that_ends_the_work(scene: Scene) -> None:
    settled = await scene.performed(_fine, invoke())
    ((entity, event, key, answers, fence),) = scene.driver.given

    assert settled is None
    assert ("order/1", "done.invoke.pay", {"charged": 3}) == (entity, event.name, event.data)
    assert ("_effect/2/0", CHARGE, None) == (key, answers, fence)
    assert ("platform", "pay", "invoke/order/1/2/0") == (event.type, event.invokeid, event.source)


@pytest.mark.parametrize("outcome", ["duplicate", "ignored", "rejected"])
async def test_work_whose_result_made_no_entry_is_settled(scene: Scene, outcome: Outcome) -> None:
    scene.driver.outcome = outcome

    assert Settlement(invoke().claim, "done") == await scene.performed(_fine, invoke())


AWAY = UnavailableError("the store is away", code="store.away")
LOST = ConflictError("others kept winning", code="conflict.retries")


async def test_a_result_that_cannot_be_delivered_is_delivered_again_without_a_second_attempt(scene: Scene) -> None:
    scene.driver.troubles = [AWAY, LOST]
    begun: list[int] = []

    async def charge(attempt: Attempt) -> int:
        begun.append(attempt.number)
        return 3

    settled = await scene.performed(charge, invoke(), advance_ms=60_000)

    assert (None, [1]) == (settled, begun)
    assert [("done.invoke.pay", 3, False)] == scene.delivered()


@pytest.mark.parametrize(
    "troubles",
    [[AWAY] * RESULT_TRIES_MAX, [UnavailableError("another process has it", code="revision.unknown")]],
    ids=["away", "elsewhere"],
)
async def test_a_result_that_cannot_be_brought_at_all_puts_the_work_off(
    scene: Scene, troubles: list[InterlockError]
) -> None:
    """After some tries; immediately if this process never will."""
    scene.driver.troubles = [*troubles]

    with pytest.raises(UnavailableError):
        await scene.performed(_fine, invoke(), advance_ms=60_000)
    assert ([], []) == (scene.driver.troubles, scene.delivered())


async def test_a_failure_is_fenced_by_the_newest_attempt_at_its_delivery(scene: Scene) -> None:
    scene.driver.troubles, held = [AWAY], invoke()
    handlers = HandlerRunner({"charge": _lost}, scene.driver, scene.clock)
    work = asyncio.ensure_future(handlers.perform(held))
    await scene.clock.advance()  # the first try has failed, and the next one waits
    held.update(invoke(attempt=2).claim)
    await scene.clock.advance(60_000)
    await work

    assert [2] == [fence for _, _, _, _, fence in scene.driver.given]


async def test_a_result_whose_step_cannot_be_stored_is_a_failure_that_may_be_done(scene: Scene) -> None:
    scene.driver.troubles = [RejectedError("the snapshot would be too large", code="snapshot.size")]
    settled = await scene.performed(_fine, invoke())

    assert settled is None
    assert [("snapshot.size", "unknown")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]


async def test_a_failure_whose_step_cannot_be_stored_is_a_dead_letter(scene: Scene) -> None:
    scene.driver.troubles = [
        RejectedError("too large", code="snapshot.size"),
        RejectedError("still", code="entry.size"),
    ]
    settled = await scene.performed(_fine, invoke())

    assert settled is not None
    assert ("dead", "snapshot.size") == (settled.verdict, settled.error["code"])


async def test_a_call_that_succeeds_is_done_without_an_entry(scene: Scene) -> None:
    held = call()

    assert Settlement(held.claim, "done") == await scene.performed(_fine, held)
    assert [] == scene.delivered()


async def test_a_handler_sees_its_input_and_a_key_that_stays(scene: Scene) -> None:
    """The same in every attempt."""
    seen: list[Attempt] = []

    async def look(attempt: Attempt) -> None:
        seen.append(attempt)

    await scene.performed(look, invoke(attempt=1))
    await scene.performed(look, invoke(attempt=4, failures=3), key_prefix="eu/")

    assert [("order/1/2/0", 1), ("eu/order/1/2/0", 4)] == [(each.key, each.number) for each in seen]
    assert ("order/1", "charge", 3, False) == (seen[0].entity, seen[0].name, seen[0].input, seen[0].cancelled)


async def test_the_author_may_choose_the_key(scene: Scene) -> None:
    """And may ask for a new key per attempt."""
    seen: list[str] = []

    async def look(attempt: Attempt) -> None:
        seen.append(attempt.key)

    await scene.performed(look, invoke(key="invoice-7"))
    await scene.performed(look, invoke(key="invoice-7", restore="restart", attempt=2))

    assert ["invoice-7", "invoice-7~2"] == seen


async def test_a_plain_function_runs_in_a_thread(scene: Scene) -> None:
    threads: list[str] = []

    def work(attempt: Attempt) -> str:
        threads.append(threading.current_thread().name)
        return "fine"

    await scene.performed(work, invoke())

    assert threads[0].startswith("interlock-handler")
    assert [("done.invoke.pay", "fine", False)] == scene.delivered()


async def _lost(attempt: Attempt) -> None:
    raise ConnectionError("gone")


async def test_a_failure_is_retried_by_the_policy_of_the_chart(scene: Scene) -> None:
    held = invoke(retry=ONE)

    failed = [{"number": 1, "started_ms": NOW, "duration_ms": 0, "code": "ConnectionError", "message": "gone"}]
    failed[0]["next_ms"] = NOW + 1_000
    why = {"code": "ConnectionError", "message": "gone", "attempts": 1, "done": "unknown", "failed": failed}

    assert Settlement(held.claim, "again", NOW + 1_000, error=why) == await scene.performed(_lost, held)
    assert [] == scene.delivered()


async def test_a_final_failure_is_delivered_by_the_newest_attempt_only(scene: Scene) -> None:
    settled = await scene.performed(_lost, invoke(retry=ONE, attempt=2, failures=1))
    data = {"code": "ConnectionError", "message": "gone", "attempts": 2, "done": "unknown"}

    assert settled is None
    assert [("error.invoke.pay", data, True)] == scene.delivered()


async def test_an_invoke_without_a_policy_is_tried_once(scene: Scene) -> None:
    await scene.performed(_lost, invoke())

    assert ["error.invoke.pay"] == [name for name, _, _ in scene.delivered()]


async def test_a_rejection_by_the_handler_is_final_and_not_done(scene: Scene) -> None:
    async def refuse(attempt: Attempt) -> None:
        raise RejectedError("no such card", code="card.unknown")

    await scene.performed(refuse, invoke(retry=ONE))

    assert [("card.unknown", "no")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]


async def test_a_failed_call_that_the_chart_does_not_handle_is_a_dead_letter(scene: Scene) -> None:
    scene.driver.outcome = "ignored"
    settled = await scene.performed(_lost, call(attempt=6, failures=5))

    assert settled is not None
    assert ("dead", "ConnectionError") == (settled.verdict, settled.error["code"])
    assert ["error.communication"] == [name for name, _, _ in scene.delivered()]


async def test_a_failed_call_that_the_chart_handles_is_finished(scene: Scene) -> None:
    assert await scene.performed(_lost, call(attempt=6, failures=5)) is None


async def test_a_failed_invoke_of_an_ended_entity_is_settled(scene: Scene) -> None:
    scene.driver.outcome = "rejected"
    held = invoke()

    assert Settlement(held.claim, "done") == await scene.performed(_lost, held)


async def _hang(attempt: Attempt) -> None:
    await asyncio.Event().wait()


async def test_a_coroutine_that_exceeds_its_timeout_is_cancelled_and_retried(scene: Scene) -> None:
    held = invoke(timeout_ms=500, retry=ONE)

    settled = await scene.performed(_hang, held, advance_ms=500)

    assert settled is not None
    assert ("again", NOW + 1_500, "timeout") == (settled.verdict, settled.next_ms, settled.error["code"])


async def test_a_thread_that_exceeds_its_timeout_is_the_last_attempt(scene: Scene) -> None:
    gate = threading.Event()

    def block(attempt: Attempt) -> None:
        gate.wait(PATIENCE_SECONDS)

    try:
        await scene.performed(block, invoke(timeout_ms=500, retry=ONE), advance_ms=500)
    finally:
        gate.set()

    assert [("timeout", "unknown")] == [(data["code"], data["done"]) for _, data, _ in scene.delivered()]


async def _called_off(scene: Scene, function: Handler, held: RunningWork) -> Settlement | None:
    """How work is settled whose state is left while it runs."""
    handlers = HandlerRunner({"charge": function}, scene.driver, scene.clock)
    work = asyncio.ensure_future(handlers.perform(held))
    await scene.clock.advance()
    held.claim = type(held.claim)(held.claim.entity, held.claim.work, held.claim.attempt, 0, cancelled=True)
    held.cancel_requested.set()
    await scene.clock.advance()
    return await asyncio.wait_for(work, PATIENCE_SECONDS)


async def test_a_coroutine_whose_state_was_left_is_cancelled(scene: Scene) -> None:
    held = invoke()
    settled = await _called_off(scene, _hang, held)

    assert (Settlement(held.claim, "done"), []) == (settled, scene.delivered())


async def test_a_result_after_the_cancellation_is_delivered(scene: Scene) -> None:
    """The chart may have to compensate it."""

    async def stubborn(attempt: Attempt) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done already"
        return ""

    await _called_off(scene, stubborn, invoke())

    assert [("done.invoke.pay", "done already", False)] == scene.delivered()


async def test_a_cancelled_step_of_a_saga_runs_to_its_end(scene: Scene) -> None:
    gate = asyncio.Event()

    async def step(attempt: Attempt) -> bool:
        await gate.wait()
        return attempt.cancelled

    handlers = HandlerRunner({"charge": step}, scene.driver, scene.clock)
    held = invoke(late=True)
    work = asyncio.ensure_future(handlers.perform(held))
    held.cancel_requested.set()
    await scene.clock.advance()
    gate.set()
    await work

    assert [("done.invoke.pay", True, False)] == scene.delivered()


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
async def test_a_cancelled_thread_is_waited_for(scene: Scene, fails: bool) -> None:
    """Its success is delivered; its failure is settled without a retry."""
    began, gate = threading.Event(), threading.Event()

    def slow(attempt: Attempt) -> bool:
        began.set()
        assert gate.wait(PATIENCE_SECONDS)
        if fails:
            raise ConnectionError("gone")
        return attempt.cancelled

    held = invoke(timeout_ms=60_000)
    work = asyncio.ensure_future(HandlerRunner({"charge": slow}, scene.driver, scene.clock).perform(held))
    await asyncio.to_thread(began.wait, 20)
    held.update(replace(held.claim, cancelled=True))
    await scene.clock.advance()
    waited = not work.done()
    gate.set()
    settled = await asyncio.wait_for(work, PATIENCE_SECONDS)

    assert waited
    if fails:
        assert (Settlement(held.claim, "done"), []) == (settled, scene.delivered())
    else:
        assert [("done.invoke.pay", True, False)] == scene.delivered()


async def test_cancelled_work_of_a_dead_worker_is_not_started_again(scene: Scene) -> None:
    held = invoke(attempt=2, cancelled=True)

    assert (Settlement(held.claim, "done"), []) == (await scene.performed(_fine, held), scene.delivered())


async def test_a_cancelled_step_of_a_saga_whose_worker_died_may_be_done(scene: Scene) -> None:
    await scene.performed(_fine, invoke(attempt=2, cancelled=True, late=True))

    assert [("error.invoke.pay", "lapsed", "unknown")] == [
        (name, data["code"], data["done"]) for name, data, _ in scene.delivered()
    ]


async def test_a_chart_may_forbid_a_second_run(scene: Scene) -> None:
    """`onRestore: fail`, after its worker died."""
    await scene.performed(_fine, invoke(attempt=2, restore="fail"))

    assert ["interrupted"] == [data["code"] for _, data, _ in scene.delivered()]


async def test_a_failed_attempt_is_not_a_dead_worker(scene: Scene) -> None:
    await scene.performed(_fine, invoke(attempt=2, failures=1, restore="fail"))

    assert ["done.invoke.pay"] == [name for name, _, _ in scene.delivered()]


async def test_work_that_kills_every_worker_ends_after_a_limit(scene: Scene) -> None:
    await scene.performed(_fine, invoke(attempt=ATTEMPTS_MAX + 1))

    assert ["lapsed"] == [data["code"] for _, data, _ in scene.delivered()]


@pytest.mark.parametrize("garbage", [object(), {1: 2}, float("nan"), "x" * PAYLOAD_BYTES_MAX])
async def test_an_invalid_result_is_a_failure(scene: Scene, garbage: Any) -> None:
    async def nonsense(attempt: Attempt) -> Any:
        return garbage

    await scene.performed(nonsense, invoke(retry=ONE))

    assert [("result.malformed", True)] == [
        (data["code"], "charge" in data["message"]) for _, data, _ in scene.delivered()
    ]


def test_handlers_know_their_names() -> None:
    """Work for others waits."""
    assert ("charge",) == HandlerRunner({"charge": _fine}, RecordingDelivery(), VirtualClock()).names


async def test_a_failed_attempt_is_stored_with_its_error_and_duration(scene: Scene) -> None:
    async def charge(attempt: Attempt) -> None:
        await scene.clock.sleep_ms(250)
        raise ConnectionError("the bank is away")

    work = invoke(attempt=2, failures=1, retry={**ONE, "max": 5})
    earlier = PastAttempt(1, NOW - 5_000, 40, "TimeoutError", "slow")
    work.restore(append_failed_attempt({}, earlier))
    settled = await scene.performed(charge, work, advance_ms=250)

    assert settled is not None
    assert ("again", "ConnectionError") == (settled.verdict, settled.error["code"])
    assert (earlier, PastAttempt(2, NOW, 250, "ConnectionError", "the bank is away", NOW + 1_250)) == failed_attempts(
        settled.error
    )


async def test_defaults_of_the_kind_limit_and_retry_an_attempt(scene: Scene) -> None:
    seen: list[int | None] = []

    async def charge(attempt: Attempt) -> None:
        seen.append(attempt.timeout_ms)
        await asyncio.Event().wait()

    mine = HandlerDefaults(retry={"max": 4, "backoff": "2s", "jitter": "none"}, timeout="30s")
    settled = await scene.performed(charge, invoke(), advance_ms=30_000, defaults={"order": mine})
    of_the_chart = await scene.performed(
        charge, invoke(timeout_ms=500, retry=ONE), advance_ms=500, defaults={"order": mine}
    )
    scene.driver.outcome = "ignored"
    of_another_kind = await scene.performed(_lost, invoke(), defaults={"cart": mine})

    assert [30_000, 500] == seen
    assert settled is not None
    assert ("again", NOW + 32_000, "timeout", 4) == (
        settled.verdict,
        settled.next_ms,
        settled.error["code"],
        settled.error["retries"],
    )
    assert of_the_chart is not None
    assert (NOW + 31_500, False) == (of_the_chart.next_ms, "retries" in of_the_chart.error)
    assert of_another_kind is not None
    assert "done" == of_another_kind.verdict


async def test_a_dead_letter_keeps_its_failed_attempts(scene: Scene) -> None:
    async def charge(attempt: Attempt) -> None:
        raise RejectedError("no such card", code="card.unknown")

    scene.driver.outcome = "rejected"
    settled = await scene.performed(charge, call())

    assert settled is not None
    assert ("dead", (PastAttempt(1, NOW, 0, "card.unknown", "no such card"),)) == (
        settled.verdict,
        failed_attempts(settled.error),
    )


async def test_a_saga_step_that_was_left_is_not_tried_again(scene: Scene) -> None:
    """It failed once and was perhaps done; the saga makes up for it now."""
    await scene.performed(_fine, invoke(attempt=2, failures=1, cancelled=True, late=True))

    assert [("error.invoke.pay", "unknown")] == [(name, data["done"]) for name, data, _ in scene.delivered()]


async def test_a_thread_that_runs_out_of_items_has_failed(scene: Scene) -> None:
    """A future cannot hold a StopIteration: its attempt would never end."""
    await scene.performed(lambda attempt: next(iter(())), invoke())

    assert ["RuntimeError"] == [data["code"] for _, data, _ in scene.delivered()]


async def test_a_process_without_the_chart_does_not_start_the_handler(scene: Scene) -> None:
    held = invoke()
    scene.driver.elsewhere.add("order/1")
    settled = await scene.performed(_fine, held)

    assert Settlement(held.claim, "again", NOW + POLL_MS_MAX, without_failure=True, started=False) == settled
