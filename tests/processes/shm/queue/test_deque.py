"""Deques: one owner, many thieves, every id once, and hands that tell what the dead held; in every mode."""

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
from tests.processes.shm.queues import forked, killed, working_modes


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryRegion]:
    """A region in each mode that works here."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    with MemoryRegion.create(slots=2) as made:
        yield made


def test_the_owner_has_the_newest_and_thieves_the_oldest(region: MemoryRegion) -> None:
    """Last in, first out for the owner; first in, first out for the others."""
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


def test_a_full_deque_answers_and_loses_nothing(region: MemoryRegion) -> None:
    """Capacity is exact, through many turns around the ring."""
    jobs = Deque(region, "jobs", capacity=4)
    with jobs.owner() as owner, jobs.thief() as thief:
        for turn in range(1, 100, 4):
            assert [True] * 4 + [False] == [owner.push(each) for each in range(turn, turn + 5)]
            assert [turn, turn + 1, turn + 2, turn + 3, None] == [thief.steal() for _ in range(5)]


def test_there_is_one_owner(region: MemoryRegion) -> None:
    """Two would push into the same place."""
    jobs = Deque(region, "jobs", takers=2)
    owner = jobs.owner()
    with pytest.raises(ConflictError):
        jobs.owner()
    owner.close()
    jobs.owner().close()


def test_places_run_out_and_come_back(region: MemoryRegion) -> None:
    """As many thieves as there are places besides the owner's."""
    jobs = Deque(region, "jobs", takers=3)
    thieves = [jobs.thief(), jobs.thief()]
    with pytest.raises(UnavailableError):
        jobs.thief()
    thieves[0].close()
    jobs.thief().close()


@pytest.mark.parametrize("act", ["pop", "steal"])
def test_what_a_dead_taker_held_is_recovered(region: MemoryRegion, act: str) -> None:
    """An id that left the deque is in the hand of who took it, until that one is done."""
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

    child = forked(take)
    taken = os.read(reader, 1)[0]
    rescuer = Deque(region, "jobs").thief()
    assert rescuer.recover() is None  # its holder is alive
    killed(child)

    assert taken == rescuer.recover()
    with pytest.raises(UsageError):
        rescuer.recover()
    rescuer.done()
    assert rescuer.recover() is None
    assert 83 - taken == rescuer.steal()
    rescuer.close()
    os.close(reader)
    os.close(writer)


def test_the_next_on_a_place_is_told_what_the_dead_one_held(region: MemoryRegion) -> None:
    """`found` is perhaps worked on, perhaps not; the newcomer decides."""
    jobs = Deque(region, "jobs")
    with jobs.owner() as owner:
        owner.push(7)
        owner.pop()  # leaves without `done`
    with jobs.owner() as owner:
        assert 7 == owner.recovered_id
        owner.done()
    with jobs.owner() as owner:
        assert owner.recovered_id is None


def test_an_owner_killed_inside_a_pop_leaves_a_sound_deque(region: MemoryRegion) -> None:
    """Bottom below top: the next owner mends it."""
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


def test_a_thief_that_looked_before_the_owner_died_comes_too_late(region: MemoryRegion) -> None:
    """It saw the bottom before the pop lowered it; its swap must not move top past the bottom of the next owner."""
    jobs = Deque(region, "jobs", capacity=8, takers=3)
    top = jobs._offset + 3 * LINE
    with jobs.owner() as owner:
        owner.push(1)
    seen = region.words.load(top)  # the thief has loaded top and bottom, and is about to swap
    region.words.store(jobs._offset, 1)  # the owner pops: hand, then bottom; and is killed
    region.words.store(top + LINE, seen)
    with jobs.owner() as heir, jobs.thief() as thief:
        assert 1 == heir.recovered_id
        assert seen != region.words.swap(top, seen, seen + 1)
        heir.done()
        heir.push(2)

        assert 2 == thief.steal()


def test_positions_below_zero_are_positions(region: MemoryRegion) -> None:
    """An owner killed in the pop of a deque that was never used leaves bottom at -1."""
    jobs = Deque(region, "jobs", capacity=8, takers=2)
    region.words.store(jobs._offset + 3 * LINE, WORD_MAX)
    with jobs.owner() as owner:
        owner.push(2)

        assert 2 == owner.pop()


def test_a_forked_child_does_not_take_with_its_parents_hand(region: MemoryRegion) -> None:
    """Two processes on one hand would lose what the first held."""
    jobs = Deque(region, "jobs")
    owner = jobs.owner()
    owner.push(1)
    reader, writer = os.pipe()

    def take() -> None:
        try:
            owner.pop()
        except UsageError as error:
            os.write(writer, error.code.encode())

    child = forked(take)
    told = os.read(reader, 100)
    killed(child)

    assert b"deque.forked" == told
    assert 1 == owner.pop()
    owner.close()
    os.close(reader)
    os.close(writer)


def test_wrong_calls_say_what_is_right(region: MemoryRegion) -> None:
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
def test_the_core_and_the_fallback_are_one_deque(acts: list[tuple[str, bool]]) -> None:
    """Any act by either: same answers, same hands, against a deque of Python's own."""
    with MemoryRegion.create(slots=1) as region:
        offset, hand = region.area("deque", DEQUE_HEAD + 4 * 8), region.area("hand", LINE)
        ends = open_deque(region, offset, 4, hand), PlainDeque(region.words, offset, 4, hand)
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
                assert expected == region.words.load(hand)
            assert len(model) == end.size()
