"""Archiving journals of ended entities: the order, the selection, and crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from interlock.errors import NotFoundError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import CAPABILITIES, Append, Store
from interlock.runtime.history import archive as retention
from interlock.runtime.history import verify
from interlock.runtime.history.archive import ArchivedEntity, Opener, RetentionRule, archive, month
from interlock.runtime.history.verify import verify_entity
from interlock.runtime.runtime import Runtime
from interlock.stores.files import store as files
from interlock.stores.memory import MemoryStore
from interlock.stores.sqlite import store as sqlite
from tests.unit.runtime.scene import StillClock, runtime

MAY = 1_778_000_000_000
"""A moment in May 2026."""

SMASHED = RetentionRule(kind="door", state="broken", entered_before_ms=MAY + 10_000)


class Shelf:
    """Archives by month, opened once each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores: dict[str, Store] = {}

    async def opened(self, name: str) -> tuple[Store, str]:
        """The file store of a month."""
        address = f"file://{self.folder}/{name}"
        if name not in self.stores:
            self.stores[name] = files.open_store(address)
        return self.stores[name], address


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    """An empty archive."""
    made = Shelf(tmp_path)
    yield made
    for each in made.stores.values():
        await each.close()


async def doors(store: Store | None = None) -> Runtime:
    """Three doors: 1 and 2 smashed, 2 so lately that no rule takes it, 3 still in use."""
    clock = StillClock(MAY)
    made = runtime(store=store or MemoryStore(), clock=clock)
    for number in (1, 2, 3):
        await made.create(f"door/{number}", key=f"made-{number}")
        await made.send(f"door/{number}", "opened", key=f"opened-{number}")
    await made.send("door/1", "smashed")
    clock.time_ms += 20_000
    await made.send("door/2", "smashed")
    return made


async def _run(made: Runtime, opened: Opener, *, dry_run: bool = False) -> list[ArchivedEntity]:
    return [each async for each in archive(made.store, made.revisions, SMASHED, opened, dry_run=dry_run)]


async def test_an_old_journal_of_an_ended_entity_is_moved_to_its_month(shelf: Shelf) -> None:
    made = await doors()
    before = await made.store.read("door/1")
    snapshot = await made.state("door/1")
    done = await _run(made, shelf.opened)

    assert [ArchivedEntity("door/1", "yes", "2026-05", 3)] == done
    assert [each.line for each in before] == [each.line for each in await shelf.stores["2026-05"].read("door/1")]
    with pytest.raises(NotFoundError) as raised:
        await made.store.read("door/1")
    assert "journal.archived" == raised.value.code
    assert str(shelf.folder) in raised.value.message
    assert snapshot == await made.state("door/1")


async def test_an_archived_id_cannot_be_created_again(shelf: Shelf) -> None:
    made = await doors()
    await _run(made, shelf.opened)
    fresh = Runtime(made.store, made.charts, StillClock(MAY + 30_000))

    assert "entity.exists" == (await fresh.create("door/1")).reason
    assert ("duplicate", 2) == ((again := await fresh.send("door/1", "opened", key="opened-1")).outcome, again.version)
    assert "rejected" == (await fresh.send("door/1", "opened", key="new")).outcome


async def test_an_archive_can_be_verified(shelf: Shelf) -> None:
    made = await doors()
    await _run(made, shelf.opened)
    proof = await verify_entity(shelf.stores["2026-05"], made.revisions, "door/1")

    assert (3, True, None) == (proof.entries, proof.replayed, proof.problem)


async def test_a_journal_that_the_archive_refuses_is_not_released(tmp_path: Path) -> None:
    made = await doors()
    other = files.FileStore(tmp_path / "other", tenant="acme")

    async def opened(_: str) -> tuple[Store, str]:
        return other, "file:other"

    done = await _run(made, opened)
    await other.close()

    assert [("door/1", "no")] == [(each.entity, each.archived) for each in done]
    assert "the hash does not match" in str(done[0].reason)
    assert 3 == len(await made.store.read("door/1"))


