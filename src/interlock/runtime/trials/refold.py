"""Refold over a store: fold every journal of a kind through a corrected chart, and write corrections on request.

Rule 1: without `writes` nothing is written. No effect is performed in either case.
Rule 2: an entity is corrected under compare-and-swap. If a client steps it meanwhile, the fold continues with the new
        entries and decides again; clients never wait for a refold.
Rule 3: what an entity is decides about it, not what was done before: a refold that was killed may be started again, and
        finds corrected entities to be the same.
Rule 4: an entity that cannot be judged is a gap of the report, never skipped in silence: its journal is damaged or in
        an archive, a definition or a function is missing, or its snapshot is not the one that its journal records.
Rule 5: the walk is in the order of ids, which a step does not change. A few entities are in memory at a time, journals
        by page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from interlock.errors import (
    ArchivedError,
    CompactedError,
    CorruptionError,
    InterlockError,
    UnavailableError,
    UsageError,
)
from interlock.evolve.refold import CHANGED, LifeFold, RefoldAnswer, RefoldReport, RefoldTally
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import Entry
from interlock.model.limits import CONFLICT_RETRIES_MAX, REFOLD_RUNNING_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.reading.paging import pages as query_pages
from interlock.ports.store import PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.charts.rollouts import order_of
from interlock.runtime.charts.upgrades import behaviour_of, is_later, names_of
from interlock.runtime.entities.entities import Entities
from interlock.runtime.entities.move_request import MoveRequest
from interlock.runtime.entities.mover import EntityMover
from interlock.runtime.history.recorded_steps import RecordedSource, RecordedSteps, Unrepeated
from interlock.runtime.history.replay import DIGEST, DIGEST_HINT, as_recorded, digest_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RefoldSettings:
    """What a refold does: whether it writes, for whom and why, how many entities per second it reads at most, and the
    time since which entities must have been created. One that was interrupted continues, unless it `restarts`.
    """

    writes: bool = False
    reason: str | None = None
    principal: dict[str, Any] | None = None
    rate: float | None = None
    since_ms: int = 0
    restarts: bool = False


class Refold:
    """The refold of one kind through the newest chart of a process.

    Raises NotFoundError if the process has no chart of the kind, UsageError for an invalid rate, and for a correction
    without a reason.
    """

    def __init__(self, entities: Entities, mover: EntityMover, kind: str, settings: RefoldSettings) -> None:
        if settings.rate is not None and not settings.rate > 0:
            message = f"rate={settings.rate!r:.40} is not a positive number"
            raise UsageError(message, code="refold.rate", hint="such as 500")
        if settings.writes and not (settings.reason or "").strip():
            hint = "each corrected entity has it in its journal"
            raise UsageError("a refold that writes needs a reason", code="refold.reason", hint=hint)
        self._entities = entities
        self._mover = mover
        self._settings = settings
        self._new = entities.charts.for_new_entity(kind)
        self.recorded = RecordedSteps(self._new, entities.revisions)
        self._written = behaviour_of(self._new.chart)
        self._started_ms = entities.clock.now_ms()
        self._read = 0
        self._fact = f"refold {kind}"
        self.is_continued = False
        self.tally = RefoldTally(kind, self._new.chart.revision)

    def report(self) -> RefoldReport:
        """Return the result so far."""
        return self.tally.report()

    async def run(self) -> AsyncGenerator[None, None]:
        """Fold every entity of the kind, and correct it if asked to. Yield after every few entities."""
        if self._settings.writes:
            self._new = await self._entities.revisions.for_new_entity(self._new)
            self.recorded = RecordedSteps(self._new, self._entities.revisions)
        running = REFOLD_RUNNING_MAX if self._settings.writes else 1
        position = await self._position() if self._settings.writes else None
        self.is_continued = position is not None
        query = EntityQuery(kind=self._new.chart.kind, by_id=True, limit=PAGE_MAX, after=position)
        async for page in query_pages(self._entities.store.find, query):
            for entity in page.unreadable:
                self.tally.add_gap("entity.unreadable", "the store cannot list it", entity)
            rows = [each for each in page.rows if each.created_ms >= self._settings.since_ms]
            for start in range(0, len(rows), running):
                batch = rows[start : start + running]
                await asyncio.gather(*map(self._refold_one, batch))
                await self._pace(len(batch))
                yield
            if self._settings.writes:
                await self._save_position(page.after)

    async def _position(self) -> str | None:
        """Return where the last refold with this chart was interrupted; None if it was not, or starts again."""
        facts = self._entities.store.facts
        if facts is None or self._settings.restarts:
            return None
        revision, _, position = (await facts.read_facts()).get(self._fact, "").partition(" ")
        return position if revision == self._written and position else None

    async def _save_position(self, position: str | None) -> None:
        """Save where the walk is: only time is lost without it, because an entity itself says whether it is right."""
        facts = self._entities.store.facts
        if facts is not None:
            await facts.save_fact(self._fact, None if position is None else f"{self._written} {position}")

    async def _pace(self, entities: int) -> None:
        """Wait until the entities so far do not exceed the rate."""
        self._read += entities
        if self._settings.rate is not None:
            clock = self._entities.clock
            wait_ms = self._started_ms + self._read / self._settings.rate * 1_000 - clock.now_ms()
            if wait_ms > 0:
                await clock.sleep_ms(wait_ms)

    async def _refold_one(self, row: EntityRow) -> None:
        walk = _EntityWalk(self._entities, self.recorded, row.entity)
        try:
            for _ in range(CONFLICT_RETRIES_MAX + 1):
                answer = await self._answer(walk)
                if answer is None:
                    assert walk.problem is not None
                    self.tally.add_gap(*walk.problem, row.entity)
                    return
                if answer.carrier is None or not self._settings.writes:
                    self.tally.add(answer, entries=walk.version)
                    return
                reasons = await self._write(row.entity, answer)
                if reasons != (CHANGED,):
                    answer = answer if reasons is None else answer.refused(reasons)
                    self.tally.add(answer, entries=walk.version, is_corrected=reasons is None)
                    return
            self.tally.add_gap("conflict.retries", "clients kept changing it while it was folded", row.entity)
        except ArchivedError as error:
            self.tally.add_gap(error.code, f"journals are in the archive {error.archive}", row.entity)
        except CompactedError as error:  # a fold needs the whole life
            self.tally.add_gap(error.code, "the oldest entries of journals were compacted", row.entity)
        except (CorruptionError, UnavailableError) as error:
            self.tally.add_gap(error.code, error.message, row.entity)

    async def _answer(self, walk: _EntityWalk) -> RefoldAnswer | None:
        """Fold an entity as far as it has come, and compare it. None: it cannot be judged; see `walk.problem`."""
        stored, last_ms = await self._load(walk.entity)
        source = await walk.follow(stored)
        if source is None:
            return None
        is_forward = source.is_new or await self._is_forward(source)
        states = () if source.is_new else source.comparer.carrier.states_with_new_timers(stored)
        return walk.fold.answer(
            source.comparer,
            stored,
            written=self._written,
            time_ms=last_ms,
            entered_ms=await self._mover.entered_ms(stored, states) if states else None,
            is_forward=is_forward,
        )

    async def _load(self, entity: str) -> tuple[Snapshot, int]:
        """Return an entity as the store has it, without a place in the cache, which has those in use."""
        entities = self._entities
        is_cached = entity in entities.snapshots
        found = await entities.load_snapshot(entity)
        if not is_cached:
            entities.snapshots.pop(entity, None)
        return found

    async def _is_forward(self, source: RecordedSource) -> bool:
        """Whether the corrected chart comes after a revision in this store; one that is not saved yet will."""
        entities, chart = self._entities, self._new.chart
        if entities.rollouts.is_stale:
            await entities.rollouts.refresh()
        editions = await entities.revisions.editions(chart.kind)
        if order_of(editions, names_of(chart)) is None:
            return True
        return is_later(editions, chart, than=source.kernel.chart, promoted=entities.rollouts.promoted(chart.kind))

    async def _write(self, entity: str, answer: RefoldAnswer) -> tuple[str, ...] | None:
        """Write a correction; return why it was not written, or None."""
        assert answer.carrier is not None
        request = MoveRequest(
            answer.carrier,
            "refold",
            principal=self._settings.principal,
            reason=self._settings.reason,
            is_cached=entity in self._entities.snapshots,
        )
        result = await self._mover.move(entity, request)
        if result.outcome == "moved":
            return None
        return result.reasons if result.outcome == "stays" else (CHANGED,)


async def run_refold(entities: Entities, mover: EntityMover, kind: str, settings: RefoldSettings) -> RefoldReport:
    """Fold every entity of a kind and return the report."""
    refold = Refold(entities, mover, kind, settings)
    async for _ in refold.run():
        pass
    return refold.report()


class _EntityWalk:
    """One entity on its way through its journal: the recorded snapshot, and the fold."""

    def __init__(self, entities: Entities, steps: RecordedSteps, entity: str) -> None:
        self.entity = entity
        self.fold = LifeFold()
        self.problem: tuple[str, str] | None = None
        self._entities = entities
        self._steps = steps
        self._recorded: Snapshot | None = None
        self._last: tuple[Entry, RecordedSource] | None = None

    @property
    def version(self) -> int:
        """The version up to which the journal was folded."""
        return 0 if self._last is None else self._last[0].version

    async def follow(self, stored: Snapshot) -> RecordedSource | None:
        """Fold the journal up to a snapshot; return what compares it. None: it cannot be judged (`problem`)."""
        while self.version < stored.version:
            limit = min(PAGE_MAX, stored.version - self.version)
            records = await self._entities.store.read(self.entity, after=self.version, limit=limit)
            if not records:
                self.problem = ("journal.short", f"the journal ends at version {self.version}")
                return None
            for record in records:
                if not await self._add(record.entry):
                    return None
        return self._checked(stored)

    async def _add(self, entry: Entry) -> bool:
        source = await self._steps.source(entry.revision)
        if isinstance(source, InterlockError):
            self.problem = (source.code, source.message)
            return False
        step = self._steps.repeat(source, self.entity, self._recorded, entry)
        if isinstance(step, Unrepeated):
            self.problem = (step.code, step.text)
            return False
        self.fold.add(source.comparer, self._recorded, entry, step)
        self._recorded = as_recorded(step.snapshot, entry)
        self._last = entry, source
        return True

    def _checked(self, stored: Snapshot) -> RecordedSource | None:
        """Check that the stored snapshot is the one which the journal records.

        A chart of the same revision whose functions were corrected gives another context than they gave before; then
        only the digest says whether the stored one is as it was written.
        """
        assert self._last is not None
        assert self._recorded is not None
        entry, source = self._last
        problem = digest_problem(entry, stored)
        if problem is None and not source.is_new and encode(stored) != encode(self._recorded):
            problem = f"revision {entry.revision} does not give the snapshot at version {entry.version} again"
        if problem is not None:
            self.problem = (DIGEST, DIGEST_HINT)
            return None
        return source
