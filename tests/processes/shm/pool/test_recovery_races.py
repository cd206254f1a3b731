"""Recovery while other processes run: the cases that tests/model found, on the real deques and tables.

The test does the steps of a late thief: its load of the top before the death, its swap after the repair. A killed
process is one whose words raise at some operation; every operation is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from interlock.shm.memory.region import LINE, MemoryRegion
from interlock.shm.pool.layout import CLAIMED_ID, DONE, IN_USE, PoolLayout
from interlock.shm.pool.task_table import PlainTaskTable, TaskTable, open_task_table
from interlock.shm.queue.deque import DEQUE_HEAD, Deque

LAYOUT = PoolLayout(members=4, priorities=1, range=4, payload_max=64, result_max=64, claims_max=9)


class KilledError(Exception):
    """The process ends before its next operation."""


class LimitedWords:
    """Words that raise after so many operations."""

    def __init__(self, words: Any, operations: int) -> None:
        self._words = words
        self._left = operations

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._words, name)

        def perform(*arguments: Any) -> Any:
            if self._left == 0:
                raise KilledError
            self._left -= 1
            return operation(*arguments)

        return perform


def run_all(member: TaskTable) -> list[bytes]:
    """Run all queued tasks, and return their payloads."""
    payloads = []
    while (task := member.claim()) > 0:
        payload = member.payload(task)
        assert payload is not None
        assert 1 == member.finish(task, DONE, payload)
        payloads.append(payload)
    return payloads


def new_table(region: MemoryRegion, name: str) -> tuple[int, list[TaskTable]]:
    """Create a table, and return it for each of its members, all of them in use."""
    offset = region.area(name, LAYOUT.bytes)
    for member in range(LAYOUT.members):
        region.words.store(offset + LAYOUT.members_at + member * LINE + IN_USE, 1)
    return offset, [open_task_table(region, offset, LAYOUT, member) for member in range(LAYOUT.members)]


@pytest.fixture
def region(mode: str) -> Iterator[MemoryRegion]:
    """A region in each mode, large enough for a table per kill."""
    with MemoryRegion.create(slots=2) as made:
        yield made


def test_a_stale_thief_loses_to_the_next_owner(region: MemoryRegion) -> None:
    """It saw an id below which the dead owner's pop lowered the bottom."""
    jobs = Deque(region, "jobs", capacity=8, takers=2)
    top = jobs._offset + 2 * LINE
    with jobs.owner() as owner:
        owner.push(1)
        seen = region.words.load(top)  # the thief
        region.words.store(top + LINE, 0)  # the owner, inside a pop, and dead
    with jobs.owner() as owner:
        stolen = region.words.swap(top, seen, seen + 1) == seen
        owner.push(2)

        assert (False, 1) == (stolen, len(jobs))


def test_a_stale_thief_loses_to_a_recovery(region: MemoryRegion) -> None:
    """The deque of the dead member is usable for its successor."""
    offset, members = new_table(region, "table")
    dead = members[1]
    task = dead.submit(b"last", 0, True)
    top = offset + LAYOUT.deques_at + DEQUE_HEAD + 8 * LAYOUT.capacity
    seen = region.words.load(top)
    region.words.store(offset + LAYOUT.members_at + LINE + CLAIMED_ID, task)
    region.words.store(top + LINE, 0)
    assert members[0].recover(1)[0]
    stolen = region.words.swap(top, seen, seen + 1) == seen
    dead.submit(b"next", 0, True)  # the next owner

    assert not stolen
    assert [b"last", b"next"] == sorted(run_all(members[0]))


def test_a_recovery_killed_at_any_operation_loses_no_task(mode: str) -> None:
    """The task of a live submitter still runs, once."""
    for operations in count():
        with MemoryRegion.create(slots=2) as region:
            offset, members = new_table(region, "table")
            owner, worker, _, survivor = members
            task = owner.submit(b"work", 0, True)
            assert task == worker.claim()  # and is killed
            words: Any = LimitedWords(region.words, operations)
            recovering = PlainTaskTable(words, memoryview(region.buffer), offset, LAYOUT, 2)
            finished = True
            try:
                recovering.recover(1)
            except KilledError:
                finished = False
            for dead in (1, 2):
                assert survivor.recover(dead)[0]

            assert [b"work"] == run_all(survivor), f"killed after {operations} operations"
        if finished:
            break
    assert operations > 10
