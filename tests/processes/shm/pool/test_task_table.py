"""The task table: claims, ranges, priorities, and recovery after a death at every step of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.pool.layout import (
    CLAIMED,
    CLAIMED_ID,
    DONE,
    FAILED,
    IN_USE,
    META,
    POISONED,
    QUEUED,
    RETRY,
    TOO_LARGE,
    PoolLayout,
)
from interlock.shm.pool.task_table import PlainTaskTable, TaskTable, open_task_table
from interlock.shm.queue.deque import DEQUE_HEAD, PlainDeque
from interlock.shm.queue.priority import SKIPS_MAX
from tests.processes.shm.queues import working_modes

ACTS = ("submit", "submit", "claim", "claim", "finish", "finish", "collect", "recover")
LAYOUT = PoolLayout(members=3, priorities=2, range=4, payload_max=64, result_max=64, claims_max=3)


@pytest.fixture(params=working_modes())
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryRegion]:
    """A region in each mode that works here."""
    monkeypatch.setenv("INTERLOCK_SHM", request.param)
    with MemoryRegion.create(slots=2) as made:
        yield made


@pytest.fixture
def members(region: MemoryRegion) -> list[TaskTable]:
    """The table for each of three members."""
    offset = region.area("table", LAYOUT.bytes)
    return [open_task_table(region, offset, LAYOUT, member) for member in range(LAYOUT.members)]


def line(region: MemoryRegion, member: int) -> int:
    """Return the offset of a member's line."""
    return region.area("table", LAYOUT.bytes) + LAYOUT.members_at + member * LINE


def run_all(member: TaskTable) -> list[bytes]:
    """Run all queued tasks, and return their payloads."""
    payloads = []
    while (task := member.claim()) > 0:
        payload = member.payload(task)
        assert payload is not None
        assert 1 == member.finish(task, DONE, payload)
        payloads.append(payload)
    return payloads


def test_each_step_of_a_task_happens_once(members: list[TaskTable]) -> None:
    """Submitted, claimed by a thief, done, read, freed."""
    owner, worker, other = members
    task = owner.submit(b"work", 0, False)
    assert (QUEUED, 0, 0) == owner.state(task)
    assert owner.has_queued()
    assert task == worker.claim()
    assert (CLAIMED, 1, 1) == owner.state(task)
    assert 0 == other.claim()
    assert b"work" == worker.payload(task)
    assert 0 == other.finish(task, DONE, b"not mine")
    assert 1 == worker.finish(task, DONE, b"result")
    assert 0 == worker.finish(task, DONE, b"again")
    assert [(task, DONE, b"result")] == owner.finished()
    assert [] == worker.finished()
    assert owner.release(task)
    assert not owner.release(task)
    assert owner.state(task) is None
    assert [] == owner.finished()


def test_ids_are_unique(members: list[TaskTable]) -> None:
    """The next task of a cell has the next generation."""
    owner, worker, _ = members
    known = set()
    for _ in range(50):
        task = owner.submit(b"", 0, False)
        known.add(task)
        assert task == worker.claim()
        worker.finish(task, FAILED, b"no")
        assert [(task, FAILED, b"no")] == owner.finished()
        owner.release(task)

    assert 50 == len(known)
    assert 0 not in known


def test_each_member_has_its_own_range(members: list[TaskTable]) -> None:
    """A full range refuses, even if others have free cells."""
    owner, worker, _ = members
    assert TOO_LARGE == owner.submit(b"x" * 65, 0, False)
    assert all(owner.submit(bytes([number]), 0, False) for number in range(LAYOUT.range))
    assert 0 == owner.submit(b"", 0, False)
    assert worker.submit(b"", 0, True)
    task = worker.claim()
    assert TOO_LARGE == worker.finish(task, DONE, b"x" * 65)
    assert 1 == worker.finish(task, DONE, b"")


def test_a_detached_task_is_freed_when_it_finishes(members: list[TaskTable]) -> None:
    owner, worker, _ = members
    for _ in range(3 * LAYOUT.range):
        task = owner.submit(b"", 1, True)
        assert task == worker.claim()
        assert worker.is_detached(task)
        assert 1 == worker.finish(task, DONE, b"unread")

    assert [] == owner.finished()


