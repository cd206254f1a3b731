"""Reconcilers: which process runs them, on which stores, and how they are registered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import interlock
from interlock import ReconcileRequest, ReconcileResult
from interlock.errors import UnavailableError, UsageError
from interlock.model.limits import LEASE_MS
from interlock.ports.admission import AdmissionPermit
from interlock.ports.leases import Lease
from interlock.ports.store import EntityPage, EntityQuery
from interlock.runtime.reconcile.runner import ReconcilerGroup
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.unit.runtime.reconcilers import MINUTE, ORDER, SECOND, Asked, created, orders, reconciling, runtime_of


async def test_of_two_runtimes_one_looks() -> None:
    """The other waits for its lease."""
    clock, store = VirtualClock(), MemoryStore()
    first, second = Asked(clock), Asked(clock)
    charts = [orders(first.look), orders(second.look)]
    one, two = (runtime_of(each, clock, store) for each in charts)
    await created(one)
    async with reconciling(charts[0], one):
        await clock.advance()
        async with reconciling(charts[1], two):
            await clock.advance(10 * MINUTE)

            assert (11, 0) == (len(first.seen), len(second.seen))


async def test_when_a_process_dies_another_continues_after_its_lease_has_expired() -> None:
    clock, store = VirtualClock(), MemoryStore()
    first, second = Asked(clock), Asked(clock)
    charts = [orders(first.look, every="1s"), orders(second.look, every="1s")]
    one, two = (runtime_of(each, clock, store) for each in charts)
    await created(one)
    dying = ReconcilerGroup(one, tuple(charts[0].reconcilers.values()))
    await dying.start()
    await clock.advance()
    for task in dying._tasks:
        task.cancel()  # as a kill would: nothing is given back
    await asyncio.gather(*dying._tasks, return_exceptions=True)
    async with reconciling(charts[1], two):
        await clock.advance(LEASE_MS - 1)
        assert [] == second.seen
        await clock.advance(LEASE_MS // 3 + 1)

        assert 0 < len(second.seen)


async def test_a_process_that_stops_releases_its_lease() -> None:
    clock, store = VirtualClock(), MemoryStore()
    first, second = Asked(clock), Asked(clock)
    charts = [orders(first.look), orders(second.look)]
    one, two = (runtime_of(each, clock, store) for each in charts)
    await created(one)
    async with reconciling(charts[0], one):
        await clock.advance()
    async with reconciling(charts[1], two):
        await clock.advance()

        assert 1 == len(second.seen)


async def test_a_process_that_cannot_renew_its_lease_stops_before_it_expires() -> None:
    class Shaky(MemoryStore):
        """A store that can be set to renew no lease."""

        deaf = False

        async def lease(self, name: str, *, owner: str, now_ms: int, until_ms: int) -> Lease | None:
            if self.deaf:
                raise UnavailableError("no", code="store.busy")
            return await super().lease(name, owner=owner, now_ms=now_ms, until_ms=until_ms)

    clock, store = VirtualClock(), Shaky()
    asked = Asked(clock)
    chart = orders(asked.look, every="1s")
    runtime = runtime_of(chart, clock, store)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance()
        store.deaf = True
        await clock.advance(LEASE_MS)
        count = len(asked.seen)
        await clock.advance(LEASE_MS)
        assert (count, True) == (len(asked.seen), asked.times[-1] < LEASE_MS)
        store.deaf = False
        await clock.advance(LEASE_MS)

        assert count < len(asked.seen)


async def test_a_result_after_the_lease_expired_is_not_sent() -> None:
    clock, let = VirtualClock(), asyncio.Event()
    asked = Asked(clock)

    async def look(seen: ReconcileRequest) -> ReconcileResult:
        await asked.look(seen)
        await let.wait()
        return ReconcileResult("charge.confirmed")

    chart = orders(look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.settle()
        clock.time_ms += LEASE_MS
        let.set()
        await clock.settle()

        assert (1, 1) == (len(asked.seen), (await runtime.state("order/0")).version)


async def test_entities_in_progress_when_the_lease_was_lost_are_checked_again() -> None:
    clock, store = VirtualClock(), MemoryStore()
    asked = Asked(clock)

    async def look(seen: ReconcileRequest) -> None:
        await asked.look(seen)
        if len(asked.seen) == 1:
            await asyncio.Event().wait()

    chart = orders(look, timeout="1h", every="1s")
    runtime = runtime_of(chart, clock, store)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.settle()
        clock.time_ms += LEASE_MS  # asleep: another takes over meanwhile
        name, now_ms = "reconcile/stuck-charges", clock.now_ms()
        taken = await store.lease(name, owner="another", now_ms=now_ms, until_ms=now_ms + LEASE_MS)
        await clock.advance(LEASE_MS - 1)
        assert (True, 1) == (taken is not None, len(asked.seen))
        await clock.advance(LEASE_MS)

        assert len(asked.seen) > 1


async def test_a_failed_list_is_tried_again() -> None:
    class Blind(MemoryStore):
        """A store that lists nothing the first time."""

        problems: list[Exception]

        async def find(self, query: EntityQuery) -> EntityPage:
            if self.problems:
                raise self.problems.pop()
            return await super().find(query)

    clock, store = VirtualClock(), Blind()
    store.problems = [UnavailableError("no", code="store.busy"), OSError("no")]
    asked = Asked(clock)
    chart = orders(asked.look, every="1s")
    runtime = runtime_of(chart, clock, store)
    await created(runtime)
    async with reconciling(chart, runtime):
        await clock.advance(2 * SECOND)

    assert 1 == len(asked.seen)


async def test_while_the_gate_drains_no_entity_is_checked() -> None:
    class Shut:
        """A gate that gives no permit."""

        def try_enter(self) -> AdmissionPermit | None:
            """No."""
            return None

    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look)
    runtime = runtime_of(chart, clock)
    await created(runtime)
    runtime.gate = Shut()
    async with reconciling(chart, runtime):
        await clock.advance(MINUTE)

    assert [] == asked.seen


async def test_a_runtime_that_leaves_work_to_others_reconciles_nothing() -> None:
    """`work=False`."""
    clock = VirtualClock()
    asked = Asked(clock)
    async with interlock.open("memory:", charts=[orders(asked.look)], clock=clock, work=False) as runtime:
        await created(runtime)
        await clock.advance(MINUTE)

    assert [] == asked.seen


async def test_a_store_without_leases_is_refused() -> None:
    chart = orders(Asked(VirtualClock()).look)
    with pytest.raises(UnavailableError, check=lambda error: error.code == "store.leases"):
        ReconcilerGroup(runtime_of(chart, VirtualClock(), Leaseless()), ())


class Leaseless(MemoryStore):
    """A store that keeps work and no leases."""

    leases = None  # type: ignore[assignment]  # the point


@pytest.mark.parametrize("wish", ["reconciler", "onRestore"])
async def test_a_runtime_on_a_store_without_leases_opens_with_a_warning(
    wish: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("interlock.stores.memory.open_store", lambda url: Leaseless())
    clock = VirtualClock()
    asked = Asked(clock)
    chart = orders(asked.look)
    if wish == "onRestore":
        chart = interlock.loads(ORDER.replace("  charged: {}", "  charged: {after: {1s: {onRestore: restart}}}"))
    with caplog.at_level(logging.WARNING):
        async with interlock.open("memory:", charts=[chart], clock=clock) as runtime:
            await created(runtime)
            await clock.advance(MINUTE)

    assert [] == asked.seen
    assert "this store has no leases" in caplog.text


async def test_a_chart_that_needs_no_leases_opens_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is missing."""
    monkeypatch.setattr("interlock.stores.memory.open_store", lambda url: Leaseless())
    with caplog.at_level(logging.WARNING):
        async with interlock.open("memory:", charts=[interlock.loads(ORDER)], clock=VirtualClock()):
            pass

    assert "" == caplog.text


