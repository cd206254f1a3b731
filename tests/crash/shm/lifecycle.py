"""Processes of a lifecycle, killed at any time: a drain closes once, and never while a live process is inside."""

from __future__ import annotations

from typing import NoReturn

from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.region import MemoryRegion
from tests.crash.shm.storm import Outcome, RandomTimes, Victim, run

WORKERS = 4
DRAIN_SECONDS = 20.0


def storm(kills: int, seed: int) -> Outcome:
    """Rounds of four processes that enter and exit; two are killed, then the lifecycle is drained."""
    outcome, times = Outcome("lifecycle: participants"), RandomTimes(seed)
    while outcome.kills < kills:
        _round(outcome, times)
        outcome.work += 1
    return outcome


def _round(outcome: Outcome, times: RandomTimes) -> None:
    with MemoryRegion.create(slots=WORKERS + 1, areas_bytes=4096) as region:
        words = region.words
        marks = region.area("marks", 64 * WORKERS)  # 1: this process is inside
        life = Lifecycle(region)
        life.start()
        victims = {number: _victim(region, marks + 64 * number) for number in range(WORKERS)}
        times.spend(lambda: words.load(marks), 8_000)
        for number in times.chance.sample(range(WORKERS), 2):
            if not victims.pop(number).kill():
                outcome.note("a participant ended early")
            outcome.kills += 1
            outcome.inside += words.load(marks + 64 * number)
        if life.phase is not Phase.RUNNING:
            outcome.note(f"{life.phase.name} before the drain")
        report = life.drain(timeout=DRAIN_SECONDS).wait()
        if not report.closed:
            outcome.lost += 1
            outcome.note(f"not closed: {report}")
        if any(words.load(marks + 64 * number) for number in victims):
            outcome.torn += 1
            outcome.note("closed while a live process was inside")
        for victim in victims.values():
            victim.kill()
        life.leave()


def _victim(region: MemoryRegion, mark: int) -> Victim:
    words = region.words

    def work() -> NoReturn:
        life = Lifecycle(region)
        while True:
            permit = life.try_enter()
            if permit is None:
                continue
            words.store(mark, 1)
            words.store(mark, 0)
            life.exit(permit)

    return Victim(work)


if __name__ == "__main__":
    run(storm)
