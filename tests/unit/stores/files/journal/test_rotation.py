"""Journals of several segments on a real directory: rotation, adoption, release."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interlock.errors import ConflictError, CorruptionError, NotFoundError, UnavailableError, UsageError
from interlock.model.journal.record import JournalRecord
from interlock.ports.store import Appended, Conflict, Duplicate, EntityQuery, Loaded
from interlock.stores.files.journal.line_formats import (
    ARCHIVE_BYTES_MAX,
    BASE_BYTES_MAX,
    BLANKS,
    Base,
    Position,
    encode_base,
    encode_seal,
    is_seal,
)
from interlock.stores.files.names import directory_name, sealed_name, segment_first_version, shard_name
from interlock.stores.files.store import FileStore
from tests.crash.life import step

ENTITY = "order/A-1"
ARCHIVE = "file:///archive"
ENTRIES = 9


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    """A store with two entries per segment."""
    found = FileStore(tmp_path / "store", snapshot_every=4, segment_bytes_max=300)
    yield found
    await found.close()


def directory(root: Path) -> Path:
    """The directory of the entity."""
    name = directory_name(ENTITY)
    return root / "store" / "resources" / shard_name(name, 2) / name


def sealed(root: Path) -> list[int]:
    """The first versions of the sealed segments."""
    found = [segment_first_version(path.name) for path in directory(root).iterdir()]
    return sorted(first for first in found if first is not None)


async def filled(store: FileStore, count: int = ENTRIES, *, ended: bool = False) -> tuple[JournalRecord, ...]:
    """Append so many entries, the last of which may end the entity; return the records."""
    for version in range(1, count + 1):
        assert isinstance(await store.append(step(version, f"k{version}", ended=ended and version == count)), Appended)
    return await store.read(ENTITY)


async def test_a_full_segment_is_sealed_and_the_next_one_started(store: FileStore, tmp_path: Path) -> None:
    """Every record is in one segment, the chain goes through all of them, and each ends with its seal."""
    records = await filled(store)
    segments = [(directory(tmp_path) / sealed_name(first)).read_bytes() for first in sealed(tmp_path)]
    ends = [segment.rstrip(BLANKS).splitlines()[-1][:11] for segment in segments]

    assert [f"k{version}" for version in range(1, ENTRIES + 1)] == [each.key for each in records]
    assert (1, True, {b'{"t":"seal"'}) == (sealed(tmp_path)[0], len(sealed(tmp_path)) >= 3, set(ends))


async def test_any_page_of_any_segment_is_read(store: FileStore) -> None:
    """Pages cross segments without a gap, from every version on, in every length."""
    await filled(store)
    for after in range(ENTRIES + 1):
        for limit in (1, 2, 3, ENTRIES):
            page = await store.read(ENTITY, after=after, limit=limit)

            assert list(range(after + 1, min(after + limit, ENTRIES) + 1)) == [each.version for each in page]


async def test_another_process_follows_a_rotation(store: FileStore, tmp_path: Path) -> None:
    """A journal that was open before continues in the new segment; keys of older segments are still known."""
    other = FileStore(tmp_path / "store", segment_bytes_max=300)
    turns = [(store, other)[version // 3 % 2] for version in range(1, ENTRIES + 1)]
    answers = [await each.append(step(version, f"k{version}")) for version, each in enumerate(turns, start=1)]
    duplicate = await other.append(step(ENTRIES + 1, "k2"))
    loaded = await other.load(ENTITY)
    listed = [(await each.find(EntityQuery(kind="order"))).rows for each in (store, other)]
    await other.close()

    assert list(range(1, ENTRIES + 1)) == [each.version for each in answers]
    assert isinstance(loaded, Loaded)
    assert (Duplicate(2), ENTRIES) == (duplicate, loaded.version)
    assert listed[0] == listed[1]


async def test_a_snapshot_in_an_older_segment_is_continued(store: FileStore, tmp_path: Path) -> None:
    """The snapshot names its segment; the entries after it are read from the sealed ones, also without a snapshot."""
    await filled(store)
    versions = []
    for without in (False, True):
        if without:
            (directory(tmp_path) / "state.json").unlink()
        other = FileStore(tmp_path / "store")
        loaded = await other.load(ENTITY)
        assert isinstance(loaded, Loaded)
        versions.append((loaded.version, loaded.records[-1].version))
        assert Duplicate(1) == await other.append(step(ENTRIES + 1, "k1"))
        await other.close()

    assert [(ENTRIES, ENTRIES)] * 2 == versions


async def test_a_missing_sealed_segment_is_damage(store: FileStore, tmp_path: Path) -> None:
    """ReadResult and appending stop for this entity."""
    await filled(store)
    (directory(tmp_path) / sealed_name(sealed(tmp_path)[1])).unlink()
    (directory(tmp_path) / "state.json").unlink()
    other = FileStore(tmp_path / "store")
    for call in (other.read(ENTITY), other.append(step(ENTRIES + 1, "new")), other.load(ENTITY)):
        with pytest.raises(CorruptionError) as caught:
            await call
        assert "journal.corrupt" == caught.value.code
    await other.close()


@pytest.mark.parametrize("left", [b"", b"   \n"])
async def test_an_empty_journal_with_sealed_segments_is_damage(store: FileStore, tmp_path: Path, left: bytes) -> None:
    """It was emptied, and its snapshot is missing too: it is neither read nor created again."""
    await filled(store)
    await store.close()
    (directory(tmp_path) / "state.json").unlink()
    (directory(tmp_path) / "events.log").write_bytes(left)
    other = FileStore(tmp_path / "store")
    codes = []
    for ask in (lambda: other.read(ENTITY), lambda: other.load(ENTITY), lambda: other.append(step(1, "new"))):
        with pytest.raises(CorruptionError) as caught:
            await ask()
        codes.append(caught.value.code)
    await other.close()

    assert (["journal.corrupt"] * 3, left) == (codes, (directory(tmp_path) / "events.log").read_bytes())


async def test_records_are_adopted_byte_for_byte(store: FileStore, tmp_path: Path) -> None:
    """An archive has the same bytes; adopting again adds nothing; the entity can continue there."""
    records = await filled(store, ended=True)
    archive = FileStore(tmp_path / "archive")
    last = step(ENTRIES, f"k{ENTRIES}", ended=True)
    reached = [await archive.adopt(step(4, "k4"), records[:4])]
    reached += [await archive.adopt(last, records) for _ in range(2)]
    loaded = await archive.load(ENTITY)
    known = await archive.load(ENTITY, key="k5")
    rows = (await archive.find(EntityQuery(kind="order"))).rows
    copy = await archive.read(ENTITY)
    await archive.close()

    assert archive.journal_archive is not None
    assert ([4, ENTRIES, ENTRIES], records) == (reached, copy)
    assert isinstance(loaded, Loaded)
    assert (last.snapshot, (), Duplicate(5)) == (loaded.snapshot, loaded.records, known)
    assert [(ENTITY, "done")] == [(row.entity, row.ended) for row in rows]


async def test_what_stands_in_the_way_is_a_conflict(store: FileStore, tmp_path: Path) -> None:
    """Other records in their place, or a gap: nothing is written."""
    records = await filled(store)
    archive = FileStore(tmp_path / "archive")
    await archive.append(step(1, "other"))
    for given in (records, records[1:], records[4:]):
        with pytest.raises(ConflictError) as caught:
            await archive.adopt(step(ENTRIES, f"k{ENTRIES}"), given)
        assert caught.value.code in {"journal.taken", "journal.gap"}
    here = await archive.read(ENTITY)
    await archive.close()

    assert ["other"] == [each.key for each in here]


async def test_records_of_another_chain_are_not_adopted(store: FileStore, tmp_path: Path) -> None:
    """A record that does not follow, of another entity or another store key, is refused before anything is written."""
    records = await filled(store)
    broken = (*records[:3], *records[4:])
    archive = FileStore(tmp_path / "archive", store_key=b"secret")
    plain = FileStore(tmp_path / "plain")
    for place, given in ((archive, records), (plain, broken)):
        with pytest.raises(CorruptionError) as caught:
            await place.adopt(step(ENTRIES, f"k{ENTRIES}"), given)
        assert ("journal.chain", None) == (caught.value.code, await place.load(ENTITY))
    await archive.close()
    await plain.close()


async def test_a_snapshot_older_than_its_records_is_the_caller_s_mistake(store: FileStore) -> None:
    """`adopt` needs the snapshot after the last record."""
    records = await filled(store)
    for given in ((), records):
        with pytest.raises(UsageError):
            await store.adopt(step(2, "k2"), given)


async def test_released_records_are_in_the_archive(store: FileStore, tmp_path: Path) -> None:
    """The entity stays, with its end, its keys and its id; reading its records names the archive."""
    await filled(store, ended=True)
    gone = [await store.release_journal(ENTITY, version=ENTRIES, archive=ARCHIVE) for _ in range(2)]
    with pytest.raises(NotFoundError, match=ARCHIVE) as caught:
        await store.read(ENTITY)
    other = FileStore(tmp_path / "store")
    loaded = await other.load(ENTITY)
    answers = [await other.append(step(version, key)) for version, key in ((ENTRIES + 1, "k4"), (1, "again"))]
    known, rest = await other.load(ENTITY, key="k3"), await other.read(ENTITY, after=ENTRIES)
    rows = (await other.find(EntityQuery(kind="order"))).rows
    await other.close()

    assert store.journal_release is not None
    assert ([True, True], "journal.archived") == (gone, caught.value.code)
    assert ["events.log", "state.json"] == sorted(path.name for path in directory(tmp_path).iterdir())
    assert isinstance(loaded, Loaded)
    assert loaded.snapshot is not None
    assert ("done", [Duplicate(4), Conflict(ENTRIES)]) == (loaded.snapshot.ended, answers)
    assert (Duplicate(3), ()) == (known, rest)
    assert [(ENTITY, ENTRIES, "done")] == [(row.entity, row.version, row.ended) for row in rows]


async def test_only_an_ended_entity_at_that_version_is_released(store: FileStore) -> None:
    """Another version, an entity that has not ended, or an unknown one: nothing happens."""
    await filled(store, 4)
    answers = [
        await store.release_journal(ENTITY, version=4, archive=ARCHIVE),
        await store.release_journal(ENTITY, version=3, archive=ARCHIVE),
        await store.release_journal("order/none", version=1, archive=ARCHIVE),
    ]

    assert ([False] * 3, 4) == (answers, len(await store.read(ENTITY)))


@pytest.mark.parametrize("archive", ["", "x" * 2_000])
async def test_a_release_names_its_archive(store: FileStore, archive: str) -> None:
    """An empty or overlong address is refused."""
    await filled(store, 2, ended=True)
    with pytest.raises(UsageError) as caught:
        await store.release_journal(ENTITY, version=2, archive=archive)

    assert ("archive.malformed", 2) == (caught.value.code, len(await store.read(ENTITY)))


async def test_an_entity_goes_on_after_its_release_and_can_be_released_again(store: FileStore, tmp_path: Path) -> None:
    """New entries follow the old chain, rotate, and are read from the release on."""
    records = await filled(store, 3, ended=True)
    await store.release_journal(ENTITY, version=3, archive=ARCHIVE)
    for version in range(4, 9):
        await store.append(step(version, f"k{version}", ended=version == 8))
    page = await store.read(ENTITY, after=3)
    with pytest.raises(NotFoundError):
        await store.read(ENTITY, after=2)
    archive = FileStore(tmp_path / "archive")
    reached = await archive.adopt(step(8, "k8", ended=True), records + page)
    await archive.close()
    again = await store.release_journal(ENTITY, version=8, archive=f"{ARCHIVE}/2")

    assert ([4, 5, 6, 7, 8], 8, True) == ([each.version for each in page], reached, again)
    assert [] == sealed(tmp_path)


async def test_a_released_entity_without_its_snapshot_is_stopped(store: FileStore, tmp_path: Path) -> None:
    """Its snapshot and keys are no longer a cache: without them a key could be applied twice."""
    await filled(store, 3, ended=True)
    await store.release_journal(ENTITY, version=3, archive=ARCHIVE)
    (directory(tmp_path) / "state.json").unlink()
    other = FileStore(tmp_path / "store")
    for call in (other.load(ENTITY), other.append(step(4, "k1"))):
        with pytest.raises(CorruptionError, match=ARCHIVE):
            await call
    await other.close()


async def test_an_entity_without_a_snapshot_of_its_end_is_not_released(store: FileStore, tmp_path: Path) -> None:
    """The store cannot create one; adopting the same records again does."""
    records = await filled(store, 3, ended=True)
    await store.close()
    (directory(tmp_path) / "state.json").unlink()
    other = FileStore(tmp_path / "store")
    with pytest.raises(UnavailableError) as caught:
        await other.release_journal(ENTITY, version=3, archive=ARCHIVE)
    await other.adopt(step(3, "k3", ended=True), records)
    answer = await other.release_journal(ENTITY, version=3, archive=ARCHIVE)
    await other.close()

    assert ("store.snapshot", True) == (caught.value.code, answer)


async def test_kinds_are_sorted_and_unique(store: FileStore, tmp_path: Path) -> None:
    """Of entities with long ids too; a directory without an entry does not count."""
    for entity in ("order/1", "order/2", "invoice/1", f"parcel/{'Ä' * 90}"):
        await store.append(step(1, "a", entity=entity))
    (directory(tmp_path).parent / "empty.1").mkdir()

    assert ("invoice", "order", "parcel") == await store.kinds()


def test_a_seal_is_bound_to_its_place() -> None:
    """Only a line with its own hash, at its head and version, seals a segment."""
    mark = Position(6, 900, "0" * 32)
    line = encode_seal(1, mark, 700)
    flipped = [line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :] for place in range(len(line))]

    assert (True, []) == (is_seal(line, mark), [each for each in flipped if is_seal(each, mark)])
    assert [False] * 3 == [
        is_seal(line, Position(7, 900, "0" * 32)),
        is_seal(line, Position(6, 900, "1" * 32)),
        is_seal(line, mark, store_key=b"secret"),
    ]


def test_a_base_line_fits_one_read() -> None:
    """Whatever the characters of its archive."""
    base = Base(10**6, 10**12, 10**12, "0" * 32, 10**9, "\x01" * ARCHIVE_BYTES_MAX, "0" * 32)

    assert len(encode_base(base)) <= BASE_BYTES_MAX
