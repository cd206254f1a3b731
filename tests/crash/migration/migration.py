"""A migration of all entities of a store while clients send, and its process is killed again and again.

Clients of the older revision send events with keys, and create further entities behind the walk. A process migrates by
a mapping. At the end every accepted key is in exactly one entry, every count is that of the events, every journal
verifies, every living entity is on the newer revision by exactly one move, and answers an event.

    python -m tests.crash.migration.migration --entities 20000 --kills 20
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import interlock
from interlock.errors import UnavailableError
from interlock.model.journal.entry import MOVED
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery
from interlock.runtime.runtime import Runtime
from tests.crash.migration.migrator import NEW, OLD, migrate
from tests.crash.storms import Counts, Sizes, Stage, main, on_both_stores, sent_again, side_by_side, storm

CREATED_SHARE = 0.02
"""How many requests of a client create an entity."""


def run(sizes: Sizes) -> Counts:
    """Migrate on SQLite and PostgreSQL."""
    return on_both_stores("migration", sizes, lambda url, entities: storm(Migration(entities), url, sizes))


class Migration:
    """The plan of the storm."""

    work = staticmethod(migrate)
    has_last_pass = True  # for entities that clients created behind the last walk

    def __init__(self, entities: int) -> None:
        self.counts = Counts(Counter(migrated=0), Counter({"lost": 0, "locked": 0, "wrong revision": 0}))
        self.work_count = entities
        self._names = [f"ticket/{number:07}" for number in range(entities)]
        self._sent: Counter[str] = Counter()
        self._keys: dict[str, list[str]] = {}

    def opened(self, url: str, stage: Stage) -> AbstractAsyncContextManager[Runtime]:
        """Open with the newer chart to check, else with the older one."""
        return interlock.open(url, charts=[interlock.loads(NEW if stage == "check" else OLD)], work=False)

    async def fill(self, runtime: Runtime) -> None:
        """Create the tickets; every tenth is paid."""

        async def create(name: str) -> None:
            await runtime.create(name)
            if name.endswith("3"):
                await runtime.send(name, "paid")

        await side_by_side(create(each) for each in self._names)

    async def request(self, runtime: Runtime, chance: random.Random, key: str) -> None:
        """Count an event of a ticket, or create one."""
        if chance.random() < CREATED_SHARE:
            name = f"ticket/{chance.randrange(self.work_count):07}-{key}"
            await runtime.create(name, key=key)
            self._names.append(name)
            return
        name = chance.choice(self._names)
        receipt = await sent_again(lambda: runtime.send(name, "counted", key=key), self.counts.facts)
        if receipt.outcome not in ("applied", "duplicate"):
            self.counts.note("locked", f"{name} answered {receipt.outcome} {receipt.reason}")
            return
        self._sent[name] += 1
        self._keys.setdefault(name, []).append(key)

    async def check(self, runtime: Runtime) -> None:
        """Read every entity."""
        is_newest = runtime.charts.for_new_entity("ticket").chart.is_revision
        found = 0
        async for page in pages(runtime.store.find, EntityQuery(kind="ticket", by_id=True, limit=PAGE_MAX)):
            await side_by_side(self._check_one(runtime, each.entity, is_newest) for each in page.rows)
            found += len(page.rows)
        self.counts.facts["entities"] += found
        if found != len(self._names):
            self.counts.note("lost", f"{found} entities of {len(self._names)}")

    async def _check_one(self, runtime: Runtime, name: str, is_newest: Callable[[str], bool]) -> None:
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
        counts.done["migrated"] += moves
        if moves != 1 or not is_newest(snapshot.revision):
            counts.note("wrong revision", f"{name}: {moves} moves, on {snapshot.revision}")
        if snapshot.context.get("count") != self._sent[name]:
            counts.note("lost", f"{name}: {snapshot.context.get('count')} of {self._sent[name]} events")
        state = "settled" if any(each.event.name == "paid" for each in entries) else "open"
        if is_newest(snapshot.revision) and snapshot.configuration != (state,):
            counts.note("wrong revision", f"{name}: in {snapshot.configuration}, expected {state}")
        try:
            receipt = await runtime.send(name, "counted", key="last")
        except UnavailableError as error:
            counts.note("locked", f"{name}: {error}")
            return
        if receipt.outcome != "applied":
            counts.note("locked", f"{name} answered {receipt.outcome} {receipt.reason}")


if __name__ == "__main__":
    main("migration.migration", run, Sizes(clients=32))
