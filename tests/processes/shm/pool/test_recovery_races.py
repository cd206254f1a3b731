"""Reaping while others move: what the models of tests/model found, on the real deques and slabs.

A late thief is played by hand: its load of the top before the death, its swap after the mending. A killed reaper is one
whose words end at some operation; every operation is tried.
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


class Mortal:
    """Words that end with their process after so many operations."""

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
    """Runs everything that waits, as an echo."""
    payloads = []
    while (task := member.claim()) > 0:
        payload = member.payload(task)
        assert payload is not None
        assert 1 == member.finish(task, DONE, payload)
        payloads.append(payload)
    return payloads


def fresh(region: MemoryRegion, name: str) -> tuple[int, list[TaskTable]]:
    """A slab of its own, as each of its members has it, all of them taken."""
    offset = region.area(name, LAYOUT.bytes)
    for member in range(LAYOUT.members):
        region.words.store(offset + LAYOUT.members_at + member * LINE + IN_USE, 1)
    return offset, [open_task_table(region, offset, LAYOUT, member) for member in range(LAYOUT.members)]


@pytest.fixture
def region(mode: str) -> Iterator[MemoryRegion]:
    """A region in each mode, large enough for a slab per kill."""
    with MemoryRegion.create(slots=2) as made:
        yield made


def test_a_thief_from_before_the_death_loses_to_the_next_owner(region: MemoryRegion) -> None:
    """It saw an id that the dead owner's pop then lowered the bottom under; what is pushed next stays visible."""
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


def test_a_thief_from_before_the_death_loses_to_the_reaper(region: MemoryRegion) -> None:
    """Reaped by another member, the deque is sound for whoever sits there next, however late the thief is."""
    offset, members = fresh(region, "slab")
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


def test_a_reaper_killed_at_any_operation_loses_no_task(mode: str) -> None:
    """Claimed by a dead worker, queued by a dead reaper: the task of a live submitter is still run, once."""
    for operations in count():
        with MemoryRegion.create(slots=2) as region:
            offset, members = fresh(region, "slab")
            owner, worker, _, survivor = members
            task = owner.submit(b"work", 0, True)
            assert task == worker.claim()  # and is killed
            words: Any = Mortal(region.words, operations)
            reaper = PlainTaskTable(words, memoryview(region.buffer), offset, LAYOUT, 2)
            finished = True
            try:
                reaper.recover(1)
            except KilledError:
                finished = False
            for dead in (1, 2):
                assert survivor.recover(dead)[0]

            assert [b"work"] == run_all(survivor), f"killed after {operations} operations"
        if finished:
            break
    assert operations > 10
