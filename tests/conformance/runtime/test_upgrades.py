"""Upgrade policy: which entities move to the newest chart before their next step, in which order, and which stay.

Each test opens one process that writes with the old chart, and others that have only the new one: the old definition
comes from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

import interlock
from interlock.errors import ConflictError, UsageError
from interlock.model.journal.entry import MOVED
from interlock.ports.clock import Clock
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.delivery import EntityDelivery
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

OLD = """
interlock: 1
kind: ticket
revision: 1.0.0
context: {price: {type: integer, default: 10}}
initial: open
states:
  open:
    after: {2s: expired}
    on: {paid: paid, lowered: {actions: [{assign: {price: "= context.price - 1"}}]}}
  paid: {on: {refunded: open}}
  expired: {on: {revived: open}}
"""
NEW = (
    OLD.replace("1.0.0", "1.1.0")
    .replace("2s: expired", "4s: expired")
    .replace("context: {", "context: {note: {type: string, default: new}, ")
)
SAFE = NEW.replace("revision: 1.1.0", "revision: 1.1.0\nupgrade: safe")
COMPATIBLE = NEW.replace("revision: 1.1.0", 'revision: 1.1.0\ncompatible: ">=1 <2"')
GONE = SAFE.replace("1.1.0", "1.2.0").replace("  paid: {on: {refunded: open}}\n", "").replace("paid: paid, ", "")

Process = Callable[..., Runtime]


STORES = {"memory": "memory:", "sqlite": "sqlite:///{}/x.db", "file": "file://{}/x", "postgresql": "postgresql:"}


@pytest.fixture(params=STORES)
async def process(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Process]:
    """Return a function that opens a runtime with some charts, as another process would, on one store."""
    address = STORES[request.param]
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    clock: Clock = StillClock()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            interlock.open(url, charts=[interlock.loads(OLD)], clock=clock, work=False)
        )

        def opened(*texts: str, clock: Clock = clock, upgrade: Literal["pinned", "safe"] = "pinned") -> Runtime:
            charts = ChartRegistry(interlock.loads(each).kernel for each in texts)
            return Runtime(first.store, charts, clock, upgrade=upgrade)

        yield opened


async def moves(runtime: Runtime, entity: str = "ticket/1") -> list[int]:
    """The versions at which an entity moved, after it was verified."""
    assert (await runtime.verify(entity)).problem is None
    return [each.version for each in await runtime.journal(entity) if each.event.name == MOVED]


# Which entities move


async def test_an_entity_is_pinned_by_default(process: Process) -> None:
    await process(OLD).create("ticket/1")
    newer = process(NEW)
    sent = await newer.send("ticket/1", "lowered")
    born = await newer.create("ticket/2")

    assert [] == await moves(newer)
    assert sent.snapshot is not None
    assert born.snapshot is not None
    assert ({"price": 9}, {"note": "new", "price": 10}) == (sent.snapshot.context, born.snapshot.context)
    assert await newer.preview_upgrade("ticket/1") is None


@pytest.mark.parametrize(("text", "policy"), [(SAFE, "pinned"), (NEW, "safe"), (COMPATIBLE, "pinned")])
async def test_a_safe_chart_moves_an_entity_before_its_next_step(process: Process, text: str, policy: Any) -> None:
    await process(OLD).create("ticket/1")
    newer = process(text, upgrade=policy)
    preview = await newer.preview_upgrade("ticket/1")
    rehearsed = await newer.dry_run("ticket/1", "lowered")
    sent = await newer.send("ticket/1", "lowered")

    assert [2] == await moves(newer)
    assert preview is not None
    assert preview.would_move
    assert sent.snapshot is not None
    assert (3, 2, {"note": "new", "price": 9}) == (sent.version, sent.snapshot.moved, sent.snapshot.context)
    assert rehearsed.snapshot == sent.snapshot
    assert [("after.4s.open", 5_000)] == [(each.name, each.due_ms) for each in sent.snapshot.timers]


async def test_a_pinned_chart_is_pinned_in_a_safe_process(process: Process) -> None:
    await process(OLD).create("ticket/1")
    pinned = process(NEW.replace("revision: 1.1.0", "revision: 1.1.0\nupgrade: pinned"), upgrade="safe")
    await pinned.send("ticket/1", "lowered")

    assert [] == await moves(pinned)


async def test_an_entity_that_cannot_be_carried_stays_on_its_own_revision_and_works(process: Process) -> None:
    older = process(OLD)
    await older.create("ticket/1")
    await older.send("ticket/1", "paid")
    newer = process(GONE)
    preview = await newer.preview_upgrade("ticket/1")
    stayed = await newer.send("ticket/1", "revived")
    back = await newer.send("ticket/1", "refunded")  # a transition of the old chart
    moved = await newer.send("ticket/1", "lowered")  # in `open` it can be carried

    assert preview is not None
    assert any("state.removed" in each for each in preview.reasons)
    assert ("rejected", "applied", "applied") == (stayed.outcome, back.outcome, moved.outcome)
    assert [4] == await moves(newer)


async def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UsageError) as opened:
        interlock.open("memory:", charts=[interlock.loads(OLD)], upgrade="always")  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(UsageError) as made:
        Runtime(MemoryStore(), ChartRegistry([]), StillClock(), upgrade="always")  # type: ignore[arg-type]  # the mistake that is tested

    assert {"upgrade.policy"} == {opened.value.code, made.value.code}


# Forward only (trap 2)


async def test_workers_with_different_newest_charts_do_not_move_an_entity_back_and_forth(process: Process) -> None:
    older, newer = process(OLD, upgrade="safe"), process(SAFE)
    await older.create("ticket/1")
    for number in range(4):
        await newer.send("ticket/1", "lowered", key=f"n{number}")
        await older.send("ticket/1", "lowered", key=f"o{number}")

    assert [2] == await moves(newer)
    assert {"note": "new", "price": 2} == (await older.state("ticket/1")).context


async def test_a_rolling_deployment_loses_no_event_and_knows_every_revision(process: Process) -> None:
    """Two workers on each revision, restarted again and again, and clients that send to any of them."""
    random, entities, turns = Random(7), [f"ticket/{number}" for number in range(6)], 8
    texts = [OLD, OLD, SAFE, SAFE]
    workers = [process(each) for each in texts]
    for entity in entities:
        await workers[0].create(entity, {"price": 100})

    async def client(entity: str, number: int) -> list[str]:
        outcomes: list[str] = []
        for turn in range(turns):
            slot = random.randrange(len(texts))
            if random.random() < 0.2:
                workers[slot] = process(texts[slot])  # a restart: nothing is cached
            outcomes.append((await workers[slot].send(entity, "lowered", key=f"{number}-{turn}")).outcome)
            await asyncio.sleep(0)
        return outcomes

    answers = await asyncio.gather(*(client(each, number) for each in entities for number in range(2)))
    newer = process(SAFE)

    assert {"applied"} == {outcome for outcomes in answers for outcome in outcomes}
    for entity in entities:
        assert 1 == len(await moves(newer, entity))
        assert {"note": "new", "price": 100 - 2 * turns} == (await newer.state(entity)).context


# The order within a turn (section 3 of the design)


GUARDED = """
events: {paid: {roles: [till]}, lowered: {}, refunded: {}, revived: {}, %s}
"""


async def test_who_is_denied_by_role_causes_no_move(process: Process) -> None:
    old = OLD.replace("initial: open", (GUARDED % "x: {}") + "initial: open")
    safe = SAFE.replace("initial: open", (GUARDED % "x: {}") + "initial: open")
    await process(old).create("ticket/1")
    newer = process(safe)
    denied = await newer.send("ticket/1", "paid", principal={"id": "eve", "roles": []})

    assert ("denied", []) == (denied.outcome, await moves(newer))
    paid = await newer.send("ticket/1", "paid", principal={"id": "till", "roles": ["till"]})
    assert ("applied", [2]) == (paid.outcome, await moves(newer))


async def test_a_repeated_send_causes_no_move(process: Process) -> None:
    older = process(OLD)
    await older.create("ticket/1")
    await older.send("ticket/1", "lowered", key="k")
    newer = process(SAFE)
    again = await newer.send("ticket/1", "lowered", key="k")

    assert ("duplicate", 2, []) == (again.outcome, again.version, await moves(newer))


async def test_expected_is_the_version_before_the_move(process: Process) -> None:
    await process(OLD).create("ticket/1")
    newer = process(SAFE)
    with pytest.raises(ConflictError):
        await newer.send("ticket/1", "lowered", expected=7)
    before = await moves(newer)
    sent = await newer.send("ticket/1", "lowered", expected=1)

    assert ([], "applied", 3, [2]) == (before, sent.outcome, sent.version, await moves(newer))


async def test_the_move_stays_when_the_new_chart_refuses_the_event(process: Process) -> None:
    await process(OLD).create("ticket/1")
    newer = process(SAFE)
    refused = await newer.send("ticket/1", "revived")

    assert ("rejected", 2, [2]) == (refused.outcome, refused.version, await moves(newer))


# Timers, invokes, settling (traps 3, 4, 6, 8)


async def test_a_timer_that_a_worker_claimed_is_judged_by_the_new_chart() -> None:
    clock, store = VirtualClock(1_000), MemoryStore()
    older = Runtime(store, ChartRegistry([interlock.loads(OLD).kernel]), clock)
    await older.create("ticket/1")
    newer = Runtime(store, ChartRegistry([interlock.loads(SAFE).kernel]), clock)
    await clock.advance(2_500)
    fired = await EntityDelivery(newer).fire_timers("ticket/1")  # what a worker does with the row that it claimed
    early = (await newer.state("ticket/1")).configuration
    worker = Worker(newer, {})
    await worker.start()
    await clock.advance(2_000)
    await worker.stop()

    assert (frozenset(), ("open",)) == (fired.fired, early)
    assert (("expired",), [2]) == ((await newer.state("ticket/1")).configuration, await moves(newer))


async def test_a_worker_moves_an_entity_whose_timer_is_due() -> None:
    clock, store = VirtualClock(1_000), MemoryStore()
    older = Runtime(store, ChartRegistry([interlock.loads(OLD).kernel]), clock)
    await older.create("ticket/1")
    sooner = SAFE.replace("4s: expired", "1s: expired")
    newer = Runtime(store, ChartRegistry([interlock.loads(sooner).kernel]), clock)
    worker = Worker(newer, {})
    await worker.start()
    await clock.advance(3_000)
    await worker.stop()

    assert (("expired",), [2]) == ((await newer.state("ticket/1")).configuration, await moves(newer))


BUSY = """
interlock: 1
kind: ticket
revision: 1.0.0
upgrade: safe
initial: busy
states:
  busy: {invoke: [{src: payment.take, onDone: paid, onError: failed}]}
  checked: {}
  paid: {}
  failed: {}