def test_urgent_tasks_are_first_and_others_do_not_starve(members: list[TaskTable]) -> None:
    """A priority that was skipped eight times is served next."""
    owner, worker, _ = members
    patient = owner.submit(b"patient", 1, True)
    taken = []
    for _ in range(SKIPS_MAX + 1):
        owner.submit(b"urgent", 0, True)
        taken.append(worker.claim())
        worker.finish(taken[-1], DONE, b"")

    assert patient == taken[-1]
    assert patient not in taken[:-1]


def test_a_member_claims_its_newest_task_and_thieves_its_oldest(members: list[TaskTable]) -> None:
    owner, worker, _ = members
    first, second, third = (owner.submit(bytes([number]), 0, True) for number in range(3))

    assert [third, first, second, 0] == [owner.claim(), worker.claim(), owner.claim(), owner.claim()]


def test_a_dead_workers_task_runs_again(members: list[TaskTable]) -> None:
    """The recovering member pushes it to its own deque."""
    owner, worker, other = members
    task = owner.submit(b"work", 1, False)
    assert task == worker.claim()
    assert (True, 1, 0) == other.recover(1)
    assert (QUEUED, 2, 1) == owner.state(task)
    assert (True, 0, 0) == other.recover(1)
    assert [b"work"] == run_all(owner)
    assert [(task, DONE, b"work")] == owner.finished()


def test_a_task_whose_workers_die_is_given_up(members: list[TaskTable]) -> None:
    """After `claims_max` claims it is poisoned."""
    owner, worker, other = members
    task = owner.submit(b"poison", 0, False)
    for claims in (1, 2, 3):
        assert task == worker.claim()
        assert (CLAIMED, 1, claims) == owner.state(task)
        assert (True, 1, int(claims == 3)) == other.recover(1)

    assert 0 == worker.claim()
    assert [(task, POISONED, b"")] == owner.finished()
    assert owner.release(task)


def test_the_claimed_id_of_a_dead_member_is_recovered(region: MemoryRegion, members: list[TaskTable]) -> None:
    """A thief was killed between the deque and the claim: the id is in no deque."""
    owner, worker, other = members
    task = owner.submit(b"work", 0, False)
    top = region.area("table", LAYOUT.bytes) + LAYOUT.deques_at
    region.words.store(line(region, 1) + CLAIMED_ID, task)
    region.words.add(top, 1)
    assert not owner.has_queued()
    assert other.recover(1)[0]

    assert [b"work"] == run_all(worker)
    assert 0 == region.words.load(line(region, 1) + CLAIMED_ID)


def test_a_task_in_no_deque_is_recovered(region: MemoryRegion, members: list[TaskTable]) -> None:
    """A submitter was killed between the task's word and its push."""
    owner, worker, _ = members
    worker.submit(b"unlisted", 1, True)
    bottom = region.area("table", LAYOUT.bytes) + LAYOUT.deques_at + 3 * (DEQUE_HEAD + 8 * LAYOUT.capacity) + LINE
    region.words.store(bottom, 0)
    assert not owner.has_queued()
    assert (True, 1, 0) == owner.recover(1)

    assert [b"unlisted"] == run_all(owner)


def test_an_interrupted_pop_is_recovered(region: MemoryRegion, members: list[TaskTable]) -> None:
    """The claimed_id word has the id, and the deque is repaired."""
    owner, worker, _ = members
    task = worker.submit(b"last", 0, True)
    region.words.store(line(region, 1) + CLAIMED_ID, task)
    bottom = region.area("table", LAYOUT.bytes) + LAYOUT.deques_at + 2 * (DEQUE_HEAD + 8 * LAYOUT.capacity) + LINE
    region.words.store(bottom, 0)
    assert owner.recover(1)[0]
    assert [b"last"] == run_all(owner)
    again = worker.submit(b"next", 0, True)

    assert again == worker.claim()


