"""Markers: they lead to work whatever happens while they are created, and are deleted when there is none."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError
from interlock.model.journal.work import WorkId
from interlock.ports.store import Append
from interlock.ports.work import Settlement
from interlock.stores.files.blocking_store import BlockingFileStore
from interlock.stores.files.names import directory_name
from interlock.stores.files.work.dispatcher import MARKER_IDLE_MS, SCAN_MS
from tests.crash.life import ENTITY
from tests.crash.simulated.file_system import Killed, Simulated, World, crashes
from tests.unit.stores.files.work.test_dispatcher import PLAIN, Pair, Process, charge, fail, kill, leaving, other


def test_a_marker_is_deleted_a_minute_after_the_last_work_and_created_with_the_next() -> None:
    """Until then the next work needs no flush for it."""
    pair = Pair()
    pair.one.journals.append(leaving(1, other("outbox")))
    pair.one.dispatch.settle((Settlement(pair.one.take("outbox")[0], "done"),), now_ms=0)
    pair.one.take(now_ms=MARKER_IDLE_MS - 1)

    assert [directory_name(ENTITY)] == pair.markers()
    pair.one.take(now_ms=MARKER_IDLE_MS)
    assert [] == pair.markers()
    pair.one.journals.append(leaving(2, other("outbox", 2)))
    assert [directory_name(ENTITY)] == pair.markers()


@pytest.mark.parametrize("performs", [True, False])
def test_a_busy_spell_flushes_its_marker_once(performs: bool) -> None:
    """The first append flushes it. When all work ended in between, another process may have deleted it."""
    process = Process(World(), 1)

    def flushes(append: Append) -> int:
        before = process.fs.calls.count("sync_directory")
        process.journals.append(append)
        return process.fs.calls.count("sync_directory") - before

    if performs:
        process.take()
    process.journals.append(leaving(1))

    assert 1 == flushes(leaving(2, charge(2)))
    assert 0 == flushes(leaving(3, charge(3), finished=(WorkId("effect", 2, 0),)))
    assert 0 == flushes(leaving(4, finished=(WorkId("effect", 3, 0),)))
    assert (not performs) == flushes(leaving(5, charge(5)))


def test_the_next_process_that_runs_work_flushes_every_marker_again() -> None:
    """The process before it may have deleted a marker meanwhile."""
    pair = Pair()
    pair.two.journals.append(leaving(1, other("outbox")))
    pair.one.dispatch.settle((Settlement(pair.one.take("outbox")[0], "done"),), now_ms=0)
    pair.one.take(now_ms=MARKER_IDLE_MS)
    assert [] == pair.markers()
    pair.one.fs.die()
    pair.two.take(now_ms=MARKER_IDLE_MS)
    pair.two.journals.append(leaving(2, other("outbox", 2)))

    assert [directory_name(ENTITY)] == pair.markers()


def test_an_entity_whose_name_is_cut_is_found_by_its_marker() -> None:
    """The marker contains the id that the name does not."""
    pair = Pair()
    entity = "order/" + "Ä" * 60
    pair.two.journals.append(leaving(1, charge(), entity=entity))

    assert [entity] == [each.entity for each in pair.one.take()]


CUT = "order/" + "Ä" * 60


def _kill_at(fs: Simulated, number: int) -> None:
    fs.kill_at = number


def _fail_at(fs: Simulated, number: int) -> None:
    fs.fail_at, fs.fault = number, errno.ENOSPC


@pytest.mark.parametrize("end", [_kill_at, _fail_at])
def test_a_marker_that_is_created_again_always_leads_to_its_work(end: Callable[[Simulated, int], None]) -> None:
    """For an entity whose name is cut it contains the id: whatever fails at whichever call, its work is found,
    also when the power fails then.
    """
    number, fires = 0, True
    while fires:
        number += 1
        world = World()
        first, second = Process(world, 1), Process(world, 2)
        first.journals.append(leaving(1, other("timer"), entity=CUT))
        first.fs.die()
        end(second.fs, second.fs.count + number)
        with contextlib.suppress(Killed, UnavailableError):
            second.journals.append(leaving(2, other("timer", 2), entity=CUT))
        fires = bool(second.fs.fired)
        second.fs.die()
        for left in (*itertools.islice(crashes(world, random.Random(number)), 4), world):
            assert CUT in [each.entity for each in Process(left, 3).take("timer")]
    assert number > 20


def test_a_marker_with_a_part_of_its_id_refuses_the_entry() -> None:
    """The work would never be found. The next attempt writes the whole id."""
    process = Process(World(), 1)
    process.journals.append(leaving(1, entity=CUT))
    fs = process.fs
    before = len(fs.calls)
    fs.fault = Simulated.SHORT
    fs.watch = lambda name: fail(fs) if name == "write" and name not in fs.calls[before:-1] else None
    with pytest.raises(UnavailableError) as caught:
        process.journals.append(leaving(2, charge(2), entity=CUT))
    fs.watch = None

    assert "store.full" == caught.value.code
    process.journals.append(leaving(2, charge(2), entity=CUT))
    fs.die()
    assert [CUT] == [each.entity for each in Process(fs.world, 2).take()]


def test_an_id_that_a_dead_process_did_not_flush_is_flushed() -> None:
    """Its writer died in between; the next process finds it in the page cache only."""
    first = Process(World(), 1)
    first.journals.append(leaving(1, entity=CUT))
    fs = first.fs
    before = len(fs.calls)
    fs.watch = lambda name: kill(fs) if name == "fdatasync" and "write" in fs.calls[before:] else None
    with pytest.raises(Killed):
        first.journals.append(leaving(2, charge(2), entity=CUT))
    Process(fs.world, 2).journals.append(leaving(2, charge(2), entity=CUT))
    for left in crashes(fs.world, random.Random(1)):
        assert [CUT] == [each.entity for each in Process(left, 3).take()]


def test_a_marker_whose_flush_failed_stays_poisoned() -> None:
    """A second flush may report success for bytes that the disk does not have."""
    process = Process(World(), 1)
    process.journals.append(leaving(1, entity=CUT))
    fs = process.fs
    before = len(fs.calls)
    fs.watch = lambda name: fail(fs) if name == "fdatasync" and "write" in fs.calls[before:] else None
    with pytest.raises(UnavailableError) as first:
        process.journals.append(leaving(2, charge(2), entity=CUT))
    fs.watch = None
    with pytest.raises(UnavailableError) as second:
        process.journals.append(leaving(2, charge(2), entity=CUT))
    assert ["store.flush", "store.poisoned"] == [first.value.code, second.value.code]
    fs.die()
    Process(fs.world, 2).journals.append(leaving(2, charge(2), entity=CUT))
    for left in crashes(fs.world, random.Random(1)):
        assert [CUT] == [each.entity for each in Process(left, 3).take()]


def test_foreign_files_among_the_shards_are_ignored() -> None:
    """A scan skips them."""
    fs = Simulated(World(), process=1)
    journals = BlockingFileStore("store", fs, PLAIN, shard_digits=1)
    pending = fs.open_directory(fs.open_directory(fs.parent("store")[0], "store"), "pending")
    for name in ("README", "00"):
        fs.close(fs.create(pending, name))
    journals.append(leaving(1, charge()))
    claims = journals.dispatcher().claim("effect", None, owner="w", now_ms=0, until_ms=1, limit=9)

    assert [ENTITY] == [each.entity for each in claims]


def test_foreign_names_among_the_markers_are_ignored() -> None:
    """Another tenant's, a person's, or half written."""
    pair = Pair()
    fs = Simulated(pair.world, process=7)
    root = fs.open_directory(fs.parent("store")[0], "store")
    pending = fs.open_directory(root, "pending")
    for name in ("README", "acme.order.1", "order.cut~0123", "order.%zz"):
        fs.close(fs.create(pending, name))
    pair.two.journals.append(leaving(1, charge()))

    assert [ENTITY] == [each.entity for each in pair.one.take(now_ms=2 * MARKER_IDLE_MS)]
    assert 5 == len(pair.markers())


def test_a_marker_without_work_is_deleted() -> None:
    """Its creator died before the entry."""
    pair = Pair()
    fs = pair.two.fs
    fs.watch = lambda name: kill(fs) if name == "write_at" else None
    with pytest.raises(Killed):
        pair.two.journals.append(leaving(1, charge()))

    assert (1, ()) == (len(pair.markers()), pair.one.take(now_ms=SCAN_MS))
    pair.one.take(now_ms=SCAN_MS + MARKER_IDLE_MS)
    assert [] == pair.markers()


def test_a_marker_without_an_entity_is_ignored() -> None:
    """No code of ours makes one; a person may have removed the entity."""
    pair = Pair()
    fs = Simulated(pair.world, process=7)
    pending = fs.open_directory(fs.open_directory(fs.parent("store")[0], "store"), "pending")
    fs.close(fs.create(pending, "order.nobody"))
    pair.two.journals.append(leaving(1, charge()))

    assert [ENTITY] == [each.entity for each in pair.one.take(now_ms=SCAN_MS)]
    assert None is pair.world.found("store", "resources", "order.nobody")
