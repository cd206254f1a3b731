"""Work in memory: every row by its place, and who is next. The memory store keeps one; it is the reference for others.

Rule 1: a row is taken up when its time has come; its lease is that time, moved on. Nobody has to notice a lapse.
Rule 2: of an ordered lane only an entity's first living row stands in line: what one entity sends is delivered in
order. A dead letter lost its place; revived, it goes at once.
Rule 3: not safe for threads by itself: its owner holds a lock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from interlock.model.journal.work import ORDERED_LANES, Lane, Work, WorkDelta, WorkId
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow


class _Row(Struct):
    entity: str
    work: Work
    next_ms: int | None
    attempts: int = 0
    failures: int = 0
    owner: str | None = None
    error: Any = None
    cancelled: bool = False
    dead_ms: int | None = None


_Line = tuple[Lane, str]
"""Who waits together: the work of one handler, all timers, all of the outbox, all messages."""

_Name = tuple[str, WorkId]


class WorkTable:
    """Rows of work by entity and place."""

    def __init__(self) -> None:
        self._rows: dict[_Name, _Row] = {}
        self._lines: dict[_Line, list[tuple[int, str, WorkId]]] = {}
        self._queues: dict[tuple[str, Lane], list[WorkId]] = {}

    def keep(self, entity: str, left: WorkDelta) -> None:
        """What an entry leaves, ends and calls off, in the one write of the entry."""
        for work in left.born:
            sent = work.place.lane in ORDERED_LANES
            new = self._rows[entity, work.place] = _Row(entity, work, None if sent else work.due_ms)
            if sent:
                insort(self._queues.setdefault((entity, work.place.lane), []), work.place)
            self._stand(new)
        for place in left.ended:
            self._remove(entity, place)
        for place in left.cancelled:
            row = self._rows.get((entity, place))
            if row is not None and (row.attempts == 0 or row.dead_ms is not None):
                self._remove(entity, place)
            elif row is not None:
                row.cancelled = True
                if row.owner is None:  # it waits to be tried again: whoever takes it up sees that nobody asks
                    row.next_ms = row.work.due_ms
                    self._stand(row)
        for lane in ORDERED_LANES:
            if any(each.place.lane == lane for each in left.born):
                self._let_in(entity, lane)

    def fence(self, entity: str, place: WorkId) -> int | None:
        """The number of the newest attempt at some work; None when there is no such work."""
        row = self._rows.get((entity, place))
        return None if row is None else row.attempts

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first."""
        found: list[Claim] = []
        lines = self._standing(lane, names)
        while len(found) < limit and (first := self._oldest(lines)) is not None:
            next_ms, line, row = first
            if next_ms > now_ms:
                break
            heappop(self._lines[line])
            row.next_ms, row.owner, row.attempts = until_ms, owner, row.attempts + 1
            self._stand(row)
            found.append(_claim(row))
        return tuple(found)

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer."""
        answers: list[Claim | None] = []
        for claim in claims:
            row = self._held(claim)
            if row is not None:
                row.next_ms = until_ms
                self._stand(row)
            answers.append(None if row is None else _claim(row))
        return tuple(answers)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims."""
        return tuple(self._settle(each, now_ms) for each in settled)

    def _settle(self, settled: Settlement, now_ms: int) -> bool:
        claim = settled.claim
        if settled.verdict == "done":
            return self._remove(claim.entity, claim.work.place)
        row = self._held(claim)
        if row is None:
            return False
        if row.cancelled and not claim.work.is_saga_step:
            return self._remove(claim.entity, claim.work.place)
        row.owner, row.error = None, settled.error
        row.failures += settled.verdict == "again" and not settled.lapsed
        row.attempts -= not settled.begun
        row.next_ms = settled.next_ms if settled.verdict == "again" else None
        self._stand(row)
        if settled.verdict == "dead":
            row.dead_ms = now_ms
            self._step_aside(claim.entity, claim.work.place)
        return True

    def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due."""
        first = self._oldest(self._standing(lane, names))
        return None if first is None else first[0]

    def works(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, in the order of entities and places."""
        wanted = (row for row in self._asked(query) if _wanted(row, query))
        found = sorted(wanted, key=lambda row: (row.entity, row.work.place))
        rows = [row for row in found if query.after is None or _cursor(row) > query.after]
        page = rows[: query.limit]
        return WorkPage(tuple(_listed(row) for row in page), _cursor(page[-1]) if len(rows) > len(page) else None)

    def _asked(self, query: WorkQuery) -> Iterable[_Row]:
        """The rows to look at. A question for one piece, as every child's answer asks it, is one look."""
        if query.entity is None or query.place is None:
            return self._rows.values()
        row = self._rows.get((query.entity, query.place))
        return () if row is None else (row,)

    def revive(self, entity: str, place: WorkId, *, now_ms: int) -> bool:
        """Let dead work be tried again, from its first attempt."""
        row = self._rows.get((entity, place))
        if row is None or row.dead_ms is None:
            return False
        row.next_ms, row.dead_ms, row.attempts, row.failures, row.error = now_ms, None, 0, 0, None
        if place.lane in ORDERED_LANES:
            insort(self._queues.setdefault((entity, place.lane), []), place)
        self._stand(row)
        return True

    def note(self, claim: Claim, error: Any) -> bool:
        """Keep this beside the work of a claim."""
        row = self._held(claim)
        if row is None:
            return False
        row.error = error
        return True

    def drop(self, entity: str, place: WorkId) -> bool:
        """Forget work."""
        return self._remove(entity, place)

    # Lines

    def _standing(self, lane: Lane, names: tuple[str, ...] | None) -> list[_Line]:
        if names is not None:
            return [(lane, name) for name in names]
        return [line for line in self._lines if line[0] == lane]

    def _stand(self, row: _Row) -> None:
        """Put a row in line, if it waits for its time."""
        place = row.work.place
        if row.next_ms is not None:
            line = (place.lane, row.work.name if place.lane == "effect" else "")
            heappush(self._lines.setdefault(line, []), (row.next_ms, row.entity, place))

    def _let_in(self, entity: str, lane: Lane) -> None:
        """Put the first living row of an ordered lane in line, unless it stands there."""
        queue = self._queues.get((entity, lane))
        row = self._rows[entity, queue[0]] if queue else None
        if row is not None and row.next_ms is None:
            row.next_ms = row.work.due_ms
            self._stand(row)

    def _oldest(self, lines: list[_Line]) -> tuple[int, _Line, _Row] | None:
        """The first of all who stand in these lines: a handler with too much to do must not starve the others."""
        rows = ((row.next_ms, line, row) for line in lines if (row := self._next(line)) is not None)
        standing = ((next_ms, line, row) for next_ms, line, row in rows if next_ms is not None)
        return min(standing, key=lambda each: each[0], default=None)

    def _next(self, line: _Line) -> _Row | None:
        """The first in line; places that no longer stand are dropped on the way."""
        waiting = self._lines.get(line)
        while waiting:
            next_ms, entity, place = waiting[0]
            row = self._rows.get((entity, place))
            if row is not None and row.next_ms == next_ms:
                return row
            heappop(waiting)
        self._lines.pop(line, None)
        return None

    def _held(self, claim: Claim) -> _Row | None:
        row = self._rows.get((claim.entity, claim.work.place))
        if row is None or row.dead_ms is not None:
            return None
        return row if (row.attempts, row.failures) == (claim.attempt, claim.failures) else None

    def _remove(self, entity: str, place: WorkId) -> bool:
        row = self._rows.pop((entity, place), None)
        if row is None:
            return False
        if row.dead_ms is None:
            self._step_aside(entity, place)
        elif place.lane in ORDERED_LANES:
            self._let_in(entity, place.lane)
        return True

    def _step_aside(self, entity: str, place: WorkId) -> None:
        """A row of an ordered lane leaves the queue of its entity: the one behind it is next."""
        if place.lane not in ORDERED_LANES:
            return
        queue = self._queues[entity, place.lane]
        queue.remove(place)
        if not queue:
            del self._queues[entity, place.lane]
        self._let_in(entity, place.lane)


def _claim(row: _Row) -> Claim:
    return Claim(row.entity, row.work, row.attempts, row.failures, row.cancelled)


def _wanted(row: _Row, query: WorkQuery) -> bool:
    return (
        query.kind in (None, row.entity.partition("/")[0])
        and query.lane in (None, row.work.place.lane)
        and query.name in (None, row.work.name)
        and query.entity in (None, row.entity)
        and query.place in (None, row.work.place)
        and query.dead in (None, row.dead_ms is not None)
    )


def _cursor(row: _Row) -> str:
    place = row.work.place
    return f"{row.entity}\0{place.lane}\0{place.version:020}\0{place.ordinal:06}"


def _listed(row: _Row) -> WorkRow:
    return WorkRow(
        row.entity,
        row.work,
        row.attempts,
        row.failures,
        row.next_ms,
        row.owner,
        row.error,
        row.dead_ms,
        row.cancelled,
    )