async def test_only_entities_of_the_rule_are_archived(shelf: Shelf) -> None:
    made = await doors()
    await _run(made, shelf.opened)

    assert [3, 2] == [len(await made.store.read(f"door/{number}")) for number in (2, 3)]


async def test_an_entity_in_the_state_that_has_not_ended_is_left_alone(shelf: Shelf) -> None:
    """The state and the age are not enough."""
    made = await doors()
    rule = RetentionRule(kind="door", state="open", entered_before_ms=MAY + 10_000)
    found = [each async for each in archive(made.store, made.revisions, rule, shelf.opened)]

    assert [] == found
    assert 2 == len(await made.store.read("door/3"))


async def test_a_dry_run_changes_nothing(shelf: Shelf) -> None:
    made = await doors()
    done = await _run(made, shelf.opened, dry_run=True)

    assert [ArchivedEntity("door/1", "would", "2026-05", 3)] == done
    assert {} == shelf.stores
    assert 3 == len(await made.store.read("door/1"))


async def test_once_more_finds_it_done(shelf: Shelf) -> None:
    """A second run knows the first."""
    made = await doors()
    await _run(made, shelf.opened)

    assert ["before"] == [each.archived for each in await _run(made, shelf.opened)]


class Dying(MemoryStore):
    """Crashes once, at a release."""

    died = False

    async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
        """As the memory store, the second time."""
        if not self.died:
            self.died = True
            raise UnavailableError("the process was killed", code="test")
        return await super().release_journal(entity, version=version, archive=archive)


async def test_a_crash_between_copy_and_release_loses_nothing(shelf: Shelf) -> None:
    made = await doors(Dying())
    with pytest.raises(UnavailableError):
        await _run(made, shelf.opened)

    assert 3 == len(await made.store.read("door/1"))
    assert [ArchivedEntity("door/1", "yes", "2026-05", 3)] == await _run(made, shelf.opened)
    assert 3 == len(await shelf.stores["2026-05"].read("door/1"))


class Fragile:
    """A store that dies at the n-th call of two stores together; before that call does anything, or after it did."""

    def __init__(self, store: Store, calls: list[int], *, after: bool) -> None:
        self._store, self._calls, self._after = store, calls, after

    def __getattr__(self, name: str) -> Any:
        if name in CAPABILITIES:
            return None if getattr(self._store, name) is None else self
        return partial(self._called, name)

    async def _called(self, name: str, *values: Any, **named: Any) -> Any:
        self._calls[0] -= 1
        if self._calls[0] < 0 or (self._calls[0] == 0 and not self._after):  # the dead do not come back
            raise UnavailableError("the process was killed", code="test")
        answer = await getattr(self._store, name)(*values, **named)
        if self._calls[0] == 0:
            raise UnavailableError("the process was killed", code="test")
        return answer


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_call_leaves_the_journal_whole_in_at_least_one_place(after: bool, tmp_path: Path) -> None:
    """Every call of either store, killed before and after it; then the same command completes."""
    deaths = 0
    for number in range(1, 100):
        made = await doors()
        expected = await _lines(made.store)
        own = Shelf(tmp_path / f"{number}")
        own.folder.mkdir()
        calls = [number]

        async def opened(name: str, own: Shelf = own, calls: list[int] = calls) -> tuple[Store, str]:
            store, address = await own.opened(name)
            return Fragile(store, calls, after=after), address

        mortal = Runtime(Fragile(made.store, calls, after=after), made.charts, made.clock)
        try:
            await _run(mortal, opened)
        except UnavailableError:
            deaths += 1
            copies = [await _lines(each) for each in (made.store, *own.stores.values())]
            assert expected in copies
            await _run(made, own.opened)
        assert expected == await _lines(own.stores["2026-05"])
        assert [] == await _lines(made.store)
        for each in own.stores.values():
            await each.close()
        if calls[0] > 0:
            break

    assert deaths >= 7