def test_a_new_process_recovers_an_interrupted_pop(region: MemoryRegion, members: list[TaskTable]) -> None:
    """It repairs its deque before it pushes: an id below the top would be invisible."""
    owner, worker, _ = members
    hidden = worker.submit(b"hidden", 0, True)
    top = region.area("table", LAYOUT.bytes) + LAYOUT.deques_at + 2 * (DEQUE_HEAD + 8 * LAYOUT.capacity)
    region.words.store(line(region, 1) + CLAIMED_ID, hidden)
    region.words.store(top, 1)  # a thief was quicker, and died too, before its claim
    region.words.store(top + LINE, 0)  # in a pop, below the top
    assert worker.recover(1)[0]

    assert [b"hidden"] == run_all(owner)


def test_a_recovery_records_a_task_before_it_pushes_it(region: MemoryRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is killed in between, the next recovery finds the id. (The C core does the same, in one call.)"""
    offset, memory = region.area("table", LAYOUT.bytes), memoryview(region.buffer)
    owner, worker, recovering = (PlainTaskTable(region.words, memory, offset, LAYOUT, member) for member in range(3))
    task = owner.submit(b"work", 0, False)
    assert task == worker.claim()

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PlainDeque, "push", killed)
        with pytest.raises(KeyboardInterrupt):
            recovering.recover(1)
    assert (QUEUED, 2, 1) == owner.state(task)
    assert not owner.has_queued()
    assert owner.recover(2)[0]

    assert [b"work"] == run_all(owner)


def test_the_deques_of_a_dead_member_are_recovered(members: list[TaskTable]) -> None:
    """Also tasks that it had recovered itself."""
    owner, worker, other = members
    far = owner.submit(b"far", 0, False)
    assert far == other.claim()
    assert worker.recover(2)[0]  # now listed on member 1
    near = worker.submit(b"near", 1, True)
    assert near
    assert owner.recover(1)[0]

    assert {b"far", b"near"} == set(run_all(owner))
    assert 0 == worker.claim()


def test_an_id_in_two_deques_runs_once(members: list[TaskTable]) -> None:
    owner, worker, other = members
    owner.submit(b"work", 0, False)
    assert other.recover(0)[0]

    assert [b"work"] == run_all(worker) + run_all(other) + run_all(owner)


def test_results_for_a_dead_submitter_are_freed(members: list[TaskTable]) -> None:
    """Its successor starts with an empty range."""
    owner, worker, other = members
    for _ in range(LAYOUT.range):
        owner.submit(b"", 0, False)
    run_all(worker)
    assert 0 == owner.submit(b"", 0, False)
    assert other.recover(0)[0]

    assert [] == owner.finished()
    assert owner.submit(b"", 0, False)


def test_a_new_process_recovers_its_predecessor(region: MemoryRegion, members: list[TaskTable]) -> None:
    """One claimed and one queued task: both run."""
    owner, worker, _ = members
    region.words.store(line(region, 1) + IN_USE, 1)
    claimed = owner.submit(b"claimed", 0, False)
    assert claimed == worker.claim()
    worker.submit(b"listed", 0, True)
    assert worker.recover(1)[0]
    assert 0 == region.words.load(line(region, 1) + IN_USE)

    assert {b"claimed", b"listed"} == set(run_all(worker))


def test_a_recovery_with_full_deques_is_repeated(region: MemoryRegion) -> None:
    """No task is lost, and the member stays marked."""
    layout = PoolLayout(members=2, priorities=1, range=4, payload_max=0, result_max=0, claims_max=3)
    assert 8 == layout.capacity
    offset = region.area("small", layout.bytes)
    owner, worker = (open_task_table(region, offset, layout, member) for member in range(2))
    mine = [owner.submit(b"", 0, True) for _ in range(4)]
    assert all(mine)
    for _ in range(4):  # doubled ids: an honest deque cannot be this full
        assert worker.submit(b"", 0, True)
    assert owner.recover(1)[0]
    assert not owner.recover(0)[0]
    ran = 0
    while (task := worker.claim()) > 0:
        worker.finish(task, DONE, b"")
        ran += 1

    assert 8 == ran
    assert owner.recover(0)[0]
    assert RETRY != worker.claim()


@pytest.mark.skipif("native" not in working_modes(), reason="SKIPPED: no C core here, so nothing to compare with")
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 1), st.integers(0, 7)), max_size=80))
@example([("submit", 0, 1)] * 3 + [("recover", 1, 0)] * 3)  # tasks that do not fit are not counted
def test_the_core_and_the_fallback_share_one_layout(acts: list[tuple[str, int, int]]) -> None:
    """The same calls on two tables have the same results."""
    layout = PoolLayout(members=2, priorities=2, range=3, payload_max=64, result_max=64, claims_max=2)
    with MemoryRegion.create(slots=1) as region:
        left, right = (region.area(side, layout.bytes) for side in ("left", "right"))
        core = [open_task_table(region, left, layout, member) for member in range(2)]
        memory = memoryview(region.buffer)
        plain = [PlainTaskTable(region.words, memory, right, layout, member) for member in range(2)]
        claimed: list[tuple[int, int]] = []
        known: list[int] = [0]
        for act, member, number in acts:
            if act == "submit":
                known.append(_both(core[member], plain[member], "submit", bytes([number]), number % 2, number > 5))
            elif act == "claim":
                task = _both(core[member], plain[member], "claim")
                if task > 0:
                    claimed.append((member, task))
            elif act == "finish" and claimed:
                holder, task = claimed.pop(number % len(claimed))
                _both(core[holder], plain[holder], "finish", task, DONE if number % 2 else FAILED, b"r" * number)
            elif act == "collect":
                for task, _, _ in _both(core[member], plain[member], "finished"):
                    _both(core[member], plain[member], "release", task)
            elif act == "recover":
                _both(core[member], plain[member], "recover", 1 - member)
                claimed = [each for each in claimed if each[0] == member]
            _both(core[member], plain[member], "state", known[number % len(known)])
            _both(core[member], plain[member], "has_queued")


def _both(core: TaskTable, plain: TaskTable, method: str, *arguments: object) -> Any:
    results = [getattr(table, method)(*arguments) for table in (core, plain)]
    assert results[0] == results[1], (method, arguments)
    return results[0]


def test_sizes_out_of_range_are_refused(region: MemoryRegion) -> None:
    """Before anything is written; so are other sizes than those of the pool."""
    for name, value, code in (
        ("members", 0, "slab.seats"),
        ("priorities", 9, "slab.priorities"),
        ("range", 0, "slab.range"),
        ("payload_max", -1, "slab.payload_max"),
        ("result_max", 1 << 31, "slab.result_max"),
        ("claims_max", 256, "slab.claims_max"),
        ("claims_max", True, "slab.claims_max"),
    ):
        with pytest.raises(UsageError) as caught:
            replace(LAYOUT, **{name: value})
        assert code == caught.value.code
    offset = region.area("table", LAYOUT.bytes, prepare=lambda at: LAYOUT.prepare(region, at))
    LAYOUT.check(region, offset)
    with pytest.raises(UsageError) as caught:
        replace(LAYOUT, claims_max=2).check(region, offset)
    assert "slab.shape" == caught.value.code


def test_invalid_ids_are_ignored(region: MemoryRegion, members: list[TaskTable]) -> None:
    """Out of range, of generation 0, or with invalid bytes."""
    owner = members[0]
    nonsense: list[Callable[[int], object]] = [owner.state, owner.payload, owner.release, owner.is_detached]
    for wrong in (0, 5, 1 << 32 | 999, (1 << 64) - 1):
        assert [None, None, False, False] == [ask(wrong) for ask in nonsense]
        assert 0 == owner.finish(wrong, DONE, b"")
    task = owner.submit(b"x", 0, False)
    cell = region.area("table", LAYOUT.bytes) + LAYOUT.cells_at
    region.words.store(cell + META, 1 << 60)

    assert owner.payload(task) is None
    with pytest.raises(ValueError, match="member"):
        owner.recover(3)
    with pytest.raises(ValueError, match="DONE"):
        owner.finish(task, QUEUED, b"")
