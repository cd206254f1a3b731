"""Rollouts: which revision a new entity starts on, in every process, and what they do to upgrades."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import interlock
from interlock.errors import ConflictError, CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.operate.rollout import abort_rollout, advance_rollout, rollout_status, start_rollout
from interlock.runtime.charts.revisions import make_definition
from interlock.runtime.charts.rollouts import CHECKED_MS, Rollout, read_rollout
from interlock.runtime.runtime import Runtime
from interlock.testing.clock import VirtualClock
from tests.support.eventually import eventually

OLD = """
interlock: 1
kind: order
revision: 1.0.0
events: {paid: {}}
states:
  open: {on: {paid: done}}
  done: {type: final}
"""
NEW = OLD.replace("1.0.0", "2.0.0").replace("states:\n", "states:\n  checked: {on: {paid: done}}\n")
NEWEST = OLD.replace("1.0.0", "3.0.0").replace("open", "waiting")
SAFE_NEW = NEW.replace("kind: order\n", "kind: order\nupgrade: safe\n")
ADA = "ada"


@pytest.fixture(params=["memory", "files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    names = {"memory": "memory:", "files": f"file://{tmp_path}/orders", "sqlite": f"sqlite:///{tmp_path}/orders.db"}
    return names[request.param]


@asynccontextmanager
async def orders(url: str, *charts: str, clock: VirtualClock | None = None) -> AsyncIterator[Runtime]:
    """A runtime of some charts; the last one is its newest."""
    loaded = [interlock.loads(each) for each in charts]
    async with interlock.open(url, charts=loaded, clock=clock or VirtualClock(1_000), work=False) as runtime:
        await save(runtime, *charts)
        yield runtime


async def save(runtime: Runtime, *charts: str) -> None:
    """Save definitions in the store, as `db definitions add` does."""
    assert runtime.store.definitions is not None
    for each in charts:
        definition = make_definition(interlock.loads(each).chart)
        assert definition is not None
        await runtime.store.definitions.save_definition(definition, now_ms=1)


async def created(runtime: Runtime, count: int = 200, *, prefix: str = "a") -> dict[str, str]:
    """The first state of new orders, by entity; it shows the revision."""
    found = {}
    for number in range(count):
        receipt = (await runtime.create(f"order/{prefix}{number}")).expect()
        assert receipt.snapshot is not None
        found[f"order/{prefix}{number}"] = receipt.snapshot.configuration[0]
    return found


async def passed(runtime: Runtime) -> None:
    """Let the time pass in which a process may follow an old decision."""
    clock = runtime.clock
    assert isinstance(clock, VirtualClock)
    clock.time_ms += CHECKED_MS


async def test_a_share_of_new_entities_starts_on_the_new_revision(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        await start_rollout(runtime, "order", to="2.0.0", share=2_000, by=ADA, why="canary")
        await passed(runtime)
        found = list((await created(runtime)).values())

    assert set(found) == {"open", "checked"}
    assert 15 <= found.count("checked") <= 70  # 40 expected; five standard deviations


async def test_a_larger_share_contains_the_smaller_one(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        first = await start_rollout(runtime, "order", to="2.0.0", share=1_000, by=ADA)
        then = await advance_rollout(runtime, "order", share=2_000, by=ADA)
        again = await start_rollout(runtime, "order", to="2.0.0", share=3_000, by=ADA)

    names = [f"order/{number}" for number in range(5_000)]
    cohorts = [{name for name in names if each.has(name)} for each in (first, then, again)]
    assert cohorts[0] < cohorts[1] < cohorts[2]
    assert [pytest.approx(share, abs=150) for share in (500, 1_000, 1_500)] == [len(each) for each in cohorts]


async def test_two_rollouts_choose_different_entities() -> None:
    row = Rollout(revision="b", base="a", share=5_000, salt="x", state="active", history=())
    other = Rollout(revision="b", base="a", share=5_000, salt="y", state="active", history=())
    names = [f"order/{number}" for number in range(1_000)]
    both = sum(row.has(each) == other.has(each) for each in names)

    assert 350 < both < 650


async def test_an_entity_keeps_its_revision_whatever_becomes_of_the_rollout(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        await start_rollout(runtime, "order", to="2.0.0", share=5_000, by=ADA)
        await passed(runtime)
        before = await created(runtime, 20)
        await abort_rollout(runtime, "order", by=ADA)
        await passed(runtime)
        after = {entity: (await runtime.state(entity)).configuration[0] for entity in before}
        (await runtime.send(next(name for name, state in before.items() if state == "checked"), "paid")).expect()
        later = set((await created(runtime, 20, prefix="b")).values())

    assert (before, {"open"}) == (after, later)


async def test_a_process_with_only_one_of_the_charts_follows_the_same_decision(url: str) -> None:
    if url == "memory:":
        pytest.skip("a store in memory ends with its runtime")
    found: list[dict[str, str]] = []
    async with orders(url, OLD) as runtime:
        await save(runtime, NEW)
        await start_rollout(runtime, "order", to="2.0.0", share=5_000, by=ADA)
    for chart in (OLD, NEW):
        async with orders(url, chart) as runtime:
            rollout = await read_rollout(runtime.store, "order")
            assert rollout is not None
            states = await created(runtime, 30, prefix=f"{len(found)}-")
            found.append(states)
            assert {name: "checked" if rollout.has(name) else "open" for name in states} == states

    assert [{"open", "checked"}] * 2 == [set(each.values()) for each in found]


async def test_a_running_process_follows_within_a_second(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        await created(runtime, 1)
        await start_rollout(runtime, "order", to="1.0.0", share=10_000, by=ADA)
        before = await created(runtime, 1, prefix="b")
        await passed(runtime)
        after = await created(runtime, 1, prefix="c")

    assert ({"order/b0": "checked"}, {"order/c0": "open"}) == (before, after)


async def test_a_complete_rollout_does_not_hold_back_a_later_chart(url: str) -> None:
    charts = [interlock.loads(each) for each in (OLD, NEW, NEWEST)]
    async with interlock.open(url, charts=charts, clock=VirtualClock(1_000), work=False) as runtime:
        await save(runtime, OLD, NEW)  # the store gets the newest one with the first order
        await start_rollout(runtime, "order", to="2.0.0", share=9_999, by=ADA)
        await passed(runtime)
        held = set((await created(runtime, 50)).values())
        await advance_rollout(runtime, "order", share=10_000, by=ADA)
        await passed(runtime)
        free = set((await created(runtime, 5, prefix="b")).values())

    assert ({"checked"}, {"waiting"}) == (held, free)


async def test_an_older_chart_follows_a_complete_rollout(url: str) -> None:
    async with orders(url, NEW, OLD) as runtime:  # this process still has the old chart as its newest
        await save(runtime, OLD, NEWEST)
        await start_rollout(runtime, "order", to="3.0.0", share=10_000, by=ADA)
        await passed(runtime)
        found = await created(runtime, 3)

    assert {"waiting"} == set(found.values())


async def test_no_entity_is_upgraded_while_or_after_its_revision_is_held_back(url: str) -> None:
    async with orders(url, OLD, SAFE_NEW.replace("checked: {on: {paid: done}}", "checked: {}")) as runtime:
        await save(runtime, OLD)
        await start_rollout(runtime, "order", to="1.0.0", share=10_000, by=ADA)
        await passed(runtime)
        await created(runtime, 1)
        await passed(runtime)
        promoted = await runtime.preview_upgrade("order/a0")
        await start_rollout(runtime, "order", to="2.0.0", share=100, by=ADA)
        await passed(runtime)
        active = await runtime.preview_upgrade("order/a0")
        await abort_rollout(runtime, "order", by=ADA)
        await passed(runtime)
        aborted = await runtime.preview_upgrade("order/a0")
        await start_rollout(runtime, "order", to="2.0.0", share=10_000, by=ADA)
        await passed(runtime)
        complete = await runtime.preview_upgrade("order/a0")

    assert (None, None, None) == (promoted, active, aborted)
    assert complete is not None
    assert complete.would_move


async def test_going_back_moves_entities_forward_to_the_older_definition(url: str) -> None:
    """A revision that is chosen again is later than the one that replaced it, so `upgrade: safe` moves to it."""
    safe_old = OLD.replace("kind: order\n", "kind: order\nupgrade: safe\n")
    unlike = NEWEST.replace("waiting", "open").replace("{paid: {}}", "{paid: {}, sent: {}}")
    async with orders(url, safe_old, unlike, safe_old) as runtime:
        await start_rollout(runtime, "order", to="3.0.0", share=10_000, by=ADA)
        await passed(runtime)
        await created(runtime, 1)
        pinned = await runtime.preview_upgrade("order/a0")
        rollout = await start_rollout(runtime, "order", to="1.0.0", share=10_000, by=ADA, why="3.0.0 loses coupons")
        await passed(runtime)
        (await runtime.send("order/a0", "paid")).expect()
        journal = [entry.event.name for entry in await runtime.journal("order/a0")]

    assert pinned is None
    assert ("ada", "3.0.0 loses coupons") == (rollout.history[-1].by, rollout.history[-1].why)
    assert ["_create", "_revision.moved", "paid"] == journal


async def test_a_share_only_grows_and_states_are_checked(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        with pytest.raises(NotFoundError):
            await advance_rollout(runtime, "order", share=10, by=ADA)
        with pytest.raises(NotFoundError):
            await start_rollout(runtime, "order", to="9.9.9", share=10, by=ADA)
        with pytest.raises(NotFoundError):
            await start_rollout(runtime, "parcel", to="1.0.0", share=10, by=ADA)
        with pytest.raises(UsageError):
            await start_rollout(runtime, "order", to="2.0.0", base="2.0.0", share=10, by=ADA)
        for share in (0, -1, 10_001):
            with pytest.raises(UsageError):
                await start_rollout(runtime, "order", to="2.0.0", share=share, by=ADA)
        await start_rollout(runtime, "order", to="2.0.0", share=500, by=ADA)
        with pytest.raises(UsageError):
            await advance_rollout(runtime, "order", share=400, by=ADA)
        with pytest.raises(ConflictError):
            await start_rollout(runtime, "order", to="1.0.0", share=500, by=ADA)
        await abort_rollout(runtime, "order", by=ADA)
        with pytest.raises(UsageError):
            await advance_rollout(runtime, "order", share=600, by=ADA)
        status = await rollout_status(runtime, "order")

    assert status is not None
    assert ["active", "aborted"] == [each.state for each in status.rollout.history]


async def test_two_changes_at_once_do_not_overwrite_each_other(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        assert runtime.store.leases is not None
        now_ms = runtime.clock.now_ms()
        await runtime.store.leases.acquire_lease("rollout/order", owner="x", now_ms=now_ms, until_ms=now_ms + 5_000)
        with pytest.raises(ConflictError):
            await start_rollout(runtime, "order", to="2.0.0", share=500, by=ADA)
        found = await read_rollout(runtime.store, "order")

    assert found is None


async def test_status_counts_entities_by_revision(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        await start_rollout(runtime, "order", to="2.0.0", share=5_000, by=ADA)
        await passed(runtime)
        states = list((await created(runtime, 20)).values())
        found = await rollout_status(runtime, "order")

    assert found is not None
    counts = [found.entities.get(each, 0) for each in (found.rollout.revision, found.rollout.base)]
    assert [states.count("checked"), states.count("open")] == counts
    assert {"1.0.0", "2.0.0"} == set(found.labels.values())


async def test_a_long_history_fits_into_a_fact(url: str) -> None:
    async with orders(url, OLD, NEW) as runtime:
        for number in range(30):
            await start_rollout(runtime, "order", to="2.0.0", share=100, by="\x00é" * 400, why="漢" * 1_000)
            await abort_rollout(runtime, "order", by=ADA, why=f"{number}")
        found = await read_rollout(runtime.store, "order")

    assert found is not None
    assert "29" == found.history[-1].why


async def test_a_rollout_to_functions_that_a_process_lacks_refuses_its_cohort(url: str) -> None:
    guarded = NEW.replace("{on: {paid: done}}", "{on: {paid: {target: done, guard: rich}}}", 1)
    async with orders(url, OLD) as runtime:
        await save(runtime, guarded)
        await start_rollout(runtime, "order", to="2.0.0", share=10_000, by=ADA)
        await passed(runtime)
        with pytest.raises(UnavailableError) as refused:
            await runtime.create("order/1")

    assert "function.missing" == refused.value.code


async def test_a_damaged_rollout_is_reported(url: str) -> None:
    async with orders(url, OLD) as runtime:
        assert runtime.store.facts is not None
        await runtime.store.facts.save_fact("rollout/order", "{}")
        with pytest.raises(CorruptionError):
            await runtime.create("order/1")


async def test_children_follow_the_rollout_of_their_kind(tmp_path: Path) -> None:
    parent = """
interlock: 1
kind: shop
revision: 1.0.0
states:
  busy:
    invoke: {id: one, type: chart, src: order, onDone: done, onError: done}
  done: {type: final}
"""
    clock = VirtualClock(1_000)
    charts = [interlock.loads(each) for each in (parent, OLD, NEW)]
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=charts, clock=clock) as runtime:
        await save(runtime, OLD, NEW)
        await start_rollout(runtime, "order", to="1.0.0", share=10_000, by=ADA)
        clock.time_ms += CHECKED_MS
        await runtime.create("shop/1")

        async def children() -> list[str]:
            await clock.advance(100)
            rows = (await runtime.list(interlock.EntityQuery(kind="order"))).rows
            return [each.configuration[0] for each in rows]

        found = await eventually(children, "a child")

    assert ["open"] == found
