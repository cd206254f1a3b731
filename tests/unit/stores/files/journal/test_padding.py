"""The padding after the last line of a journal: what a crash may leave in it, and that it never becomes an entry."""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from interlock.errors import CorruptionError, UnavailableError
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Appended, Duplicate, EntityQuery, Loaded
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import BLOCK_BYTES, Settings
from interlock.stores.files.journal.line_formats import BLANKS, padding
from interlock.stores.files.names import JOURNAL, directory_name
from tests.crash.life import ENTITY, ROTATING, journal_file, opened, step
from tests.crash.simulated.file_system import File, Killed, Simulated, World
from tests.unit.stores.files.test_faults import failing
from tests.unit.stores.files.work.test_dispatcher import Process, other

ROOMY = Settings(snapshot_every=1_000)
MARKS = 5
"""Small enough that one block has room for all entries."""


def node(world: World) -> int:
    """The node of the entity's active segment."""
    number = world.found("store", "resources", directory_name(ENTITY), JOURNAL)
    assert number is not None
    return number


def put(world: World, data: bytes) -> None:
    """Replace the journal, in the cache and on disk."""
    world.nodes[node(world)] = File(data, data, ())


def version(journals: BlockingFileStore) -> int:
    """The version of the entity."""
    loaded = journals.load(ENTITY)
    assert isinstance(loaded, Loaded)
    return loaded.version


def filled(entries: int, settings: Settings = ROOMY) -> tuple[World, Simulated, BlockingFileStore]:
    """A store with an open journal and some entries."""
    world = World()
    fs = Simulated(world)
    journals = opened(fs, settings)
    for number in range(1, entries + 1):
        assert isinstance(journals.append(step(number, f"k{number}")), Appended)
    return world, fs, journals


def killing(fs: Simulated, name: str) -> None:
    """Make the process die at its next call of this name."""

    def watch(called: str) -> None:
        if called == name:
            fs.kill_at = fs.count

    fs.watch = watch


def listed(journals: BlockingFileStore) -> list[int]:
    """The versions of all listed entities."""
    return [row.version for row in journals.find(EntityQuery(kind="order")).rows]


@pytest.mark.parametrize("end", [1, 4_095, 4_096, 4_097, 100_000, 2_000_000])
def test_padding_ends_with_a_block_and_a_line_feed(end: int) -> None:
    """All of it is blank, whatever the length of the journal."""
    room = padding(end, BLOCK_BYTES)

    assert (0, b"") == ((end + len(room)) % BLOCK_BYTES, room.strip(BLANKS))
    assert (b"\n", 1) == (room[-1:], room.count(b"\n"))


# What a power cut leaves among blanks


def test_bytes_that_a_power_cut_left_after_blanks_do_not_come_back() -> None:
    """Marks at the end of a block were lost, and the entry in the next one was not: nobody was told of that, and
    nobody saw it after the cut. The same marks, written anew, would fill the gap and join it to the journal. The first
    question after the cut is one for which nothing is written.
    """
    filler = "x" * (2_000 + BLOCK_BYTES - _unfinished("x" * 2_000)[1])
    world, end = _unfinished(filler)
    data = journal_file(world)
    begin = data.index(b'{"t":"mark"')
    put(world, data[:begin].ljust(end) + data[end:])
    two = Process(world, 2)
    answers = [two.journals.append(step(1, "k1")), version(two.journals)]
    taken = two.take()

    assert (BLOCK_BYTES, [Duplicate(1), 1]) == (end, answers)
    assert (MARKS, 1) == (len(taken), version(two.journals))
    assert isinstance(two.journals.append(step(2, "other")), Appended)


def _unfinished(filler: str) -> tuple[World, int]:
    """A world in which a process died before it flushed some marks and an entry, and the offset of that entry."""
    world = World()
    one = Process(world, 1)
    first = step(1, "k1", filler=filler)
    one.journals.append(
        replace(first, left=WorkDelta(tuple(other("effect", ordinal=number) for number in range(MARKS))))
    )
    assert MARKS == len(one.take())
    end = len(journal_file(world).rstrip(BLANKS)) + 1
    killing(one.fs, "fdatasync")
    with pytest.raises(Killed):
        one.journals.append(step(2, "k2"))
    return world, end


@pytest.mark.parametrize("ask", ["append", "at once"])
def test_a_torn_tail_after_blanks_is_cut_by_the_next_append(ask: str) -> None:
    """However many reads there were in between."""
    world, _, _ = filled(2)
    data = journal_file(world)
    put(world, data + b" " * BLOCK_BYTES + b"torn")
    journals = opened(Simulated(world, process=2), ROOMY)
    for _ in range(2):
        assert Duplicate(2) == journals.append(step(2, "k2"))
    append = step(3, "k3")
    answer = journals.append_inline(append) if ask == "at once" else None
    answer = journals.append(append) if answer is None else answer
    behind = journal_file(world)[len(data.rstrip(BLANKS)) + 1 :]

    assert isinstance(answer, Appended)
    assert (True, b"") == (behind.startswith(b'{"v":3'), behind.split(b"\n", 1)[1].strip(BLANKS))


# Who sees that others wrote


def test_a_journal_that_was_replaced_by_an_older_one_is_damage() -> None:
    """It has padding where the open journal has lines: an entry after it would never be read."""
    world, _, journals = filled(2)
    old = journal_file(world)
    journals.append(step(3, "k3"))
    put(world, old)
    with pytest.raises(CorruptionError) as caught:
        journals.append(step(4, "k4"))
    assert "journal.corrupt" == caught.value.code

    assert old == journal_file(world)
    assert isinstance(journals.append(step(3, "k3")), Appended)


def test_a_list_drops_an_entry_whose_flush_failed() -> None:
    """The list saw it before it was cut off; a shorter entry in its place leaves the byte after it blank."""
    world, fs, journals = filled(1)
    rival = opened(Simulated(world, process=2), ROOMY)
    seen: list[int] = []

    def watch(called: str) -> None:
        if called == "fdatasync" and not seen:
            seen.extend(listed(rival))
            fs.fail_at = fs.count

    fs.watch = watch
    with pytest.raises(UnavailableError):
        journals.append(step(2, "long", filler="x" * 200))
    third = opened(Simulated(world, process=3), ROOMY)
    assert isinstance(third.append(step(2, "k2")), Appended)
    assert isinstance(third.append(step(3, "k3", filler=" " * 300)), Appended)

    assert ([2], [3]) == (seen, listed(rival))


# Seals


@pytest.mark.parametrize("name", ["write_at", "fdatasync"])
def test_a_rotation_that_fails_early_leaves_the_journal_unchanged(name: str) -> None:
    """No unflushed seal remains."""
    world, fs, journals = filled(2, ROTATING)
    before = journal_file(world).rstrip(BLANKS)
    failing(fs, name, fault=errno.EIO)
    with pytest.raises(UnavailableError):
        journals.append(step(3, "k3"))
    after = journal_file(world)

    assert before == after.rstrip(BLANKS)
    assert isinstance(opened(Simulated(world, process=2), ROTATING).append(step(3, "k3")), Appended)
