"""Workers of a slab, killed at any moment: every task ends once, and no two that live ever run one task."""

from __future__ import annotations

import os
import struct
from typing import NoReturn

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.pool.layout import DONE, POISONED, PoolLayout
from interlock.shm.pool.member import PoolMember
from tests.crash.shm.storm import Moments, Outcome, Victim, lives_on, run

WORKERS = 3
LAYOUT = PoolLayout(members=1 + WORKERS, priorities=2, range=32, payload_max=64, result_max=64, claims_max=255)
NUMBER = struct.Struct("<Q")
TASKS_MAX = 1 << 20


class _Scene:
    """The owner's side: submits, collects, reaps, and checks."""

    def __init__(self, region: MemoryRegion, outcome: Outcome) -> None:
        self.region, self.words, self.outcome = region, region.words, outcome
        self.offset = region.area("task_table", LAYOUT.bytes)
        self.running = region.area("running", 8 * LAYOUT.cells)  # which victim runs the task of a cell
        self.clashes = region.area("clashes", 64)
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
        """Check what has ended."""
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
    """Keeps three workers taking, stealing and ending tasks and kills one of them again and again."""
    outcome, moments = Outcome("task table: workers"), Moments(seed)
    with MemoryRegion.create(slots=1) as region:
        scene = _Scene(region, outcome)
        fleet: dict[int, Victim] = {}
        born = 0
        while outcome.kills < kills:
            while len(fleet) < WORKERS:
                born += 1
                fleet[born] = _victim(scene)
            moments.spend(scene.work)
            number = moments.chance.choice(sorted(fleet))
            victim = fleet.pop(number)
            if not victim.kill():
                outcome.note("a worker ended by itself")
            outcome.kills += 1
            for index in range(LAYOUT.cells):
                if region.words.load(scene.running + 8 * index) == victim.pid:
                    region.words.store(scene.running + 8 * index, 0)
                    outcome.inside += 1
            if moments.chance.random() < 0.5:  # else the next worker on the member reaps it
                scene.member.recover_dead()
        for left in fleet.values():
            left.kill()
        _finish(scene)
        if region.words.load(scene.clashes):
            outcome.note(f"{region.words.load(scene.clashes)} tasks were run by two at once")
    return outcome


def _victim(scene: _Scene) -> Victim:
    words = scene.words

    def work() -> NoReturn:
        member = None
        while member is None:
            member = PoolMember.join(scene.region, scene.offset, LAYOUT, range(1, LAYOUT.members))
        tasks, turn, me = member.tasks, 0, os.getpid()
        while True:
            turn += 1
            if turn % 64 == 0:
                member.recover_dead()
            if turn % 5 == 0:
                tasks.submit(NUMBER.pack(TASKS_MAX), 1, True)  # spawned: listed on this worker's own deque
            task = tasks.claim()
            if task <= 0:
                continue
            place = scene.running + 8 * (task & 0xFFFFFFFF)
            before = words.swap(place, 0, me)
            if before and lives_on(before):
                words.add(scene.clashes, 1)
            words.store(place, me)
            payload = tasks.payload(task) or b""
            result = NUMBER.pack(NUMBER.unpack(payload)[0] * 7) * 8
            words.store(place, 0)
            tasks.finish(task, DONE, result)

    return Victim(work)


def _finish(scene: _Scene) -> None:
    """With everybody dead the owner reaps and runs what is left: nothing may be missing."""
    for _ in range(50):
        scene.member.recover_dead()
        while (task := scene.member.tasks.claim()) > 0:
            payload = scene.member.tasks.payload(task) or b""
            scene.member.tasks.finish(task, DONE, NUMBER.pack(NUMBER.unpack(payload)[0] * 7) * 8)
        scene.collect()
    scene.outcome.lost += len(scene.open)


if __name__ == "__main__":
    run(storm)
