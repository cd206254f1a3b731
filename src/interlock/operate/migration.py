"""Move all entities of a kind to the newest chart of this process, while they are in use.

Rule 1: the revision of an entity is the truth about progress. A migration that was killed starts again at the first id,
and passes those that were moved.
Rule 2: each entity moves by its own entry, under compare-and-swap, as it would before its next step (`upgrade: safe`).
Clients never wait for a migration: a lost swap is decided again.
Rule 3: the walk is in the order of ids, which a step does not change. An old worker may create entities behind it, so
passes repeat until one finds nothing to move.
Rule 4: an entity that cannot be carried, or read, stays, and the report groups such entities by reason with samples. It
never stops the others. An entity that ended is left as it is.
Rule 5: moved entities are not put into the snapshot cache, which has those in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.errors import InterlockError, UsageError
from interlock.model.limits import MIGRATION_GROUPS_MAX, MIGRATION_RUNNING_MAX, MIGRATION_SAMPLES_MAX
from interlock.ports.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.entities.move_request import MoveRequest
from interlock.runtime.runtime import Runtime

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier


class MigrationGroup(Struct, frozen=True, omit_defaults=True):
    """Entities of one revision and configuration with the same answer. Without `reasons` they can move, or did."""

    revision: str
    configuration: tuple[str, ...]
    entities: int
    samples: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class MigrationReport(Struct, frozen=True):
    """The living entities of a kind: how many are on the newest chart, can move or did, and stay; and the groups.

    `ungrouped` entities are counted and in no group, because there were too many. `unreadable` could not be listed.
    """

    kind: str
    revision: str
    newest: int
    moved: int
    stays: int
    groups: tuple[MigrationGroup, ...]
    ungrouped: int = 0
    unreadable: tuple[str, ...] = ()


_GroupName = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Revision, configuration, reasons, and what the move ends."""


class _Tally:
    """What one pass found."""

    def __init__(self) -> None:
        self.newest = self.moved = self.stays = self.ungrouped = 0
        self.unreadable: list[str] = []
        self.found: dict[_GroupName, tuple[int, list[str]]] = {}

    def add(self, row: EntityRow, reasons: tuple[str, ...], dropped: tuple[str, ...] = ()) -> None:
        """Count an entity that moved, if there is no reason why not, or that stays."""
        if reasons:
            self.stays += 1
        else:
            self.moved += 1
        name = (row.revision, row.configuration, reasons, dropped)
        if name not in self.found and len(self.found) >= MIGRATION_GROUPS_MAX:
            self.ungrouped += 1
            return
        count, samples = self.found.get(name, (0, []))
        if len(samples) < MIGRATION_SAMPLES_MAX:
            samples.append(row.entity)
        self.found[name] = (count + 1, samples)

    def groups(self) -> tuple[MigrationGroup, ...]:
        """The groups, those that stay first, then by size."""
        found = [
            MigrationGroup(revision, configuration, count, tuple(samples), reasons, dropped)
            for (revision, configuration, reasons, dropped), (count, samples) in self.found.items()
        ]
        return tuple(sorted(found, key=lambda each: (not each.reasons, -each.entities, each.samples)))


