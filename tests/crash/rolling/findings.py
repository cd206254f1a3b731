"""What must hold after a rolling deployment, checked from the journals: the invariants of the design, by number.

V1  The definition of the revision of each entry can be read and compiled.
V2  A step does not change the revision; only a move does. And the step of that revision gives the recorded result.
V3  The order numbers of the revisions of an entity never fall.
V4  Each accepted key is in exactly one entry, at the version of its receipt; a refused key is in none.
V5  Timers, invokes and deferred events before a move are there after it, or the move lists them as ended.
V6  The work rows of an entity are its timers and invokes.
V7  The folded journal is the stored snapshot, and has the digest of each entry.
V8  The configuration is legal in its revision.

At the end each entity must answer an event in a process of either revision.
"""

from __future__ import annotations

from collections import defaultdict

import interlock
from interlock.errors import InterlockError
from interlock.evolve.move import is_move, repeat_move
from interlock.expression.language import SAFE
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.ports.clock import SystemClock
from interlock.ports.store import PAGE_MAX, EntityQuery, Store
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import compile_stored
from interlock.runtime.history.replay import as_recorded, repeat_step
from interlock.runtime.runtime import Runtime
from interlock.stores.registry import open_store
from tests.crash.rolling.charts import Edition, Policy, parcels
from tests.crash.storms import Counts

KIND = "parcel"
RENAMED = {"late": "overdue"}
EDITIONS: tuple[Edition, ...] = ("older", "newer")


async def check(
    url: str, policy: Policy, accepted: dict[str, tuple[str, int]], refused: set[str], counts: Counts
) -> None:
    """Send to each entity once more, then read every journal; count what is wrong."""
    store = await open_store(url)
    try:
        entities = await _entities(store)
        await _check_work(store, entities, counts)  # before the last sends: nothing may be left over or missing
        for edition in EDITIONS:
            await _send_to_all(url, edition, policy, entities, counts)
        await _Checker(store, policy, counts).check(entities, accepted, refused)
    finally:
        await store.close()


async def _entities(store: Store) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        page = await store.find(EntityQuery(kind=KIND, after=after, limit=PAGE_MAX))
        found += [each.entity for each in page.rows]
        after = page.after
        if after is None:
            return found


async def _send_to_all(url: str, edition: Edition, policy: Policy, entities: list[str], counts: Counts) -> None:
    async with interlock.open(url, charts=[parcels(edition, policy)], work=False) as runtime:
        for entity in entities:
            try:
                receipt = await runtime.send(entity, "noted", key=f"last-{edition}")
            except InterlockError as error:
                counts.note("locked", f"{entity} does not answer a process with the {edition} chart: {error.code}")
                continue
            if receipt.outcome != "applied":
                counts.note("locked", f"{entity} answers {receipt.outcome} ({receipt.reason})")


async def _check_work(store: Store, entities: list[str], counts: Counts) -> None:
    """V6: compare the rows of work with the timers and invokes of each snapshot."""
    assert store.work is not None
    rows: dict[str, set[str]] = defaultdict(set)
    after: str | None = None
    while True:
        page = await store.work.list_work(WorkQuery(kind=KIND, after=after, limit=500))
        for row in page.rows:
            rows[row.entity].add(f"{row.work.id.lane} {row.work.key(row.entity)}")
        after = page.after
        if after is None:
            break
    for entity in entities:
        loaded = await store.load(entity)
        snapshot = getattr(loaded, "snapshot", None)
        assert isinstance(snapshot, Snapshot)
        wanted = {f"timer {entity}/{each.version}/{each.ordinal}" for each in snapshot.timers}
        wanted |= {f"effect {each.key}" for each in snapshot.invokes}
        for each in sorted(wanted - rows[entity]):
            counts.note("lost", f"V6 {entity}: no row of work for {each}")
        for each in sorted(rows[entity] - wanted):
            counts.note("other", f"V6 {entity}: {each} is not in its snapshot")
        counts.facts["pieces of work"] += len(wanted)


