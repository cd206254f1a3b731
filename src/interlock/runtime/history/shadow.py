"""Shadow replay: what a new definition would have done with the recorded events of a store.

Rule 1: nothing is written, and no effect is performed.
Rule 2: one entity is in memory at a time, and its journal is read by page. Each entity is compared at most once.
Rule 3: recorded steps are repeated by the definition that wrote them, and must give what their entries record.
        Otherwise the entity is left out from there on, and the report says so (`gaps`). The same holds if they do not
        lead to the snapshot whose hash the journal has.
Rule 4: an entity is compared up to the version at which it is listed.
Rule 5: refused events are not in journals, so that an event which only the new definition accepts is not found here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from interlock.errors import ArchivedError, CompactedError, CorruptionError, InterlockError, UnavailableError
from interlock.evolve.shadow import ShadowTally
from interlock.evolve.step_comparison import Comparison, Difference, StepComparer
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import MOVED, Entry
from interlock.model.limits import SHADOW_CHANGED_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.ports.reading.paging import pages as query_pages
from interlock.ports.store import PAGE_MAX, EntityQuery, EntityRow, Store
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.recorded_steps import RecordedSource, RecordedSteps, Unrepeated
from interlock.runtime.history.removed import beginning
from interlock.runtime.history.replay import DIGEST, DIGEST_HINT, as_recorded, digest_problem


class ShadowReplay:
    """Compares the journals of a store with a new chart. `revisions` finds the charts that wrote them."""

    def __init__(self, store: Store, new: Kernel, revisions: Revisions, *, now_ms: int) -> None:
        self.tally = ShadowTally(new.chart)
        self.recorded = RecordedSteps(new, revisions)
        self._store = store
        self._new = new
        self._now_ms = now_ms

    async def run(self, *, since_ms: int = 0) -> AsyncIterator[str]:
        """Compare every entity of the kind that was created since a time; yield each after it was compared."""
        async for row in self._rows():
            is_ended = row.ended is not None
            self.tally.add_life((row.changed_ms if is_ended else self._now_ms) - row.created_ms, is_ended=is_ended)
            if row.created_ms >= since_ms:
                await self._compare_entity(row)
                yield row.entity

    async def _rows(self) -> AsyncIterator[EntityRow]:
        """Every entity once: those that enter a state during the walk move to its end and are listed again."""
        changed: set[str] = set()
        async for page in query_pages(self._store.find, EntityQuery(kind=self._new.chart.kind, limit=PAGE_MAX)):
            for entity in page.unreadable:
                self.tally.add_gap("entity.unreadable", "the store cannot list it", entity)
            fresh = [each for each in page.rows if each.entity not in changed]
            if page.rows and not fresh:
                return
            for row in fresh:
                yield row
            changed.update(each.entity for each in fresh if each.entered_ms >= self._now_ms)
            if len(changed) > SHADOW_CHANGED_MAX:
                text = f"more than {SHADOW_CHANGED_MAX:,} entities changed during the comparison"
                self.tally.add_gap("store.busy", text, page.rows[-1].entity)
                return

    async def _compare_entity(self, row: EntityRow) -> None:
        walk, after = _EntityWalk(self, row.entity), 0
        try:
            while after < row.version:
                limit = min(PAGE_MAX, row.version - after)
                try:
                    records = await self._store.read(row.entity, after=after, limit=limit)
                except CompactedError as error:
                    base = await beginning(self._store, error, row.entity)
                    after = walk.begin(base.snapshot)
                    continue
                if not records:
                    self.tally.add_gap("journal.short", f"the journal ends at version {after}", row.entity)
                    return
                for record in records:
                    source = await self.recorded.source(record.entry.revision)
                    if isinstance(source, InterlockError):
                        self.tally.add_gap(source.code, source.message, row.entity, about=record.entry.revision)
                        return
                    if not walk.compare(record.entry, source):
                        return
                after = records[-1].version
        except ArchivedError as error:
            self.tally.add_gap(error.code, f"journals are in the archive {error.archive}", row.entity)
        except (CorruptionError, UnavailableError) as error:
            self.tally.add_gap(error.code, error.message, row.entity)
        else:
            if walk.is_proven():
                self.tally.add_entity(is_ended=row.ended is not None)


class _EntityWalk:
    """One entity on its way through its journal: the recorded snapshot, and the one of the new definition."""

    def __init__(self, replay: ShadowReplay, entity: str) -> None:
        self._steps = replay.recorded
        self._tally = replay.tally
        self._entity = entity
        self._recorded: Snapshot | None = None
        self._new: Snapshot | None = None
        self._comparer: StepComparer | None = None
        self._last: tuple[Entry, RecordedSource] | None = None

    def begin(self, snapshot: Snapshot) -> int:
        """Start at the base of a compacted journal; return its version."""
        self._recorded, self._new, self._comparer = snapshot, None, None
        return snapshot.version

    def compare(self, entry: Entry, source: RecordedSource) -> bool:
        """Compare one entry; return False when the entity cannot be followed any further."""
        before = self._recorded
        found = self._steps.repeat(source, self._entity, before, entry)
        if isinstance(found, Unrepeated):
            if source.is_new and found.step is not None:
                self._report_other(entry, found.step, source)
            else:
                self._tally.add_gap(found.code, found.text, self._entity, about=found.about)
            return False
        step = found
        if source.comparer is not self._comparer or entry.event.name == MOVED:
            self._comparer, self._new = source.comparer, None
        self._recorded, self._last = as_recorded(step.snapshot, entry), (entry, source)
        if entry.event.name != MOVED:
            compared = source.comparer.compare(self._new, before, entry.event, step)
            self._new = compared.next
            self._tally.add(source.comparer, self._entity, entry, compared)
        return True

    def is_proven(self) -> bool:
        """Whether the recorded steps led to the snapshot whose hash the journal has; otherwise, report it.

        A function that has changed, or is impure, gives another context than it gave then.
        """
        if self._last is None or self._recorded is None:
            return True
        entry, source = self._last
        if digest_problem(entry, self._recorded) is None:
            return True
        if source.is_new:
            step = Step(self._recorded, entry.effects, entry.outcome, entry.reason)
            other = Difference("context", "as its hash records", "another, by functions of the same names")
            self._tally.add_divergence(self._entity, entry, Comparison(recorded=step, new=step, differences=(other,)))
        else:
            self._tally.add_gap(DIGEST, DIGEST_HINT, self._entity, about=entry.revision)
        return source.is_new

    def _report_other(self, entry: Entry, step: Step, source: RecordedSource) -> None:
        """Report an entry that the new definition does not give again although it has the revision that wrote it.

        The recorded context is unknown from there on.
        """
        found = Comparison(recorded=step, new=step, differences=_recorded_differences(entry, step))
        self._tally.add(source.comparer, self._entity, entry, found)


def _recorded_differences(entry: Entry, step: Step) -> tuple[Difference, ...]:
    """What a step of the new definition gives other than an entry that the same revision wrote."""
    parts = (
        ("outcome", entry.outcome, step.outcome),
        ("reason", entry.reason, step.reason),
        ("configuration", entry.after, step.snapshot.configuration),
        ("effects", entry.effects, step.effects),
    )
    return tuple(Difference(name, old, new) for name, old, new in parts if old != new)