class Migration:
    """The migration of one kind. `rate` is the number of moves per second that are not exceeded; None: no limit.

    Raises NotFoundError if the runtime has no chart of the kind, UsageError for an invalid rate.
    """

    def __init__(self, runtime: Runtime, kind: str, *, rate: float | None = None) -> None:
        if rate is not None and not rate > 0:
            raise UsageError(f"rate={rate!r:.40} is not a positive number", code="migrate.rate", hint="such as 500")
        self._runtime = runtime
        self._kind = kind
        self._rate = rate
        self._target = runtime.charts.for_new_entity(kind).chart
        self._tally = _Tally()
        self._moves = 0
        self._started_ms = runtime.clock.now_ms()

    @property
    def progress(self) -> tuple[int, int]:
        """Entities that moved or can move, and that stay, in the pass that runs."""
        return self._tally.moved, self._tally.stays

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
        )

    async def plan(self) -> AsyncIterator[None]:
        """Decide for every living entity whether it can move. Nothing is written. Yield after each page."""
        self._tally = _Tally()
        async for rows in self._pages():
            for row in rows:
                await self._plan_one(row)
            yield

    async def apply(self, *, once: bool = False) -> AsyncIterator[None]:
        """Move every living entity that can be carried; repeat until nothing is left to move. Yield after each page.

        With `once` the walk is not repeated. The report is that of the last pass, with all moves.
        """
        moved: _Tally | None = None
        while True:  # ends with a pass that moves nothing, or with the first one
            self._tally = _Tally()
            async for rows in self._pages():
                for start in range(0, len(rows), MIGRATION_RUNNING_MAX):
                    await asyncio.gather(
                        *(self._move_one(each) for each in rows[start : start + MIGRATION_RUNNING_MAX])
                    )
                    await self._pace()
                yield
            is_last = once or self._tally.moved == 0
            if moved is not None:
                self._tally = _joined(moved, self._tally)
            moved = self._tally
            if is_last:
                return

    async def _pages(self) -> AsyncIterator[list[EntityRow]]:
        """Yield the living entities that are not on the newest chart, page by page."""
        query = EntityQuery(kind=self._kind, by_id=True, limit=PAGE_MAX)
        async for page in pages(self._runtime.store.find, query):
            self._tally.unreadable += page.unreadable
            found = []
            for row in page.rows:
                if self._is_newest(row.revision):
                    self._tally.newest += row.ended is None
                elif row.ended is None:
                    found.append(row)
            yield found

    def _is_newest(self, revision: str) -> bool:
        return self._target.is_revision(revision)

    async def _carrier(self, row: EntityRow, *, is_preview: bool) -> Carrier | tuple[str, ...]:
        upgrades = self._runtime.entities.upgrades
        carrier = await upgrades.forward_carrier(self._kind, row.revision, is_preview=is_preview)
        return carrier or (f"{row.revision} was saved later in this store than the chart of this process",)

    async def _plan_one(self, row: EntityRow) -> None:
        entities, mover = self._runtime.entities, self._runtime.mover
        try:
            carrier = await self._carrier(row, is_preview=True)
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
            carried = carrier.carry(snapshot, time_ms=max(entities.time.now_ms(), last_ms), entered_ms=entered_ms)
            self._tally.add(row, carried.reasons, carried.dropped)
        except InterlockError as error:
            self._tally.add(row, (f"{error.code}: {error.message}",))

    async def _move_one(self, row: EntityRow) -> None:
        try:
            carrier = await self._carrier(row, is_preview=False)
            if isinstance(carrier, tuple):
                self._tally.add(row, carrier)
                return
            result = await self._runtime.mover.move(
                row.entity, MoveRequest(carrier, "migrate", is_cached=row.entity in self._runtime.entities.snapshots)
            )
        except InterlockError as error:
            self._tally.add(row, (f"{error.code}: {error.message}",))
            return
        if result.outcome == "elsewhere":  # a worker has moved it, or it is on a later revision
            self._tally.newest += 1
            return
        self._moves += result.outcome == "moved"
        self._tally.add(row, result.reasons, result.dropped)

    async def _pace(self) -> None:
        """Wait until the moves so far do not exceed the rate."""
        if self._rate is None:
            return
        clock = self._runtime.clock
        wait_ms = self._started_ms + self._moves / self._rate * 1_000 - clock.now_ms()
        if wait_ms > 0:
            await clock.sleep_ms(wait_ms)


def _joined(before: _Tally, last: _Tally) -> _Tally:
    """Return the last pass with the moves of those before it."""
    joined = _Tally()
    joined.newest, joined.stays = last.newest - before.moved, last.stays
    joined.moved = before.moved + last.moved
    joined.ungrouped, joined.unreadable = last.ungrouped + before.ungrouped, last.unreadable
    joined.found = {name: each for name, each in before.found.items() if not name[2]}
    for name, (count, samples) in last.found.items():
        known, first = joined.found.get(name, (0, []))
        joined.found[name] = (known + count, (first + samples)[:MIGRATION_SAMPLES_MAX])
    return joined
