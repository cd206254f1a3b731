"""A migration of all entities of a store while clients send, and its process is killed again and again.

Clients of the older revision send events with keys, and create further entities behind the walk. A process migrates by
a mapping; it is killed at random moments and started again. At the end the clients stop, a last pass runs, and
everything is read: every accepted key is in exactly one entry, every count is that of the events, every journal
verifies, every living entity is on the newer revision by exactly one move, and answers an event.

    python -m tests.crash.migration.storm 20000 20       entities and kills, on SQLite and PostgreSQL
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import interlock
from interlock.errors import ConflictError, UnavailableError
from interlock.model.journal.entry import MOVED
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery
from interlock.runtime.runtime import Runtime
from tests.crash.kills.forked_workers import Worker, started
from tests.crash.migration.migrator import NEW, OLD, migrate
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import NoServerError, new_schema

CREATED_SHARE = 0.02
"""How many requests of a client create an entity."""

RUNNING_MAX = 64
PROBLEMS_MAX = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a migration is put through. `postgres` is the number of entities there; 0: not run."""

    entities: int = 300
    postgres: int = 100
    clients: int = 32
    kills: int = 6
    seed: int = 1


@dataclass(slots=True)
class Counts:
    """The result: entities that were moved, kills, and what is wrong; `problems` has the first of each kind."""

    migrated: int = 0
    kills: int = 0
    lost: int = 0
    locked: int = 0
    wrong_revision: int = 0
    facts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong, and something happened."""
        return self.kills > 0 and self.migrated > 0 and not (self.lost or self.locked or self.wrong_revision)

    def add(self, other: Counts) -> None:
        """Add the counts of another run."""
        self.migrated += other.migrated
        self.kills += other.kills
        self.lost += other.lost
        self.locked += other.locked
        self.wrong_revision += other.wrong_revision
        self.facts += other.facts
        self.problems += other.problems
        self.skipped += other.skipped

    def note(self, kind: str, text: str) -> None:
        """Count something that is wrong: `lost`, `locked` or `wrong_revision`."""
        setattr(self, kind, getattr(self, kind) + 1)
        if getattr(self, kind) <= PROBLEMS_MAX:
            self.problems.append(f"{kind}: {text}")


def run(sizes: Sizes) -> Counts:
    """Migrate on SQLite and PostgreSQL. Without a server: SQLite only."""
    with tempfile.TemporaryDirectory(prefix="interlock-migration-") as folder:
        counts = storm(f"sqlite:///{Path(folder) / 'tickets.db'}", sizes, entities=sizes.entities)
    if sizes.postgres:
        try:
            url = new_schema()
        except NoServerError as error:
            counts.skipped.append(f"migration, postgres: {error}")
        else:
            counts.add(storm(url, sizes, entities=sizes.postgres))
    return counts


def storm(url: str, sizes: Sizes, *, entities: int, fault: str = "") -> Counts:
    """Migrate one store under clients and kills, then check everything. `fault` is one of `migrator.FAULTS`."""
    return asyncio.run(_Storm(url, sizes, entities, fault).run())


class _Storm:
    def __init__(self, url: str, sizes: Sizes, entities: int, fault: str) -> None:
        self._url, self._sizes, self._count, self._fault = url, sizes, entities, fault
        self._chance = random.Random(sizes.seed)
        self._names = [f"ticket/{number:07}" for number in range(entities)]
        self._sent: Counter[str] = Counter()
        self._keys: dict[str, list[str]] = {}
        self._is_over = False
        self.counts = Counts()

    async def run(self) -> Counts:
        started_s = perf_counter()
        async with interlock.open(self._url, charts=[interlock.loads(OLD)], work=False) as runtime:
            await self._fill(runtime)
            self.counts.facts["fill seconds"] += int(perf_counter() - started_s)
            clients = [asyncio.create_task(self._client(runtime, number)) for number in range(self._sizes.clients)]
            started_s = perf_counter()
            try:
                await self._kill_again_and_again()
            finally:
                self._is_over = True
                await asyncio.gather(*clients)
            await self._to_the_end()  # entities that clients created behind the last walk
            self.counts.facts["migration seconds"] += int(perf_counter() - started_s)
        async with interlock.open(self._url, charts=[interlock.loads(NEW)], work=False) as runtime:
            await self._check(runtime)
        return self.counts

    async def _fill(self, runtime: Runtime) -> None:
        names = iter(self._names)

        async def create() -> None:
            for name in names:
                await runtime.create(name)
                if name.endswith("3"):
                    await runtime.send(name, "paid")

        await asyncio.gather(*(create() for _ in range(RUNNING_MAX)))

    async def _client(self, runtime: Runtime, number: int) -> None:
        chance, count = random.Random(f"{self._sizes.seed}-{number}"), 0
        while not self._is_over:
            count += 1
            key = f"c{number}.{count}"
            if chance.random() < CREATED_SHARE:
                name = f"ticket/{chance.randrange(self._count):07}-{key}"
                await runtime.create(name, key=key)
                self._names.append(name)
                continue
            name = chance.choice(self._names)
            receipt = await self._send(runtime, name, key)
            if receipt.outcome not in ("applied", "duplicate"):
                self.counts.note("locked", f"{name} answered {receipt.outcome} {receipt.reason}")
                continue
            self._sent[name] += 1
            self._keys.setdefault(name, []).append(key)
            await asyncio.sleep(0)

    async def _send(self, runtime: Runtime, name: str, key: str) -> interlock.Receipt:
        while True:
            try:
                return await runtime.send(name, "counted", key=key)
            except (ConflictError, UnavailableError):
                self.counts.facts["sent again"] += 1

    # The migration

    async def _kill_again_and_again(self) -> None:
        share = max(1, self._count // (self._sizes.kills + 1))
        for number in range(self._sizes.kills):
            worker = started(migrate, self._url, self._fault)
            try:
                await self._hear(worker, self._chance.randint(1, share) if number else 1)
            finally:
                list(worker.killed())
            self.counts.kills += 1
        await self._to_the_end()

    async def _to_the_end(self) -> None:
        worker = started(migrate, self._url, self._fault)
        try:
            await self._hear(worker, None)
        finally:
            list(worker.ended())

    async def _hear(self, worker: Worker, moves: int | None) -> None:
        """Wait until the process has reported this many moves, or that it is done."""
        async with asyncio.timeout(PATIENCE_SECONDS * 10):
            while True:
                try:
                    line = await asyncio.to_thread(worker.pipe.recv_bytes)
                except EOFError:
                    if moves is None:
                        self.counts.note("wrong_revision", "the migration ended without its result")
                    return
                word, _, number = line.partition(b" ")
                if word == b"done" or (moves is not None and int(number) >= moves):
                    return

    # The check

    async def _check(self, runtime: Runtime) -> None:
        target = runtime.charts.for_new_entity("ticket").chart
        async for page in pages(runtime.store.find, EntityQuery(kind="ticket", by_id=True, limit=PAGE_MAX)):
            for start in range(0, len(page.rows), RUNNING_MAX):
                rows = page.rows[start : start + RUNNING_MAX]
                await asyncio.gather(*(self._check_one(runtime, each.entity, target.is_revision) for each in rows))
            self.counts.facts["entities"] += len(page.rows)
        if self.counts.facts["entities"] != len(self._names):
            self.counts.note("lost", f"{self.counts.facts['entities']} entities of {len(self._names)}")

    async def _check_one(self, runtime: Runtime, name: str, is_newest: object) -> None:
        assert callable(is_newest)
        counts = self.counts
        problem = (await runtime.verify(name)).problem
        if problem is not None:
            counts.note("lost", f"{name}: {problem}")
            return
        entries = await runtime.journal(name)
        keys = Counter(each.key for each in entries)
        for key in self._keys.get(name, ()):
            if keys[key] != 1:
                counts.note("lost", f"{name}: the key {key} is in {keys[key]} entries")
        snapshot = await runtime.state(name)
        moves = sum(each.event.name == MOVED for each in entries)
        counts.migrated += moves
        if moves != 1 or not is_newest(snapshot.revision):
            counts.note("wrong_revision", f"{name}: {moves} moves, on {snapshot.revision}")
        if snapshot.context.get("count") != self._sent[name]:
            counts.note("lost", f"{name}: {snapshot.context.get('count')} of {self._sent[name]} events")
        state = "settled" if any(each.event.name == "paid" for each in entries) else "open"
        if is_newest(snapshot.revision) and snapshot.configuration != (state,):
            counts.note("wrong_revision", f"{name}: in {snapshot.configuration}, expected {state}")
        try:
            receipt = await runtime.send(name, "counted", key="last")
        except UnavailableError as error:
            counts.note("locked", f"{name}: {error}")
            return
        if receipt.outcome != "applied":
            counts.note("locked", f"{name} answered {receipt.outcome} {receipt.reason}")


def main(words: list[str]) -> None:
    """Run with the number of entities and kills."""
    entities, kills = (int(each) for each in (*words, *("300", "6")[len(words) :]))
    counts = run(Sizes(entities=entities, postgres=entities // 5, kills=kills))
    print(counts)
    raise SystemExit(0 if counts.is_clean else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
