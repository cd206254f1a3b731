"""Children: started, waited for, restarted, ended in time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from interlock.effects.children import Children, restart_child
from interlock.effects.lanes import RunningWork
from interlock.effects.retry import Failure
from interlock.effects.timers import Timers
from interlock.errors import RejectedError, UnavailableError
from interlock.model.journal.work import CHILD_WORK, WorkDelta, WorkId
from interlock.model.limits import LOOK_MS_MAX
from interlock.model.step import Outcome
from interlock.ports.delivery import Child
from interlock.ports.work import Settlement
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.unit.effects.scene import CHARGE, RecordingDelivery, held

NOW = 1_000_000


def child_work(**payload: Any) -> RunningWork:
    """Return the work of a child."""
    return held({"id": "net", "src": "network", "type": "chart", "state": "a", **payload}, name=CHILD_WORK)


def driver_with(child: Child | None = None) -> RecordingDelivery:
    """Return a delivery with one child that was started once."""
    driver = RecordingDelivery()
    if child is not None:
        driver.children["network/0"] = child
    return driver


async def performed(driver: RecordingDelivery, work: RunningWork) -> Settlement | None:
    """How the work was settled."""
    return await Children(driver, VirtualClock(NOW)).perform(work)


async def test_a_child_is_started_and_waited_for() -> None:
    work = child_work()

    assert Settlement(work.claim, "wait") == await performed(
        driver_with(Child("network/net-1", NOW, ended=False)), work
    )


async def test_a_child_with_a_timeout_is_checked_again_without_a_failure() -> None:
    work = child_work(timeout_ms=500)
    settled = await performed(driver_with(Child("network/net-1", NOW - 100, ended=False)), work)

    assert Settlement(work.claim, "again", NOW + 400, lapsed=True) == settled


async def test_a_child_that_exceeds_its_timeout_is_ended_before_its_parent_gets_the_error() -> None:
    """After a kill in between, both are repeated; in the other order the child would keep running."""
    driver = driver_with(Child("network/net-1", NOW - 500, ended=False))
    settled = await performed(driver, child_work(timeout_ms=500))

    assert settled is None
    assert [("network/net-1", "_cancel"), ("order/1", "error.invoke.net")] == [
        (entity, event.name) for entity, event, _, _, _ in driver.given
    ]
    assert ("timeout", CHARGE, 1) == (driver.given[1][1].data["code"], driver.given[1][3], driver.given[1][4])


async def test_the_timeout_of_a_child_that_ended_does_not_count() -> None:
    work = child_work(timeout_ms=500)

    assert Settlement(work.claim, "wait") == await performed(driver_with(Child("network/n", 0, ended=True)), work)


async def test_without_the_chart_the_child_is_left_to_other_processes() -> None:
    """The work is postponed without an attempt, and the reason is stored with it."""
    driver, work = driver_with(), child_work()
    settled = await performed(driver, work)
    why = {"code": "kind.unknown", "message": "no chart `network`"}

    assert Settlement(work.claim, "again", NOW + LOOK_MS_MAX, error=why, lapsed=True, begun=False) == settled
    assert [] == driver.given


async def test_a_parent_whose_chart_is_not_here_waits_too() -> None:
    """Another process has it."""
    driver, work = driver_with(), child_work()
    driver.refusal = UnavailableError("not here", code="revision.unknown")
    settled = await performed(driver, work)

    assert settled is not None
    assert ("again", True, False) == (settled.verdict, settled.lapsed, settled.begun)


async def test_an_unavailable_store_is_not_a_failure_of_the_child() -> None:
    driver = driver_with()
    driver.refusal = UnavailableError("away", code="store.away")
    with pytest.raises(UnavailableError, match="away"):
        await performed(driver, child_work())


async def test_an_input_that_the_chart_refuses_is_an_error_of_the_invoke() -> None:
    """Nothing was done."""
    driver = driver_with()
    driver.refusal = RejectedError("no size", code="context.missing")
    await performed(driver, child_work())

    assert [("error.invoke.net", "context.missing", "no")] == [
        (event.name, event.data["code"], event.data["done"]) for _, event, _, _, _ in driver.given
    ]


@pytest.mark.parametrize("outcome", ["rejected", "ignored"])
async def test_the_work_of_a_child_ends_with_its_parent(outcome: Outcome) -> None:
    driver = driver_with()
    driver.refusal = RejectedError("no size", code="context.missing")
    driver.outcome = outcome
    work = child_work()

    assert Settlement(work.claim, "done") == await performed(driver, work)


def test_a_failed_child_is_restarted_while_tries_are_left() -> None:
    retry = {"max": 1, "backoff": "1s", "jitter": "none", "on": None}
    first = child_work(retry=retry).claim
    second = held(first.work.body, attempt=2, failures=1, name=CHILD_WORK).claim
    failed = Failure("child_failed", "it broke")

    assert Settlement(first, "again", NOW + 1_000) == restart_child(first, failed, now_ms=NOW, chance=0.0)
    assert restart_child(second, failed, now_ms=NOW, chance=0.0) is None


async def test_a_due_row_fires_all_due_timers_of_its_entity() -> None:
    driver, work = RecordingDelivery(), held({"event": "late"}, name="t")
    gone = await Timers(driver, VirtualClock(NOW)).perform(work)
    driver.fired = frozenset({CHARGE, WorkId("timer", 2, 1)})
    fired = await Timers(driver, VirtualClock(NOW)).perform(work)

    assert (Settlement(work.claim, "done"), None) == (gone, fired)


async def test_the_row_of_a_timer_that_still_waits_is_never_removed() -> None:
    """The store's clock may be ahead of the runtime's."""
    driver, work = RecordingDelivery(), held({"event": "late"}, name="t")
    driver.waiting = {CHARGE: NOW + 3}
    early = await Timers(driver, VirtualClock(NOW)).perform(work)
    driver.waiting = {CHARGE: NOW}
    kept = await Timers(driver, VirtualClock(NOW)).perform(work)

    assert Settlement(work.claim, "again", NOW + 3, lapsed=True) == early
    assert Settlement(work.claim, "again", NOW + LOOK_MS_MAX, lapsed=True) == kept


async def test_the_timeout_of_a_child_created_in_the_future_counts_from_when_that_is_noticed() -> None:
    clock = VirtualClock(NOW)
    driver = driver_with(Child("network/net-1", NOW + 10**9, ended=False))
    work = child_work(timeout_ms=500)
    store = MemoryStore()
    store._work.keep("order/1", WorkDelta((work.claim.work,)))
    children = Children(driver, clock, work=store)
    for _ in range(2):
        (claim,) = await store.claim("effect", None, owner="w", now_ms=clock.time_ms, until_ms=clock.time_ms, limit=1)
        settled = await children.perform(RunningWork(claim))
        assert settled is not None
        assert (NOW + 500, NOW) == (settled.next_ms, settled.error["since_ms"])
        await store.settle((replace(settled, next_ms=clock.time_ms),), now_ms=clock.time_ms)
        clock.time_ms += 100
    clock.time_ms = NOW + 500
    (claim,) = await store.claim("effect", None, owner="w", now_ms=clock.time_ms, until_ms=clock.time_ms, limit=1)

    assert None is await children.perform(RunningWork(claim))
    assert ["_cancel", "error.invoke.net"] == [event.name for _, event, *_ in driver.given]


async def test_without_a_note_the_timeout_of_such_a_child_starts_now() -> None:
    work = child_work(timeout_ms=500)
    settled = await performed(driver_with(Child("network/net-1", NOW + 10**9, ended=False)), work)

    assert settled is not None
    assert (NOW + 500, "clock.ahead") == (settled.next_ms, settled.error["code"])
