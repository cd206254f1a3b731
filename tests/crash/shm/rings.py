"""Producers of an inbox, killed at any time: published messages arrive once, complete and in order."""

from __future__ import annotations

import struct
import zlib
from typing import NoReturn

from interlock.shm.memory.region import MemoryRegion
from interlock.shm.queue.inbox import Inbox
from tests.crash.shm.storm import Outcome, RandomTimes, Victim, run

PRODUCERS = 2
RING = 4096
HEAD = struct.Struct("<QQI")
"""Victim, number of its message, checksum of the rest."""


def storm(kills: int, seed: int) -> Outcome:
    """Run two producers, and kill one of them repeatedly."""
    outcome, times = Outcome("rings: producers"), RandomTimes(seed)
    with MemoryRegion.create(slots=1) as region:
        inbox = Inbox(region, producers=PRODUCERS, priorities=2, ring_bytes=RING)
        inside = region.area("inside", 8 * PRODUCERS * 8)
        expected: dict[int, int] = {}
        victims: list[tuple[int, Victim]] = []
        count = 0
        while outcome.kills < kills:
            while len(victims) < PRODUCERS:
                count += 1
                victims.append((count, _victim(region, inbox, inside, count)))
            times.spend(lambda: _drain(inbox, expected, outcome))
            _, victim = victims.pop(times.chance.randrange(len(victims)))
            if not victim.kill():
                outcome.note("a producer ended early")
            outcome.kills += 1
            for place in range(PRODUCERS):
                mark = region.words.load(inside + 64 * place)
                if mark and mark not in {number for number, _ in victims}:
                    outcome.inside += 1
                    region.words.store(inside + 64 * place, 0)
        for _, victim in victims:
            victim.kill()
        while _drain(inbox, expected, outcome):
            pass
        inbox.close()
    return outcome


def _victim(region: MemoryRegion, inbox: Inbox, inside: int, number: int) -> Victim:
    def work() -> NoReturn:
        producer = inbox.producer()
        mark, words = inside + 64 * producer.index, region.words
        sequence = 0
        while True:
            body = bytes([sequence % 251]) * (sequence * 37 % 900)
            message = HEAD.pack(number, sequence, zlib.crc32(body)) + body
            words.store(mark, number)
            pushed = producer.push(message, priority=0)
            words.store(mark, 0)
            sequence += pushed

    return Victim(work)


def _drain(inbox: Inbox, expected: dict[int, int], outcome: Outcome) -> bool:
    batch = inbox.take()
    if batch is None:
        return False
    for message in batch:
        number, sequence, checksum = HEAD.unpack_from(message)
        if zlib.crc32(message[HEAD.size :]) != checksum or len(message) - HEAD.size != sequence * 37 % 900:
            outcome.torn += 1
        wanted = expected.get(number, 0)
        outcome.lost += max(0, sequence - wanted)
        outcome.doubled += sequence < wanted
        expected[number] = sequence + 1
        outcome.work += 1
    return True


if __name__ == "__main__":
    run(storm)
