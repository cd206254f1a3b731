"""Shadow replay over a store: what is compared, what cannot be, and that nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.assemble.charts import BoundChart, loads
from interlock.errors import ArchivedError
from interlock.evolve.shadow import ShadowReport
from interlock.model.journal.entry import MOVED
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import PAGE_MAX, EntityPage, EntityQuery, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.epoch import raise_epoch
from interlock.runtime.history import shadow
from interlock.runtime.history.recorded_steps import UNREPEATABLE
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.runtime import Runtime
from tests.unit.runtime.history.test_verify import Forged
from tests.unit.runtime.scene import StillClock

SHOP = """
interlock: 1
kind: shop
context: {total: {type: integer, default: 0}}
events: {add: {payload: {price: integer}}, pay: {}}
states:
  open: {on: {add: {actions: [{assign: {total: "= context.total + event.data.price"}}]}, pay: paid}}
  paid: {type: final}
"""
WRONG_SIGN = SHOP.replace("total + event", "total - event")
NOW_MS = 10**13


async def replay(
    store: Store, new: BoundChart, *old: BoundChart, since_ms: int = 0, now_ms: int = NOW_MS
) -> tuple[ShadowReport, list[str]]:
    """The report, and the entities in the order in which they were compared."""
    revisions = Revisions(registry(old), store, StillClock())
    made = ShadowReplay(store, new.kernel, revisions, now_ms=now_ms)
    entities = [each async for each in made.run(since_ms=since_ms)]
    return made.tally.report(), entities


async def fill(runtime: Runtime, count: int) -> None:
    """Create entities and send each two events."""
    for number in range(count):
        await runtime.create(f"shop/{number}")
        await runtime.send(f"shop/{number}", "add", {"price": number})
        await runtime.send(f"shop/{number}", "pay")


async def shops(count: int = 3, store: Store | None = None, text: str = SHOP) -> tuple[Store, BoundChart]:
    """A memory store with shops."""
    chart, kept = loads(text), store or Forged()
    runtime = Runtime(kept, registry([chart]), StillClock())
    await fill(runtime, count)
    return kept, chart


def registry(charts: Sequence[BoundChart]) -> ChartRegistry:
    """A registry of these charts."""
    return ChartRegistry([each.kernel for each in charts])


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/kept.db", "file://{}/kept"])
async def test_recorded_steps_are_compared_on_every_store(url: str, tmp_path: Path) -> None:
    old, new = loads(SHOP), loads(WRONG_SIGN)
    async with interlock.open(url.format(tmp_path), charts=[old], work=False) as runtime:
        await fill(runtime, 5)
        await runtime.create("shop/open")
        before = [await runtime.journal(f"shop/{number}") for number in range(5)]
        same, _ = await replay(runtime.store, old, now_ms=runtime.clock.now_ms())
        report, entities = await replay(runtime.store, new, old, now_ms=runtime.clock.now_ms())
        after = [await runtime.journal(f"shop/{number}") for number in range(5)]

    assert ("none", 16, 6, 5) == (
        same.verdict,
        same.evidence.entries,
        same.evidence.entities,
        same.evidence.ended,
    )
    assert ("divergent", 4, 16) == (report.verdict, report.divergences, report.evidence.entries)
    (group,) = report.groups
    assert ("add", ("context.total",), 4, 3) == (group.event, group.parts, group.count, len(group.samples))
    assert sorted(entities) == [*(f"shop/{number}" for number in range(5)), "shop/open"]
    assert before == after


async def test_only_entities_of_the_kind_and_created_since_are_compared() -> None:
    chart, other = loads(SHOP), loads("interlock: 1\nkind: other\nstates: {a: {}}\n")
    runtime = Runtime(Forged(), registry([chart, other]), StillClock())
    await runtime.create("other/1")
    await runtime.create("shop/old")
    assert isinstance(runtime.clock, StillClock)
    runtime.clock.time_ms += 60_000
    since_ms = runtime.clock.now_ms()
    await fill(runtime, 2)
    report, entities = await replay(runtime.store, chart, since_ms=since_ms, now_ms=since_ms + 5_000)

    assert ["shop/0", "shop/1"] == sorted(entities)
    assert (2, 6, 65_000) == (report.evidence.entities, report.evidence.entries, report.evidence.oldest_ms)


async def test_a_revision_without_chart_is_a_gap() -> None:
    store, _ = await shops()
    report, _ = await replay(store, loads(WRONG_SIGN))

    assert ("unknown", 0, 0) == (report.verdict, report.evidence.entries, report.evidence.entities)
    assert [("kind.unknown", 3)] == [(each.code, each.count) for each in report.gaps]


async def test_a_journal_that_its_own_chart_does_not_give_is_a_gap() -> None:
    store, chart = await shops()
    assert isinstance(store, Forged)
    store.forge("shop/1", 3, after=("open",))
    report, _ = await replay(store, loads(SHOP.replace("kind: shop", "kind: shop\nunhandled: ignore")), chart)

    assert "unknown" == report.verdict
    assert [(UNREPEATABLE, "shop/1", 1)] == [(each.code, each.entity, each.count) for each in report.gaps]
    assert 8 == report.evidence.entries


async def test_a_step_that_fails_when_it_is_repeated_is_a_gap() -> None:
    store, chart = await shops(1)
    assert isinstance(store, Forged)
    first = (await store.read("shop/0"))[0].entry
    store.forge("shop/0", 1, event=msgspec.structs.replace(first.event, data={"context": {"unknown": 1}}))
    report, _ = await replay(store, chart)

    assert [UNREPEATABLE] == [each.code for each in report.gaps]


async def test_other_functions_under_the_same_revision_are_a_difference() -> None:
    """The journal shows what the recorded functions did; the context after that is unknown, and not compared."""
    text = SHOP.replace("pay: paid", "pay: {guard: may_pay, target: paid}")
    recorded, fixed = loads(text), loads(text)
    recorded.guard("may_pay")(lambda context, event: True)
    fixed.guard("may_pay")(lambda context, event: False)
    runtime = Runtime(Forged(), registry([recorded]), StillClock())
    await fill(runtime, 2)
    report, _ = await replay(runtime.store, fixed)

    assert [("pay", ("outcome", "reason", "configuration"), 2)] == [
        (each.event, each.parts, each.count) for each in report.groups
    ]
    assert () == report.gaps


async def test_a_changed_assign_function_is_never_silent() -> None:
    """The journal has the hash of each snapshot, so another context than the recorded one is noticed."""
    text = SHOP.replace('{assign: {total: "= context.total + event.data.price"}}', "{assign: added}")
    recorded, fixed, newer = loads(text), loads(text), loads(text.replace("pay: {}", "pay: {}, more: {}"))
    for chart, factor in ((recorded, 1), (fixed, 2), (newer, 2)):

        @chart.assign("added")
        def added(context: Any, event: Any, factor: int = factor) -> dict[str, Any]:
            return {"total": context["total"] + factor * event.data["price"]}

    runtime = Runtime(Forged(), registry([recorded]), StillClock())
    await fill(runtime, 2)
    same, _ = await replay(runtime.store, recorded)
    report, _ = await replay(runtime.store, fixed)
    revisions = Revisions(registry([fixed]), runtime.store, StillClock())
    other = ShadowReplay(runtime.store, newer.kernel, revisions, now_ms=NOW_MS)
    assert 2 == len([each async for each in other.run()])

    assert "none" == same.verdict
    assert ("divergent", 1) == (report.verdict, report.divergences)  # 0 twice is 0
    assert [("context",)] == [each.parts for each in report.groups]
    assert [("snapshot.digest", 1)] == [(each.code, each.count) for each in other.tally.report().gaps]


async def test_archived_and_damaged_journals_are_gaps() -> None:
    class Archived(Forged):
        async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
            if entity == "shop/2":
                raise ArchivedError(entity, 3, "file:///archive")
            return await super().read(entity, after=after, limit=limit)

        async def find(self, query: EntityQuery) -> EntityPage:
            return msgspec.structs.replace(await super().find(query), unreadable=("shop/lost",))

    store, chart = await shops(3, Archived())
    assert isinstance(store, Forged)
    store.bad_link = 3
    report, _ = await replay(store, chart)
    store.bad_link = 0
    store._entities["shop/0"].records.pop()
    short, _ = await replay(store, chart)

    assert ("journal.short", 1, 3) in {(each.code, each.count, short.evidence.entries - 2) for each in short.gaps}
    assert {("journal.archived", 1), ("journal.chain", 2), ("entity.unreadable", 1)} == {
        (each.code, each.count) for each in report.gaps
    }
    assert ("unknown", 0, 0) == (report.verdict, report.evidence.entries, report.evidence.entities)


async def test_an_entity_that_moves_during_the_walk_is_compared_once() -> None:
    store, chart = await shops(3)
    pages = 0

    class Shuffled(Forged):
        async def find(self, query: EntityQuery) -> EntityPage:
            nonlocal pages
            pages += 1
            found = await store.find(msgspec.structs.replace(query, after=None))
            rows = tuple(msgspec.structs.replace(each, entered_ms=NOW_MS + pages) for each in found.rows)
            return EntityPage(rows, "more")  # a walk that never ends without a stop

        async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
            return await store.read(entity, after=after, limit=limit)

    async with asyncio.timeout(60):
        report, entities = await replay(Shuffled(), chart)

    assert (3, 3, 2) == (len(entities), report.evidence.entities, pages)


async def test_a_store_that_changes_too_much_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "SHADOW_CHANGED_MAX", 2)
    store, chart = await shops(3)
    report, _ = await replay(store, chart, now_ms=0)

    assert ["store.busy"] == [each.code for each in report.gaps]


@pytest.mark.parametrize("epoch", [0, 2])
async def test_a_move_to_another_revision_is_followed_and_not_compared(epoch: int, tmp_path: Path) -> None:
    """Entries after it are those of the other revision; the timer of the move has a key of its epoch."""
    first = "interlock: 1\nkind: job\nstates:\n  a: {after: {2m: b}, on: {e: b, f: c}}\n  b: {}\n  c: {type: final}\n"
    second = first.replace("2m", "3m")
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with interlock.open(url, charts=[loads(first)], work=False) as runtime:
        for _ in range(epoch):
            await raise_epoch(runtime.store)
        await runtime.create("job/1")
    async with interlock.open(url, charts=[loads(second)], work=False, upgrade="safe") as runtime:
        await runtime.send("job/1", "f")
        entries = await runtime.journal("job/1")
        now_ms = runtime.clock.now_ms()
        same = ShadowReplay(runtime.store, loads(second).kernel, runtime.revisions, now_ms=now_ms)
        assert ["job/1"] == [each async for each in same.run()]
        proof = await runtime.verify("job/1")

    report = same.tally.report()
    assert ["_create", MOVED, "f"] == [each.event.name for each in entries]
    base = f"job/1/2.{epoch}" if epoch else "job/1/2"
    assert [base] * 2 == [each.key.rpartition("/")[0] for each in entries[1].effects]
    assert (2, 2, 1) == (report.evidence.entries, len(report.evidence.revisions), report.evidence.ended)
    assert [("_create", ("effects.timer after.3m.a",))] == [(each.event, each.parts) for each in report.groups]
    assert (None, True) == (proof.problem, proof.replayed)
