"""The owner of a deque and its thieves, killed at any time: every id leaves once, or is found as a claimed id."""

from __future__ import annotations

from typing import NoReturn

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.memory.words import Words
from interlock.shm.queue.deque import Deque, DequeThief
from tests.crash.shm.storm import Outcome, RandomTimes, Victim, run

IDS = 400_000
CAPACITY = 64
CONFIRMED, NEXT = 0, 64
"""Words of the storm: the last id whose push returned, and the next id to push."""

RECOVERED = 1 << 32


def storm(kills: int, seed: int) -> Outcome:
    """Run an owner and two thieves, and kill one of them repeatedly."""
    outcome, times = Outcome("deque: owner and thieves"), RandomTimes(seed)
    while outcome.kills < kills:  # a new deque when the ids are used up
        _until_used_up(kills, outcome, times)
    return outcome


def _until_used_up(kills: int, outcome: Outcome, times: RandomTimes) -> None:
    with MemoryRegion.create(slots=1) as region:
        words = region.words
        jobs = Deque(region, "storm", capacity=CAPACITY, takers=8)
        scene = region.area("scene", 64 * 8)
        table = region.area("table", 8 * (IDS + 1))
        words.store(scene + NEXT, 1)
        rescuer = jobs.thief()
        doubtful: set[int] = set()
        owner = Victim(lambda: _own(region, jobs, scene, table))
        thieves = [Victim(lambda: _steal(words, jobs, table)) for _ in range(2)]
        while outcome.kills < kills and words.load(scene + NEXT) < IDS - 10_000:
            times.spend(lambda: _rescue(words, rescuer, table), 2_000)
            if times.chance.random() < 0.4:
                clean = owner.kill()
                pushing = words.load(scene + NEXT)
                if pushing != words.load(scene + CONFIRMED) + 1:
                    outcome.inside += 1
                doubtful.add(pushing)
                doubtful.add(pushing - 1)
                words.store(scene + NEXT, pushing + 1)
                owner = Victim(lambda: _own(region, jobs, scene, table))
            else:
                clean = thieves.pop(times.chance.randrange(2)).kill()
                thieves.append(Victim(lambda: _steal(words, jobs, table)))
            if not clean:
                outcome.note("a victim ended early")
            outcome.kills += 1
        for victim in (owner, *thieves):
            victim.kill()
        outcome.inside += _finish(words, jobs, rescuer, table)
        pushed = words.load(scene + CONFIRMED)
        counts = [words.load(table + 8 * each) for each in range(1, pushed + 1)]
        outcome.work += sum(count > 0 for count in counts)
        outcome.lost += sum(count == 0 and each not in doubtful for each, count in enumerate(counts, start=1))
        outcome.doubled += sum(count & 0xFFFFFFFF > 1 for count in counts)


def _own(region: MemoryRegion, jobs: Deque, scene: int, table: int) -> NoReturn:
    words, owner = region.words, jobs.owner()
    if owner.recovered_id:
        _record(words, owner, table, owner.recovered_id, recovered=True)
    while True:
        mine = words.load(scene + NEXT)
        if mine >= IDS:
            continue  # used up: wait to be killed
        words.store(scene + NEXT, mine + 1)
        while not owner.push(mine):
            if found := owner.pop():
                _record(words, owner, table, found)
        words.store(scene + CONFIRMED, mine)
        if mine % 3 == 0 and (found := owner.pop()):
            _record(words, owner, table, found)


def _steal(words: Words, jobs: Deque, table: int) -> NoReturn:
    thief = jobs.thief()
    if thief.recovered_id:
        _record(words, thief, table, thief.recovered_id, recovered=True)
    while True:
        if found := thief.steal():
            _record(words, thief, table, found)


def _record(words: Words, taker: DequeThief, table: int, found: int, *, recovered: bool = False) -> None:
    """Low half: how often the id left the deque. High half: how often it was recovered as a claimed id."""
    words.add(table + 8 * found, RECOVERED if recovered else 1)
    taker.done()


def _rescue(words: Words, rescuer: DequeThief, table: int) -> bool:
    found = rescuer.recover()
    if found is None:
        return False
    _record(words, rescuer, table, found, recovered=True)
    return True


def _finish(words: Words, jobs: Deque, rescuer: DequeThief, table: int) -> int:
    """Recover the remaining claimed ids and empty the deque. Returns how many ids were claimed."""
    claimed = 0
    while _rescue(words, rescuer, table):
        claimed += 1
    with jobs.owner() as owner:
        if owner.recovered_id:
            claimed += 1
            _record(words, owner, table, owner.recovered_id, recovered=True)
        while found := owner.pop():
            _record(words, owner, table, found)
    return claimed


if __name__ == "__main__":
    run(storm)
