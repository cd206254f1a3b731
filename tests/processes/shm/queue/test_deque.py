"""Deques: one owner, many thieves, every id once, and the claimed ids of dead takers; in every mode."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import ConflictError, UnavailableError, UsageError
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.memory.words import WORD_MAX
from interlock.shm.queue.deque import DEQUE_HEAD, Deque, DequeOwner, DequeThief, PlainDeque, open_deque
from tests.processes.shm.queues import fork_child, kill_child, working_modes


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryRegion]:
    """A region in each mode that works here."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    with MemoryRegion.create(slots=2) as made:
        yield made


def test_the_owner_pops_the_newest_and_thieves_steal_the_oldest(region: MemoryRegion) -> None:
    jobs = Deque(region, "jobs", capacity=8)
    with jobs.owner() as owner, jobs.thief() as thief:
        assert all(owner.push(each) for each in range(1, 6))
        assert 5 == len(jobs)
        assert [5, 1, 2, 4, 3, None, None] == [
            owner.pop(),
            thief.steal(),
            thief.steal(),
            owner.pop(),
            owner.pop(),
            owner.pop(),
            thief.steal(),
        ]
        assert 0 == len(jobs)


def test_a_push_to_a_full_deque_fails(region: MemoryRegion) -> None:
    """The capacity is exact, also after many wraps."""
    jobs = Deque(region, "jobs", capacity=4)
    with jobs.owner() as owner, jobs.thief() as thief:
        for turn in range(1, 100, 4):
            assert [True] * 4 + [False] == [owner.push(each) for each in range(turn, turn + 5)]
            assert [turn, turn + 1, turn + 2, turn + 3, None] == [thief.steal() for _ in range(5)]


def test_a_deque_has_one_owner(region: MemoryRegion) -> None:
    jobs = Deque(region, "jobs", takers=2)
    owner = jobs.owner()
    with pytest.raises(ConflictError):
        jobs.owner()
    owner.close()
    jobs.owner().close()


def test_the_number_of_thieves_is_limited(region: MemoryRegion) -> None:
    """A thief that closes makes room for another."""
    jobs = Deque(region, "jobs", takers=3)
    thieves = [jobs.thief(), jobs.thief()]
    with pytest.raises(UnavailableError):
        jobs.thief()
    thieves[0].close()
    jobs.thief().close()


@pytest.mark.parametrize("act", ["pop", "steal"])
def test_the_claimed_id_of_a_dead_taker_is_recovered(region: MemoryRegion, act: str) -> None:
    """An id stays claimed until its taker is done."""
    jobs = Deque(region, "jobs")
    with jobs.owner() as owner:
        owner.push(41)
        owner.push(42)
    reader, writer = os.pipe()

    def take() -> DequeThief:
        end: DequeThief = jobs.owner() if act == "pop" else jobs.thief()
        found = end.pop() if isinstance(end, DequeOwner) else end.steal()
        os.write(writer, bytes([found or 0]))
        return end

    child = fork_child(take)
    taken = os.read(reader, 1)[0]
    rescuer = Deque(region, "jobs").thief()
    assert rescuer.recover() is None  # its holder is alive
    kill_child(child)

    assert taken == rescuer.recover()
    with pytest.raises(UsageError):
        rescuer.recover()
    rescuer.done()
    assert rescuer.recover() is None
    assert 83 - taken == rescuer.steal()
    rescuer.close()
    os.close(reader)
    os.close(writer)


def test_the_successor_of_a_dead_taker_gets_its_claimed_id(region: MemoryRegion) -> None:
    """It may have been worked on; the successor decides."""
    jobs = Deque(region, "jobs")
    with jobs.owner() as owner:
        owner.push(7)
        owner.pop()  # leaves without `done`
    with jobs.owner() as owner:
        assert 7 == owner.recovered_id
        owner.done()
    with jobs.owner() as owner:
        assert owner.recovered_id is None


def test_the_next_owner_repairs_an_interrupted_pop(region: MemoryRegion) -> None:
    """Bottom is below top."""
    jobs = Deque(region, "jobs", capacity=8, takers=2)
    with jobs.owner() as owner, jobs.thief() as thief:
        owner.push(1)
        thief.steal()
    bottom = jobs._offset + 2 * LINE + LINE
    region.words.store(bottom, region.words.load(bottom) - 1)
    assert 0 == len(jobs)
    with jobs.owner() as owner:
        owner.push(2)

        assert 2 == owner.pop()
        assert owner.pop() is None


