"""The feed of the file store: what its folder may look like, and what its readers do then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from interlock.errors import CorruptionError, UsageError
from interlock.ports.store import Appended
from interlock.stores.files import store as files
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.feed import hints
from interlock.stores.files.feed.file_feed import WALK_SECONDS, FileFeed
from interlock.stores.files.store import FileStore
from interlock.testing.store_suite.feed import read_all
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import append_all
from tests.crash.life import opened, step
from tests.crash.simulated.file_system import Simulated, World

LATER = 10.0


def _names(feed: FileFeed, after: str | None = None) -> list[tuple[str, int]]:
    return [(each.entity, each.entry.version) for each in feed.read(after, None, 1_000).entries]


def _append(store: BlockingFileStore, entity: str, version: int) -> None:
    assert isinstance(store.append(step(version, f"k{version}", entity=entity)), Appended)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "parcels"


def _open(root: Path) -> FileStore:
    return files.open_store(f"file://{root}")


async def _fill(store: FileStore, *, entities: int = 3) -> list[SampleEntity]:
    samples = [SampleEntity(f"parcel/{each}") for each in range(entities)]
    await append_all(store, *(each.create() for each in samples), *(each.step(key="k") for each in samples))
    return samples


async def test_a_store_whose_feed_is_not_used_has_no_folder_of_it(root: Path) -> None:
    store = _open(root)
    await _fill(store)
    assert not (root / "feed").exists()
    await store.close()


async def test_what_a_crash_left_after_the_last_line_is_cut_off(root: Path) -> None:
    store = _open(root)
    await _fill(store)
    found, after = await read_all(store)
    await store.close()
    log = root / "feed" / "order.log"
    whole = log.read_bytes()
    for rest in (b"{", b"\0" * 50, whole.splitlines()[1], b"\n\n"):
        log.write_bytes(whole + rest)
        store = _open(root)
        assert ([], after) == await read_all(store, after)
        assert found == (await read_all(store))[0]
        await store.close()
        assert whole == log.read_bytes()


async def test_a_damaged_line_that_was_durable_is_reported(root: Path) -> None:
    store = _open(root)
    samples = await _fill(store)
    _, after = await read_all(store)
    await append_all(store, *(each.step(key="later") for each in samples))
    await read_all(store, after)
    await store.close()
    log = root / "feed" / "order.log"
    log.write_bytes(log.read_bytes().replace(b"parcel/1", b"parcel/7", 1))
    store = _open(root)
    for _ in range(2):
        with pytest.raises(CorruptionError) as raised:
            await read_all(store)
        assert "feed.damaged" == raised.value.code
    await store.close()


@pytest.mark.parametrize(
    "text", [b"", b"x\n", b'{"t":"feed","format":2,"id":"a"}\n', b'{"t":"feed","format":1,"id":"a"}']
)
async def test_a_log_of_an_unknown_format_is_refused(root: Path, text: bytes) -> None:
    store = _open(root)
    await _fill(store)
    await read_all(store)
    (root / "feed" / "order.log").write_bytes(text)
    for each in (store, _open(root)):
        with pytest.raises(CorruptionError) as raised:
            await read_all(each)
        assert "feed.damaged" == raised.value.code
        await each.close()


async def test_a_feed_that_is_deleted_starts_again_and_refuses_old_cursors(root: Path) -> None:
    store, other = _open(root), _open(root)
    samples = await _fill(store)
    _, after = await read_all(store)
    await read_all(other)
    shutil.rmtree(root / "feed")
    for each in (store, other):
        with pytest.raises(UsageError) as raised:
            await read_all(each, after)
        assert "feed.cursor" == raised.value.code
    await append_all(other, samples[0].step(key="later"))
    for each in (store, other):
        assert 7 == len((await read_all(each))[0])
        await each.close()


async def test_a_journal_of_an_older_copy_stops_the_feed(root: Path, tmp_path: Path) -> None:
    """Its next entries would have versions that readers have passed."""
    store = _open(root)
    samples = await _fill(store)
    await store.close()
    shutil.copytree(root / "resources", tmp_path / "older")
    store = _open(root)
    await append_all(store, *(each.step(key="later") for each in samples))
    _, after = await read_all(store)
    await store.close()
    shutil.rmtree(root / "resources")
    shutil.copytree(tmp_path / "older", root / "resources")
    store = _open(root)
    for cursor in (None, after):
        with pytest.raises(UsageError) as raised:
            await read_all(store, cursor)
        assert "feed.ahead" == raised.value.code
    shutil.rmtree(root / "feed")
    assert 6 == len((await read_all(store))[0])
    await store.close()


async def test_an_unreadable_journal_is_left_out_until_it_can_be_read(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = _open(root)
    await _fill(store)
    await store.close()
    (journal,) = (root / "resources").glob("*/parcel.1/events.log")
    whole = journal.read_bytes()
    journal.write_bytes(b"x" * len(whole))
    store = _open(root)
    found, after = await read_all(store)
    assert {"parcel/0", "parcel/2"} == {each.entity for each in found}
    assert "parcel/1" in {getattr(each, "entity_id", None) for each in caplog.records}
    journal.write_bytes(whole)
    found, _ = await read_all(store, after)
    assert [("parcel/1", 1), ("parcel/1", 2)] == [(each.entity, each.entry.version) for each in found]
    await store.close()


async def test_an_entry_with_a_position_that_is_damaged_is_not_passed_over(root: Path) -> None:
    store = _open(root)
    await _fill(store)
    await read_all(store)
    await store.close()
    (journal,) = (root / "resources").glob("*/parcel.1/events.log")
    journal.write_bytes(b"x" * 20 + journal.read_bytes()[20:])
    store = _open(root)
    with pytest.raises(CorruptionError):
        await read_all(store)
    await store.close()


def test_an_entry_whose_hint_was_lost_is_found_by_the_next_walk() -> None:
    world = World()
    writing, reading = Simulated(world, process=1), Simulated(world, process=2)
    writer, feed = opened(writing), opened(reading).feed()
    _append(writer, "order/A", 1)
    assert [("order/A", 1)] == _names(feed)
    writing.now = reading.now = LATER
    assert 1 == len(_names(feed))  # walks for the last time
    _append(writer, "order/A", 2)
    writer.hints.close()
    writer.hints.note = lambda *_: None  # type: ignore[method-assign]  # the writer dies before its hint
    _append(writer, "order/A", 3)
    assert 2 == len(_names(feed))
    reading.now += WALK_SECONDS
    assert 3 == len(_names(feed))


def test_a_reader_with_trusted_hints_does_not_walk() -> None:
    world = World()
    writing, reading = Simulated(world, process=1), Simulated(world, process=2)
    writer, feed = opened(writing), opened(reading).feed()
    for number in range(5):
        _append(writer, f"order/{number}", 1)
    _names(feed)
    writing.now = reading.now = LATER
    cursor = feed.read(None, None, 1_000).after
    calls = len(reading.calls)
    for _ in range(3):
        assert [] == _names(feed, cursor)
    idle = reading.calls[calls:]
    assert 0 == idle.count("open_directory") + idle.count("names")
    _append(writer, "order/2", 2)
    calls = len(reading.calls)
    assert [("order/2", 2)] == _names(feed, cursor)
    assert 1 == reading.calls[calls:].count("fdatasync")  # the log; the hint says that the entry is durable


def test_a_writer_of_which_no_reader_takes_the_hints_stops_writing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "HINT_BYTES_MAX", 60)
    world = World()
    writing, reading = Simulated(world, process=1), Simulated(world, process=2)
    writer, feed = opened(writing), opened(reading).feed()
    _append(writer, "order/A", 1)
    cursor = feed.read(None, None, 10).after
    writing.now = reading.now = LATER
    feed.read(cursor, None, 10)
    for version in range(2, 30):
        _append(writer, "order/A", version)
    path = ("store", hints.FEED, hints.CHANGED)
    number = world.found(*path)
    assert number is not None
    assert len(world.nodes[number].cache) < 120
    assert [("order/A", each) for each in range(2, 30)] == _names(feed, cursor)
    assert number != world.found(*path)
    for version in range(30, 33):  # the writer has the old file
        _append(writer, "order/A", version)
    assert 31 == len(_names(feed, cursor))
    writing.now = reading.now = 2 * LATER
    _append(writer, "order/A", 33)
    assert 32 == len(_names(feed, cursor))


def test_a_duplicate_repeats_the_hint_of_a_writer_that_died() -> None:
    world = World()
    writing, reading = Simulated(world, process=1), Simulated(world, process=2)
    writer, feed = opened(writing), opened(reading).feed()
    _append(writer, "order/A", 1)
    cursor = feed.read(None, None, 10).after
    writing.now = reading.now = LATER
    feed.read(cursor, None, 10)
    writer.hints.note = lambda *_: None  # type: ignore[method-assign]  # the writer dies before its hint
    _append(writer, "order/A", 2)
    assert [] == _names(feed, cursor)
    other = opened(Simulated(world, process=3))
    other.append(step(2, "k2", entity="order/A"))
    assert [("order/A", 2)] == _names(feed, cursor)


async def test_a_read_only_store_has_no_feed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _open(root)
    assert store.journal_feed is store
    await store.close()
    original = BlockingFileStore.__init__

    def read_only(self: BlockingFileStore, *given: object, **named: object) -> None:
        original(self, *given, **named)  # type: ignore[arg-type]  # passed on
        self.root.read_only = "it cannot be written"

    monkeypatch.setattr(BlockingFileStore, "__init__", read_only)
    store = _open(root)
    assert store.journal_feed is None
    await store.close()
