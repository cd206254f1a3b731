"""A run of retention through the runtime: what goes, what stays and why, and what every reader then sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.archives import Archives
from interlock.errors import CompactedError, PrunedError, UnavailableError, UsageError
from interlock.evolve.diff import diff_documents
from interlock.model.limits import KEY_WINDOW_MS, RETENTION_INTERVAL_MS
from interlock.observe.feed import feed
from interlock.operate.retention.needs import LEGAL_HOLD
from interlock.operate.retention.rules import RetentionResult, RetentionRule, rules_of_charts
from interlock.operate.retention.run import LEASE, Pruning, RetentionRun
from interlock.operate.retention.worker import RetentionWorker
from interlock.ports.store import EntityQuery
from interlock.ports.work import WorkQuery
from interlock.runtime.history.bundle import export_bundle
from interlock.runtime.history.shadow import ShadowReplay
from interlock.runtime.history.verify import verify_store
from interlock.runtime.runtime import Runtime
from interlock.runtime.trials.refold import RefoldSettings, run_refold
from interlock.stores.registry import open_store
from interlock.testing.clock import VirtualClock

DAY_MS = 86_400_000

ORDER = """
interlock: 1
kind: order
context: {notes: {type: integer, default: 0}}
retention: {ended: 90d, entries: 400d}
initial: open
states:
  open:
    on: {paid: shipped, failed: lost, disputed: frozen, hired: working}
  working:
    invoke: {src: job, type: chart, onDone: shipped}
    on: {failed: lost}
  frozen: {type: final, tags: [legal-hold]}
  lost: {type: final}
  shipped: {type: final}
on:
  noted: {actions: [{assign: {notes: "= context.notes + 1"}}]}
"""

JOB = """
interlock: 1
kind: job
retention: {ended: 1d}
initial: busy
states:
  busy: {on: {ready: done}}
  done: {type: final}