def test_a_thief_with_a_stale_bottom_loses_its_swap(region: MemoryRegion) -> None:
    """It loaded the bottom before the pop; its swap must not move top past the bottom of the next owner."""
    jobs = Deque(region, "jobs", capacity=8, takers=3)
    top = jobs._offset + 3 * LINE
    with jobs.owner() as owner:
        owner.push(1)
    seen = region.words.load(top)  # the thief has loaded top and bottom, and is about to swap
    region.words.store(jobs._offset, 1)  # the owner pops: claimed_id, then bottom; and is killed
    region.words.store(top + LINE, seen)
    with jobs.owner() as heir, jobs.thief() as thief:
        assert 1 == heir.recovered_id
        assert seen != region.words.swap(top, seen, seen + 1)
        heir.done()
        heir.push(2)

        assert 2 == thief.steal()


def test_positions_may_be_negative(region: MemoryRegion) -> None:
    """An owner killed in the first pop leaves bottom at -1."""
    jobs = Deque(region, "jobs", capacity=8, takers=2)
    region.words.store(jobs._offset + 3 * LINE, WORD_MAX)
    with jobs.owner() as owner:
        owner.push(2)

        assert 2 == owner.pop()


def test_a_forked_child_cannot_use_its_parents_taker(region: MemoryRegion) -> None:
    """Two processes with one claimed_id word would lose an id."""
    jobs = Deque(region, "jobs")
    owner = jobs.owner()
    owner.push(1)
    reader, writer = os.pipe()

    def take() -> None:
        try:
            owner.pop()
        except UsageError as error:
            os.write(writer, error.code.encode())

    child = fork_child(take)
    output = os.read(reader, 100)
    kill_child(child)

    assert b"deque.forked" == output
    assert 1 == owner.pop()
    owner.close()
    os.close(reader)
    os.close(writer)


def test_wrong_calls_are_refused(region: MemoryRegion) -> None:
    """Each with its own code."""
    jobs = Deque(region, "jobs", capacity=8)
    owner, closed = jobs.owner(), jobs.thief()
    closed.close()
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("deque.capacity", lambda: Deque(region, "a", capacity=3)),
        ("deque.capacity", lambda: Deque(region, "a", capacity=0)),
        ("deque.takers", lambda: Deque(region, "a", takers=1)),
        ("deque.id", lambda: owner.push(0)),
        ("deque.id", lambda: owner.push(-1)),
        ("deque.id", lambda: owner.push(1 << 64)),
        ("deque.id", lambda: owner.push(True)),
        ("deque.closed", closed.steal),
        ("region.area_size", lambda: Deque(region, "jobs", capacity=16)),
    ]
    for code, call in wrong:
        with pytest.raises(UsageError) as caught:
            call()
        assert code == caught.value.code
    assert 0 == len(jobs)
    owner.close()


@pytest.mark.skipif("native" not in working_modes(), reason="SKIPPED: no C core here, so nothing to compare with")
@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "steal"]), st.booleans()), max_size=80))
def test_the_core_and_the_fallback_share_one_deque(acts: list[tuple[str, bool]]) -> None:
    """Any sequence of calls has the same results in both, and in a model."""
    with MemoryRegion.create(slots=1) as region:
        offset, claimed_id = region.area("deque", DEQUE_HEAD + 4 * 8), region.area("claimed_id", LINE)
        ends = open_deque(region, offset, 4, claimed_id), PlainDeque(region.words, offset, 4, claimed_id)
        model: deque[int] = deque()
        for number, (act, plain) in enumerate(acts, start=1):
            end = ends[plain]
            if act == "push":
                assert (len(model) < 4) == end.push(number)
                if len(model) < 4:
                    model.append(number)
                continue
            expected = (model.pop() if act == "pop" else model.popleft()) if model else 0
            assert expected == (end.pop() if act == "pop" else end.steal())
            if expected:
                assert expected == region.words.load(claimed_id)
            assert len(model) == end.size()