"""
FRONT = BUSY.replace("1.0.0", "1.1.0").replace(
    "invoke: [", "invoke: [{src: fraud.check, onDone: checked, onError: failed}, "
)


async def test_the_result_of_a_payment_is_not_taken_for_that_of_an_inserted_invoke(process: Process) -> None:
    older = process(BUSY)
    await older.create("ticket/1")
    newer = process(FRONT)
    (invoke,) = (await newer.state("ticket/1")).invokes
    preview = await newer.preview_upgrade("ticket/1")
    event = interlock.Event(
        f"done.invoke.{invoke.id}", "p-1", type="platform", invokeid=invoke.id, source=f"invoke/{invoke.key}"
    )
    receipt = await newer.sender.deliver("ticket/1", event, key="_result")

    assert preview is not None
    assert not preview.would_move
    assert receipt.snapshot is not None
    assert (("paid",), []) == (receipt.snapshot.configuration, await moves(newer))


async def test_an_added_eventless_transition_is_taken_by_the_move(process: Process) -> None:
    await process(OLD).create("ticket/1", {"price": 0})
    always = SAFE.replace("  open:\n", '  open:\n    always: [{target: paid, guard: "= context.price == 0"}]\n')
    newer = process(always)
    unknown = await newer.send("ticket/1", "revived")
    entries = await newer.journal("ticket/1")

    assert ("rejected", [2]) == (unknown.outcome, await moves(newer))
    assert (("open",), ("paid",)) == (entries[1].before, entries[1].after)


# `compatible` is checked


async def test_what_a_compatible_chart_breaks_is_logged_and_such_entities_stay(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    older = process(OLD)
    await older.create("ticket/1")
    await older.send("ticket/1", "paid")
    broken = process(GONE.replace("upgrade: safe", 'compatible: ">=1 <2"'))
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        back = await broken.send("ticket/1", "refunded")
        await broken.create("ticket/2")
        await broken.send("ticket/2", "lowered")
    named = [record.__dict__["changes"] for record in caplog.records if "compatible" in record.message]

    assert "applied" == back.outcome
    assert 1 == len(named)
    assert "state.removed" in named[0]
