"""Damage to a journal is never read as an entry, and never silently removes what a snapshot proves."""

import pytest

from interlock.errors import CorruptionError
from interlock.model.journal.record import JournalRecord
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.journal.line_formats import BLANKS
from interlock.stores.files.names import JOURNAL, directory_name
from tests.crash.life import ENTITY, Ledger, append_blindly, opened, step
from tests.crash.simulated.file_system import File, Simulated, World

ENTRIES = 10
MASKS = (0x01, 0x20, 0xFF)


def journal(*, snapshot: bool) -> tuple[World, int]:
    """A store with a journal of ten records, and the node of that journal."""
    world = World()
    journals = opened(Simulated(world), Settings(snapshot_every=ENTRIES if snapshot else 1_000))
    for version in range(1, ENTRIES + 1):
        append_blindly(journals, Ledger(), f"k{version}", version)
    number = world.found("store", "resources", directory_name(ENTITY), JOURNAL)
    assert number is not None
    return world, number


def content(world: World, number: int) -> bytes:
    """The bytes of a file, without the padding after its lines."""
    node = world.nodes[number]
    assert isinstance(node, File)
    return written(node)


def written(file: File) -> bytes:
    """The lines of a file."""
    return file.cache.rstrip(BLANKS) + b"\n"


def reading(world: World, number: int, data: bytes) -> tuple[JournalRecord, ...] | None:
    """What a reader finds when the journal has these bytes; None when it raises."""
    changed = world.copy()
    changed.nodes[number] = File(data, data, ())
    try:
        return opened(Simulated(changed, process=2)).read(ENTITY)
    except CorruptionError:
        return None


@pytest.mark.parametrize("mask", MASKS)
def test_every_flipped_byte_is_detected_when_there_is_a_snapshot(mask: int) -> None:
    """The snapshot proves the last record, the chain and `d` all before it."""
    world, number = journal(snapshot=True)
    data = content(world, number)
    silent = [place for place in range(len(data)) if reading(world, number, _flipped(data, place, mask)) is not None]

    assert [] == silent


@pytest.mark.parametrize("mask", MASKS)
def test_without_a_snapshot_only_the_last_record_can_vanish(mask: int) -> None:
    """A flipped byte in the last record looks like a torn tail; anywhere else it raises. No altered record is read."""
    world, number = journal(snapshot=False)
    data = content(world, number)
    good = reading(world, number, data)
    assert good is not None
    last = len(data) - len(good[-1].line)
    for place in range(len(data)):
        found = reading(world, number, _flipped(data, place, mask))

        assert found == (None if place < last else good[:-1])


