"""Leases and downtimes in a file: compared with memory, between processes, and after crashes."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import CorruptionError, UnavailableError
from interlock.ports.leases import Downtime, Lease
from interlock.stores.files.leases import FILE, LEASES, FileLeases
from interlock.stores.lease_table import LeaseTable
from tests.crash.life import opened
from tests.crash.simulated.file_system import Directory, File, Killed, Simulated, World, crashes


def leases(world: World, process: int = 1) -> tuple[Simulated, FileLeases]:
    """The leases of one process."""
    fs = Simulated(world, process=process)
    return fs, opened(fs).leases()


@pytest.mark.slow
@given(st.data())
def test_memory_and_files_do_the_same(data: st.DataObject) -> None:
    """In any order, also when each request comes from another process."""
    world, table = World(), LeaseTable()
    processes = [leases(world, number)[1] for number in (1, 2)]
    now, held = 0, list[Lease]()
    for _ in range(data.draw(st.integers(1, 20))):
        now += data.draw(st.integers(0, 5))
        here = processes[data.draw(st.integers(0, 1))]
        answers: list[object]
        act = data.draw(st.sampled_from(("lease", "lease", "give_back", "alive", "downtimes", "jump")))
        if act == "lease":
            name, owner = data.draw(st.sampled_from("xy")), data.draw(st.sampled_from("ab"))
            answers = [each.lease(name, owner=owner, now_ms=now, until_ms=now + 7) for each in (table, here)]
            held += [each for each in answers[:1] if isinstance(each, Lease)]
        elif act == "give_back" and held:
            lease = data.draw(st.sampled_from(held))
            answers = [table.give_back(lease), here.give_back(lease)]
        elif act == "jump":  # the clock goes wrong, or is put right
            now = max(0, now + data.draw(st.sampled_from((-(10**7), 10**7))))
            for each in (table, here):
                each.correct(now_ms=now)
            answers = [table.downtimes(since_ms=0), here.downtimes(since_ms=0)]
        elif act == "alive":
            answers = [table.alive(now_ms=now, gap_ms=3), here.alive(now_ms=now, gap_ms=3)]
        else:
            since = data.draw(st.integers(0, now))
            answers = [table.downtimes(since_ms=since), here.downtimes(since_ms=since)]

        assert answers[0] == answers[1]


def test_a_fence_never_goes_back_after_a_power_cut() -> None:
    """Once a lease was granted, the next owner after a crash has a higher fence."""
    world, given = World(), dict[str, int]()
    fs, ours = leases(world)
    moments = list[tuple[World, dict[str, int]]]()
    fs.watch = lambda _: moments.append((world.copy(), dict(given)))
    for number, owner in enumerate("abab"):
        lease = ours.lease("x", owner=owner, now_ms=10 * number, until_ms=10 * number + 9)
        assert lease is not None
        given["x"] = lease.fence
    moments.append((world.copy(), dict(given)))
    states = 0
    for moment, known in moments:
        for left in crashes(moment, random.Random(1)):
            states += 1
            lease = leases(left, 2)[1].lease("x", owner="z", now_ms=1_000, until_ms=1_001)

            assert lease is not None
            assert lease.fence > known.get("x", 0)
    assert states > 100


def test_a_process_that_dies_while_it_writes_blocks_nothing() -> None:
    """Its temporary file is removed by the next process."""
    world = World()
    leases(world)[1].alive(now_ms=1, gap_ms=1)
    fs, doomed = leases(world, 2)
    fs.watch = lambda name: setattr(fs, "kill_at", fs.count) if name == "rename" else None
    with pytest.raises(Killed):
        doomed.alive(now_ms=100, gap_ms=1)

    assert Downtime(1, 200) == leases(world, 3)[1].alive(now_ms=200, gap_ms=1)
    number = world.found("store", LEASES)
    node = None if number is None else world.nodes[number]
    assert isinstance(node, Directory)
    assert [FILE] == list(node.cache)


def test_a_full_disk_is_an_error_and_the_old_leases_stay() -> None:
    """No lease was granted."""
    world = World()
    fs, ours = leases(world)
    first = ours.lease("x", owner="a", now_ms=0, until_ms=9)
    fs.fault = errno.ENOSPC
    fs.watch = lambda name: setattr(fs, "fail_at", fs.count) if name == "write" else None
    with pytest.raises(UnavailableError) as caught:
        ours.lease("x", owner="b", now_ms=10, until_ms=19)
    fs.watch = None

    assert ("store.full", True) == (caught.value.code, first is not None and ours.give_back(first))


def test_a_lease_whose_name_was_not_flushed_is_written_again() -> None:
    """The same request is not answered from what only the page cache has."""
    world = World()
    fs, ours = leases(world)
    ours.alive(now_ms=0, gap_ms=9)
    fs.watch = lambda name: setattr(fs, "fail_at", fs.count) if name == "sync_directory" else None
    with pytest.raises(UnavailableError):
        ours.lease("x", owner="a", now_ms=0, until_ms=9)
    fs.watch = None
    given = ours.lease("x", owner="a", now_ms=0, until_ms=9)
    fences = set()
    for left in crashes(world, random.Random(1)):
        lease = leases(left, 2)[1].lease("x", owner="z", now_ms=1_000, until_ms=1_001)
        fences.add(None if lease is None else lease.fence)

    assert (1, {2}) == (None if given is None else given.fence, fences)


def test_damaged_leases_are_an_error_and_not_an_empty_table() -> None:
    """A fence would go back."""
    world = World()
    _, ours = leases(world)
    ours.lease("x", owner="a", now_ms=0, until_ms=9)
    number = world.found("store", LEASES, FILE)
    assert number is not None
    world.nodes[number] = File(b'{"alive_ms":', b"", ())

    with pytest.raises(CorruptionError) as caught:
        ours.lease("x", owner="b", now_ms=10, until_ms=19)

    assert "leases.corrupt" == caught.value.code
