"""Verification of a store: every link and every step, entity by entity."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.errors import CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.effect import Effect
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import PAGE_MAX, Duplicate, EntityPage, EntityQuery, Loaded, Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.verify import Verification, VerificationProblem, verify_entity, verify_store
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.unit.runtime.scene import DOOR, StillClock, kernel, runtime


class Forged(MemoryStore):
    """A store whose records, and whose snapshot, can be exchanged behind its back. It keeps no definitions, so that the
    charts of each process are all that is known.
    """

    definitions = None  # type: ignore[assignment]  # see above

    def __init__(self) -> None:
        super().__init__()
        self.bad_link = 0

    def forge(self, entity: str, version: int, **fields: Any) -> None:
        """Let an entry say something else."""
        records = self._entities[entity].records
        old = records[version - 1]
        entry = msgspec.structs.replace(old.entry, **fields)
        records[version - 1] = JournalRecord(version, old.key, old.durable, entry, old.head, old.line)

    def forge_snapshot(self, entity: str, **fields: Any) -> None:
        """Let the stored snapshot be another."""
        self._entities[entity].snapshot = msgspec.structs.replace(self._entities[entity].snapshot, **fields)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """As the memory store, up to a link that does not hold."""
        found = await super().read(entity, after=after, limit=limit)
        if self.bad_link and any(each.version == self.bad_link for each in found):
            raise CorruptionError(f"damaged at version {self.bad_link}", code="journal.chain")
        return found


def known(store: Store, *texts: str) -> Revisions:
    """What a process with these charts knows about a store."""
    return Revisions(ChartRegistry(kernel(each) for each in texts), store, StillClock())


async def doors(count: int = 1, store: Forged | None = None) -> Runtime:
    """Doors that were opened and closed."""
    made = runtime(store=store or Forged())
    for number in range(1, count + 1):
        await made.create(f"door/{number}")
        await made.send(f"door/{number}", "opened")
        await made.send(f"door/{number}", "closed")
    return made


def forged(made: Runtime) -> Forged:
    """The store of these doors."""
    assert isinstance(made.store, Forged)
    return made.store


async def test_a_sound_entity_is_verified_to_its_last_hash() -> None:
    made = await doors()
    (_, _, last) = await made.store.read("door/1")

    assert Verification("door/1", 3, last.head, replayed=True) == await made.verify("door/1")


async def test_a_divergence_of_a_compatible_chart_is_not_damage() -> None:
    made = await doors()
    newer = DOOR.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1.0 <2"')
    other = newer.replace("open:\n", "open:\n    after: {5m: closed}\n")
    same, differs, both = [
        await verify_entity(made.store, known(made.store, *texts), "door/1")
        for texts in ((newer,), (other,), (DOOR, other))
    ]

    assert [True, False, True] == [each.replayed for each in (same, differs, both)]
    assert differs.problem is not None
    assert ("revision.unknown", 2, False) == (
        differs.problem.code,
        differs.problem.version,
        differs.problem.is_corruption,
    )
    assert "was written by revision 1.0.0+" in differs.problem.message


async def test_a_journal_that_is_cut_off_is_damage_with_and_without_its_chart() -> None:
    made = await doors()
    forged(made)._entities["door/1"].records.pop()
    newer = DOOR.replace("revision: 1.0.0", 'revision: 1.1.0\ncompatible: ">=1.0 <2"')
    other = newer.replace("open:\n", "open:\n    after: {5m: closed}\n")
    problems = [
        (await verify_entity(made.store, charts, "door/1")).problem
        for charts in (None, known(made.store), known(made.store, other), known(made.store, DOOR))
    ]

    assert ["journal.short"] * 4 == [None if each is None else each.code for each in problems]


async def test_of_long_values_the_part_that_differs_is_shown() -> None:
    slow = DOOR.replace("open:\n", "open:\n    after: {5m: closed}\n")
    made = runtime(slow, store=Forged())
    await made.create("door/1")
    receipt = await made.send("door/1", "opened")
    (timer,) = receipt.effects
    forged(made).forge("door/1", 2, effects=(msgspec.structs.replace(timer, payload={**timer.payload, "due_ms": 7}),))
    problem = (await made.verify("door/1")).problem

    assert problem is not None
    assert '"due_ms":7' in problem.message.partition(", but the chart gives ")[0]
    assert f'"due_ms":{timer.payload["due_ms"]}' in problem.message.partition(", but the chart gives ")[2]


async def test_without_charts_only_the_links_are_verified() -> None:
    made = await doors()
    forged(made).forge("door/1", 2, after=("locked",))
    proof = await verify_entity(made.store, None, "door/1")

    assert (3, False, None) == (proof.entries, proof.replayed, proof.problem)


LIES: dict[str, dict[str, Any]] = {
    "to": {"after": ("locked",)},
    "from": {"before": ("locked",)},
    "outcome": {"outcome": "ignored"},
    "reason": {"reason": "because"},
    "effects": {"effects": (Effect("call", 0, "door/1/2/0", {"name": "x"}),)},
}


@pytest.mark.parametrize("name", LIES)
async def test_an_entry_that_differs_from_its_repeated_step_is_a_divergence(name: str) -> None:
    made = await doors()
    forged(made).forge("door/1", 2, **LIES[name])
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert ("journal.divergence", 2, 1) == (proof.problem.code, proof.problem.version, proof.entries)
    assert f"`{name}` is" in proof.problem.message
    assert proof.problem.is_corruption


@pytest.mark.parametrize("fields", [{"context": {"openings": 7, "note": ""}}, {"configuration": ("open",)}])
async def test_a_stored_snapshot_that_differs_from_the_replayed_one_is_a_divergence(fields: dict[str, Any]) -> None:
    made = await doors()
    forged(made).forge_snapshot("door/1", **fields)
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert f"`{next(iter(fields))}`" in proof.problem.message


async def test_a_bad_link_is_reported_with_the_entries_before_it() -> None:
    made = await doors()
    forged(made).bad_link = 2
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert ("journal.chain", "damaged at version 2") == (proof.problem.code, proof.problem.message)
    assert 1 == proof.entries


async def test_the_key_of_a_record_must_be_the_key_of_its_entry() -> None:
    made = await doors()
    forged(made).forge("door/1", 3, key="another")
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert "journal.key" == proof.problem.code


async def test_a_journal_that_ends_before_its_entity_is_short() -> None:
    """The entity's version is separate evidence."""
    made = await doors()
    forged(made)._entities["door/1"].records.pop()
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert ("journal.short", 2) == (proof.problem.code, proof.entries)


