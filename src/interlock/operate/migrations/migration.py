"""Move all entities of a kind to the newest chart of this process, while they are in use.

Rule 1: the revision of an entity is the truth about progress. The cursor of the record (`record`) only saves time: a
migration that was killed continues there, and the next pass finds what was in progress.
Rule 2: each entity moves by its own entry, under compare-and-swap. Clients never wait for a migration: a lost swap is
decided again.
Rule 3: the walk is in the order of ids, which a step does not change. An old worker may create entities behind it, so
passes repeat until one moves no entity that existed before the migration started. A process that still has the older
chart could create entities for as long as it runs; the report counts them, and they need another migration.
Rule 4: an entity that cannot be carried, or read, stays, and the report groups such entities by reason with samples. It
never stops the others, and is asked again only when it has changed. An entity that ended is left as it is.
Rule 5: moved entities are not put into the snapshot cache, which has those in use.
Rule 6: a mapping is checked for every revision that it is for before anything is written.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.errors import InterlockError, UnavailableError, UsageError
from interlock.model.limits import MIGRATION_RUNNING_MAX, MIGRATION_STAYS_MAX
from interlock.operate.migrations.record import (
    NOTE_ENTITIES,
    NOTE_MS,
    MigrationPlan,
    MigrationRecord,
    MigrationTakenOver,
    migrations,
)
from interlock.operate.migrations.report import MigrationReport, MigrationSample, Tally, outline
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.entities.move_request import EntityCarrier, MoveRequest
from interlock.runtime.runtime import Runtime

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier
    from interlock.evolve.mapping.document import Mapping

PAUSE_POLL_MS = 500
"""How often a paused migration looks whether it may continue."""

NOTED_GROUPS_MAX = 20
"""Groups of a report in the record."""


class Migration:
    """The migration of one kind.

    `rate` is the number of moves per second that are not exceeded. None: after each batch the migration waits as long
    as the batch took, so it uses at most half of what the store can do, and less while clients use it; `math.inf`: no
    limit. `mappings` answer for entities that cannot be carried as they are. Timers that would be due immediately are
    due within `spread_ms`. `who` and `reason` are recorded.

    Raises NotFoundError if the runtime has no chart of the kind, UsageError for an invalid rate.
    """

    def __init__(
        self,
        runtime: Runtime,
        kind: str,
        *,
        rate: float | None = None,
        mappings: Sequence[Mapping] = (),
        spread_ms: int = 0,
        who: str = "",
        reason: str | None = None,
    ) -> None:
        if rate is not None and not rate > 0:
            raise UsageError(f"rate={rate!r:.40} is not a positive number", code="migrate.rate", hint="such as 500")
        if type(spread_ms) is not int or spread_ms < 0:
            raise UsageError(f"spread_ms={spread_ms!r:.40} is invalid", code="migrate.spread", hint="0 or more ms")
        self._runtime = runtime
        self._kind = kind
        self._rate = rate
        self._mappings = tuple(mappings)
        self._spread_ms = spread_ms
        self._who = who or "interlock"
        self._reason = reason
        self._target = runtime.charts.for_new_entity(kind).chart
        self._carriers: dict[tuple[str, bool], EntityCarrier] = {}
        self._stays: OrderedDict[str, tuple[int, tuple[str, ...]]] = OrderedDict()
        self._tally = Tally()
        self._record: MigrationRecord | None = None
        self._cursor: str | None = None
        self._moves = 0
        self._started_ms = self._noted_ms = self._looked_ms = runtime.clock.now_ms()
        self._noted = 0
        self.total: int | None = None
        """The living entities that were not on the newest chart when the walk started, if the store counts them."""

    @property
    def progress(self) -> tuple[int, int]:
        """Entities that moved or can move, and that stay, in the pass that runs."""
        return self._tally.moved, self._tally.stays

    @property
    def moves_per_second(self) -> float:
        """The moves of this process per second."""
        elapsed_ms = self._runtime.clock.now_ms() - self._started_ms
        return self._moves * 1_000 / elapsed_ms if elapsed_ms > 0 else 0.0

    @property
    def remaining_ms(self) -> int | None:
        """The remaining time, at the rate so far; None if that is unknown."""
        rate, total = self.moves_per_second, self.total
        if total is None or rate == 0:
            return None
        return int(max(0, total - sum(self.progress)) * 1_000 / rate)

    def report(self) -> MigrationReport:
        """Return the result of the last pass."""
        tally = self._tally
        return MigrationReport(
            self._kind,
            self._target.revision,
            tally.newest,
            tally.moved,
            tally.stays,
            tally.groups(),
            tally.ungrouped,
            tuple(tally.unreadable),
            tally.overdue,
            None if self._record is None else self._record.id,
            tally.new,
        )

    async def plan(self) -> AsyncIterator[None]:
        """Decide for every living entity whether it can move. Nothing is written. Yield after each page.

        Raises DefinitionError if a mapping is wrong or leaves something unanswered.
        """
        self._tally = Tally()
        await self._check_mappings(is_preview=True)
        async for rows, _ in self._pages(None):
            for row in rows:
                await self._plan_one(row)
            yield

    async def apply(self, *, once: bool = False) -> AsyncIterator[None]:
        """Move every living entity that can be carried. Yield after each batch.

        The walk is repeated until it moves no entity that existed before, with `once` it is not. The report is that of
        the last pass, with all moves. It continues an interrupted migration of the same plan, from its
        cursor; the first pass then covers what is after it only.

        Raises DefinitionError if a mapping is wrong or leaves something unanswered; UnavailableError while another
        process migrates this kind (`migration.running`), and when one has taken over (`migration.taken_over`).
        """
        await self._check_mappings(is_preview=False)
        record = await self._begin()
        try:
            async for _ in self._passes(record, once=once):
                yield
            await self._note(record, event="migration.finished")
        except MigrationTakenOver:
            message = f"the migration {record.id} was taken over by another process, or taken back"
            raise UnavailableError(message, code="migration.taken_over", hint="interlock migrate status") from None

    async def _passes(self, record: MigrationRecord, *, once: bool) -> AsyncIterator[None]:
        before: Tally | None = None
        while True:  # ends with a pass that moves only new entities, or with the first one
            self._tally = Tally()
            is_whole = self._cursor is None
            async for rows, after in self._pages(self._cursor):
                size = self._batch_size()
                for start in range(0, len(rows), size):
                    started_ms = self._runtime.clock.now_ms()
                    await asyncio.gather(*(self._move_one(each) for each in rows[start : start + size]))
                    await self._attend(record)
                    yield
                    await self._pace(record, self._runtime.clock.now_ms() - started_ms)
                self._cursor = after
                await self._attend(record)
                yield
            self._cursor = None
            is_last = is_whole and (once or self._tally.moved == self._tally.new)
            if before is not None:
                self._tally = before.joined(self._tally)
            before = self._tally
            if is_last or (once and not is_whole):
                return

    # The record

    async def _begin(self) -> MigrationRecord:
        """Create the record of this migration, or continue one of the same plan."""
        runtime = self._runtime
        plan = MigrationPlan(
            self._kind,
            self._target.revision,
            self._who,
            runtime.clock.now_ms(),
            self._reason,
            tuple(_mapping_facts(each) for each in self._mappings),
            self._spread_ms,
        )
        found = [each for each in await migrations(runtime, self._kind) if each.status not in ("undone", "undoing")]
        newest = found[-1] if found else None
        if newest is not None:
            record = MigrationRecord(runtime, newest.id, who=self._who)
            if await record.has_living_owner():
                message = f"another process migrates `{self._kind}`: {newest.owner}"
                hint = "wait for it, or interlock migrate pause"
                raise UnavailableError(message, code="migration.running", hint=hint)
            if _same_plan(newest.plan, plan):
                await record.request("migration.resumed", reason=self._reason, owner=record.owner)
                self._cursor = newest.cursor if newest.status != "finished" else None
                self._record = record
        if self._record is None:
            name = f"{self._kind}-{plan.started_ms:013}-{runtime.clock.token()[:8]}"
            self._record = MigrationRecord(runtime, name, who=self._who)
            await self._record.create(plan)
        self.total = await self._count_left()
        return self._record

    async def _attend(self, record: MigrationRecord) -> None:
        """Note the progress when it is time, and wait while the migration is paused.

        Raises MigrationTakenOver if this process must not continue.
        """
        clock = self._runtime.clock
        if clock.now_ms() - self._looked_ms >= PAUSE_POLL_MS:
            self._looked_ms = clock.now_ms()
            while (await record.status()).status == "paused":
                if clock.now_ms() - self._noted_ms >= NOTE_MS:
                    await self._note(record)
                await clock.sleep_ms(PAUSE_POLL_MS)
        if clock.now_ms() - self._noted_ms >= NOTE_MS or self._moves - self._noted >= NOTE_ENTITIES:
            await self._note(record)

    async def _note(self, record: MigrationRecord, *, event: str = "migration.noted") -> None:
        tally = self._tally
        groups = [msgspec.to_builtins(each) for each in tally.groups() if each.reasons][:NOTED_GROUPS_MAX]
        for each in groups:
            each.pop("examples", None)
        progress: dict[str, Any] = {
            "cursor": self._cursor,
            "moved": tally.moved,
            "stays": tally.stays,
            "overdue": tally.overdue,
            "moves_per_second": round(self.moves_per_second, 1),
            "total": self.total,
            "groups": groups,
        }
        await record.note(progress, event=event)
        self._noted_ms, self._noted = self._runtime.clock.now_ms(), self._moves

    async def _count_left(self) -> int | None:
        """Count the living entities that are not on the newest chart; None where the store does not count."""
        statistics = self._runtime.store.statistics
        if statistics is None:
            return None
        counts = await statistics.count_states(self._kind)
        left = 0
        for revision in {each.revision for each in counts if not self._target.is_revision(each.revision)}:
            try:
                chart = await self._runtime.revisions.chart(self._kind, revision)
            except UnavailableError:
                continue
            top = [chart.states[index] for index in chart.regions(chart.completion_root)]
            top = top[:1] if chart.states[chart.completion_root].type == "parallel" else top
            names = {each.id for each in top if each.type != "final"}
            left += sum(each.entities for each in counts if each.revision == revision and each.state in names)
        return left

    # Entities

    async def _pages(self, after: str | None) -> AsyncIterator[tuple[list[EntityRow], str | None]]:
        """Yield the living entities that are not on the newest chart, page by page, with the cursor after it."""
        query = EntityQuery(kind=self._kind, by_id=True, limit=PAGE_MAX, after=after)
        async for page in pages(self._runtime.store.find, query):
            self._tally.unreadable += page.unreadable
            found = []
            for row in page.rows:
                if self._is_newest(row.revision):
                    self._tally.newest += row.ended is None
                elif row.ended is None:
                    found.append(row)
            yield found, page.after

    def _is_newest(self, revision: str) -> bool:
        return self._target.is_revision(revision)

    async def _check_mappings(self, *, is_preview: bool) -> None:
        """Make the carriers of all revisions that a mapping is for, so that a wrong mapping is refused at the start."""
        if not self._mappings:
            return
        revisions = self._runtime.revisions
        editions = await revisions.editions(self._kind)
        names = {name: each for each in editions for name in (each.revision, *each.names, each.label) if name}
        for mapping in self._mappings:
            if mapping.kind != self._kind:
                message = f"{mapping.source} is a mapping for `{mapping.kind}`, not for `{self._kind}`"
                raise UsageError(message, code="mapping.kind", hint="give the mapping of this kind")
            for name in mapping.revisions or ():
                if name not in names:
                    hint = f"the store has {', '.join(sorted(names)) or 'no revision of this kind'}"
                    message = f"{mapping.source} is for the unknown revision `{name[:80]}`"
                    raise UsageError(message, code="mapping.revision", hint=hint)
        for revision in dict.fromkeys(each.revision for each in editions):
            if not self._is_newest(revision) and await self._mapping_for(revision) is not None:
                await self._carrier(revision, is_preview=is_preview)

    async def _mapping_for(self, revision: str) -> Mapping | None:
        """Return the mapping of a revision: one that names it, else one that names none."""
        names = {revision}
        for each in await self._runtime.revisions.editions(self._kind):
            if revision in (each.revision, *each.names):
                names.update((each.revision, *each.names, *((each.label,) if each.label else ())))
        named = [each for each in self._mappings if not names.isdisjoint(each.revisions or ())]
        return next(iter([*named, *(each for each in self._mappings if each.revisions is None)]), None)

    async def _carrier(self, revision: str, *, is_preview: bool) -> EntityCarrier | tuple[str, ...]:
        found = self._carriers.get((revision, is_preview))
        if found is not None:
            return found
        carrier = await self._runtime.entities.upgrades.forward_carrier(self._kind, revision, is_preview=is_preview)
        if carrier is None:
            return (f"{revision} was saved later in this store than the chart of this process",)
        made: EntityCarrier = await self._mapped(carrier, revision)
        self._carriers[revision, is_preview] = made
        return made

    async def _mapped(self, carrier: Carrier, revision: str) -> EntityCarrier:
        mapping = await self._mapping_for(revision)
        if mapping is None:
            return carrier
        from interlock.evolve.mapping.mapped_carrier import MappedCarrier

        return MappedCarrier(carrier, mapping)

    async def _plan_one(self, row: EntityRow) -> None:
        entities, mover = self._runtime.entities, self._runtime.mover
        try:
            carrier = await self._carrier(row.revision, is_preview=True)
            if isinstance(carrier, tuple):
                self._tally.add(row, carrier)
                return
            is_cached = row.entity in entities.snapshots
            snapshot, last_ms = await entities.load_snapshot(row.entity)
            if not is_cached:
                entities.snapshots.pop(row.entity, None)
            if self._is_newest(snapshot.revision):
                self._tally.newest += 1
                return
            entered_ms = await mover.entered_ms(snapshot, carrier.states_with_new_timers(snapshot))
            carried = carrier.carry(
                snapshot, time_ms=max(entities.time.now_ms(), last_ms), entered_ms=entered_ms, spread_ms=self._spread_ms
            )
            after = None if carried.step is None else outline(carried.step.snapshot)
            self._tally.overdue += carried.overdue
            self._tally.add(
                row, carried.reasons, carried.dropped, MigrationSample(row.entity, outline(snapshot), after)
            )
        except InterlockError as error:
            self._tally.add(row, (f"{error.code}: {error.message}",))

    async def _move_one(self, row: EntityRow) -> None:
        version, known = self._stays.get(row.entity, (0, ()))
        if known and version == row.version:
            self._tally.add(row, known)
            return
        try:
            carrier = await self._carrier(row.revision, is_preview=False)
            if isinstance(carrier, tuple):
                self._tally.add(row, carrier)
                return
            request = MoveRequest(
                carrier,
                "migrate",
                plan=None if self._record is None else self._record.id,
                principal={"id": self._who},
                is_cached=row.entity in self._runtime.entities.snapshots,
                spread_ms=self._spread_ms,
            )
            result = await self._runtime.mover.move(row.entity, request)
        except InterlockError as error:
            self._tally.add(row, (f"{error.code}: {error.message}",))
            return
        if result.outcome == "elsewhere":  # a worker has moved it, or it is on a later revision
            self._tally.newest += 1
            return
        if result.outcome == "moved":
            self._moves += 1
            self._tally.overdue += result.overdue
            self._tally.new += row.created_ms > self._started_ms
        else:
            self._stays[row.entity] = (result.snapshot.version, result.reasons)
            if len(self._stays) > MIGRATION_STAYS_MAX:
                self._stays.popitem(last=False)
        self._tally.add(row, result.reasons, result.dropped)

    # The rate

    def _batch_size(self) -> int:
        """A quarter of a second at the given rate, so that a slow migration stays even."""
        if self._rate is None or not isfinite(self._rate):
            return MIGRATION_RUNNING_MAX
        return max(1, min(MIGRATION_RUNNING_MAX, int(self._rate / 4)))

    async def _pace(self, record: MigrationRecord, took_ms: int) -> None:
        """Wait until the moves so far do not exceed the rate; by default, as long as the batch took."""
        clock = self._runtime.clock
        until_ms = clock.now_ms() + took_ms
        if self._rate is not None:
            until_ms = self._started_ms + int(self._moves / self._rate * 1_000)
        wait_ms = until_ms - clock.now_ms()
        while wait_ms > 0:
            await clock.sleep_ms(min(wait_ms, NOTE_MS))
            await self._attend(record)
            wait_ms -= NOTE_MS


def _mapping_facts(mapping: Mapping) -> dict[str, str]:
    digest = blake2b(mapping.text.encode(), digest_size=16).hexdigest()
    return {"source": mapping.source, "digest": digest, "text": mapping.text}


def _same_plan(one: MigrationPlan, other: MigrationPlan) -> bool:
    digests = [[each["digest"] for each in plan.mappings] for plan in (one, other)]
    return one.to == other.to and digests[0] == digests[1] and one.spread_ms == other.spread_ms
