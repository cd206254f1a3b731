"""Retention of a store in use, while its process is killed again and again.

Parcels of half a year ago are written: most have ended, some of them on legal hold, others live. Clients send events
with keys, create and end further parcels, and try to create those that were pruned. A process prunes and compacts; it
is killed at random moments and started again. At the end everything is read: removed entities have the tombstone
of their last record, and no others do; every acknowledged event counts once; counts and lists equal the journals; every
chain verifies and replays.

    python -m tests.crash.retention.storm 20000 20       entities and kills, on SQLite and PostgreSQL
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
from interlock.errors import ConflictError, PrunedError, UnavailableError
from interlock.ports.clock import SystemClock
from interlock.runtime.history.verify import verify_store
from interlock.runtime.runtime import Runtime
from tests.crash.kills.forked_workers import Worker, started
from tests.crash.retention.remover import CHART, DAY_MS, remove
from tests.support.eventually import PATIENCE_SECONDS
from tests.support.postgres_server import NoServerError, new_schema

RUNNING_MAX = 64
PROBLEMS_MAX = 5
OLD_ENTRIES = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a store is put through. `postgres` is the number of entities there; 0: not run."""

    entities: int = 300
    postgres: int = 100
    clients: int = 16
    kills: int = 6
    seed: int = 1


