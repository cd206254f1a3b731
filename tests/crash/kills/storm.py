"""Four writers are killed one after the other at any moment; each acknowledged entry must be in the journals, once.

A restarted writer sends keys without an answer again. At the end every journal is read, verified and replayed, and
each acknowledged key must be at its version.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from interlock.assemble.runtimes import open as opening
from interlock.errors import InterlockError
from interlock.stores.registry import open_store as open_store_url
from interlock.testing.store_suite.subject import journal, snapshot
from tests.crash.kills.forked_workers import ANSWER_SECONDS_MAX, Worker, started
from tests.crash.kills.store_writer import ENTITIES, TASKS, entity_of, parcels, plain, unsealed, writes

WRITERS = 4
STORMS_MAX = 8
"""Within so many a faulty store must be found out: how its writers meet is chance."""

BORN = "born"


@dataclass
class Outcome:
    """The result of a storm. `inside`: kills during a send; `unheard`: sends that were stored, and whose writer was
    killed before it reported the receipt.
    """

    kills: int = 0
    inside: int = 0
    unheard: int = 0
    kept: dict[str, tuple[str, int]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def found(self) -> list[str]:
        """Return everything that is wrong."""
        return [*self.lost, *self.doubled, *self.phantoms, *self.other]


class Writer:
    """One writer over all its restarts: its receipts, and the next key of each task."""

    def __init__(self, url: str, name: str, fault: str, outcome: Outcome) -> None:
        self.worker: Worker
        self._url = url
        self._name = name
        self._fault = fault
        self._outcome = outcome
        self.has_spoken = False
        self._next = [0] * TASKS
        self._under_way: set[str] = set()

    def start(self) -> None:
        """Start each task at its first key that was not acknowledged; a key without an answer is sent again."""
        self._under_way.clear()
        self.has_spoken = False
        self.worker = started(writes, self._url, self._name, tuple(self._next), self._fault)

    def hear(self) -> None:
        """Receive one line. Raises EOFError if the process has ended without a kill."""
        self._note(self.worker.pipe.recv_bytes())

    def kill(self) -> bool:
        """Kill the process, and receive its last lines; return whether this was during a send."""
        for line in self.worker.killed():
            self._note(line)
        return bool(self._under_way)

    def _note(self, line: bytes) -> None:
        outcome = self._outcome
        self.has_spoken = True
        match line.decode().split():
            case ["asked", key, _]:
                outcome.asked.add(key)
                self._under_way.add(key)
            case ["kept", key, entity, version, answer]:
                self._under_way.discard(key)
                self._next[int(key.split(".")[1])] += 1
                outcome.kept[key] = (entity, int(version))
                outcome.unheard += answer == "duplicate"
            case _:
                outcome.other.append(f"other: a writer said {line!r}")


def storm(url: str, *, kills: int, seed: int, writers: int = WRITERS, fault: str = "") -> Outcome:
    """Keep writers running on the entities of a store, kill them repeatedly, then read everything."""
    chance = random.Random(seed)
    outcome = Outcome()
    asyncio.run(born(url))
    fleet = [Writer(url, f"w{number}", fault, outcome) for number in range(writers)]
    for each in fleet:
        each.start()
    try:
        while outcome.kills < kills:
            if not hear(fleet, chance.randrange(1, 40)):
                outcome.other.append(f"other: a writer ended unexpectedly after {outcome.kills} kills")
                break
            victim = chance.choice([each for each in fleet if each.has_spoken] or fleet)  # not one that only starts
            outcome.inside += victim.kill()
            outcome.kills += 1
            victim.start()
    finally:
        for each in fleet:
            each.kill()
    try:
        asyncio.run(judge(url, outcome))
    except (AssertionError, InterlockError) as error:  # a journal that cannot be read or replayed
        outcome.other.append(f"other: {error}")
    return outcome


async def born(url: str) -> None:
    """Create the entities of a store."""
    async with opening(plain(url), charts=[parcels()]) as runtime:
        for number in range(ENTITIES):
            await runtime.create(entity_of(number), key=BORN)


def hear(fleet: list[Writer], lines: int) -> bool:
    """Receive this number of lines from all writers; return False if one ended without a kill, or all are silent."""
    by_pipe = {each.worker.pipe: each for each in fleet}
    while lines > 0:
        ready = wait(list(by_pipe), timeout=ANSWER_SECONDS_MAX)
        if not ready:
            return False
        for pipe in ready:
            try:
                by_pipe[pipe].hear()  # type: ignore[index]  # they are the pipes that were asked
            except EOFError:
                return False
            lines -= 1
    return True


async def judge(url: str, outcome: Outcome) -> None:
    """Read every journal, and record what is wrong. Raises if one cannot be read or replayed."""
    found: dict[str, tuple[str, int]] = {}
    store = await open_store_url(plain(url))
    try:
        for number in range(ENTITIES):
            entity = entity_of(number)
            records = await journal(store, entity)
            now = await snapshot(store, entity)
            if now.context["notes"] != len(records) - 1:
                outcome.other.append(f"other: {entity} is not what its journal comes to")
            for record in records[1:]:
                if record.key in found:
                    outcome.doubled.append(f"doubled: {record.key}")
                found[record.key] = (entity, record.version)
    finally:
        await store.close()
    outcome.lost = [f"lost: {key} of {place}" for key, place in outcome.kept.items() if found.get(key) != place]
    outcome.other += unsealed(url)
    outcome.phantoms = [f"phantom: {key}" for key in found if key not in outcome.asked]
