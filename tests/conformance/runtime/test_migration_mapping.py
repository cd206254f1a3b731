"""Migrations by a mapping, paused, taken over and taken back, on every store; and what is wrong before they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.assemble.mappings import load_mapping
from interlock.errors import ConflictError, DefinitionError, NotFoundError, UnavailableError, UsageError
from interlock.evolve.mapping.document import Mapping, read_mapping
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import MOVED
from interlock.operate.migrations.migration import Migration
from interlock.operate.migrations.record import (
    MigrationRecord,
    newest_migration,
    pause_migration,
    resume_migration,
)
from interlock.operate.migrations.report import MigrationReport
from interlock.operate.migrations.undo import MigrationUndo
from interlock.runtime.runtime import Runtime
from tests.conformance.runtime.test_upgrades import OLD, Process, process
from tests.support.cli import Caller

__all__ = ("process",)  # a fixture

SETTLED = OLD.replace("1.0.0", "2.0.0").replace("paid: paid", "paid: settled").replace("  paid: {on", "  settled: {on")
TO_SETTLED = "interlock-mapping: 1\nkind: ticket\nfrom: '1.0.0'\nstates: {paid: settled}\n"


async def fill(runtime: Runtime, count: int) -> None:
    """Create tickets, of which every third is paid."""
    for number in range(count):
        await runtime.create(f"ticket/{number:03}")
        if number % 3 == 0:
            await runtime.send(f"ticket/{number:03}", "paid")


async def apply(runtime: Runtime, mapping: str = TO_SETTLED, **options: Any) -> MigrationReport:
    """Migrate the tickets by a mapping."""
    migration = Migration(runtime, "ticket", mappings=[read_mapping(mapping)], **options)
    async for _ in migration.apply():
        pass
    return migration.report()


async def undo(runtime: Runtime, **options: Any) -> MigrationReport:
    """Take the migration of the tickets back."""
    migration = MigrationUndo(runtime, "ticket", **options)
    async for _ in migration.apply():
        pass
    return migration.report()


async def test_entities_move_by_a_mapping_and_return(process: Process) -> None:
    """V11: without a step between, the entity is the same but for its version, and version and ordinal of timers."""
    older = process(OLD)
    await fill(older, 9)
    before = {f"ticket/{number:03}": await older.state(f"ticket/{number:03}") for number in range(9)}
    newer = process(SETTLED)
    report = await apply(newer, who="ada", reason="ticket 4711")
    states = [(await newer.state(each)).configuration for each in before]
    await newer.send("ticket/000", "refunded")
    await newer.send("ticket/001", "lowered")
    back = await undo(process(OLD), who="bob", reason="wrong")

    assert (9, 0) == (report.moved, report.stays)
    assert [("settled",), ("open",), ("open",)] * 3 == states
    assert (7, 2) == (back.moved, back.stays)
    assert {("it has stepped since it was moved",)} == {each.reasons for each in back.groups if each.reasons}
    for name, was in list(before.items())[2:]:
        now = await older.state(name)
        assert encode(_comparable(was)) == encode(_comparable(now))
        assert (was.version + 2, now.version) == (now.version, now.moved)
    assert all([proof.problem is None async for proof in older.verify_all()])
    assert "applied" == (await older.send("ticket/002", "paid")).outcome
    entry = (await older.journal("ticket/003", after=2))[1]
    assert ("undo", 3, {"id": "bob"}) == (entry.reason, entry.event.data["undoes"], entry.event.principal)
    record = await older.journal(f"interlock-migration/{back.migration}")
    assert ["_create", "migration.finished", "migration.undo_started", "migration.undone"] == [
        each.event.name for each in record
    ]
    assert ["ticket 4711", "wrong"] == [each.reason_given for each in record if each.reason_given]
    assert ["ada", "bob"] == list(dict.fromkeys(each.event.principal["id"] for each in record if each.event.principal))


def _comparable(snapshot: interlock.Snapshot) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(snapshot))
    for name in ("version", "moved", "revision"):
        found.pop(name, None)
    for timer in found.get("timers", ()):
        timer.pop("version")
        timer.pop("ordinal")
    return found


async def test_a_restored_timer_fires_at_its_old_time(process: Process) -> None:
    """The worker finds the timer of the undo, and no other."""
    older = process(OLD)
    await older.create("ticket/1")
    due_ms = (await older.state("ticket/1")).timers[0].due_ms
    await apply(process(SETTLED.replace("2s: expired", "9s: expired")))
    moved = (await older.state("ticket/1")).timers[0].due_ms
    await undo(older)
    assert older.store.work is not None
    rows = (await older.store.work.list_work(interlock.ports.work.WorkQuery(entity="ticket/1"))).rows

    assert due_ms + 7_000 == moved
    assert [due_ms] == [each.work.due_ms for each in rows if each.work.id.lane == "timer"]


async def test_a_move_that_started_something_is_not_taken_back(process: Process) -> None:
    calling = SETTLED.replace("  settled: {on", "  settled: {entry: [card.charge], on")
    older = process(OLD)
    await fill(older, 4)
    await apply(process(calling), f"{TO_SETTLED}entered: {{settled: {{entry: run}}}}\n")
    back = await undo(older)

    assert (2, 2) == (back.moved, back.stays)
    assert {("the move did something outside: call",)} == {each.reasons for each in back.groups if each.reasons}


@pytest.mark.parametrize(
    "mapping",
    [
        "interlock-mapping: 1\nkind: ticket\n",
        "interlock-mapping: 1\nkind: ticket\nstates: {paid: settledd}\n",
        "interlock-mapping: 1\nkind: ticket\nstates: {paid: settled, payed: settled}\n",
    ],
)
async def test_a_mapping_that_is_incomplete_or_wrong_moves_nothing(process: Process, mapping: str) -> None:
    older = process(OLD)
    await fill(older, 3)
    newer = process(SETTLED)
    with pytest.raises(DefinitionError):
        await apply(newer, mapping)
    with pytest.raises(DefinitionError):
        async for _ in Migration(newer, "ticket", mappings=[read_mapping(mapping)]).plan():
            pass

    assert {2, 1} == {(await newer.state(f"ticket/{number:03}")).version for number in range(3)}
    with pytest.raises(NotFoundError):
        await newest_migration(newer, "ticket")


async def test_a_mapping_of_another_kind_or_revision_is_refused(process: Process) -> None:
    await fill(process(OLD), 1)
    for text in (TO_SETTLED.replace("kind: ticket", "kind: order"), TO_SETTLED.replace("1.0.0", "9.0.0")):
        with pytest.raises(UsageError):
            await apply(process(SETTLED), text)


async def test_a_migration_goes_on_at_its_cursor_and_stops_when_it_is_taken_over(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.operate.migrations.migration.PAGE_MAX", 4)
    monkeypatch.setattr("interlock.operate.migrations.migration.NOTE_ENTITIES", 1)
    await fill(process(OLD), 12)
    newer = process(SETTLED)
    first = Migration(newer, "ticket", mappings=[read_mapping(TO_SETTLED)]).apply()
    for _ in range(3):
        await anext(first)
    interrupted = await newest_migration(newer, "ticket")
    report = await apply(process(SETTLED))
    status = await newest_migration(newer, "ticket")
    with pytest.raises(UnavailableError) as caught:
        async for _ in first:
            pass

    assert interrupted.cursor is not None
    assert "migration.taken_over" == caught.value.code
    assert (interrupted.id, "finished") == (report.migration, status.status)
    states = [await newer.state(f"ticket/{number:03}") for number in range(12)]
    assert [True] * 12 == [each.moved == each.version for each in states]
    entries = [await newer.journal(each.entity) for each in states]
    assert [1] * 12 == [sum(each.event.name == MOVED for each in journal) for journal in entries]


async def test_an_undo_in_the_middle_stops_the_migration(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.operate.migrations.migration.PAGE_MAX", 4)
    monkeypatch.setattr("interlock.operate.migrations.migration.NOTE_ENTITIES", 1)
    await fill(process(OLD), 12)
    newer = process(SETTLED)
    walk = Migration(newer, "ticket", mappings=[read_mapping(TO_SETTLED)]).apply()
    await anext(walk)
    moved = [each for each in [await newer.state(f"ticket/{number:03}") for number in range(12)] if each.moved]
    back = await undo(process(OLD))
    with pytest.raises(UnavailableError):
        async for _ in walk:
            pass

    assert 4 == len(moved)
    assert (4, 0, 8) == (back.moved, back.stays, back.newest)
    states = [await newer.state(f"ticket/{number:03}") for number in range(4)]
    assert ["paid", "open", "open", "paid"] == [each.configuration[0] for each in states]


async def test_another_living_process_is_not_disturbed(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lives(self: MigrationRecord) -> bool:
        return self.id != ""

    await fill(process(OLD), 3)
    newer = process(SETTLED)
    walk = Migration(newer, "ticket", mappings=[read_mapping(TO_SETTLED)]).apply()
    await anext(walk)
    monkeypatch.setattr(MigrationRecord, "has_living_owner", lives)
    for attempt in (apply(newer), undo(newer)):
        with pytest.raises(UnavailableError) as caught:
            await attempt
        assert "migration.running" == caught.value.code


async def test_a_migration_pauses_and_goes_on(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.operate.migrations.migration.PAUSE_POLL_MS", 0)
    monkeypatch.setattr("interlock.operate.migrations.migration.PAGE_MAX", 2)

    async def lives(self: MigrationRecord) -> bool:
        return self.id != ""

    await fill(process(OLD), 6)
    newer = process(SETTLED)
    migration = Migration(newer, "ticket", mappings=[read_mapping(TO_SETTLED)])
    walk = migration.apply()
    await anext(walk)
    paused = await pause_migration(newer, "ticket", who="ada", reason="slow")
    with pytest.raises(ConflictError):
        await pause_migration(newer, "ticket", who="ada")
    with pytest.raises(UnavailableError):  # of this process: `apply` goes on
        await resume_migration(newer, "ticket", who="ada")
    with monkeypatch.context() as patched:
        patched.setattr(MigrationRecord, "has_living_owner", lives)
        resumed = await resume_migration(newer, "ticket", who="ada")
    with pytest.raises(ConflictError):
        await resume_migration(newer, "ticket", who="ada")
    async for _ in walk:
        pass

    assert ("paused", "running") == (paused.status, resumed.status)
    assert (6, 0) == (migration.report().moved, migration.report().stays)
    with pytest.raises(ConflictError):
        await pause_migration(newer, "ticket", who="ada")
    await undo(newer)
    with pytest.raises(ConflictError):
        await undo(newer)


async def test_entities_that_stay_are_asked_again_only_when_they_have_changed(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = process(OLD)
    await fill(older, 6)
    newer = process(SETTLED)
    asked: list[str] = []
    move = type(newer.mover).move

    async def counted(self: Any, entity: str, request: Any) -> Any:
        asked.append(entity)
        return await move(self, entity, request)

    monkeypatch.setattr(type(newer.mover), "move", counted)
    report = await apply(newer, TO_SETTLED.replace("paid: settled", "paid: {stay: true}"))

    assert (4, 2) == (report.moved, report.stays)
    assert 6 == len(asked)


# Files


def python_mapping(folder: Path, text: str) -> Mapping:
    """A mapping in a Python file."""
    path = folder / "mapping.py"
    path.write_text(text, encoding="utf-8")
    return load_mapping(path)


def test_a_python_file_has_a_mapping_and_functions(tmp_path: Path) -> None:
    head = 'mapping = {"interlock-mapping": 1, "kind": "ticket"}\n'
    found = python_mapping(tmp_path, f"{head}def states(entity):\n    return None\ncontext = None\n")

    assert ("ticket", True, None) == (found.kind, callable(found.states_function), found.context_function)
    for text in ("1 / 0\n", "mapping = (\n", "", f"{head}states = 3\n", "def f():\n    raise KeyError\nf()\n"):
        with pytest.raises(UsageError) as caught:
            python_mapping(tmp_path, text)
        assert "mapping.module" == caught.value.code


def test_the_commands_draft_apply_pause_and_take_back(call: Caller, folder: Path) -> None:
    url = f"sqlite:///{folder}/t.db"
    Path("old.yaml").write_text(OLD, encoding="utf-8")
    Path("new.yaml").write_text(SETTLED, encoding="utf-8")
    for number in range(2):
        assert 0 == call("create", url, f"ticket/{number}", "--chart", "old.yaml").code
    call("send", url, "ticket/1", "paid", "--chart", "old.yaml")
    drafted = call("migrate", "plan", url, "--to", "new.yaml", "--write", "m.yaml")
    twice = call("migrate", "plan", url, "--to", "new.yaml", "--write", "m.yaml")
    planned = call("migrate", "plan", url, "--to", "new.yaml", "--mapping", "m.yaml")
    wrong = call("migrate", "apply", url, "--to", "new.yaml", "--rate", "much")
    applied = call(
        "migrate", "apply", url, "--to", "new.yaml", "--mapping", "m.yaml", "--rate", "full", "--reason", "x"
    )
    stopped = call("migrate", "pause", url, "ticket"), call("migrate", "resume", url, "ticket")
    status = call("migrate", "status", url, "ticket")
    as_json = call("migrate", "status", url, "ticket", "--json")
    undone = call("migrate", "undo", url, "ticket", "--reason", "y")

    assert "paid: settled  # same content" in Path("m.yaml").read_text(encoding="utf-8")
    assert (10, 2, 0, 2, 0, 0) == tuple(each.code for each in (drafted, twice, planned, wrong, applied, undone))
    assert "ticket/1: paid → settled" in planned.out
    assert [3, 3] == [each.code for each in stopped]
    assert "finished" in status.out
    assert "2 moved, 0 stay" in status.out
    assert "x" == json.loads(as_json.out)["migrations"][0]["plan"]["reason"]
    assert "ticket: 2 returned, 0 stay, 0 were not moved by it" in undone.out