async def _lines(store: Store) -> list[bytes]:
    try:
        return [each.line for each in await store.read("door/1")]
    except NotFoundError:
        return []


async def test_a_journal_that_cannot_be_proven_stays(shelf: Shelf) -> None:
    """Damage is not archived away."""
    made = await doors()
    assert isinstance(made.store, MemoryStore)
    made.store._entities["door/1"].records.pop()
    (done,) = await _run(made, shelf.opened)

    assert ("no", {}) == (done.archived, shelf.stores)
    assert "version 3" in (done.reason or "")


async def test_an_entity_that_went_on_meanwhile_stays() -> None:
    """Release is conditional on the version that was copied."""

    class Moved(MemoryStore):
        async def release_journal(self, entity: str, *, version: int, archive: str) -> bool:
            return await super().release_journal(entity, version=version - 1, archive=archive)

    class Taking(MemoryStore):
        @property
        def journal_archive(self) -> Self:  # type: ignore[override]  # the memory store has none
            return self

        async def adopt(self, append: Append, records: tuple[JournalRecord, ...]) -> int:
            for each in records:
                now = append if each.version == append.entry.version else _at(append, each)
                await self.append(now)
            return append.entry.version

    target = Taking()

    async def opened(name: str) -> tuple[Store, str]:
        return target, f"memory:{name}"

    made = await doors(Moved())
    (done,) = await _run(made, opened)

    assert ("no", "it has changed meanwhile") == (done.archived, done.reason)
    assert 3 == len(await made.store.read("door/1"))


def _at(append: Append, record: JournalRecord) -> Append:
    """The append of an earlier record; the snapshot is of no matter here, but for its version."""
    from msgspec.structs import replace

    entry = record.entry
    snapshot = replace(append.snapshot, version=entry.version)
    return replace(append, expected=entry.version - 1, entry=entry, snapshot=snapshot)


async def test_an_archive_with_another_journal_of_the_same_id_keeps_both(shelf: Shelf) -> None:
    await _run(await doors(), shelf.opened)
    other = runtime(clock=StillClock(MAY))
    await other.create("door/1", key="another")
    await other.send("door/1", "smashed", key="at-once")
    (done,) = await _run(other, shelf.opened)

    assert "no" == done.archived
    assert 2 == len(await other.store.read("door/1"))


async def test_stores_that_cannot_release_or_adopt_are_refused(shelf: Shelf) -> None:
    class Keeping(MemoryStore):
        journal_release = None  # type: ignore[assignment]  # the point

    made = await doors()
    with pytest.raises(UsageError) as source:
        await _run(Runtime(Keeping(), made.charts, made.clock), shelf.opened)

    async def opened(name: str) -> tuple[Store, str]:
        return MemoryStore(), name

    with pytest.raises(UsageError) as target:
        await _run(made, opened)

    assert ["archive.source", "archive.target"] == [source.value.code, target.value.code]


async def test_a_long_journal_is_archived_page_by_page(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE_MAX", 4)
    monkeypatch.setattr(verify, "PAGE_MAX", 3)
    store = sqlite.open_store(f"sqlite:///{tmp_path}/doors.db")
    clock = StillClock(MAY)
    made = runtime(store=store, clock=clock)
    await made.create("door/1")
    for number in range(10):
        await made.send("door/1", "noted", {"text": str(number)})
    await made.send("door/1", "smashed")
    (done,) = await _run(made, shelf.opened)
    proof = await verify_entity(shelf.stores["2026-05"], made.revisions, "door/1")
    await store.close()

    assert ("yes", 12) == (done.archived, done.entries)
    assert (12, None) == (proof.entries, proof.problem)


@pytest.mark.parametrize(("time_ms", "name"), [(0, "1970-01"), (MAY, "2026-05"), (1_798_761_599_999, "2026-12")])
def test_months_are_utc(time_ms: int, name: str) -> None:
    """Two machines sort the same journal into the same month."""
    assert name == month(time_ms)
