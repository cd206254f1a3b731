"""Retention of a store in use, while its process is killed again and again.

Parcels of half a year ago are written: most have ended, some of them on legal hold, others live. Clients send events
with keys, create and end further parcels, and try to create those that were pruned. A process prunes and compacts. At
the end what had to go is gone, with the tombstone of its last record; nothing else is; every acknowledged event counts
once; counts and lists equal the journals; every chain verifies and replays.

    python -m tests.crash.retention.retention --entities 20000 --kills 20
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractAsyncContextManager

import interlock
from interlock.errors import PrunedError
from interlock.ports.clock import SystemClock
from interlock.runtime.history.verify import verify_store
from interlock.runtime.runtime import Runtime
from tests.crash.retention.remover import CHART, DAY_MS, remove
from tests.crash.storms import Counts, Sizes, Stage, main, on_both_stores, sent_again, side_by_side, storm

OLD_ENTRIES = 8


class OldClock(SystemClock):
    """The clock of half a year ago."""

    def now_ms(self) -> int:
        return super().now_ms() - 180 * DAY_MS


def run(sizes: Sizes) -> Counts:
    """Remove on SQLite and PostgreSQL."""
    return on_both_stores("retention", sizes, lambda url, entities: storm(Retention(entities), url, sizes))


class Retention:
    """The plan of the storm."""

    work = staticmethod(remove)
    has_last_pass = False

    def __init__(self, entities: int) -> None:
        self.counts = Counts(Counter(pruned=0, compacted=0), Counter(lost=0, left=0, revived=0))
        names = [f"parcel/{number:07}" for number in range(entities)]
        self._ended = [each for number, each in enumerate(names) if number % 10 < 6]
        self._held = [each for number, each in enumerate(names) if number % 10 == 6]
        self._long = [each for number, each in enumerate(names) if number % 10 in (7, 8)]
        self._short = [each for number, each in enumerate(names) if number % 10 == 9]
        self._new_ended: list[str] = []
        self._sent: Counter[str] = Counter()
        self._heads: dict[str, tuple[int, str]] = {}
        self.work_count = len(self._ended) + len(self._long)

    def opened(self, url: str, stage: Stage) -> AbstractAsyncContextManager[Runtime]:
        """Open half a year ago to fill, else now."""
        clock = OldClock() if stage == "fill" else SystemClock()
        return interlock.open(url, charts=[interlock.loads(CHART)], work=False, clock=clock)

    async def fill(self, runtime: Runtime) -> None:
        """Write the parcels of half a year ago."""
        plans: list[tuple[str, tuple[str, ...]]] = [(each, ("shipped", "delivered")) for each in self._ended]
        plans += [(each, ("disputed",)) for each in self._held]
        plans += [(each, ("counted",) * OLD_ENTRIES) for each in self._long]
        plans += [(each, ()) for each in self._short]
        retention = runtime.store.retention
        assert retention is not None

        async def write(name: str, events: tuple[str, ...]) -> None:
            await runtime.create(name)
            for event in events:
                await runtime.send(name, event)
            self._sent[name] += events.count("counted")
            if len(events) == 2:
                self._heads[name] = await retention.tip(name)

        await side_by_side(write(*each) for each in plans)

    async def request(self, runtime: Runtime, chance: random.Random, key: str) -> None:
        """Create and end a parcel, ask for one that may be pruned, or count an event of one that lives."""
        counts, kind = self.counts, chance.random()
        if kind < 0.05:
            name = f"parcel/new-{key}"
            await sent_again(lambda: runtime.create(name, key="made"), counts.facts)
            await sent_again(lambda: runtime.send(name, "delivered", key="end"), counts.facts)
            self._new_ended.append(name)
        elif kind < 0.15:
            name = chance.choice(self._ended)
            receipt = await runtime.create(name, key=key)
            if receipt.outcome != "rejected":
                counts.note("revived", f"{name} was created again: {receipt.outcome}")
        elif kind < 0.25:
            name = chance.choice(self._ended)
            try:
                receipt = await runtime.send(name, "counted", key=key)
            except PrunedError:
                counts.facts["sends to pruned entities"] += 1
            else:
                if receipt.outcome == "applied":
                    counts.note("revived", f"{name} took an event after its end")
        else:
            name = chance.choice(chance.choice((self._long, self._short)))
            receipt = await sent_again(lambda: runtime.send(name, "counted", key=key), counts.facts)
            if receipt.outcome in ("applied", "duplicate"):
                self._sent[name] += 1
                counts.facts["events sent meanwhile"] += 1
            else:
                counts.note("lost", f"{name} answered {receipt.outcome} {receipt.reason}")

    async def check(self, runtime: Runtime) -> None:
        """Read everything."""
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
                counts.done["pruned"] += 1
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
                counts.done["compacted"] += 1


if __name__ == "__main__":
    main("retention.retention", run, Sizes())