def test_two_reconcilers_of_one_name_are_refused() -> None:
    """One lease for both: one of them would never run."""
    charts = [orders(Asked(VirtualClock()).look), orders(Asked(VirtualClock()).look)]
    with pytest.raises(UsageError, check=lambda error: error.code == "reconciler.twice"):
        interlock.open("memory:", charts=charts)


async def _fine(seen: ReconcileRequest) -> None:
    """A function that has nothing to say."""


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"name": 7},
        {"state": "charge_pendin"},
        {"older": "5"},
        {"older": 5},
        {"every": "0s"},
        {"timeout": "soon"},
        {"rate": 0},
        {"rate": True},
        {"rate": "fast"},
        {"running": 0},
        {"running": 1.5},
        {"desired": "size"},
        {"drift": "size.drifted"},
        {"desired": "sise", "drift": "size.drifted"},
        {"desired": "size", "drift": 7},
        {"function": print},
    ],
)
def test_an_invalid_reconciler_is_refused_when_it_is_registered(options: dict[str, Any]) -> None:
    given = {"name": "stuck", "state": "charge_pending", "function": _fine, **options}
    name, function = given.pop("name"), given.pop("function")
    with pytest.raises(UsageError) as raised:
        interlock.loads(ORDER).reconciler(name, **given)(function)

    assert ("reconciler.malformed", True) == (raised.value.code, bool(raised.value.hint))


def test_a_reconciler_cannot_answer_with_a_reserved_event() -> None:
    """It is refused where it is written, as every other sender is."""
    with pytest.raises(UsageError) as raised:
        interlock.loads(ORDER).reconciler("stuck", state="charge_pending", desired="size", drift="error")(_fine)

    assert "event.reserved" == raised.value.code