async def test_a_snapshot_that_cannot_be_loaded_is_damage() -> None:
    class Broken(MemoryStore):
        async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
            raise CorruptionError("the row does not read", code="entity.row")

    proof = await runtime(store=Broken()).verify("door/1")

    assert proof.problem is not None
    assert ("entity.row", 0) == (proof.problem.code, proof.entries)


async def test_a_repeated_step_that_raises_is_a_divergence() -> None:
    made = await doors()
    first = (await made.store.read("door/1"))[0].entry
    event = msgspec.structs.replace(first.event, data={"context": {"openings": "many"}})
    forged(made).forge("door/1", 1, event=event)
    proof = await made.verify("door/1")

    assert proof.problem is not None
    assert ("journal.divergence", 1) == (proof.problem.code, proof.problem.version)


async def test_an_entity_whose_chart_is_not_here_is_not_judged() -> None:
    """Its links are proven, its steps are not, and neither is called damage."""
    made = await doors()
    other = known(made.store, DOOR.replace("openings + 1", "openings + 2"))
    proof = await verify_entity(made.store, other, "door/1")
    nobody = await verify_entity(made.store, known(made.store), "door/1")

    assert proof.problem is not None
    assert nobody.problem is not None
    assert [("revision.unknown", False), ("kind.unknown", False)] == [
        (each.code, each.is_corruption) for each in (proof.problem, nobody.problem)
    ]
    assert (3, False) == (proof.entries, proof.replayed)


async def test_an_unknown_entity_cannot_be_verified() -> None:
    made = await doors()
    with pytest.raises(NotFoundError):
        await made.verify("door/9")
    with pytest.raises(UsageError):
        await made.verify("door")


async def test_one_bad_entity_does_not_hide_the_others() -> None:
    """All are looked at, and each has its own answer."""
    made = await doors(5)
    forged(made).forge("door/3", 2, outcome="ignored")
    proofs = {each.entity: each async for each in made.verify_all()}

    assert {f"door/{number}" for number in range(1, 6)} == set(proofs)
    assert ["door/3"] == [name for name, each in proofs.items() if each.problem is not None]


