"""Released journals: records are in an archive, the entity and its keys stay, and readers get the address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol, cast

import pytest
from msgspec.structs import replace

from interlock.errors import ArchivedError, NotFoundError, UnavailableError, UsageError
from interlock.model.journal.record import decode_record
from interlock.ports.store import Append, Conflict, Duplicate, EntityQuery, JournalRelease, Loaded, Store
from interlock.stores.registry import open_store as open_store_url
from interlock.stores.sqlite.store import open_store
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all, list_all
from tests.support.postgres_server import store_or_skip

AWAY = "file:///archive/2026-05"


class Storing(Store, JournalRelease, Protocol):
    """A store that can also release journals."""


@pytest.fixture(params=["memory", "sqlite", "files", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storing]:
    """An empty store of each kind."""
    url = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/x.db",
        "files": f"file://{tmp_path}/x",
    }.get(request.param)
    made = await open_store_url(url or store_or_skip())
    yield cast("Storing", made)
    await made.close()


async def _delivered(store: Storing, entity: str = "parcel/1") -> SampleEntity:
    """A parcel with four entries that ended."""
    sample = SampleEntity(entity)
    await append_all(
        store,
        sample.create(),
        sample.step("noted", key="n"),
        sample.step("shipped", key="s"),
        sample.step("delivered", key="d"),
    )
    return sample


async def test_released_records_are_gone_and_the_archive_is_named(store: Storing) -> None:
    await _delivered(store)

    assert store.journal_release is not None
    assert await store.release_journal("parcel/1", version=4, archive=AWAY)
    for after in (0, 1, 3):
        with pytest.raises(ArchivedError) as raised:
            await store.read("parcel/1", after=after)
        assert ("journal.archived", AWAY) == (raised.value.code, raised.value.archive)
        assert f"`parcel/1` up to version 4 is in the archive {AWAY}" in raised.value.message
        assert f"interlock journal {AWAY} parcel/1" in str(raised.value.hint)
    assert () == await store.read("parcel/1", after=4)


async def test_the_entity_stays_with_snapshot_keys_and_its_place_in_lists(store: Storing) -> None:
    await _delivered(store)
    before = await store.load("parcel/1"), await list_all(store, EntityQuery(kind="parcel")), await store.kinds()
    await store.release_journal("parcel/1", version=4, archive=AWAY)

    assert before == (
        await store.load("parcel/1"),
        await list_all(store, EntityQuery(kind="parcel")),
        await store.kinds(),
    )
    assert Duplicate(2) == await store.load("parcel/1", key="n")
    assert Conflict(4) == await store.append(SampleEntity("parcel/1").create(key="again"))


async def test_only_an_ended_entity_at_that_version_is_released(store: Storing) -> None:
    """Otherwise nothing is dropped, and that is the answer."""
    await _delivered(store)
    moving = SampleEntity("parcel/2")
    await append_all(store, moving.create(), moving.step("shipped", key="s"))

    assert [False, False, False, False] == [
        await store.release_journal("parcel/1", version=3, archive=AWAY),
        await store.release_journal("parcel/1", version=5, archive=AWAY),
        await store.release_journal("parcel/2", version=2, archive=AWAY),
        await store.release_journal("parcel/9", version=1, archive=AWAY),
    ]
    assert (4, 2) == (len(await store.read("parcel/1")), len(await store.read("parcel/2")))


async def test_a_second_release_is_the_first(store: Storing) -> None:
    await _delivered(store)
    await store.release_journal("parcel/1", version=4, archive=AWAY)

    assert await store.release_journal("parcel/1", version=4, archive="file:///elsewhere")
    with pytest.raises(NotFoundError, match=AWAY):
        await store.read("parcel/1")


async def test_a_record_after_a_release_follows_what_was_released(store: Storing) -> None:
    """A store knows no charts: if an ended entity is written once more, the chain continues from its last hash."""
    last = (await _delivered(store)).step("noted", key="late")  # ignored by the chart: its version is still 4
    (before,) = await store.read("parcel/1", after=3)
    await store.release_journal("parcel/1", version=4, archive=AWAY)
    await append_all(store, *(_again(last, version) for version in (5, 6, 7)))
    found = await store.read("parcel/1", after=4)
    (first,) = await store.read("parcel/1", after=4, limit=1)
    rest = await store.read("parcel/1", after=5)

    assert [5, 6, 7] == [each.version for each in found]
    assert (found[0], found[1:]) == (first, rest)
    assert decode_record(found[0].line, previous=before.head, version=5) == found[0]
    with pytest.raises(NotFoundError):
        await store.read("parcel/1", after=2)


def _again(append: Append, version: int) -> Append:
    """Return the append with another version."""
    entry = replace(append.entry, version=version, key=f"late-{version}")
    return replace(append, expected=version - 1, entry=entry, snapshot=replace(append.snapshot, version=version))


async def test_a_closed_store_releases_nothing(store: Storing) -> None:
    await _delivered(store)
    await store.close()
    with pytest.raises(UnavailableError):
        await store.release_journal("parcel/1", version=4, archive=AWAY)


async def test_a_release_is_seen_by_another_handle_and_after_a_restart(tmp_path: Path) -> None:
    first = open_store(f"sqlite:///{tmp_path}/x.db")
    other = open_store(f"sqlite:///{tmp_path}/x.db")
    await _delivered(first)
    await first.release_journal("parcel/1", version=4, archive=AWAY)
    with pytest.raises(NotFoundError):
        await other.read("parcel/1")
    await first.close()
    await other.close()
    again = open_store(f"sqlite:///{tmp_path}/x.db")
    found = await again.load("parcel/1")
    with pytest.raises(NotFoundError):
        await again.read("parcel/1")
    await again.close()

    assert isinstance(found, Loaded)


async def test_tenants_release_their_own(tmp_path: Path) -> None:
    mine, theirs = (open_store(f"sqlite:///{tmp_path}/x.db?tenant={name}") for name in ("a", "b"))
    for each in (mine, theirs):
        await _delivered(each)
    await mine.release_journal("parcel/1", version=4, archive=AWAY)
    count = len(await theirs.read("parcel/1"))
    await mine.close()
    await theirs.close()

    assert 4 == count


@pytest.mark.parametrize("wrong", ["nul\0", "half\ud800"])
async def test_what_is_no_text_names_no_archive(tmp_path: Path, wrong: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await _delivered(store)
    with pytest.raises(UsageError):
        await store.release_journal("parcel/1", version=4, archive=wrong)
    count = len(await store.read("parcel/1"))
    await store.close()

    assert 4 == count