"""

URLS = ("memory:", "sqlite:///{folder}/x.db", "file://{folder}/x")


@pytest.fixture(params=URLS, ids=["memory", "sqlite", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(folder=tmp_path)


@asynccontextmanager
async def opened(url: str, clock: VirtualClock, *, work: bool = False) -> AsyncIterator[Runtime]:
    charts = [interlock.loads(ORDER), interlock.loads(JOB)]
    async with interlock.open(url, charts=charts, clock=clock, work=work) as runtime:
        yield runtime


async def prune(runtime: Runtime, **options: Any) -> list[RetentionResult]:
    run = RetentionRun(runtime, [RetentionRule(kind="order", ended_ms=90 * DAY_MS)], **options)
    return sorted([each async for each in run.run()], key=lambda each: each.entity)


async def compact(runtime: Runtime, **options: Any) -> list[RetentionResult]:
    rule = RetentionRule(kind="order", entries_ms=KEY_WINDOW_MS, entries_min=2, archive=options.pop("archive", None))
    return [each async for each in RetentionRun(runtime, [rule], **options).run()]


async def _pay(runtime: Runtime, *names: str, event: str = "paid") -> None:
    for name in names:
        await runtime.create(name, {}, key=f"make-{name}")
        (await runtime.send(name, event, key=f"end-{name}")).expect()


async def _check_store(runtime: Runtime) -> None:
    results = [each async for each in verify_store(runtime.store, runtime.revisions, now_ms=runtime.clock.now_ms())]
    assert [each.problem for each in results] == [None] * len(results)


async def test_an_entity_goes_once_it_ended_long_ago(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/old")
        await runtime.create("order/alive", {})
        await clock.advance(91 * DAY_MS)
        await _pay(runtime, "order/new")
        (found,) = await prune(runtime)
        assert (found.entity, found.done, found.version) == ("order/old", "pruned", 2)
        assert await prune(runtime) == []
        names = [each.entity for each in (await runtime.list(EntityQuery(kind="order", by_id=True))).rows]
        assert names == ["order/alive", "order/new"]
        await _check_store(runtime)


async def test_everyone_is_told_that_an_entity_was_pruned(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1")
        await clock.advance(91 * DAY_MS)
        await prune(runtime)
        for call in (
            runtime.state("order/1"),
            runtime.state("order/1", at=1),
            runtime.journal("order/1"),
            runtime.send("order/1", "noted"),
            runtime.dry_run("order/1", "noted"),
            runtime.verify("order/1"),
        ):
            with pytest.raises(PrunedError) as caught:
                await call
            assert (caught.value.code, caught.value.version) == ("entity.pruned", 2)
        with pytest.raises(PrunedError):
            await export_bundle(runtime.store, "order/1", runtime.revisions, lambda _: None, now_ms=0)
        receipt = await runtime.create("order/1", {}, key="again")
        assert (receipt.outcome, receipt.reason) == ("rejected", "entity.pruned")
        receipt = await runtime.create("order/1", {}, key="make-order/1")
        assert (receipt.outcome, receipt.reason) == ("rejected", "entity.pruned")


async def test_a_process_with_the_entity_in_its_cache_goes_on(tmp_path: Path) -> None:
    """Its snapshot is of a version that the store no longer has, which otherwise means a store that went back."""
    clock = VirtualClock()
    url = f"sqlite:///{tmp_path}/x.db"
    async with opened(url, clock) as first, opened(url, clock) as second:
        await _pay(first, "order/1")
        assert (await first.send("order/1", "noted")).outcome != "applied"
        await clock.advance(91 * DAY_MS)
        assert [each.done for each in await prune(second)] == ["pruned"]
        with pytest.raises(PrunedError):
            await first.send("order/1", "noted")
        await _pay(first, "order/2")


@pytest.mark.parametrize(
    ("event", "reason"), [("disputed", "legal hold"), ("paid", None)], ids=["tag legal-hold", "no tag"]
)
async def test_a_legal_hold_keeps_an_entity(event: str, reason: str | None) -> None:
    assert LEGAL_HOLD in ORDER
    clock = VirtualClock()
    async with opened("memory:", clock) as runtime:
        await _pay(runtime, "order/1", event=event)
        await clock.advance(91 * DAY_MS)
        assert [each.reason for each in await prune(runtime)] == [reason]


async def _start_child(runtime: Runtime, clock: VirtualClock) -> str:
    await runtime.create("order/1", {})
    await runtime.send("order/1", "hired")
    for _ in range(100):
        await clock.settle()
        rows = (await runtime.list(EntityQuery(kind="job"))).rows
        if rows:
            return rows[0].entity
    raise AssertionError("the child was not started")


async def _drop_work(runtime: Runtime) -> None:
    """As an operator does with `interlock effects drop`."""
    work = runtime.store.work
    assert work is not None
    for row in (await work.list_work(WorkQuery())).rows:
        assert await work.delete_work(row.entity, row.work.id)


async def test_a_parent_that_waits_keeps_its_child(tmp_path: Path) -> None:
    clock, url = VirtualClock(), f"sqlite:///{tmp_path}/x.db"
    async with opened(url, clock, work=True) as runtime:
        child = await _start_child(runtime, clock)
    async with opened(url, clock) as runtime:
        await runtime.send(child, "ready")
        await clock.advance(2 * DAY_MS)
        rule = RetentionRule(kind="job", ended_ms=DAY_MS)
        assert [each.reason async for each in RetentionRun(runtime, [rule]).run()] == ["open work"]
        await _drop_work(runtime)
        assert [each.reason async for each in RetentionRun(runtime, [rule]).run()] == ["parent waits: order/1"]
        await runtime.send("order/1", "failed")
        assert [each.done async for each in RetentionRun(runtime, [rule]).run()] == ["pruned"]


async def test_a_child_that_is_alive_keeps_its_parent(tmp_path: Path) -> None:
    clock, url = VirtualClock(), f"sqlite:///{tmp_path}/x.db"
    async with opened(url, clock, work=True) as runtime:
        child = await _start_child(runtime, clock)
    async with opened(url, clock) as runtime:
        await runtime.send("order/1", "failed")
        await clock.advance(91 * DAY_MS)
        assert [each.reason for each in await prune(runtime)] == ["open work"]
        await _drop_work(runtime)
        assert [each.reason for each in await prune(runtime)] == [f"child is alive: {child}"]
        await runtime.send(child, "ready")
        await _drop_work(runtime)
        assert [each.done for each in await prune(runtime)] == ["pruned"]


async def test_open_work_keeps_an_entity(tmp_path: Path) -> None:
    chart = interlock.loads(
        """
        interlock: 1
        kind: order
        initial: open
        states:
          open: {on: {paid: shipped}}
          shipped: {type: final, entry: [{do: notify}]}
        """
    )
    clock = VirtualClock()
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[chart], clock=clock, work=False) as runtime:
        await _pay(runtime, "order/1")
        await clock.advance(91 * DAY_MS)
        assert [each.reason for each in await prune(runtime)] == ["open work"]
        await _check_store(runtime)


async def test_a_projection_that_is_behind_keeps_what_it_has_not_read(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(f"sqlite:///{tmp_path}/x.db", clock) as runtime:
        await _pay(runtime, "order/1")
        projections = runtime.store.projections
        assert projections is not None
        assert runtime.store.journal_feed is not None
        await projections.record_failure("sums", cursor=None, error="later", stopped=False)
        await clock.advance(91 * DAY_MS)
        assert [each.reason for each in await prune(runtime)] == ["unread by a projection"]
        page = await runtime.store.journal_feed.feed(None, limit=100)
        assert await projections.project("sums", lambda *_: None, (), before=None, after=page.after)
        assert [each.done for each in await prune(runtime)] == ["pruned"]


async def test_a_dry_run_writes_nothing(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1")
        for number in range(6):
            await (runtime.create("order/2", {}) if number == 0 else runtime.send("order/2", "noted"))
        await clock.advance(91 * DAY_MS)
        await runtime.send("order/2", "noted")
        assert [each.done for each in await prune(runtime, dry_run=True)] == ["would_prune"]
        assert [each.done for each in await compact(runtime, dry_run=True)] == ["would_compact"]
        assert (await runtime.state("order/1")).version == 2
        assert len(await runtime.journal("order/2")) == 7
        assert (await runtime.list(EntityQuery(kind="interlock-retention"))).rows == ()


async def test_each_batch_is_recorded_before_it_is_removed(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1", "order/2")
        retention = runtime.store.retention
        assert retention is not None
        heads = [(each, *await retention.tip(each)) for each in ("order/1", "order/2")]
        await clock.advance(91 * DAY_MS)
        run = RetentionRun(runtime, [RetentionRule(kind="order", ended_ms=90 * DAY_MS)], who="ada", reason="policy 7")
        assert [each.done async for each in run.run()] == ["pruned", "pruned"]
        started, batch, end = await runtime.journal(run.record.entity)
        assert (started.event.principal or {})["id"] == "ada"
        assert started.reason_given == "policy 7"
        assert sorted(map(tuple, batch.event.data["removed"])) == heads
        assert batch.event.data["batch"]["entities"] == 2
        assert end.event.data["counts"]["pruned"] == 2


async def test_the_hook_runs_before_the_tombstone_and_its_error_keeps_the_entity(url: str) -> None:
    clock = VirtualClock()
    asked: list[str] = []

    async def destroy_key(pruning: Pruning) -> None:
        asked.append(pruning.tombstone.entity)
        assert await runtime.store.load(pruning.snapshot.entity) is not None
        if len(asked) == 1:
            raise UnavailableError("the key service is away", code="keys.away")

    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1")
        await clock.advance(91 * DAY_MS)
        (kept,) = await prune(runtime, before_prune=destroy_key)
        assert (kept.done, kept.reason) == ("kept", "keys.away: the key service is away")
        assert [each.done for each in await prune(runtime, before_prune=destroy_key)] == ["pruned"]
        assert asked == ["order/1", "order/1"]


CUSTOMER = """
interlock: 1
kind: customer
context: {email: {type: string, nullable: true, default: null, personal: true}}
states:
  active: {on: {left: gone}, expect: {within: forever}}
  gone: {type: final}