class Sectored(Forged):
    """A store that cannot read some entities, or nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[str, str] = {}
        self.is_away = False

    async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
        """Fails as a bad sector does."""
        if "load" == self.lost.get(entity):
            raise UnavailableError(f"`{entity}`: read failed", code="store.read")
        return await super().load(entity, key=key)

    async def read(self, entity: str, *, after: int = 0, limit: int = PAGE_MAX) -> tuple[JournalRecord, ...]:
        """Likewise."""
        if "read" == self.lost.get(entity):
            raise UnavailableError(f"`{entity}`: read failed", code="store.read")
        return await super().read(entity, after=after, limit=limit)

    async def kinds(self) -> tuple[str, ...]:
        """What a store answers that is there at all."""
        if self.is_away:
            raise UnavailableError("the store is away", code="store.away")
        return await super().kinds()


@pytest.mark.parametrize("call", ["load", "read"])
async def test_an_unreadable_entity_is_reported_while_the_store_responds(call: str) -> None:
    store = Sectored()
    made = await doors(3, store)
    store.lost = {"door/1": call}
    store.forge("door/3", 2, outcome="ignored")
    problems = {each.entity: each.problem async for each in made.verify_all()}
    store.is_away = True
    with pytest.raises(UnavailableError, match="the store is away"):
        await made.verify("door/1")

    assert VerificationProblem("journal.unread", "`door/1`: read failed") == problems["door/1"]
    assert ["journal.unread", None, "journal.divergence"] == [each and each.code for each in problems.values()]
    assert [False, True] == [each.is_corruption for each in problems.values() if each is not None]


async def test_entries_written_during_the_verification_are_not_damage() -> None:
    class Growing(Forged):
        async def load(self, entity: str, *, key: str | None = None) -> Loaded | Duplicate | None:
            found = await super().load(entity, key=key)
            if key is None and isinstance(found, Loaded):
                await other.send(entity, "opened" if found.version % 2 else "closed")
            return found

    store = Growing()
    other = runtime(store=MemoryStore())
    made = runtime(store=store)
    other.store._entities = store._entities  # type: ignore[attr-defined]  # the same entities, by a handle that does not grow
    await made.create("door/1")
    proof = await made.verify("door/1")

    assert (1, None) == (proof.entries, proof.problem)


async def test_the_verification_of_a_busy_store_ends() -> None:
    class Busy(MemoryStore):
        async def find(self, query: EntityQuery) -> EntityPage:
            page = await super().find(msgspec.structs.replace(query, after=None))
            return EntityPage(page.rows, "more")

    made = runtime(store=Busy(), clock=StillClock(5_000))
    await made.create("door/1")
    found = [each.entity async for each in verify_store(made.store, made.revisions, now_ms=5_000)]

    assert ["door/1"] == found


async def test_an_archived_journal_is_not_damage() -> None:
    made = await doors()
    await made.send("door/1", "smashed")
    assert isinstance(made.store, MemoryStore)
    await made.store.release_journal("door/1", version=4, archive="file:///archive")
    proof = await made.verify("door/1")

    assert proof.problem is None
    assert "file:///archive" in (proof.archive or "")


async def test_a_proof_can_be_asked_for_without_an_event_loop() -> None:
    """The blocking runtime has the same two questions."""
    import interlock

    def ask() -> list[Verification]:
        with interlock.open("memory:", charts=[interlock.loads(DOOR)]).blocking() as made:
            made.create("door/1")
            return [made.verify("door/1"), *made.verify_all()]

    one, same = await asyncio.to_thread(ask)

    assert (1, one) == (one.entries, same)


def test_every_field_of_an_entry_that_can_be_forged_is_compared() -> None:
    compared = {"version", "before", "after", "outcome", "reason", "effects", "key", "digest", "unseen", "shown"}

    assert {"event", "revision", "trace", "reason_given", "originator", "attempts"} == set(
        Entry.__struct_fields__
    ) - compared


@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten", "removed"])
async def test_a_damaged_journal_of_a_file_store_is_not_passed_over(tmp_path: Path, damage: str) -> None:
    """Lists leave it out; verifying all reports it, and that the others are complete."""
    url = f"file:{tmp_path}/doors"
    chart = interlock.loads(DOOR)
    async with interlock.open(url, charts=[chart]) as doors:
        for number in range(3):
            await doors.create(f"door/{number}")
            await doors.send(f"door/{number}", "opened")
    (journal,) = (tmp_path / "doors").glob("resources/*/door.1/events.log")
    if damage == "cut":
        journal.write_bytes(b"".join(journal.read_bytes().rstrip().splitlines(keepends=True)[:-1]))
    elif damage == "removed":
        journal.unlink()
    else:
        journal.write_bytes(b"" if damage == "emptied" else b"x" * 100)
    async with interlock.open(f"file:{tmp_path}/doors", charts=[chart]) as doors:
        proofs = {proof.entity: proof.problem is None async for proof in doors.verify_all()}

    assert {"door/0": True, "door/1": False, "door/2": True} == proofs