class _Checker:
    """Reads the journals of one store."""

    def __init__(self, store: Store, policy: Policy, counts: Counts) -> None:
        charts = ChartRegistry([parcels("older", policy).kernel])  # the newer one comes from the store
        self._store = store
        self._runtime = Runtime(store, charts, SystemClock())
        self._counts = counts
        self._kernels: dict[str, Kernel | None] = {}
        self._order: dict[str, int] = {}

    async def check(self, entities: list[str], accepted: dict[str, tuple[str, int]], refused: set[str]) -> None:
        """Check all entities, and the keys."""
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for entity in entities:
            entries = await self._runtime.journal(entity)
            for entry in entries:
                found[entry.key].append((entity, entry.version))
            await self._check_entity(entity, entries)
            verification = await self._runtime.verify(entity)
            if verification.problem is not None:
                self._counts.note("lost", f"V7 {entity}: {verification.problem.message}")
        for key, place in accepted.items():
            if found[key] != [place]:
                self._counts.note("lost", f"V4 {key} was accepted as {place}, and is in {found[key]}")
        for key in refused & found.keys():
            self._counts.note("other", f"V4 {key} was refused, and is in {found[key]}")
        self._counts.facts["entities"] += len(entities)

    async def _check_entity(self, entity: str, entries: tuple[Entry, ...]) -> None:
        snapshot: Snapshot | None = None
        order = 0
        for entry in entries:
            kernel = await self._kernel(entity, entry.revision)
            if kernel is None:
                return
            place = f"{entity} version {entry.version}"
            if self._order[entry.revision] < order:
                self._counts.note("wrong revision", f"V3 {place}: back to {entry.revision}")
            order = self._order[entry.revision]
            try:
                after = self._after(place, kernel, entity, snapshot, entry)
            except InterlockError as error:
                self._counts.note("wrong revision", f"V2 {place}: {error.code}: {error.message}")
                return
            if not kernel.has(after):
                states = ", ".join(after.configuration)
                self._counts.note("wrong revision", f"V8 {place}: {states} is not legal in {entry.revision}")
            snapshot = after

    def _after(self, place: str, kernel: Kernel, entity: str, before: Snapshot | None, entry: Entry) -> Snapshot:
        """Return the snapshot after an entry; record how it differs from what must be."""
        if is_move(entry):
            self._counts.facts["moves"] += 1
            after = repeat_move(entity, before, entry).snapshot
            assert before is not None  # `repeat_move` raises for a move without a snapshot
            self._check_obligations(place, before, after, entry)
            return after
        if before is not None and not kernel.chart.is_revision(before.revision):
            self._counts.note("wrong revision", f"V2 {place}: {entry.revision} stepped one of {before.revision}")
        step = repeat_step(kernel, entity, before, entry)
        same = (step.outcome, step.snapshot.configuration) == (entry.outcome, entry.after)
        if not same or step.effects != entry.effects:
            self._counts.note("wrong revision", f"V2 {place}: the step of {entry.revision} gives another result")
        return as_recorded(step.snapshot, entry)

    def _check_obligations(self, place: str, before: Snapshot, after: Snapshot, entry: Entry) -> None:
        """V5."""
        self._counts.facts["obligations of moves"] += len(before.timers) + len(before.invokes)
        ended = entry.event.data.get("dropped", [])
        timed = {each.state for each in after.timers}
        for timer in before.timers:
            state = timer.state or ""
            if RENAMED.get(state, state) not in timed and f"the timer `{timer.event}`" not in ended:
                self._counts.note("lost", f"V5 {place}: the timer `{timer.name}` is gone")
        running = {(each.id, each.key) for each in after.invokes}
        for each in before.invokes:
            if (each.id, each.key) not in running:
                self._counts.note("lost", f"V5 {place}: the invoke `{each.id}` is gone")
        if any(each not in after.deferred for each in before.deferred):
            self._counts.note("lost", f"V5 {place}: a deferred event is gone")

    async def _kernel(self, entity: str, revision: str) -> Kernel | None:
        """V1: return the kernel of a revision, compiled from the definition in the store."""
        if revision in self._kernels:
            return self._kernels[revision]
        assert self._store.definitions is not None
        found = await self._store.definitions.read_definitions(KIND, revision)
        kernel = None
        if len(found) == 1:
            self._order[revision] = min(
                each.sequence
                for each in await self._store.definitions.list_definitions(KIND)
                if each.revision == found[0].edition.revision
            )
            try:
                guards = parcels("older", "safe").guards
                kernel = compile_stored(found[0], guards, {}, SAFE).kernel
            except InterlockError as error:
                self._counts.note("locked", f"V1 {revision}: {error.code}")
        if kernel is None:
            self._counts.note("locked", f"V1 {entity} is on {revision}, whose definition cannot be read")
        self._kernels[revision] = kernel
        return kernel
