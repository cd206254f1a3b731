"""The last process inside a drain is killed: how long until the drain has noticed it and closed.

In an event loop the death is reported by its pidfd; in a thread it is found in the next round, within a quarter of a
second. Rounds alternate; the times are printed in the table.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from time import perf_counter_ns
from typing import NoReturn

from interlock.shm.lifecycle.drain import CloseReport
from interlock.shm.lifecycle.lifecycle import Lifecycle
from interlock.shm.memory.region import MemoryRegion
from tests.crash.shm.storm import Outcome, RandomTimes, Victim, run

DRAIN_SECONDS = 20.0


def storm(kills: int, seed: int) -> Outcome:
    """Rounds of one process that stays inside, a drain that waits for it, and its death at a random time."""
    outcome, times = Outcome("lifecycle: reclaim"), RandomTimes(seed)
    while outcome.kills < kills:
        _round(outcome, times, by_pidfd=outcome.kills % 2 == 0)
    return outcome


def _round(outcome: Outcome, times: RandomTimes, *, by_pidfd: bool) -> None:
    with MemoryRegion.create(slots=3, areas_bytes=4096) as region:
        words, mark = region.words, region.area("mark", 64)
        life = Lifecycle(region)
        life.start()

        def work() -> NoReturn:
            with Lifecycle(region).enter():
                words.store(mark, 1)
                while True:
                    signal.pause()

        victim = Victim(work)
        while not words.load(mark):
            os.sched_yield()
        killing = _DelayedKill(victim.pid, times.chance.uniform(0.002, 0.02))
        report = asyncio.run(_awaited(life, killing)) if by_pidfd else _waited(life, killing)
        ended = perf_counter_ns()
        victim.kill()  # only collects its exit status
        outcome.kills += 1
        outcome.inside += 1
        outcome.work += 1
        if not report.closed or [victim.pid] != [each.pid for each in report.reclaimed]:
            outcome.lost += 1
            outcome.note(f"not reclaimed: {report}")
        else:
            (outcome.pidfd_us if by_pidfd else outcome.timer_us).append((ended - killing.at) // 1_000)
        life.leave()


class _DelayedKill:
    """A kill after a delay, and its time."""

    def __init__(self, pid: int, seconds: float) -> None:
        self.seconds = seconds
        self.at = 0
        self._pid = pid

    def kill(self) -> None:
        self.at = perf_counter_ns()
        os.kill(self._pid, signal.SIGKILL)


async def _awaited(life: Lifecycle, killing: _DelayedKill) -> CloseReport:
    draining = life.drain(timeout=DRAIN_SECONDS)
    asyncio.get_running_loop().call_later(killing.seconds, killing.kill)
    return await draining


def _waited(life: Lifecycle, killing: _DelayedKill) -> CloseReport:
    timer = threading.Timer(killing.seconds, killing.kill)
    timer.start()
    try:
        return life.drain(timeout=DRAIN_SECONDS).wait()
    finally:
        timer.join()


if __name__ == "__main__":
    run(storm)
