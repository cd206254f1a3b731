"""The table of the process that runs work: the unfinished work of all entities in line, and who has claimed it.

Rule 1: a journal publishes the state of its entity's work, and the table applies what differs from what was published
before. So nothing depends on receiving a change exactly once. The first publication of a journal to a table is whole.
Rule 2: claimed work stays claimed: from its journal it only takes over that it was cancelled or removed.
Rule 3: not safe for threads: its owner holds a lock.
"""

from __future__ import annotations

from interlock.model.journal.work import WorkDelta, WorkId
from interlock.model.journal.work_state import NEW
from interlock.stores.files.journal.unfinished_work import WorkChanges, WorkItem
from interlock.stores.work_table import WorkTable


class PublishedWork:
    """The work that journals published, as rows to be claimed."""

    def __init__(self) -> None:
        self.rows = WorkTable()
        self._published: dict[str, dict[WorkId, WorkItem]] = {}

    def apply(self, entity: str, changes: WorkChanges) -> None:
        """Apply the published work of an entity."""
        published = self._published.setdefault(entity, {})
        items = changes.items
        for work_id in [each for each in (published if changes.is_whole else items) if items.get(each) is None]:
            if published.pop(work_id, None) is not None:
                self.rows.delete_work(entity, work_id)
        current = [item for item in items.values() if item is not None]
        self.rows.apply(
            entity, WorkDelta(created=tuple(each.work for each in current if each.work.id not in published))
        )
        for item in current:
            before = published.get(item.work.id)
            if item.state != (NEW if before is None else before.state):
                self.rows.set_state(entity, item.work.id, item.state)
            published[item.work.id] = item
        if not published:
            del self._published[entity]
