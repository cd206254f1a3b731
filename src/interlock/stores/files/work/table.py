"""The table of the process that runs work: the unfinished work of all entities in line, and who has claimed it.

Rule 1: a journal publishes the state of its entity's work, and the table applies what differs from what it has. So
nothing depends on receiving a change exactly once. The first publication of a journal to a table is whole.
Rule 2: claimed work stays claimed: from its journal it only takes that it was cancelled, or that it is gone.
Rule 3: not safe for threads: its owner holds a lock.
"""

from __future__ import annotations

from bisect import insort

from interlock.model.journal.work import ORDERED_LANES, WorkDelta, WorkId
from interlock.ports.work import WorkRow
from interlock.stores.files.journal.line_formats import WorkState
from interlock.stores.files.journal.unfinished_work import WorkChanges, WorkItem
from interlock.stores.work_table import WorkTable


class HeldTable(WorkTable):
    """Rows of work by entity and id, as their journals published them."""

    def __init__(self) -> None:
        super().__init__()
        self._published: dict[str, dict[WorkId, WorkItem]] = {}

    def apply(self, entity: str, changes: WorkChanges) -> None:
        """Apply the published work of an entity."""
        published = self._published.setdefault(entity, {})
        items = changes.items
        for work_id in [each for each in (published if changes.is_whole else items) if items.get(each) is None]:
            if published.pop(work_id, None) is not None:
                self._remove(entity, work_id)
        current = [item for item in items.values() if item is not None]
        self.keep(entity, WorkDelta(born=tuple(item.work for item in current if item.work.place not in published)))
        for item in current:
            before = published.get(item.work.place)
            if item.state != (WorkState() if before is None else before.state):
                self._change(entity, item)
            published[item.work.place] = item
        if not published:
            del self._published[entity]

    def row(self, entity: str, place: WorkId) -> WorkRow | None:
        """One piece of work; None when it does not exist."""
        row = self._rows.get((entity, place))
        if row is None:
            return None
        facts = (row.attempts, row.failures, row.next_ms, row.owner, row.error, row.dead_ms, row.cancelled)
        return WorkRow(entity, row.work, *facts)

    def _change(self, entity: str, item: WorkItem) -> None:
        place, state = item.work.place, item.state
        found = self._rows.get((entity, place))
        if found is None:
            return
        if found.owner is not None:
            found.cancelled = state.cancelled
            return
        dies, revives = (each is None for each in (found.dead_ms, state.dead_ms))
        found.attempts, found.failures, found.error = state.attempts, state.failures, state.error
        found.cancelled, found.dead_ms = state.cancelled, state.dead_ms
        found.next_ms = self._next_ms(item, found.next_ms)
        self._stand(found)
        if dies and not revives:
            self._step_aside(entity, place)
        elif revives and not dies and place.lane in ORDERED_LANES:
            insort(self._queues.setdefault((entity, place.lane), []), place)

    def _next_ms(self, item: WorkItem, next_ms: int | None) -> int | None:
        """When work may be claimed; in an ordered lane the table itself decides which is first."""
        state = item.state
        if state.dead_ms is not None or state.parked:
            return None
        if state.next_ms is not None:
            return state.next_ms
        return next_ms if item.work.place.lane in ORDERED_LANES else item.work.due_ms
