"""One suite, every store: the same scenario gives the same answers and the same journals, byte for byte.

After an intended change run `pytest tests/conformance/journals --rewrite`, read the diff, and commit only what you can
explain: a record that changes its bytes is a change of the format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import interlock
from interlock.model.journal.record import JournalRecord, chain_start, decode_record
from interlock.ports.store import Append, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.archive import RetentionRule, archive
from interlock.runtime.history.replay import replay
from interlock.runtime.history.verify import verify_entity
from interlock.runtime.runtime import Runtime
from interlock.stores.files import store as files
from interlock.stores.memory import MemoryStore
from tests.conformance.journals.stage import Stage, StillClock, charts_of
from tests.scenarios.runner import Block, format_blocks, parse
from tests.support.postgres_server import store_or_skip

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.txt"))

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "files": lambda folder: f"file://{folder}/kept",
    "sqlite": lambda folder: f"sqlite:///{folder}/kept.db",
    "postgresql": lambda _: store_or_skip(),
}

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
@pytest.mark.parametrize("store", STORES)
async def test_a_scenario_gives_the_same_journal_on_every_store(
    scenario: Path, store: str, rewrite: bool, tmp_path: Path
) -> None:
    """Each command, played on this store, prints the output below it: outcomes, versions, and every stored byte.

    Then the store verifies its content; and ended entities go to an archive, which verifies the same bytes.
    """
    expected = _blocks(scenario)
    charts = charts_of([block.command for block in expected])
    clock = StillClock()
    async with interlock.open(STORES[store](tmp_path), charts=charts, clock=clock, work=False) as runtime:
        stage = Stage(runtime, clock)
        actual = [replace(block, output=await stage.play(block.command)) for block in expected]
        if rewrite and store == "memory":
            _rewrite(scenario, actual)
            return

        assert format_blocks(expected) == format_blocks(actual)
        for entity in stage.entities:
            await _is_proven(runtime.store, runtime, entity)
        await _archive_is_the_same(stage, tmp_path)


def _blocks(scenario: Path) -> list[Block]:
    return parse(scenario.read_text(encoding="utf-8"))


def _rewrite(scenario: Path, blocks: list[Block]) -> None:
    scenario.write_text(format_blocks(blocks), encoding="utf-8")


async def _is_proven(store: Store, runtime: Runtime, entity: str) -> list[bytes]:
    """The stored lines, once they are known to be a chain from its genesis that replays to the stored snapshot."""
    lines = [each.line for each in await store.read(entity)]
    previous = chain_start(entity)
    for version, line in enumerate(lines, start=1):
        record = decode_record(line, previous=previous, version=version)
        assert not hasattr(record, "reason"), record
        previous = getattr(record, "head", "")
    proof = await verify_entity(store, runtime.revisions, entity)

    assert (len(lines), previous, True, None) == (proof.entries, proof.head, proof.replayed, proof.problem)
    return lines


async def _archive_is_the_same(stage: Stage, folder: Path) -> None:
    runtime = stage.ours
    ended = {each: snapshot for each in stage.entities if (snapshot := await runtime.state(each)).ended is not None}
    before = {each: await _is_proven(runtime.store, runtime, each) for each in ended}
    shelf = files.open_store(f"file://{folder}/archive")
    try:
        for entity, snapshot in ended.items():
            rule = RetentionRule(
                kind=snapshot.kind, state=snapshot.configuration[0], entered_before_ms=stage.clock.time_ms + 1
            )

            async def opened(month: str) -> tuple[Store, str]:
                return shelf, f"file:///archive/{month}"

            done = [each async for each in archive(runtime.store, runtime.revisions, rule, opened)]

            assert entity in {each.entity for each in done if each.archived in {"yes", "before"}}
            assert before[entity] == await _is_proven(shelf, runtime, entity)
            assert snapshot == await runtime.state(entity)
    finally:
        await shelf.close()


def _lose_snapshots(folder: Path) -> None:
    for each in folder.rglob("state.json"):
        each.unlink()


async def test_a_journal_of_an_earlier_release_without_hashes_is_read(tmp_path: Path) -> None:
    """Its records are adopted byte for byte, verified, and replayed when `state.json` is lost."""
    lines = (FOLDER / "earlier" / "trip.jsonl").read_bytes().splitlines(keepends=True)
    previous, records = chain_start("trip/1"), []
    for version, line in enumerate(lines, start=1):
        record = decode_record(line, previous=previous, version=version)
        assert isinstance(record, JournalRecord)
        previous = record.head
        records.append(record)
    bound = charts_of(["chart trip"], FOLDER / "earlier")
    entries = tuple(each.entry for each in records)
    charts = ChartRegistry(each.kernel for each in bound)
    snapshot = await replay(Revisions(charts, MemoryStore(), StillClock()), "trip/1", None, entries)
    assert snapshot is not None
    append = Append("trip", "trip/1", len(records) - 1, entries[-1], snapshot, snapshot.configuration)
    async with interlock.open(f"file://{tmp_path}/kept", charts=bound, work=False) as runtime:
        assert runtime.store.journal_archive is not None
        await runtime.store.journal_archive.adopt(append, tuple(records))
        stored = await _is_proven(runtime.store, runtime, "trip/1")
    _lose_snapshots(tmp_path)
    async with interlock.open(f"file://{tmp_path}/kept", charts=bound, work=False) as runtime:
        again = await runtime.state("trip/1")

    assert (lines, snapshot) == (stored, again)
    assert {None} == {each.digest for each in entries}


def test_there_are_scenarios_and_they_reach_the_corners() -> None:
    """Every outcome, a lost swap, a repeated key, a late result, a timer and the end of an entity are among them."""
    text = "".join(each.read_text(encoding="utf-8") for each in SCENARIOS)

    assert len(SCENARIOS) >= 4
    for corner in (
        "applied v",
        "ignored",
        "rejected guard",
        "denied roles",
        "duplicate v",
        "ConflictError conflict.expected",
        "key.expired",
        "entity.exists",
        "invoke_gone",
        "other send",
        "fire ",
    ):
        assert corner in text, corner
