"""What the file store does when the file system fails, rule by rule, on the simulated one."""

import errno
import logging

import pytest

from interlock.errors import UnavailableError
from interlock.ports.store import Appended, Duplicate, Loaded
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.durable_io import Settings
from interlock.stores.files.journal.line_formats import BLANKS
from tests.crash.life import ENTITY, journal_file, opened, step
from tests.crash.simulated.file_system import Killed, Simulated, World


def failing(fs: Simulated, name: str, *, fault: int = errno.EIO, skip: int = 0) -> None:
    """Make the next call of this name fail, or a later one."""
    calls = 0

    def watch(called: str) -> None:
        nonlocal calls
        calls += called == name
        if called == name and calls == skip + 1 and not fs.fail_at:
            fs.fail_at, fs.fault = fs.count, fault

    fs.watch = watch


def started(*, entries: int = 1) -> tuple[World, Simulated, BlockingFileStore]:
    """A store with an open journal and some entries."""
    world = World()
    fs = Simulated(world)
    journals = opened(fs)
    for version in range(1, entries + 1):
        journals.append(step(version, f"k{version}"))
    return world, fs, journals


def test_a_failed_flush_is_never_repeated() -> None:
    """The write is cut off, and the entity accepts no more appends in this process, though the disk works again."""
    world, fs, journals = started()
    before = journal_file(world).rstrip(BLANKS)
    failing(fs, "fdatasync")
    codes = []
    for _ in range(3):
        with pytest.raises(UnavailableError) as caught:
            journals.append(step(2, "k2"))
        codes.append(caught.value.code)

    assert ["store.flush", "store.poisoned", "store.poisoned"] == codes
    assert (before + b"\n", 1) == (journal_file(world), fs.calls[fs.fail_at - 1 :].count("fdatasync"))


def test_a_poisoned_entity_can_be_read_and_others_are_unaffected() -> None:
    """Poison stops the appends of one entity in one process, and nothing else."""
    world, fs, journals = started()
    failing(fs, "fdatasync")
    with pytest.raises(UnavailableError):
        journals.append(step(2, "k2"))
    journals.append(step(1, "b1", entity="order/B-2"))
    loaded = journals.load(ENTITY)
    elsewhere = opened(Simulated(world, process=2)).append(step(2, "k2"))

    assert (True, True) == (isinstance(loaded, Loaded), isinstance(elsewhere, Appended))


def test_poison_outlives_the_open_journal() -> None:
    """Closing a journal to free descriptors does not clear a failure."""
    world = World()
    fs = Simulated(world)
    journals = BlockingFileStore("store", fs, Settings(), open_max=1, shard_digits=0)
    journals.append(step(1, "k1"))
    failing(fs, "fdatasync")
    with pytest.raises(UnavailableError):
        journals.append(step(2, "k2"))
    journals.append(step(1, "b1", entity="order/B-2"))

    with pytest.raises(UnavailableError) as caught:
        journals.append(step(2, "k2"))

    assert "store.poisoned" == caught.value.code


def test_a_failed_flush_of_the_shard_stops_the_whole_shard() -> None:
    """Names of other entities may have been lost with it."""
    world = World()
    fs = Simulated(world)
    journals = opened(fs)
    failing(fs, "sync_directory", skip=1)
    with pytest.raises(UnavailableError):
        journals.append(step(1, "k1"))

    with pytest.raises(UnavailableError) as caught:
        journals.append(step(1, "b1", entity="order/B-2"))

    assert "store.poisoned" == caught.value.code


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, Simulated.SHORT])
def test_a_full_disk_leaves_the_journal_usable(fault: int) -> None:
    """The journal is unchanged, the error says what to do, and the same key is accepted once there is space."""
    world, fs, journals = started()
    before = journal_file(world).rstrip(BLANKS)
    failing(fs, "write_at", fault=fault)
    with pytest.raises(UnavailableError) as caught:
        journals.append(step(2, "k2"))
    after = journal_file(world)

    assert ("store.full", before + b"\n") == (caught.value.code, after)
    assert isinstance(journals.append(step(2, "k2")), Appended)


def test_a_snapshot_that_cannot_be_written_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The entry is durable: the caller gets its receipt, and no temporary file is left."""
    world, fs, journals = started()
    failing(fs, "fsync", fault=errno.ENOSPC)
    with caplog.at_level(logging.WARNING):
        answer = journals.append(step(2, "k2"))
    directory = world.found("store", "resources", "order.%41-1")
    assert directory is not None

    assert (True, 1) == (isinstance(answer, Appended), journals.context.snapshot_failures)
    assert ["events.log"] == list(world.nodes[directory].cache)
    assert [(ENTITY, 2)] == [(vars(each)["entity_id"], vars(each)["version"]) for each in caplog.records]


def test_a_lock_that_cannot_be_released_is_released_with_its_descriptor() -> None:
    """The entry is durable, and no process waits for the lock."""
    world, fs, journals = started()
    failing(fs, "unlock")
    answers = [
        journals.append(step(2, "k2")),
        opened(Simulated(world, process=2)).append(step(3, "k3")),
        journals.append(step(4, "k4")),
    ]

    assert [2, 3, 4] == [answer.version for answer in answers]


@pytest.mark.parametrize("call", ["lock", "read"])
def test_other_failures_leave_the_store_unchanged(call: str) -> None:
    """Nothing was written; the same key is accepted the next time."""
    world, fs, journals = started()
    opened(Simulated(world, process=2)).append(step(2, "k2"))  # so that there is something to read
    before = journal_file(world)
    failing(fs, call)
    with pytest.raises(UnavailableError):
        journals.append(step(3, "k3"))
    after = journal_file(world)

    assert before == after
    assert isinstance(journals.append(step(3, "k3")), Appended)


def test_a_torn_tail_that_cannot_be_cut_stays_and_nothing_is_written() -> None:
    """An entry after it could not be read."""
    world, _, _ = started()
    number = world.found("store", "resources", "order.%41-1", "events.log")
    assert number is not None
    torn = journal_file(world) + b'{"v":2,'
    world.nodes[number] = type(world.nodes[number])(torn, torn, ())  # type: ignore[arg-type]  # a file
    fs = Simulated(world, process=2)
    journals = opened(fs)
    failing(fs, "truncate")
    with pytest.raises(UnavailableError) as caught:
        journals.append(step(2, "k2"))
    assert "store.truncate" == caught.value.code

    assert torn == journal_file(world)
    assert isinstance(journals.append(step(2, "k2")), Appended)


@pytest.mark.parametrize("ask", ["append", "load"])
def test_a_duplicate_is_flushed_before_it_is_answered(ask: str) -> None:
    """A writer died before its flush; the reader that finds its key makes the record durable first."""
    world, _, journals = started()
    fs = Simulated(world, process=2)
    other = opened(fs)
    other.append(step(1, "k1"))
    fs.kill_at = fs.count + len(("lock", "read", "write_at", "fdatasync"))
    with pytest.raises(Killed):
        other.append(step(2, "k2"))
    number = world.found("store", "resources", "order.%41-1", "events.log")
    assert number is not None
    before = len(world.nodes[number].pending)
    answer = journals.append(step(2, "k2")) if ask == "append" else journals.load(ENTITY, "k2")

    assert ("fdatasync", 1, Duplicate(2), 0) == (fs.fired, before, answer, len(world.nodes[number].pending))
