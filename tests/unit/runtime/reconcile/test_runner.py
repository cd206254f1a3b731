"""Reconcilers: which entities they check, how often, and how a result is used."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import interlock
from interlock import ReconcileRequest, ReconcileResult
from interlock.errors import UnavailableError
from interlock.model.keys import reconcile_key
from interlock.model.limits import RECONCILE_BACKOFF_MS_MIN, STOP_MS_MAX
from interlock.runtime.reconcile import runner
from interlock.testing.clock import VirtualClock
from tests.unit.runtime.reconcilers import MINUTE, ORDER, SECOND, Asked, created, orders, reconciling, runtime_of


async def test_entities_are_reconciled_only_after_the_given_time() -> None:
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look, older="5m", every="1s")
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(5 * MINUTE - 1)
        assert [] == asked.seen
        await clock.advance(SECOND)

        assert ["order/0"] == asked.entities
        (seen,) = asked.seen
        assert (1, ("charge_pending",), 2) == (seen.version, seen.configuration, seen.context["size"])
        assert 5 * MINUTE <= seen.now_ms - seen.entered_ms < 5 * MINUTE + SECOND


async def test_an_answer_is_an_event_under_a_key_of_the_version_that_was_seen() -> None:
    """By the system, in the reconciler's name; then the entity is no longer in the state."""
    clock = VirtualClock()
    asked = Asked(clock, ReconcileResult("charge.confirmed", {"id": "c-1"}))
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(5 * MINUTE)
    entry = (await runtime.journal("order/0"))[-1]

    assert ("charge.confirmed", {"id": "c-1"}) == (entry.event.name, entry.event.data)
    assert ("_reconcile/stuck-charges/1", ("charged",)) == (entry.key, entry.after)
    assert {"id": "reconciler/stuck-charges", "kind": "system", "roles": ["system"]} == entry.event.principal
    assert 1 == len(asked.seen)


async def test_an_entity_that_needs_nothing_is_checked_once_per_pass() -> None:
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime, 3)
    async with reconciling(chart, runtime):
        await clock.advance(2 * MINUTE + SECOND)

    assert ["order/0", "order/1", "order/2"] * 3 == asked.entities
    assert 1 == (await runtime.state("order/0")).version


