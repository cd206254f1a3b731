"""Keys that the file store has forgotten: an event from that time is not applied twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from interlock.model.audit import AuditRow
from interlock.ports.store import Append, Appended, Conflict, Duplicate, KeyExpired
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.journal import recent_keys
from interlock.stores.files.names import directory_name, shard_name
from interlock.stores.files.store import FileStore
from tests.crash.life import ENTITY, opened, step
from tests.crash.simulated.file_system import Simulated, World
from tests.unit.runtime.scene import StillClock, runtime

ENTRIES = 6
"""The last four keys are remembered; entry n has the time n."""


class Telling(FileStore):
    """A store that shows the rows of its audit."""

    def __init__(self, root: Path, told: list[AuditRow]) -> None:
        super().__init__(root, snapshot_every=3)
        self._told = told

    async def append_audit(self, rows: tuple[AuditRow, ...]) -> None:
        """Collect them."""
        self._told += rows


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that remembers four keys, and the time of each."""
    monkeypatch.setattr(recent_keys, "KEYS_MAX", 4)
    monkeypatch.setattr(recent_keys, "PIECE_MAX", 2)
    monkeypatch.setattr(recent_keys, "TIMES_APART", 1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    """A store with an entity whose first two keys are forgotten."""
    found = FileStore(tmp_path / "store", snapshot_every=3)
    for version in range(1, ENTRIES + 1):
        assert isinstance(await found.append(step(version, f"k{version}")), Appended)
    yield found
    await found.close()


def sent(version: int, key: str, sent_ms: int | None) -> Append:
    """The append of an event that was first sent at this time."""
    return replace(step(version, key), sent_ms=sent_ms)


async def test_an_unknown_key_from_a_forgotten_time_is_refused(store: FileStore) -> None:
    """Up to and including the time of the newest forgotten key, whatever version was expected. Nothing is written."""
    found = [await store.append(sent(ENTRIES + 1, "k1", each)) for each in (0, 1, 2)]
    behind = await store.append(sent(2, "k1", 1))

    assert [KeyExpired(ENTRIES, 2)] * 4 == [*found, behind]
    assert ENTRIES == len(await store.read(ENTITY))


async def test_a_known_key_is_a_duplicate_however_old(store: FileStore) -> None:
    """A remembered key is certain."""
    assert Duplicate(3) == await store.append(sent(ENTRIES + 1, "k3", 0))


async def test_an_unknown_key_from_later_is_new(store: FileStore) -> None:
    """Also under a forgotten key: by its time it is another event."""
    behind = await store.append(sent(2, "new", 3))
    new = await store.append(sent(ENTRIES + 1, "k1", 3))

    assert (Conflict(ENTRIES), Appended) == (behind, type(new))


async def test_an_event_without_a_time_is_accepted(store: FileStore) -> None:
    """Without a time the store cannot know."""
    assert isinstance(await store.append(sent(ENTRIES + 1, "k1", None)), Appended)


async def test_other_entities_have_forgotten_nothing(store: FileStore) -> None:
    """Each entity forgets its own keys."""
    other = [replace(step(each, f"k{each}", entity="order/B"), sent_ms=0) for each in (1, 2)]

    assert [Appended, Appended] == [type(await store.append(each)) for each in other]


@pytest.mark.parametrize("is_lost", [False, True], ids=["with its snapshot", "from its journal alone"])
async def test_forgotten_keys_are_known_after_a_restart(store: FileStore, tmp_path: Path, *, is_lost: bool) -> None:
    """From the snapshot, or without one from the entries."""
    await store.close()
    name = directory_name(ENTITY)
    state = tmp_path / "store" / "resources" / shard_name(name, 2) / name / "state.json"
    assert b'"forgotten_ms":2' in state.read_bytes()
    if is_lost:
        state.unlink()
    again = FileStore(tmp_path / "store")
    found = await again.append(sent(ENTRIES + 1, "k1", 2)), await again.append(sent(ENTRIES + 1, "k1", 3))
    await again.close()

    assert (KeyExpired(ENTRIES, 2), Appended) == (found[0], type(found[1]))


def test_a_lone_caller_gets_the_same_answer() -> None:
    """Its step is written in its own thread."""
    journals = opened(Simulated(World()), Settings(snapshot_every=1_000))
    for version in range(1, ENTRIES + 1):
        journals.append(step(version, f"k{version}"))
    old, new = (journals.append_inline(sent(ENTRIES + 1, "k1", each)) for each in (2, 3))
    journals.close()

    assert (KeyExpired(ENTRIES, 2), Appended) == (old, type(new))


async def test_an_event_that_may_have_been_applied_is_rejected_and_recorded(tmp_path: Path) -> None:
    """Also on a cached snapshot that is out of date; the refusal is recorded, and the key is not used up."""
    clock, told = StillClock(), list[AuditRow]()
    one, two = FileStore(tmp_path / "store", snapshot_every=3), Telling(tmp_path / "store", told)
    here, there = runtime(store=one, clock=clock), runtime(store=two, clock=clock)
    await here.create("door/1")
    first_ms = clock.time_ms = 2_000
    first = await there.send("door/1", "noted", {"text": "a"}, key="first", sent_ms=first_ms)
    for number in range(6):
        clock.time_ms += 1_000
        await here.send("door/1", "noted", {"text": "b"}, key=f"k{number}", sent_ms=clock.time_ms)
    again = await there.send("door/1", "noted", {"text": "a"}, key="first", sent_ms=first_ms)
    last = await there.send("door/1", "noted", {"text": "b"}, key="k5", sent_ms=first_ms)
    new = await there.send("door/1", "noted", {"text": "c"}, key="first", sent_ms=clock.time_ms)
    for each in (here, there):
        await each.close()

    assert ("applied", 2) == (first.outcome, first.version)
    assert ("rejected", "key.expired", 8) == (again.outcome, again.reason, again.version)
    assert [("door/1", "noted", "rejected", "key.expired")] == [
        (each.entity, each.event, each.outcome, each.reason) for each in told
    ]
    assert (("duplicate", 8), ("applied", 9)) == ((last.outcome, last.version), (new.outcome, new.version))