def test_every_flipped_byte_of_every_segment_is_detected() -> None:
    """A sealed segment is complete: any change of it raises, of base and seal too. So does a change of the last base.

    Only the last record can vanish without a snapshot; with one, nothing can.
    """
    for snapshot in (True, False):
        world = World()
        settings = Settings(snapshot_every=ENTRIES if snapshot else 1_000, segment_bytes_max=700)
        journals = opened(Simulated(world), settings)
        for version in range(1, ENTRIES + 1):
            append_blindly(journals, Ledger(), f"k{version}", version)
        records = journals.read(ENTITY)
        silent = []
        for number, node in sorted(world.nodes.items()):
            if isinstance(node, File) and b'"k":"k' in node.cache and not node.cache.startswith(b'{"kind"'):
                data = written(node)
                last = len(data) - len(records[-1].line) if data.endswith(records[-1].line) else None
                for place in range(len(data)):
                    found = reading(world, number, _flipped(data, place, 0x01))
                    if found is not None and (snapshot or last is None or place < last or found != records[:-1]):
                        silent.append((number, place))

        assert [] == silent


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("snapshot", [True, False])
def test_a_flipped_byte_of_the_padding_loses_nothing(mask: int, snapshot: bool) -> None:
    """Everything is read, the next entry is accepted, and the padding is blank again."""
    world, number = journal(snapshot=snapshot)
    data = content(world, number)
    node = world.nodes[number]
    assert isinstance(node, File)
    good = reading(world, number, data)
    for place in (len(data), len(data) + 1, (len(data) + len(node.cache)) // 2, len(node.cache) - 1):
        flipped = _flipped(node.cache, place, mask)
        changed = world.copy()
        changed.nodes[number] = File(flipped, flipped, ())
        journals = opened(Simulated(changed, process=2))
        found = journals.read(ENTITY)
        append_blindly(journals, Ledger(), "k11", ENTRIES + 1)
        after = content(changed, number)

        assert (good, data, 1) == (found, after[: len(data)], after[len(data) :].count(b"\n"))


@pytest.mark.parametrize("snapshot", [True, False])
def test_deleted_swapped_and_repeated_lines_are_damage(snapshot: bool) -> None:
    world, number = journal(snapshot=snapshot)
    lines = content(world, number).splitlines(keepends=True)
    edits = {
        "deleted": [*lines[:4], *lines[5:]],
        "first deleted": lines[1:],
        "swapped": [*lines[:4], lines[5], lines[4], *lines[6:]],
        "doubled": [*lines[:5], *lines[4:]],
        "inserted": [*lines[:5], b'{"v":6}\n', *lines[5:]],
    }
    silent = [name for name, edited in edits.items() if reading(world, number, b"".join(edited)) is not None]

    assert [] == silent


def test_a_missing_last_line_is_detected_by_the_snapshot_only() -> None:
    """A journal that ends one record early is a valid shorter one, unless the snapshot proves the record."""
    lengths = []
    for snapshot in (True, False):
        world, number = journal(snapshot=snapshot)
        lines = content(world, number).splitlines(keepends=True)
        found = reading(world, number, b"".join(lines[:-1]))
        lengths.append(None if found is None else len(found))

    assert [None, ENTRIES - 1] == lengths


def test_another_entity_s_record_is_not_read() -> None:
    """A chain starts with the id of its entity: a record in another directory does not follow from it."""
    world, number = journal(snapshot=False)
    other = World()
    journals = opened(Simulated(other))
    journals.append(step(1, "k1", entity="order/B-2"))
    stranger = next(
        node.cache for node in other.nodes.values() if isinstance(node, File) and node.cache.startswith(b'{"v":1')
    )

    assert () == reading(world, number, stranger)


def test_an_append_to_a_damaged_journal_raises_and_changes_nothing() -> None:
    world, number = journal(snapshot=True)
    data = content(world, number)
    damaged = _flipped(data, len(data) - 20, 0x01)
    world.nodes[number] = File(damaged, damaged, ())
    journals = opened(Simulated(world, process=2))
    with pytest.raises(CorruptionError) as caught:
        journals.append(step(ENTRIES + 1, "new"))
    assert "journal.corrupt" == caught.value.code

    assert damaged == content(world, number)


def test_an_open_journal_that_becomes_shorter_is_damage() -> None:
    world, number = journal(snapshot=False)
    journals = opened(Simulated(world, process=2))
    append_blindly(journals, Ledger(), "k11", 11)
    world.nodes[number] = File(b"", b"", ())

    with pytest.raises(CorruptionError) as caught:
        journals.append(step(12, "k12"))
    assert "journal.corrupt" == caught.value.code


def test_a_damaged_snapshot_is_ignored() -> None:
    """`state.json` is a cache: without a valid hash it is ignored."""
    world, _ = journal(snapshot=True)
    for number, node in list(world.nodes.items()):
        if isinstance(node, File) and node.cache.startswith(b'{"kind"'):
            world.nodes[number] = File(_flipped(node.cache, 30, 1), b"", ())
    journals = opened(Simulated(world, process=2))
    loaded = journals.load(ENTITY)

    assert (ENTRIES, True) == (len(journals.read(ENTITY)), loaded is not None)


def _flipped(data: bytes, place: int, mask: int) -> bytes:
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
