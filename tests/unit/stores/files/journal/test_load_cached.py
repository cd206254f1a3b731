"""An open journal answers from memory, as long as the file still ends where it knows."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from interlock.errors import CorruptionError, UnavailableError
from interlock.ports.store import Duplicate, Loaded
from interlock.stores.files.blocking_store import BlockingFileStore
from tests.crash.life import ENTITY, opened, step
from tests.crash.simulated.file_system import Simulated
from tests.unit.stores.files.journal.test_padding import ROOMY, filled
from tests.unit.stores.files.test_faults import failing

ENTRIES = 5


def asked(fs: Simulated, journals: BlockingFileStore, key: str | None = None) -> tuple[object, list[str]]:
    """The answer, and the calls that it needed."""
    before = len(fs.calls)
    return journals.load(ENTITY, key), fs.calls[before:]


def reached(loaded: object) -> int:
    """The version of an entity."""
    assert isinstance(loaded, Loaded)
    return loaded.version


def test_one_read_at_the_end_is_enough() -> None:
    """However many entries follow the stored snapshot, the answer is the snapshot of the last one."""
    _, fs, journals = filled(ENTRIES)
    loaded, calls = asked(fs, journals)

    assert isinstance(loaded, Loaded)
    assert loaded.snapshot is not None
    assert (ENTRIES, ENTRIES, ()) == (loaded.version, loaded.snapshot.version, loaded.records)
    assert (ENTRIES, ["read"]) == (loaded.time_ms, calls)


def test_another_process_reads_the_same() -> None:
    """The same version, time and state, from the records."""
    world, _, journals = filled(ENTRIES)
    here, there = journals.load(ENTITY), opened(Simulated(world, process=2), ROOMY).load(ENTITY)

    assert isinstance(here, Loaded)
    assert isinstance(there, Loaded)
    assert here.snapshot is not None
    assert (there.version, there.time_ms) == (here.version, here.time_ms)
    assert there.records[-1].entry.after == here.snapshot.configuration


def test_a_known_key_is_a_duplicate() -> None:
    """An unknown key gives the entity."""
    _, fs, journals = filled(ENTRIES)

    assert (Duplicate(2), ["read"]) == asked(fs, journals, "k2")
    assert ENTRIES == reached(journals.load(ENTITY, "k9"))


def test_what_another_process_appended_is_read() -> None:
    """The byte after the last known line shows that there is more."""
    world, fs, journals = filled(ENTRIES)
    other = opened(Simulated(world, process=2), ROOMY)
    other.append(step(ENTRIES + 1, "k6"))
    loaded, calls = asked(fs, journals)

    assert (ENTRIES + 1, True) == (reached(loaded), calls.count("read") > 1)
    assert Duplicate(ENTRIES + 1) == journals.load(ENTITY, "k6")


def test_a_journal_that_another_process_released_is_read_again() -> None:
    """The journal continues in another file: the known one has a seal."""
    world, _, journals = filled(ENTRIES)
    journals.append(step(ENTRIES + 1, "k6", ended=True))
    other = opened(Simulated(world, process=2), ROOMY)
    assert other.release(ENTITY, version=ENTRIES + 1, archive="file:///archive")
    other.append(step(ENTRIES + 2, "k7"))

    assert ENTRIES + 2 == reached(journals.load(ENTITY))


def test_a_thread_that_uses_the_journal_is_not_waited_for() -> None:
    """The journal is read from the disk."""
    _, fs, journals = filled(ENTRIES)
    journal = journals.journals.peek(journals.root.address(ENTITY))
    assert journal is not None
    with journal._mutex:
        loaded, calls = asked(fs, journals)

    assert (ENTRIES, True) == (reached(loaded), len(calls) > 1)


def test_a_journal_that_was_only_read_is_read_again() -> None:
    """It has the entries of other processes, and not their snapshots."""
    world, _, _ = filled(ENTRIES)
    fs = Simulated(world, process=2)
    journals = opened(fs, ROOMY)
    assert Duplicate(1) == journals.append(step(ENTRIES + 1, "k1"))
    loaded, calls = asked(fs, journals)

    assert (ENTRIES, True) == (reached(loaded), len(calls) > 1)


@pytest.mark.parametrize("ask", [lambda journals: journals.load(ENTITY), lambda journals: journals.load(ENTITY, "k2")])
def test_a_poisoned_entity_is_read_from_the_disk(ask: Callable[[BlockingFileStore], object]) -> None:
    """The open journal may know more than the disk has."""
    _, fs, journals = filled(ENTRIES)
    failing(fs, "fdatasync")
    with pytest.raises(UnavailableError):
        journals.append(step(ENTRIES + 1, "k6"))
    before = len(fs.calls)
    ask(journals)

    assert "open_file" in fs.calls[before:]


def test_a_failed_read_gives_no_answer_from_memory() -> None:
    """The reading that follows shows whether the disk works."""
    _, fs, journals = filled(ENTRIES)
    failing(fs, "read", fault=errno.EIO)

    assert ENTRIES == reached(journals.load(ENTITY))
    assert "read" == fs.fired


def test_a_journal_that_was_cut_is_read_again() -> None:
    """Entries were removed from outside: the snapshot proves that, or the remaining entries are the answer."""
    world, fs, journals = filled(ENTRIES)
    journals.close()
    again = opened(fs, ROOMY)
    again.append(step(ENTRIES + 1, "k6"))
    number = world.found("store", "resources", "order.%41-1", "events.log")
    assert number is not None
    file = fs.open_update(fs.open_directory(again.root.address(ENTITY).resources, "order.%41-1"), "events.log")
    fs.truncate(file, 10)

    with pytest.raises(CorruptionError):
        again.load(ENTITY)