"""


async def test_the_key_of_personal_data_is_destroyed_with_its_entity() -> None:
    clock = VirtualClock()
    async with interlock.open("memory:", charts=[interlock.loads(CUSTOMER)], clock=clock, work=False) as runtime:
        for number in (1, 2):
            await runtime.create(f"customer/{number}", {"email": f"{number}@example.org"})
        await runtime.send("customer/1", "left")
        keys = runtime.store.data_keys
        assert keys is not None
        snapshots = [await runtime.entities.load_snapshot(f"customer/{number}") for number in (1, 2)]
        kids = [snapshot.context["_personal"] for snapshot, _ in snapshots]
        await clock.advance(2 * DAY_MS)
        run = RetentionRun(runtime, [RetentionRule(kind="customer", ended_ms=DAY_MS)])
        done = [each.done async for each in run.run()]
        found = [type(await keys.find_key(kid)).__name__ for kid in kids]

    assert (["pruned"], ["DestroyedKey", "DataKey"]) == (done, found)


async def test_a_journal_is_in_the_archive_before_it_is_pruned(url: str, tmp_path: Path) -> None:
    clock, archives = VirtualClock(), Archives("")
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1")
        entries = await runtime.journal("order/1")
        await clock.advance(91 * DAY_MS)
        rule = RetentionRule(kind="order", ended_ms=90 * DAY_MS, archive=(tmp_path / "archive").as_uri())
        run = RetentionRun(runtime, [rule], open_archive=archives.open)
        assert [each.done async for each in run.run()] == ["pruned"]
        with pytest.raises(PrunedError) as caught:
            await runtime.state("order/1")
        await archives.close()
        assert caught.value.archive is not None
        store = await open_store(caught.value.archive)
        assert tuple(each.entry for each in await store.read("order/1")) == entries
        await store.close()


async def test_a_second_run_at_the_same_time_is_refused(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        leases = runtime.store.leases
        assert leases is not None
        now_ms = clock.now_ms()
        assert await leases.acquire_lease(LEASE, owner="other", now_ms=now_ms, until_ms=now_ms + 60_000) is not None
        with pytest.raises(UnavailableError) as caught:
            await prune(runtime)
        assert caught.value.code == "retention.running"


# Compaction


async def _aged(runtime: Runtime, clock: VirtualClock, name: str = "order/1", *, entries: int = 12) -> None:
    """An entity with entries before the key window, and three after it."""
    await runtime.create(name, {}, key="made")
    for number in range(1, entries):
        await runtime.send(name, "noted", key=f"k{number}")
    await clock.advance(KEY_WINDOW_MS + DAY_MS)
    for number in range(3):
        await runtime.send(name, "noted", key=f"late{number}")


async def test_old_entries_of_a_living_entity_go_and_its_life_goes_on(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _aged(runtime, clock)
        entries, at_13 = await runtime.journal("order/1"), await runtime.state("order/1", at=13)
        (found,) = await compact(runtime)
        assert (found.done, found.version) == ("compacted", 12)
        assert await runtime.journal("order/1", after=12) == entries[12:]
        assert await runtime.state("order/1", at=13) == at_13
        assert (await runtime.state("order/1", at=12)).context == {"notes": 11}
        (await runtime.send("order/1", "noted")).expect()
        assert (await runtime.state("order/1")).context == {"notes": 15}
        verified = await runtime.verify("order/1")
        assert (verified.problem, verified.since, verified.entries) == (None, 12, 16)
        assert await compact(runtime) == []
        await _check_store(runtime)


async def test_the_time_before_a_base_cannot_be_shown(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _aged(runtime, clock)
        first = (await runtime.journal("order/1"))[0].event.time_ms
        await compact(runtime)
        for call in (
            runtime.state("order/1", at=11),
            runtime.state("order/1", at="1971-01-01T00:00:00Z" if first > 31_536_000_000 else "1969-12-31T00:00:00Z"),
            runtime.journal("order/1"),
            export_bundle(runtime.store, "order/1", runtime.revisions, lambda _: None, now_ms=0),
        ):
            with pytest.raises(CompactedError) as caught:
                await call
            assert (caught.value.code, caught.value.since) == ("journal.compacted", 12)


async def test_a_key_of_a_removed_entry_is_still_a_duplicate(url: str) -> None:
    """The content of the entry is no longer known: a key that is reused for another event is a duplicate, too."""
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _aged(runtime, clock)
        await compact(runtime)
        for event in ("noted", "paid"):
            assert (await runtime.send("order/1", event, key="k11")).outcome in ("duplicate", "applied")
        assert (await runtime.send("order/1", "noted", key="late0")).outcome == "duplicate"


async def test_readers_of_journals_begin_at_the_base(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        await _aged(runtime, clock)
        await compact(runtime)
        replay = ShadowReplay(runtime.store, interlock.loads(ORDER).kernel, runtime.revisions, now_ms=clock.now_ms())
        async for _ in replay.run():
            pass
        report = replay.tally.report()
        assert (report.evidence.entries, report.gaps) == (3, ())
        refold = await run_refold(runtime.entities, runtime.mover, "order", RefoldSettings())
        assert [each.code for each in refold.gaps] == ["journal.compacted"]
        if runtime.store.journal_feed is not None:
            found = [
                each.entry.version async for each in feed(runtime.store, clock, kind="order", since_ms=0, follow=False)
            ]
            assert found == [13, 14, 15]


async def test_a_compacted_journal_is_archived_where_its_beginning_is(url: str, tmp_path: Path) -> None:
    clock, archives = VirtualClock(), Archives("")
    address = (tmp_path / "archive").as_uri()
    async with opened(url, clock) as runtime:
        await _aged(runtime, clock)
        entries = await runtime.journal("order/1")
        (found,) = await compact(runtime, archive=address, open_archive=archives.open)
        assert (found.done, found.version) == ("compacted", 12)
        await runtime.send("order/1", "paid")
        await clock.advance(91 * DAY_MS)
        rule = RetentionRule(kind="order", ended_ms=90 * DAY_MS, archive=address)
        run = RetentionRun(runtime, [rule], open_archive=archives.open)
        assert [each.done async for each in run.run()] == ["pruned"]
        await archives.close()
        store = await open_store(f"{address}/living")
        records = await store.read("order/1")
        assert tuple(each.entry for each in records)[:15] == entries
        assert len(records) == 16
        await store.close()


TIMED = """
interlock: 1
kind: order
context: {notes: {type: integer, default: 0}}
initial: open
states:
  open:
    on: {waiting: patient}
  patient:
    after: {300d: open}
