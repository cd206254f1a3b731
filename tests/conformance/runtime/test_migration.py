"""A migration moves all entities of a kind while they are in use: on every store, interrupted, and next to clients."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.errors import NotFoundError, UsageError
from interlock.model.journal.entry import MOVED
from interlock.operate.migrations.migration import Migration
from interlock.operate.migrations.report import MigrationReport
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from tests.conformance.runtime.test_upgrades import NEW, OLD, Process, process
from tests.support.cli import Caller
from tests.unit.runtime.scene import StillClock

__all__ = ("process",)  # a fixture

ENDING = OLD.replace(
    "  paid: {on: {refunded: open}}\n", "  paid: {on: {refunded: open, closed: closed}}\n  closed: {type: final}\n"
)
NARROW = (
    ENDING.replace("1.0.0", "2.0.0")
    .replace("  paid: {on: {refunded: open, closed: closed}}\n", "")
    .replace("{paid: paid, lowered", "{closed: closed, lowered")
)


async def fill(runtime: Runtime, count: int, *, start: int = 0) -> None:
    """Create tickets: every third is paid, and every fourth of those is closed."""
    for number in range(start, start + count):
        await runtime.create(f"ticket/{number:03}")
        if number % 3 == 0:
            await runtime.send(f"ticket/{number:03}", "paid")
        if number % 12 == 0:
            await runtime.send(f"ticket/{number:03}", "closed")


async def apply(runtime: Runtime, *, once: bool = False) -> MigrationReport:
    """Migrate the tickets."""
    migration = Migration(runtime, "ticket")
    async for _ in migration.apply(once=once):
        pass
    return migration.report()


async def versions(runtime: Runtime) -> dict[str, int]:
    """The version of every ticket."""
    page = await runtime.list(interlock.EntityQuery(kind="ticket", limit=1_000))
    return {each.entity: each.version for each in page.rows}


async def test_a_plan_says_what_would_move_and_writes_nothing(process: Process) -> None:
    older = process(ENDING)
    await fill(older, 24)
    before = await versions(older)
    newer = process(NARROW)
    migration = Migration(newer, "ticket")
    async for _ in migration.plan():
        pass
    report = migration.report()
    editions = [] if newer.store.definitions is None else await newer.store.definitions.list_definitions("ticket")

    assert before == await versions(older)
    assert 1 == len({each.revision for each in editions})
    assert (16, 6, 0) == (report.moved, report.stays, report.newest)
    assert [("paid",), ("open",)] == [each.configuration for each in report.groups]
    assert (6, 5) == (report.groups[0].entities, len(report.groups[0].samples))
    assert any("state.removed" in each for each in report.groups[0].reasons)


async def test_all_that_can_be_carried_moves_once_and_the_rest_stays(process: Process) -> None:
    older = process(ENDING)
    await fill(older, 24)
    newer = process(NARROW)
    first = await apply(newer)
    after = await versions(newer)
    again = await apply(newer)
    entries = await newer.journal("ticket/001")

    assert (16, 6) == (first.moved, first.stays)
    assert (0, 6, 16) == (again.moved, again.stays, again.newest)
    assert after == await versions(newer)
    assert [(MOVED, "migrate")] == [(each.event.name, each.reason) for each in entries[1:]]
    assert all([proof.problem is None async for proof in newer.verify_all()])
    closed = await newer.state("ticket/000")
    assert ("done", 3, 0) == (closed.ended, closed.version, closed.moved)
    assert "applied" == (await newer.send("ticket/003", "refunded")).outcome  # it stays, and works on its revision


async def test_an_interrupted_migration_goes_on_where_entities_are_not_moved(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.operate.migrations.migration.PAGE_MAX", 5)
    older = process(OLD)
    await fill_open(older, 12)
    newer = process(NEW)
    walk = Migration(newer, "ticket").apply()
    await anext(walk)
    moved = sum(version == 2 for version in (await versions(newer)).values())
    report = await apply(process(NEW))

    assert (5, 7) == (moved, report.moved)
    assert {2} == set((await versions(newer)).values())


async def fill_open(runtime: Runtime, count: int, *, start: int = 0) -> None:
    """Create open tickets."""
    for number in range(start, start + count):
        await runtime.create(f"ticket/{number:03}")


async def test_entities_that_an_old_worker_creates_behind_the_walk_are_moved_by_the_next_pass(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.operate.migrations.migration.PAGE_MAX", 5)
    older, newer = process(OLD), process(NEW)
    await fill_open(older, 10, start=100)
    migration, created = Migration(newer, "ticket"), False
    async for _ in migration.apply():
        if not created:
            await fill_open(older, 3)
            created = True
    report = migration.report()

    assert (13, 0) == (report.moved, report.stays)
    assert {2} == set((await versions(newer)).values())


async def test_a_migration_ends_while_an_older_process_still_creates_entities(process: Process) -> None:
    clock = StillClock()
    older, newer = process(OLD, clock=clock), process(NEW, clock=clock)
    await fill_open(older, 3)
    migration, created = Migration(newer, "ticket"), 0
    async for _ in migration.apply():
        created += 1
        assert created < 100
        clock.time_ms += 1
        await older.create(f"ticket/1{created:03}")
    report = migration.report()

    assert created >= report.new > 0
    assert (3 + created, 0) == (report.moved + list((await versions(newer)).values()).count(1), report.stays)


async def test_no_event_of_a_client_is_lost_beside_a_migration(process: Process) -> None:
    older, newer = process(OLD), process(NEW)
    await fill_open(older, 20)

    async def client(number: int) -> None:
        for turn in range(6):
            await older.send(f"ticket/{number:03}", "lowered", key=f"{turn}")
            await asyncio.sleep(0)

    _, *_ = await asyncio.gather(apply(newer), *(client(number) for number in range(20)))
    await apply(newer)
    states = [await newer.state(f"ticket/{number:03}") for number in range(20)]

    assert [{"note": "new", "price": 4}] * 20 == [each.context for each in states]
    assert {8} == {each.version for each in states}
    assert all([proof.problem is None async for proof in newer.verify_all()])


async def test_entities_of_a_later_revision_stay(process: Process) -> None:
    older, newer = process(OLD), process(NEW)
    await fill_open(older, 1)
    await newer.create("ticket/new")
    report = await apply(older)

    assert (0, 1, 1) == (report.moved, report.stays, report.newest)
    assert "saved later" in report.groups[0].reasons[0]


async def test_a_migration_waits_for_its_rate(process: Process) -> None:
    clock = StillClock()
    older = process(OLD, clock=clock)
    await fill_open(older, 4)
    newer = process(NEW, clock=clock)
    migration = Migration(newer, "ticket", rate=8)
    async for _ in migration.apply(once=True):
        pass

    assert [250, 500] == clock.waits  # after each batch, of a quarter of a second


async def test_the_cache_of_entities_in_use_stays_as_it_was(process: Process) -> None:
    older, newer = process(OLD), process(NEW)
    await fill_open(older, 10)
    await newer.state("ticket/003")
    migration = Migration(newer, "ticket")
    async for _ in migration.plan():
        pass
    planned = set(newer.entities.snapshots)
    await apply(newer)

    cached = {each for each in newer.entities.snapshots if each.startswith("ticket/")}
    assert {"ticket/003"} == planned == cached
    assert 2 == newer.entities.snapshots["ticket/003"][0].version


async def test_a_kind_without_chart_and_a_wrong_rate_are_refused() -> None:
    store = interlock.stores.memory.MemoryStore()
    runtime = Runtime(store, ChartRegistry([interlock.loads(OLD).kernel]), StillClock())
    with pytest.raises(NotFoundError):
        Migration(runtime, "order")
    with pytest.raises(UsageError):
        Migration(runtime, "ticket", rate=0)


# The command


def test_the_command_plans_moves_and_counts(call: Caller, folder: Path) -> None:
    url = f"sqlite:///{folder}/t.db"
    Path("old.yaml").write_text(ENDING, encoding="utf-8")
    Path("new.yaml").write_text(NARROW, encoding="utf-8")
    for number in range(3):
        assert 0 == call("create", url, f"ticket/{number}", "--chart", "old.yaml").code
    call("send", url, "ticket/2", "paid", "--chart", "old.yaml")
    planned = call("migrate", "plan", url, "--chart", "new.yaml")
    before = call("migrate", "status", url, "ticket")
    applied = call("migrate", "apply", url, "--chart", "new.yaml")
    after = call("migrate", "status", url, "ticket")
    call("send", url, "ticket/2", "refunded", "--chart", "old.yaml")
    last = call("migrate", "apply", url, "--chart", "new.yaml", "--json")

    assert (10, 10, 0) == (planned.code, applied.code, last.code), last
    assert "ticket: 2 can move, 1 stay, 0 were on" in planned.out
    assert "state.removed paid" in planned.out
    assert "ticket: 2 moved, 1 stay" in applied.out
    assert ["3"] == [line.split()[0] for line in before.out.splitlines()]
    assert ["1", "2", "finished"] == [line.split()[0] for line in after.out.splitlines()]
    assert '"moved":1' in last.out.replace(" ", "")


def test_a_killed_migration_is_finished_by_the_next(folder: Path) -> None:
    """SIGKILL between moves: nothing is lost, nothing is moved twice, and the next run moves the rest."""
    url = f"sqlite:///{folder}/t.db"
    Path("new.yaml").write_text(NEW, encoding="utf-8")
    with interlock.connect(url, charts=[interlock.loads(OLD)]) as older:
        for number in range(200):
            older.create(f"ticket/{number:03}")
    command = [sys.executable, "-m", "interlock", "migrate", "apply", url, "--chart", "new.yaml"]
    with interlock.connect(url, charts=[interlock.loads(OLD)]) as older:

        def moved() -> int:
            page = older.list(interlock.EntityQuery(kind="ticket", limit=1_000))
            return sum(each.version == 2 for each in page.rows)

        slow = subprocess.Popen([*command, "--rate", "40"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while moved() == 0 and slow.poll() is None:
                pass
            os.kill(slow.pid, signal.SIGKILL)
        finally:
            slow.kill()
            slow.wait()
        between = moved()
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        after = moved()
        problems = [each.problem for each in older.verify_all() if each.problem is not None]

    assert 0 < between < 200
    assert 0 == finished.returncode, finished
    assert (200, []) == (after, problems)
