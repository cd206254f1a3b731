"""Workers of a task table, killed at any time: every task finishes once, and no two live workers run one task."""

from __future__ import annotations

import os
import struct
from typing import NoReturn

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.layout import DONE, POISONED, PoolLayout
from interlock.shm.pool.member import PoolMember
from tests.crash.shm.storm import Outcome, RandomTimes, Victim, run, stays_alive

WORKERS = 3
LAYOUT = PoolLayout(members=1 + WORKERS, priorities=2, range=32, payload_max=64, result_max=64, claims_max=255)
NUMBER = struct.Struct("<Q")
TASKS_MAX = 1 << 20


class _Owner:
    """The owner: submits, collects, recovers, and checks."""

    def __init__(self, region: MemoryRegion, outcome: Outcome) -> None:
        self.region, self.words, self.outcome = region, region.words, outcome
        self.offset = region.area("task_table", LAYOUT.bytes)
        self.running = region.area("running", 8 * LAYOUT.cells)  # which victim runs the task of a cell
        self.conflicts = region.area("conflicts", 64)
        member = PoolMember.join(region, self.offset, LAYOUT, range(1))
        assert member is not None
        self.member = member
        self.open: dict[int, int] = {}
        self.submitted = 0

    def work(self) -> None:
        """One round of the owner."""
        tasks = self.member.tasks
        while task := tasks.submit(NUMBER.pack(self.submitted), self.submitted % LAYOUT.priorities, False):
            self.open[task] = self.submitted
            self.submitted += 1
        self.collect()
        if tasks.has_queued():
            tasks.wake_worker()

    def collect(self) -> None:
        """Check the finished tasks."""
        for task, state, result in self.member.tasks.finished():
            number = self.open.pop(task, None)
            if number is None:
                self.outcome.doubled += 1
            elif state == POISONED:
                self.outcome.lost += 1
            elif result != NUMBER.pack(number * 7) * 8:
                self.outcome.torn += 1
            self.outcome.work += 1
            self.member.tasks.release(task)


def storm(kills: int, seed: int) -> Outcome:
    """Run three workers that claim, steal and finish tasks, and kill one of them repeatedly."""
    outcome, times = Outcome("task table: workers"), RandomTimes(seed)
    with MemoryRegion.create(slots=1) as region:
        owner = _Owner(region, outcome)
        victims: dict[int, Victim] = {}
        born = 0
        while outcome.kills < kills:
            while len(victims) < WORKERS:
                born += 1
                victims[born] = _victim(owner)
            times.spend(owner.work)
            number = times.chance.choice(sorted(victims))
            victim = victims.pop(number)
            if not victim.kill():
                outcome.note("a worker ended early")
            outcome.kills += 1
            for index in range(LAYOUT.cells):
                if region.words.load(owner.running + 8 * index) == victim.pid:
                    region.words.store(owner.running + 8 * index, 0)
                    outcome.inside += 1
            if times.chance.random() < 0.5:  # otherwise its successor recovers it
                owner.member.recover_dead()
        for left in victims.values():
            left.kill()
        _finish(owner)
        if region.words.load(owner.conflicts):
            outcome.note(f"{region.words.load(owner.conflicts)} tasks were run by two workers at the same time")
    return outcome


def _victim(owner: _Owner) -> Victim:
    words = owner.words

    def work() -> NoReturn:
        member = None
        while member is None:
            member = PoolMember.join(owner.region, owner.offset, LAYOUT, range(1, LAYOUT.members))
        tasks, turn, me = member.tasks, 0, os.getpid()
        while True:
            turn += 1
            if turn % 64 == 0:
                member.recover_dead()
            if turn % 5 == 0:
                tasks.submit(NUMBER.pack(TASKS_MAX), 1, True)  # spawned: in this worker's own deque
            task = tasks.claim()
            if task <= 0:
                continue
            place = owner.running + 8 * (task & 0xFFFFFFFF)
            before = words.swap(place, 0, me)
            if before and stays_alive(before):
                words.add(owner.conflicts, 1)
            words.store(place, me)
            payload = tasks.payload(task) or b""
            result = NUMBER.pack(NUMBER.unpack(payload)[0] * 7) * 8
            words.store(place, 0)
            tasks.finish(task, DONE, result)

    return Victim(work)


def _finish(owner: _Owner) -> None:
    """After the death of all workers the owner recovers and runs the remaining tasks: none may be missing."""
    for _ in range(50):
        owner.member.recover_dead()
        while (task := owner.member.tasks.claim()) > 0:
            payload = owner.member.tasks.payload(task) or b""
            owner.member.tasks.finish(task, DONE, NUMBER.pack(NUMBER.unpack(payload)[0] * 7) * 8)
        owner.collect()
    owner.outcome.lost += len(owner.open)


if __name__ == "__main__":
    run(storm)
