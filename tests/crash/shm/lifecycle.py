"""Processes of a lifecycle, killed at any moment: a drain always closes, once, and never over a living head."""

from __future__ import annotations

from typing import NoReturn

from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.lifecycle.permits import Phase
from interlock.shm.memory.region import MemoryRegion
from tests.crash.shm.storm import Moments, Outcome, Victim, run

WORKERS = 4
DRAIN_SECONDS = 20.0


def storm(kills: int, seed: int) -> Outcome:
    """Rounds of four processes that enter and leave; two are killed, then the rest is drained."""
    outcome, moments = Outcome("lifecycle: participants"), Moments(seed)
    while outcome.kills < kills:
        _round(outcome, moments)
        outcome.work += 1
    return outcome


def _round(outcome: Outcome, moments: Moments) -> None:
    with MemoryRegion.create(slots=WORKERS + 1, areas_bytes=4096) as region:
        words = region.words
        marks = region.area("marks", 64 * WORKERS)  # 1: this one is inside, as it sees it
        life = Lifecycle(region)
        life.start()
        fleet = {number: _victim(region, marks + 64 * number) for number in range(WORKERS)}
        moments.spend(lambda: words.load(marks), 8_000)
        for number in moments.chance.sample(range(WORKERS), 2):
            if not fleet.pop(number).kill():
                outcome.note("a participant ended by itself")
            outcome.kills += 1
            outcome.inside += words.load(marks + 64 * number)
        if life.phase is not Phase.RUNNING:
            outcome.note(f"{life.phase.name} before anybody drained")
        report = life.drain(timeout=DRAIN_SECONDS).wait()
        if not report.closed:
            outcome.lost += 1
            outcome.note(f"not closed: {report}")
        if any(words.load(marks + 64 * number) for number in fleet):
            outcome.torn += 1
            outcome.note("closed while a living process was inside")
        for victim in fleet.values():
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
