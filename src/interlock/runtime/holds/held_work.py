"""Work of held entities: a worker that claims it puts it back, and it comes back when the hold ends.

Rule 1: nothing is read for a piece of work of a kind without holds. Otherwise the entity is read, not a cached
snapshot, so a hold whose entry is written is seen.
Rule 2: work that is put back is due again after a while, and carries the note `held` next to what was stored with it.
So a worker that dies at any point, and a resume that is killed, lose nothing: it is late by that while.
Rule 3: a hold may end between the look and the write. So the worker looks again after the write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from interlock.model.held import Held, held_of
from interlock.model.journal.work import LANES
from interlock.model.limits import HELD_WORK_MS_MAX, HELD_WORK_MS_MIN, RESUMED_PER_SECOND
from interlock.ports.reading.paging import pages
from interlock.ports.store import PAGE_MAX, Store
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkQueue, WorkRow
from interlock.runtime.entities.entities import Entities

NOTE = "held"
"""The name under which work that was put back has since when its entity is held."""


class HeldWork:
    """Puts work of held entities back, for the workers of one process."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def refresh(self) -> None:
        """Learn of new holds, at most once in a while."""
        if self._entities.holds.is_stale:
            await self._entities.holds.refresh()

    def may_wait(self, entity: str) -> bool:
        """Whether the work of an entity may have to wait."""
        return self._entities.holds.may_hold(entity.partition("/")[0])

    async def put_back(self, claim: Claim) -> Settlement | None:
        """Return how claimed work is put back; None if its entity is not held."""
        held = await self._held(claim.entity)
        queue = self._entities.store.work
        if held is None or queue is None:
            return None
        page = await queue.list_work(WorkQuery(entity=claim.entity, id=claim.work.id))
        stored = page.rows[0].error if page.rows else None
        note = {**(stored if isinstance(stored, dict) else {}), NOTE: held.at_ms}
        now_ms = self._entities.clock.now_ms()
        wait_ms = min(max(now_ms - held.at_ms, HELD_WORK_MS_MIN), HELD_WORK_MS_MAX)
        return Settlement(claim, "again", now_ms + wait_ms, error=note, without_failure=True, started=False)

    async def release_if_resumed(self, claim: Claim) -> None:
        """Make work due that was just put back, if the hold of its entity has ended meanwhile."""
        await self._entities.holds.refresh()
        if await self._held(claim.entity) is None:
            await release(self._entities.store, WorkQuery(entity=claim.entity), now_ms=self._entities.clock.now_ms())

    async def _held(self, entity: str) -> Held | None:
        held = self._entities.holds.of_kind(entity.partition("/")[0])
        if held is not None:
            return held
        snapshot, _ = await self._entities.load_snapshot(entity)
        return held_of(snapshot.context)


async def release(store: Store, query: WorkQuery, *, now_ms: int, count: int = 0) -> int:
    """Make the work of a query due that was put back, a limited number each second; return how many.

    `count` is how many were released before by the same act. Work of an entity that is still held is put back again.
    """
    if store.work is None:
        return 0
    before = count
    async for row in _held_rows(store.work, query):
        stored: dict[str, Any] = {name: value for name, value in row.error.items() if name != NOTE}
        claim = Claim(row.entity, row.work, row.attempts, row.failures, row.cancelled)
        due_ms = now_ms + count * 1_000 // RESUMED_PER_SECOND
        again = Settlement(claim, "again", due_ms, error=stored or None, without_failure=True)
        count += await store.work.requeue(again, now_ms=now_ms)
    if count > before and store.wakeups is not None:
        store.wakeups.ring(frozenset(LANES))
    return count - before


async def _held_rows(work: WorkQueue, query: WorkQuery) -> AsyncIterator[WorkRow]:
    async for page in pages(work.list_work, replace(query, dead=False, limit=PAGE_MAX)):
        for row in page.rows:
            if row.owner is None and isinstance(row.error, dict) and NOTE in row.error:
                yield row
