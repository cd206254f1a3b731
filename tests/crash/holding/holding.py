"""Holds under clients and kills: a thousand tickets are held and resumed by a process that is killed again and again.

Each ticket has a timer, and an effect after it. Clients send events with keys. At the end every ticket has rung once,
not before its timer was due; between the entries of a hold and its resume there are only results of effects; every
acknowledged event counts once; nothing is held, no work is left, and every chain verifies and replays.

    python -m tests.crash.holding.holding --entities 20000 --kills 20
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractAsyncContextManager

import interlock
from interlock.errors import UnavailableError
from interlock.model.journal.entry import Entry
from interlock.ports.work import WorkQuery
from interlock.runtime.runtime import Runtime
from tests.crash.holding.holder import CHART, entities, hold_and_resume
from tests.crash.storms import Counts, Sizes, Stage, main, on_both_stores, side_by_side, storm

AFTER_MS = 2_000


def run(sizes: Sizes) -> Counts:
    """Hold on SQLite and PostgreSQL."""
    return on_both_stores("holding", sizes, lambda url, count: storm(Holding(count), url, sizes))


class Holding:
    """The plan of the storm."""

    work = staticmethod(hold_and_resume)
    has_last_pass = False

    def __init__(self, count: int) -> None:
        self.counts = Counts(Counter(rung=0, held=0, refused=0), Counter(lost=0, early=0, intruded=0, left=0))
        self.work_count = count
        self._names = [f"ticket/{number:06}" for number in range(count)]
        self._sent: Counter[str] = Counter()

    def opened(self, url: str, stage: Stage) -> AbstractAsyncContextManager[Runtime]:
        """Open without a worker: only the process runs effects."""
        return interlock.open(url, charts=[interlock.loads(CHART)], work=False)

    async def fill(self, runtime: Runtime) -> None:
        """Write the tickets."""
        await side_by_side(runtime.create(each) for each in self._names)

    async def request(self, runtime: Runtime, chance: random.Random, key: str) -> None:
        """Send an event until it is acknowledged."""
        name = chance.choice(self._names)
        receipt = None
        while receipt is None:
            try:
                receipt = await runtime.send(name, "counted", key=key)
            except UnavailableError as error:
                self.counts.done["refused"] += error.code == "entity.held"
                await runtime.clock.sleep_ms(20)
                if error.code == "entity.held" and chance.random() < 0.5:
                    return  # this client gives up; the next event has another key
        if receipt.outcome in ("applied", "duplicate"):
            self._sent[name] += 1
        else:
            self.counts.note("lost", f"{name} answered {receipt.outcome} {receipt.reason}")

    async def check(self, runtime: Runtime) -> None:
        """Read everything."""
        counts, store = self.counts, runtime.store
        assert store.work is not None
        for hold in await runtime.holds():
            counts.note("left", f"{hold.name} is held")
        for row in (await store.work.list_work(WorkQuery())).rows:
            counts.note("left", f"{row.entity} has work: {row.work.name}")
        if await entities(runtime) != self._names:
            counts.note("lost", "there are other tickets")
        for name in self._names:
            snapshot = await runtime.state(name)
            if snapshot.context != {"count": self._sent[name]}:
                counts.note("lost", f"{name}: {snapshot.context} after {self._sent[name]} events")
            self._check_journal(name, await runtime.journal(name))
            if (problem := (await runtime.verify(name)).problem) is not None:
                counts.note("lost", f"{name}: {problem.code}: {problem.message}")

    def _check_journal(self, name: str, journal: tuple[Entry, ...]) -> None:
        counts, is_held, rung, due_ms = self.counts, False, 0, journal[0].event.time_ms + AFTER_MS
        for entry in journal:
            event = entry.event
            if event.name == "_hold":
                is_held = True
                counts.done["held"] += 1
            elif event.name == "_resume":
                is_held = False
                due_ms = max([due_ms, *(each["due_ms"] for each in event.data["timers"])])
            elif is_held and not event.name.startswith("done.invoke."):
                counts.note("intruded", f"{name}: {event.name} at version {entry.version}, while it was held")
            if (event.source or "").startswith("timer/"):
                rung += 1
                if event.time_ms < due_ms:
                    counts.note("early", f"{name}: {due_ms - event.time_ms} ms before it was due")
        if rung == 1:
            counts.done["rung"] += 1
        else:
            counts.note("lost", f"{name} rang {rung} times")


if __name__ == "__main__":
    main("holding.holding", run, Sizes(entities=1_000, postgres=300))