class WrongClock(VirtualClock):
    """A clock that shows another time than the one that passes."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """What it shows."""
        return self.time_ms + self.ahead_ms


async def test_a_clock_that_was_ahead_for_a_moment_does_not_stop_the_passes() -> None:
    clock = WrongClock()
    asked = Asked(clock)
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime, 2)
    clock.ahead_ms = 10**12
    async with reconciling(chart, runtime):
        await clock.advance()
        clock.ahead_ms = 0
        await clock.advance(3 * MINUTE)

    assert ["order/0", "order/1"] == asked.entities[:2]
    assert len(asked.entities) >= 6


async def test_calls_are_spaced_out() -> None:
    """Two a second."""
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look, rate=2)
    runtime = runtime_of(chart, clock)
    await created(runtime, 4)
    async with reconciling(chart, runtime):
        await clock.advance(10 * SECOND)

    assert [0, 500, 1_000, 1_500] == asked.times


async def test_no_more_calls_than_allowed_run_side_by_side() -> None:
    """Two of five; the others wait for them."""
    clock, let, running, most = VirtualClock(), asyncio.Event(), 0, 0

    async def look(seen: ReconcileRequest) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await let.wait()
        running -= 1

    chart = orders(look, running=2, rate=1_000, timeout="1h")
    runtime = runtime_of(chart, clock)
    await created(runtime, 5)
    async with reconciling(chart, runtime) as loops:
        await clock.advance(10 * SECOND)
        assert (2, 2) == (running, most)
        let.set()
        await clock.advance(SECOND)

        assert (0, 2, 5) == (running, most, loops._loops[0].last.entities)


@pytest.mark.parametrize("problem", [ValueError("no"), UnavailableError("no", code="bank.down"), SystemExit(3)])
async def test_a_failing_call_delays_only_its_own_entity_longer_each_time(problem: BaseException) -> None:
    clock = VirtualClock()
    failing, fine = Asked(clock, problem), Asked(clock)

    async def look(seen: ReconcileRequest) -> Any:
        return await (failing if seen.entity == "order/0" else fine).look(seen)

    chart = orders(look, every="2s", rate=1_000)
    runtime = runtime_of(chart, clock)
    await created(runtime, 2)
    async with reconciling(chart, runtime):
        await clock.advance(10 * SECOND)

    half = 3 * RECONCILE_BACKOFF_MS_MIN // 4
    assert [0, half, 3 * half, 7 * half] == failing.times
    assert 6 == len(fine.seen)


async def test_a_function_that_hangs_is_stopped_and_holds_up_its_entity_only() -> None:
    """It is cancelled when its time is over, and asked again later."""
    clock = VirtualClock()
    hung, stopped, fine = Asked(clock), [], Asked(clock)

    async def look(seen: ReconcileRequest) -> Any:
        if seen.entity != "order/0":
            return await fine.look(seen)
        await hung.look(seen)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(seen.entity)

    chart = orders(look, every="1s", timeout="5s", running=2)
    runtime = runtime_of(chart, clock)
    await created(runtime, 2)
    async with reconciling(chart, runtime):
        await clock.advance(6 * SECOND)

        assert [0, 5 * SECOND + 3 * RECONCILE_BACKOFF_MS_MIN // 4] == hung.times
        assert ["order/0"] == stopped
        assert 7 == len(fine.seen)


async def test_a_function_that_ignores_its_cancellation_is_left_running() -> None:
    clock, let = VirtualClock(), asyncio.Event()
    asked = Asked(clock)

    async def look(seen: ReconcileRequest) -> ReconcileResult:
        await asked.look(seen)
        while not let.is_set():
            try:
                await let.wait()
            except asyncio.CancelledError:
                continue
        return ReconcileResult("charge.confirmed")

    chart = orders(look, timeout="1s", every="1h")
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(SECOND + STOP_MS_MAX + RECONCILE_BACKOFF_MS_MIN // 2)
        let.set()
        await clock.advance(1)
        assert (1, 1) == (len(asked.seen), (await runtime.state("order/0")).version)
        await clock.advance(RECONCILE_BACKOFF_MS_MIN)

        assert (2, 2) == (len(asked.seen), (await runtime.state("order/0")).version)


@pytest.mark.parametrize("garbage", ["charge.confirmed", {"event": "x"}, 7, ("charge.confirmed", None), object()])
async def test_an_invalid_result_is_a_failure(garbage: Any, caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    asked = Asked(clock, garbage)
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    with caplog.at_level(logging.WARNING):
        async with reconciling(chart, runtime):
            await clock.advance(SECOND)

    assert (2, 1) == (len(asked.seen), (await runtime.state("order/0")).version)
    assert {"reconcile.answer"} == {record.__dict__["code"] for record in caplog.records}


@pytest.mark.parametrize(
    "answer",
    [
        ReconcileResult("unheard.of"),
        ReconcileResult("charge.confirmed", {1}),
        ReconcileResult("_cancel"),
        ReconcileResult(""),
    ],
)
async def test_an_answer_that_the_chart_or_the_driver_refuses_is_a_failure(answer: ReconcileResult) -> None:
    """It is tried again later, and nothing was written."""
    clock = VirtualClock()
    asked = Asked(clock, answer)
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(SECOND)

    assert (2, 1) == (len(asked.seen), (await runtime.state("order/0")).version)


async def test_an_event_that_changes_nothing_is_not_a_failure() -> None:
    clock = VirtualClock()
    asked = Asked(clock, ReconcileResult("waved"))
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime) as loops:
        await clock.advance(MINUTE)

        assert (2, 0) == (len(asked.seen), loops._loops[0].last.failures)


async def test_an_entity_that_changed_meanwhile_does_not_get_the_event() -> None:
    clock = VirtualClock()
    chart = interlock.loads(ORDER)
    runtime = runtime_of(chart, clock)
    versions = []

    @chart.reconciler("slow", state="charge_pending", every="1m")
    async def look(seen: ReconcileRequest) -> ReconcileResult:
        versions.append(seen.version)
        if seen.version == 1:
            await runtime.send("order/0", "touched")
        return ReconcileResult("charge.confirmed")

    await created(runtime)
    async with reconciling(chart, runtime) as loops:
        await clock.advance()
        assert (1, 0) == (loops._loops[0].last.changed_meanwhile, loops._loops[0].last.failures)
        await clock.advance(MINUTE)

    assert [1, 2] == versions
    assert ["touched", "charge.confirmed"] == [each.event.name for each in (await runtime.journal("order/0"))[1:]]


async def test_of_two_events_for_one_version_only_the_first_counts() -> None:
    clock = VirtualClock()
    chart = interlock.loads(ORDER)
    runtime = runtime_of(chart, clock)

    @chart.reconciler("slow", state="charge_pending", every="1m")
    async def look(seen: ReconcileRequest) -> ReconcileResult | None:
        if seen.version > 1:
            return None
        await runtime.submit("order/0", "touched", key=reconcile_key("slow", 1))
        return ReconcileResult("charge.confirmed")

    await created(runtime)
    async with reconciling(chart, runtime) as loops:
        await clock.advance()
        assert (1, 0) == (loops._loops[0].last.changed_meanwhile, loops._loops[0].last.failures)

    assert ["touched"] == [each.event.name for each in (await runtime.journal("order/0"))[1:]]


async def test_an_entity_that_went_on_before_its_turn_is_not_asked_about() -> None:
    """It was listed, and has changed while others were asked about."""
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look, rate=1)
    runtime = runtime_of(chart, clock)
    await created(runtime, 2)
    async with reconciling(chart, runtime):
        await clock.advance()
        await runtime.send("order/1", "charge.confirmed")
        await clock.advance(10 * SECOND)

    assert ["order/0"] == asked.entities


async def test_a_pass_over_its_limit_is_continued_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RECONCILE_PASS_MAX", 4)
    monkeypatch.setattr(runner, "RECONCILE_PAGE", 2)
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look, rate=1_000)
    runtime = runtime_of(chart, clock)
    await created(runtime, 6)
    async with reconciling(chart, runtime):
        await clock.advance(SECOND)
        assert [f"order/{each}" for each in range(4)] == asked.entities
        await clock.advance(MINUTE)
        assert ["order/4", "order/5"] == asked.entities[4:]
        await clock.advance(MINUTE)

        assert "order/0" == asked.entities[6]


@pytest.mark.parametrize(("observed", "told"), [(2, []), (3, [{"desired": 2, "observed": 3}])])
async def test_drift_is_sent_with_the_desired_and_the_observed_value(observed: int, told: list[Any]) -> None:
    clock = VirtualClock()
    asked = Asked(clock, observed)
    chart = orders(asked.look, desired="size", drift="size.drifted")
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(3 * MINUTE)
    entries = await runtime.journal("order/0")

    assert told == [each.event.data for each in entries[1:]]
    assert [2, observed, observed] == [each.desired for each in asked.seen][:3]


async def test_the_desired_value_may_be_nested_in_the_context() -> None:
    clock = VirtualClock()
    asked = Asked(clock, 1)
    chart = orders(asked.look, desired="plan.a", drift="waved")
    chart.reconciler("other", state="charge_pending", desired="plan.a.b", drift="waved")(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance()

    assert {1, None} == {each.desired for each in asked.seen}


async def test_each_pass_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    chart = orders(Asked(clock, ReconcileResult("charge.confirmed")).look, rate=2)
    runtime = runtime_of(chart, clock)
    await created(runtime, 3)
    with caplog.at_level(logging.INFO, logger="interlock.reconcile"):
        async with reconciling(chart, runtime):
            await clock.advance(SECOND)
    (record,) = caplog.records
    told = {
        name: record.__dict__[name]
        for name in ("reconciler", "kind", "entities", "events_sent", "changed_meanwhile", "failures")
    }

    assert "a reconciler made a pass" == record.getMessage()
    assert ["stuck-charges", "order", 3, 3, 0, 0] == list(told.values())
    assert 1_000 == record.__dict__["duration_ms"]