on:
  noted: {actions: [{assign: {notes: "= context.notes + 1"}}]}
"""


async def test_the_entry_of_a_pending_timer_stays(tmp_path: Path) -> None:
    clock = VirtualClock()
    chart = interlock.loads(TIMED)
    async with interlock.open(f"sqlite:///{tmp_path}/x.db", charts=[chart], clock=clock, work=False) as runtime:
        await runtime.create("order/1", {})
        for _ in range(5):
            await runtime.send("order/1", "noted")
        await runtime.send("order/1", "waiting")
        for _ in range(5):
            await runtime.send("order/1", "noted")
        await clock.advance(KEY_WINDOW_MS + DAY_MS)
        await runtime.send("order/1", "noted")
        (found,) = await compact(runtime)
        assert (found.done, found.version) == ("compacted", 6)
        assert await compact(runtime) == [RetentionResult("order/1", "kept", 13, reason="entries are needed")]
        await _check_store(runtime)


# Rules


async def test_the_worker_follows_the_charts(url: str) -> None:
    clock = VirtualClock()
    async with opened(url, clock) as runtime:
        rules = {each.kind: each for each in rules_of_charts(runtime)}
        assert (rules["order"].ended_ms, rules["order"].entries_ms) == (90 * DAY_MS, 400 * DAY_MS)
        await _pay(runtime, "order/1")
        await clock.advance(91 * DAY_MS)
        report = await RetentionWorker(runtime).run_once()
        assert report is not None
        assert dict(report.done) == {"pruned": 1}
        await clock.advance(401 * DAY_MS)
        report = await RetentionWorker(runtime).run_once()
        assert report is not None
        assert dict(report.done) == {}, "the record of the first run stays"
        assert len((await runtime.list(EntityQuery(kind="interlock-retention"))).rows) == 1


def test_no_rule_removes_the_records_of_retention() -> None:
    with pytest.raises(UsageError) as caught:
        RetentionRule(kind="interlock-retention", ended_ms=DAY_MS)

    assert caught.value.code == "retention.records"


async def test_a_runtime_that_runs_effects_follows_its_charts(tmp_path: Path) -> None:
    clock, url = VirtualClock(), f"sqlite:///{tmp_path}/x.db"
    async with opened(url, clock) as runtime:
        await _pay(runtime, "order/1", "order/2")
        await clock.advance(91 * DAY_MS)
    async with opened(url, clock, work=True) as runtime:
        await clock.advance(2 * RETENTION_INTERVAL_MS)
        for _ in range(100):
            if not (await runtime.list(EntityQuery(kind="order"))).rows:
                break
            await clock.settle()
        with pytest.raises(PrunedError):
            await runtime.state("order/1")


def test_a_rule_that_loses_keys_is_refused() -> None:
    with pytest.raises(UsageError, match="keys are remembered"):
        RetentionRule(kind="order", entries_ms=DAY_MS)


def test_retention_is_not_part_of_a_behaviour() -> None:
    plain = interlock.loads(ORDER.replace("retention: {ended: 90d, entries: 400d}\n", ""))
    assert plain.chart.revision == interlock.loads(ORDER).chart.revision


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{}", "retention.empty"),
        ("{archive: 'file:///a'}", "retention.empty"),
        ("{entries: 3d}", "retention.entries"),
        ("{ended: soon}", "duration.invalid"),
        ("{ended: 1d, archive: 's3://a'}", "retention.archive"),
        ("{ended: 1d, copies: 3}", "key.unknown"),
    ],
)
def test_a_retention_that_does_nothing_or_too_much_is_an_error(text: str, code: str) -> None:
    with pytest.raises(interlock.DefinitionError) as caught:
        interlock.loads(ORDER.replace("{ended: 90d, entries: 400d}", text))
    assert code in {each.code for each in caught.value.diagnostics}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("{ended: 90d}", "{ended: 30d}", "retention.shorter"),
        ("{ended: 90d}", "{ended: 90d, entries: 400d}", "retention.shorter"),
        ("{ended: 90d, archive: 'file:///a'}", "{ended: 90d}", "retention.shorter"),
        ("{ended: 90d}", "{ended: 91d}", "retention.longer"),
        ("{ended: 90d}", "{ended: 90d, archive: 'file:///a'}", "retention.longer"),
    ],
)
def test_a_change_of_retention_is_reported(before: str, after: str, code: str) -> None:
    old, new = (
        interlock.loads(ORDER.replace("{ended: 90d, entries: 400d}", text)).chart.document for text in (before, after)
    )
    assert old is not None
    assert new is not None
    assert [each.code for each in diff_documents(old, new).changes] == [code]
