"""Take a migration back: every entity that only it moved returns to the revision it came from.

Rule 1: an entity returns if the migration's move is its last entry and did nothing outside. All others stay, and are
listed by reason: what was done since is not erased.
Rule 2: a chart with `upgrade: safe` moves such an entity again at its next step: release the old behaviour, too.
Rule 3: it may be killed and started again: an entity that returned has another last entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from interlock.errors import ConflictError, InterlockError, UnavailableError
from interlock.evolve.move import is_move
from interlock.evolve.undo import UndoCarrier
from interlock.model.limits import MIGRATION_RUNNING_MAX
from interlock.operate.migrations.record import NOTE_MS, MigrationRecord, MigrationTakenOver, newest_migration
from interlock.operate.migrations.report import MigrationReport, Tally
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, EntityQuery, EntityRow
from interlock.runtime.entities.move_request import MoveRequest
from interlock.runtime.runtime import Runtime


class MigrationUndo:
    """The undo of the newest migration of a kind. `who` and `reason` are recorded."""

    def __init__(self, runtime: Runtime, kind: str, *, who: str = "", reason: str | None = None) -> None:
        self._runtime = runtime
        self._kind = kind
        self._who = who or "interlock"
        self._reason = reason
        self._tally = Tally()
        self._to = ""
        self._id: str | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """Entities that returned, and that stay."""
        return self._tally.moved, self._tally.stays

    def report(self) -> MigrationReport:
        """Return the result: `moved` are the entities that returned, `newest` those of other moves or of none."""
        tally = self._tally
        return MigrationReport(
            self._kind,
            self._to,
            tally.newest,
            tally.moved,
            tally.stays,
            tally.groups(),
            tally.ungrouped,
            tuple(tally.unreadable),
            0,
            self._id,
        )

    async def apply(self) -> AsyncIterator[None]:
        """Return every entity that can be; yield after each page.

        Raises NotFoundError if nothing was migrated, ConflictError if it was taken back already, UnavailableError while
        a process migrates or when another one has taken over.
        """
        found = await newest_migration(self._runtime, self._kind)
        record = MigrationRecord(self._runtime, found.id, who=self._who)
        if found.status == "undone":
            raise ConflictError(f"the migration {found.id} was taken back already", code="migration.state")
        if found.status != "paused" and await record.has_living_owner():
            message = f"a process works on the migration {found.id}: {found.owner}"
            raise UnavailableError(message, code="migration.running", hint="interlock migrate pause, then undo")
        await record.request("migration.undo_started", reason=self._reason, owner=record.owner)
        self._id, self._to = found.id, found.plan.to
        noted_ms = self._runtime.clock.now_ms()
        try:
            async for page in pages(self._runtime.store.find, EntityQuery(kind=self._kind, by_id=True, limit=PAGE_MAX)):
                self._tally.unreadable += page.unreadable
                rows = [each for each in page.rows if each.ended is None]
                for start in range(0, len(rows), MIGRATION_RUNNING_MAX):
                    await asyncio.gather(
                        *(self._undo_one(each) for each in rows[start : start + MIGRATION_RUNNING_MAX])
                    )
                    if self._runtime.clock.now_ms() - noted_ms >= NOTE_MS:
                        await record.note(self._progress())
                        noted_ms = self._runtime.clock.now_ms()
                yield
            await record.note(self._progress(), event="migration.undone")
        except MigrationTakenOver:
            message = f"another process has taken over the migration {found.id}"
            raise UnavailableError(message, code="migration.taken_over") from None

    def _progress(self) -> dict[str, object]:
        return {"returned": self._tally.moved, "stays": self._tally.stays}

    async def _undo_one(self, row: EntityRow) -> None:
        runtime, entities = self._runtime, self._runtime.entities
        is_cached = row.entity in entities.snapshots
        try:
            snapshot, _ = await entities.load_snapshot(row.entity)
            if not is_cached:
                entities.snapshots.pop(row.entity, None)
            if snapshot.moved == 0:
                self._tally.newest += 1
                return
            entry = (await runtime.journal(row.entity, after=snapshot.moved - 1, limit=1))[0]
            if not is_move(entry) or entry.event.data.get("plan") != self._id or entry.reason != "migrate":
                self._tally.newest += 1
                return
            if snapshot.version != snapshot.moved:
                self._tally.add(row, ("it has stepped since it was moved",))
                return
            before = await runtime.state(row.entity, at=snapshot.moved - 1)
            kernel = await runtime.revisions.for_reading(before.kind, before.revision)
            request = MoveRequest(
                UndoCarrier(before, entry, kernel),
                "undo",
                plan=self._id,
                principal={"id": self._who},
                is_cached=is_cached,
                undoes=entry.version,
            )
            result = await runtime.mover.move(row.entity, request)
        except InterlockError as error:
            self._tally.add(row, (f"{error.code}: {error.message}",))
            return
        if result.outcome == "elsewhere":
            self._tally.newest += 1
        else:
            self._tally.add(row, result.reasons)