@dataclass(slots=True)
class Counts:
    """The result: entities that were pruned and compacted, kills, and what is wrong."""

    pruned: int = 0
    compacted: int = 0
    kills: int = 0
    lost: int = 0
    left: int = 0
    revived: int = 0
    facts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong, and something happened."""
        happened = self.kills > 0 and self.pruned > 0 and self.compacted > 0
        return happened and not (self.lost or self.left or self.revived)

    def add(self, other: Counts) -> None:
        """Add the counts of another run."""
        for name in ("pruned", "compacted", "kills", "lost", "left", "revived"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.facts += other.facts
        self.problems += other.problems
        self.skipped += other.skipped

    def note(self, kind: str, text: str) -> None:
        """Count something that is wrong: `lost`, `left` (not removed) or `revived`."""
        setattr(self, kind, getattr(self, kind) + 1)
        if getattr(self, kind) <= PROBLEMS_MAX:
            self.problems.append(f"{kind}: {text}")


class OldClock(SystemClock):
    """The clock of half a year ago."""

    def now_ms(self) -> int:
        return super().now_ms() - 180 * DAY_MS


def run(sizes: Sizes) -> Counts:
    """Remove on SQLite and PostgreSQL. Without a server: SQLite only."""
    with tempfile.TemporaryDirectory(prefix="interlock-retention-") as folder:
        counts = storm(f"sqlite:///{Path(folder) / 'parcels.db'}", sizes, entities=sizes.entities)
    if sizes.postgres:
        try:
            url = new_schema()
        except NoServerError as error:
            counts.skipped.append(f"retention, postgres: {error}")
        else:
            counts.add(storm(url, sizes, entities=sizes.postgres))
    return counts


def storm(url: str, sizes: Sizes, *, entities: int, fault: str = "") -> Counts:
    """Remove from one store under clients and kills, then check everything. `fault` is one of `remover.FAULTS`."""
    return asyncio.run(_Storm(url, sizes, entities, fault).run())


class _Storm:
    def __init__(self, url: str, sizes: Sizes, entities: int, fault: str) -> None:
        self._url, self._sizes, self._fault = url, sizes, fault
        self._chance = random.Random(sizes.seed)
        names = [f"parcel/{number:07}" for number in range(entities)]
        self._ended = [each for number, each in enumerate(names) if number % 10 < 6]
        self._held = [each for number, each in enumerate(names) if number % 10 == 6]
        self._long = [each for number, each in enumerate(names) if number % 10 in (7, 8)]
        self._short = [each for number, each in enumerate(names) if number % 10 == 9]
        self._new_ended: list[str] = []
        self._sent: Counter[str] = Counter()
        self._heads: dict[str, tuple[int, str]] = {}
        self._is_over = False
        self.counts = Counts()

    async def run(self) -> Counts:
        started_s = perf_counter()
        async with interlock.open(self._url, charts=[interlock.loads(CHART)], work=False, clock=OldClock()) as runtime:
            await self._fill(runtime)
        self._fact("fill seconds", started_s)
        async with interlock.open(self._url, charts=[interlock.loads(CHART)], work=False) as runtime:
            clients = [asyncio.create_task(self._client(runtime, number)) for number in range(self._sizes.clients)]
            started_s = perf_counter()
            try:
                await self._kill_again_and_again()
            finally:
                self._is_over = True
                await asyncio.gather(*clients)
            self._fact("removal seconds", started_s)
        async with interlock.open(self._url, charts=[interlock.loads(CHART)], work=False) as runtime:
            started_s = perf_counter()
            await self._check(runtime)
            self._fact("check seconds", started_s)
        return self.counts

    def _fact(self, name: str, started_s: float) -> None:
        self.counts.facts[name] += int(perf_counter() - started_s)

    async def _fill(self, runtime: Runtime) -> None:
        plans: list[tuple[str, tuple[str, ...]]] = [(each, ("shipped", "delivered")) for each in self._ended]
        plans += [(each, ("disputed",)) for each in self._held]
        plans += [(each, ("counted",) * OLD_ENTRIES) for each in self._long]
        plans += [(each, ()) for each in self._short]
        left = iter(plans)
        retention = runtime.store.retention
        assert retention is not None

        async def write() -> None:
            for name, events in left:
                await runtime.create(name)
                for event in events:
                    await runtime.send(name, event)
                self._sent[name] += events.count("counted")
                if len(events) == 2:
                    self._heads[name] = await retention.tip(name)

        await asyncio.gather(*(write() for _ in range(RUNNING_MAX)))

    # Clients

    async def _client(self, runtime: Runtime, number: int) -> None:
        chance, count = random.Random(f"{self._sizes.seed}-{number}"), 0
        while not self._is_over:
            count += 1
            key, kind = f"c{number}.{count}", chance.random()
            if kind < 0.05:
                name = f"parcel/new-{key}"
                await self._again(lambda name=name: runtime.create(name, key="made"))
                await self._again(lambda name=name: runtime.send(name, "delivered", key="end"))
                self._new_ended.append(name)
            elif kind < 0.15:
                name = chance.choice(self._ended)
                receipt = await runtime.create(name, key=key)
                if receipt.outcome != "rejected":
                    self.counts.note("revived", f"{name} was created again: {receipt.outcome}")
            elif kind < 0.25:
                name = chance.choice(self._ended)
                try:
                    receipt = await runtime.send(name, "counted", key=key)
                except PrunedError:
                    self.counts.facts["sends to pruned entities"] += 1
                else:
                    if receipt.outcome == "applied":
                        self.counts.note("revived", f"{name} took an event after its end")
            else:
                name = chance.choice(chance.choice((self._long, self._short)))
                receipt = await self._again(lambda name=name, key=key: runtime.send(name, "counted", key=key))
                if receipt.outcome in ("applied", "duplicate"):
                    self._sent[name] += 1
                    self.counts.facts["events sent meanwhile"] += 1
                else:
                    self.counts.note("lost", f"{name} answered {receipt.outcome} {receipt.reason}")
            await asyncio.sleep(0)

    async def _again(self, call: object) -> interlock.Receipt:
        assert callable(call)
        while True:
            try:
                receipt: interlock.Receipt = await call()
            except (ConflictError, UnavailableError):
                self.counts.facts["sent again"] += 1
            else:
                return receipt

    # The removal

    async def _kill_again_and_again(self) -> None:
        share = max(1, (len(self._ended) + len(self._long)) // (self._sizes.kills + 1))
        for number in range(self._sizes.kills):
            worker = started(remove, self._url, self._fault)
            try:
                await self._hear(worker, self._chance.randint(1, share) if number else 1)
            finally:
                list(worker.killed())
            self.counts.kills += 1
        worker = started(remove, self._url, self._fault)
        try:
            await self._hear(worker, None)
        finally:
            list(worker.ended())

    async def _hear(self, worker: Worker, removed: int | None) -> None:
        """Wait until the process has removed this many entities, or is done."""
        async with asyncio.timeout(PATIENCE_SECONDS * 100):
            while True:
                try:
                    line = await asyncio.to_thread(worker.pipe.recv_bytes)
                except EOFError:
                    if removed is None:
                        self.counts.note("left", "the removal ended without its result")
                    return
                word, _, number = line.partition(b" ")
                if word == b"done" or (removed is not None and int(number) >= removed):
                    return

    # The check

    async def _check(self, runtime: Runtime) -> None:
        counts, store = self.counts, runtime.store
        assert store.retention is not None
        if await store.retention.unfinished(limit=1):
            counts.note("left", "a removal is not finished")
        for name in self._ended:
            tombstone = await store.retention.tombstone(name)
            if tombstone is None or await store.load(name) is not None:
                counts.note("left", f"{name}: {tombstone}")
            elif (tombstone.version, tombstone.head) != self._heads[name]:
                counts.note("lost", f"{name}: its tombstone names another record")
            else:
                counts.pruned += 1
        for name in (*self._held, *self._short, *self._long, *self._new_ended):
            await self._check_kept(runtime, name)
        async for result in verify_store(store, runtime.revisions, now_ms=runtime.clock.now_ms()):
            counts.facts["verified"] += 1
            if result.problem is not None:
                counts.note("lost", f"{result.entity}: {result.problem.code}: {result.problem.message}")
        for name in self._ended[:: max(1, len(self._ended) // 100)]:
            receipt = await runtime.create(name, key="second life")
            if (receipt.outcome, receipt.reason) != ("rejected", "entity.pruned"):
                counts.note("revived", f"{name}: {receipt.outcome} {receipt.reason}")

    async def _check_kept(self, runtime: Runtime, name: str) -> None:
        counts = self.counts
        try:
            snapshot = await runtime.state(name)
        except interlock.NotFoundError as error:
            counts.note("lost", f"{name}: {error}")
            return
        if snapshot.context["count"] != self._sent[name]:
            counts.note("lost", f"{name}: {snapshot.context['count']} of {self._sent[name]} events")
        if name in self._sent and self._sent[name] and name.endswith(("7", "8")):
            assert runtime.store.retention is not None
            base = await runtime.store.retention.journal_base(name)
            if base is None or base.version < OLD_ENTRIES:
                counts.note("left", f"{name} is not compacted: {None if base is None else base.version}")
            else:
                counts.compacted += 1


def main(words: list[str]) -> None:
    """Run with the number of entities and kills. The last line is computed from what was read afterwards."""
    entities, kills, postgres = (int(each) for each in (*words, *("300", "6", "0")[len(words) :]))
    counts = run(Sizes(entities=entities, postgres=postgres, kills=kills))
    for text in (*counts.problems, *counts.skipped):
        print(text)
    print(", ".join(f"{name}: {count:,}" for name, count in sorted(counts.facts.items())))
    print(
        f"retention: {counts.pruned} pruned, {counts.compacted} compacted, {counts.kills} kills, {counts.lost} lost, "
        f"{counts.left} left, {counts.revived} revived"
    )
    raise SystemExit(0 if counts.is_clean else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
