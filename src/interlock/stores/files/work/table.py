"""The table of whoever performs: work of journals in line, and who holds it.

Rule 1: a journal tells how the work of its entity stands; the table takes over what is different from what it was told
before. So nothing depends on hearing a change once. Whoever was not told the whole by the very same journal is told
that first, and so is whoever looks after it: nothing depends on having heard every change either.
Rule 2: work in hand stays in hand: from its journal it only hears that it was called off, or that it is gone.
Rule 3: not safe for threads by itself: its owner holds a lock.
"""

from __future__ import annotations

from bisect import insort

from interlock.model.journal.work import ORDERED_LANES, WorkDelta, WorkId
from interlock.ports.work import WorkRow
from interlock.stores.files.journal.work_lines import Row, WorkChanges, WorkState
from interlock.stores.work_table import WorkTable


class HeldTable(WorkTable):
    """Rows of work by entity and place, beside the journals that they are from."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, dict[WorkId, Row]] = {}

    def tell(self, entity: str, news: WorkChanges) -> None:
        """How the work of an entity stands."""
        told = self._told.setdefault(entity, {})
        rows = news.rows
        for place in [place for place in (told if news.is_whole else rows) if rows.get(place) is None]:
            if told.pop(place, None) is not None:
                self._remove(entity, place)
        now = [row for row in rows.values() if row is not None]
        self.keep(entity, WorkDelta(born=tuple(row.work for row in now if row.work.place not in told)))
        for row in now:
            before = told.get(row.work.place)
            if row.stand != (WorkState() if before is None else before.stand):
                self._change(entity, row)
            told[row.work.place] = row
        if not told:
            del self._told[entity]

    def row(self, entity: str, place: WorkId) -> WorkRow | None:
        """One piece of work as it stands here."""
        row = self._rows.get((entity, place))
        if row is None:
            return None
        facts = (row.attempts, row.failures, row.next_ms, row.owner, row.error, row.dead_ms, row.cancelled)
        return WorkRow(entity, row.work, *facts)

    def _change(self, entity: str, row: Row) -> None:
        place, stand = row.work.place, row.stand
        found = self._rows.get((entity, place))
        if found is None:
            return
        if found.owner is not None:
            found.cancelled = stand.cancelled
            return
        dies, revives = (each is None for each in (found.dead_ms, stand.dead_ms))
        found.attempts, found.failures, found.error = stand.attempts, stand.failures, stand.error
        found.cancelled, found.dead_ms = stand.cancelled, stand.dead_ms
        found.next_ms = self._next_ms(row, found.next_ms)
        self._stand(found)
        if dies and not revives:
            self._step_aside(entity, place)
        elif revives and not dies and place.lane in ORDERED_LANES:
            insort(self._queues.setdefault((entity, place.lane), []), place)

    def _next_ms(self, row: Row, next_ms: int | None) -> int | None:
        """When work may be taken up; of an ordered lane the table itself says who is first."""
        stand = row.stand
        if stand.dead_ms is not None or stand.parked:
            return None
        if stand.next_ms is not None:
            return stand.next_ms
        return next_ms if row.work.place.lane in ORDERED_LANES else row.work.due_ms
