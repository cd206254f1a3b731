"""The work queue in memory: every row by entity and id, and which is next. The memory store has one.

It is the reference for the other stores: tests compare them with it.

Rule 1: a row is claimed when its time has come; a lease is that time, moved on. No process has to notice its expiry.
Rule 2: in an ordered lane only the first living row of an entity is in line: what one entity sends is delivered in
order. A dead letter is not in line; when it is requeued, it is due immediately.
Rule 3: not safe for threads: its owner holds a lock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.model.journal import work_state
from interlock.model.journal.work import ORDERED_LANES, Lane, Work, WorkDelta, WorkId
from interlock.model.journal.work_state import NEW, WorkState, due_ms, is_valid_claim
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow


class _Row(Struct):
    """One piece of work. `next_ms` is when it may be claimed, or its lease expires; None: it is not in line."""

    entity: str
    work: Work
    next_ms: int | None
    state: WorkState = NEW
    owner: str | None = None


_Line = tuple[Lane, str]
"""Rows that wait together: the work of one handler, all timers, all of the outbox, all messages."""


class WorkTable:
    """Rows of work by entity and id."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, WorkId], _Row] = {}
        self._lines: dict[_Line, list[tuple[int, str, WorkId]]] = {}
        self._queues: dict[tuple[str, Lane], list[WorkId]] = {}

    def apply(self, entity: str, delta: WorkDelta) -> None:
        """Apply what an entry creates, finishes and cancels."""
        for work in delta.created:
            is_ordered = work.id.lane in ORDERED_LANES
            row = self._rows[entity, work.id] = _Row(entity, work, None if is_ordered else work.due_ms)
            if is_ordered:
                insort(self._queues.setdefault((entity, work.id.lane), []), work.id)
            self._enqueue(row)
        for work_id in delta.finished:
            self.delete_work(entity, work_id)
        for work_id in delta.cancelled:
            self._cancel(entity, work_id)
        if delta.created:
            for lane in ORDERED_LANES:
                if any(each.id.lane == lane for each in delta.created):
                    self._enqueue_first(entity, lane)

    def _cancel(self, entity: str, work_id: WorkId) -> None:
        row = self._rows.get((entity, work_id))
        if row is None:
            return
        state = work_state.cancel(row.state)
        if state is None:
            self.delete_work(entity, work_id)
            return
        row.state = state
        if row.owner is None:  # it waits for a retry: the next worker sees that it was cancelled
            row.next_ms = due_ms(row.work, state)
            self._enqueue(row)

    def fence(self, entity: str, work_id: WorkId) -> int | None:
        """The number of the newest attempt at a piece of work; None when it does not exist."""
        row = self._rows.get((entity, work_id))
        return None if row is None else row.state.attempts

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim work that is due, oldest first."""
        found: list[Claim] = []
        lines = self._lines_of(lane, names)
        while len(found) < limit and (first := self._oldest(lines)) is not None:
            next_ms, line, row = first
            if next_ms > now_ms:
                break
            heappop(self._lines[line])
            row.next_ms, row.owner = until_ms, owner
            row.state = replace(row.state, attempts=row.state.attempts + 1)
            self._enqueue(row)
            found.append(_claim(row))
        return tuple(found)

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend claims."""
        answers: list[Claim | None] = []
        for claim in claims:
            row = self._held(claim)
            if row is not None:
                row.next_ms = until_ms
                self._enqueue(row)
            answers.append(None if row is None else _claim(row))
        return tuple(answers)

    def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Release claims, with the outcome of each."""
        return tuple(self._settle(each, now_ms) for each in settled)

    def _settle(self, settled: Settlement, now_ms: int) -> bool:
        entity, work_id = settled.claim.entity, settled.claim.work.id
        if settled.verdict == "done":
            return self.delete_work(entity, work_id)
        row = self._held(settled.claim)
        if row is None:
            return False
        state = work_state.settle(
            row.work,
            row.state,
            settled.verdict,
            next_ms=settled.next_ms,
            error=settled.error,
            without_failure=settled.without_failure,
            started=settled.started,
            now_ms=now_ms,
        )
        if state is None:
            return self.delete_work(entity, work_id)
        row.owner, row.state = None, state
        row.next_ms = state.next_ms
        self._enqueue(row)
        if state.dead_ms is not None:
            self._leave_queue(entity, work_id)
        return True

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due."""
        first = self._oldest(self._lines_of(lane, names))
        return None if first is None else first[0]

    def count(self, lane: Lane) -> int:
        """How many rows of a lane are in line."""
        return sum(id_.lane == lane and row.next_ms is not None for (_, id_), row in self._rows.items())

    def list_work(self, query: WorkQuery) -> WorkPage:
        """Work by lane, name and entity, in the order of entities and ids."""
        matching = (row for row in self._candidates(query) if _matches(row, query))
        found = sorted(matching, key=lambda row: (row.entity, row.work.id))
        rows = [row for row in found if query.after is None or _cursor(row) > query.after]
        page = rows[: query.limit]
        return WorkPage(tuple(_listed(row) for row in page), _cursor(page[-1]) if len(rows) > len(page) else None)

    def _candidates(self, query: WorkQuery) -> Iterable[_Row]:
        """The rows to look at. A query for one piece, as for every result of a child, is one lookup."""
        if query.entity is None or query.id is None:
            return self._rows.values()
        row = self._rows.get((query.entity, query.id))
        return () if row is None else (row,)

    def requeue_dead_letter(self, entity: str, work_id: WorkId, *, now_ms: int) -> bool:
        """Retry dead work from its first attempt."""
        row = self._rows.get((entity, work_id))
        if row is None or row.state.dead_ms is None:
            return False
        row.state = work_state.requeue_dead_letter(row.state, now_ms)
        row.next_ms = row.state.next_ms
        if work_id.lane in ORDERED_LANES:
            insort(self._queues.setdefault((entity, work_id.lane), []), work_id)
        self._enqueue(row)
        return True

    def save_details(self, claim: Claim, error: Any) -> bool:
        """Record progress or an error of claimed work; False when the claim is no longer valid."""
        row = self._held(claim)
        if row is None:
            return False
        row.state = replace(row.state, error=error)
        return True

    def delete_work(self, entity: str, work_id: WorkId) -> bool:
        """Delete work; False when it does not exist."""
        row = self._rows.pop((entity, work_id), None)
        if row is None:
            return False
        if row.state.dead_ms is None:
            self._leave_queue(entity, work_id)
        elif work_id.lane in ORDERED_LANES:
            self._enqueue_first(entity, work_id.lane)
        return True

    # For a store that records the state elsewhere

    def state(self, entity: str, work_id: WorkId) -> WorkState | None:
        """The state of a piece of work; None when it does not exist."""
        row = self._rows.get((entity, work_id))
        return None if row is None else row.state

    def set_state(self, entity: str, work_id: WorkId, state: WorkState) -> None:
        """Take over a state from outside. Claimed work stays claimed, and only takes over whether it was cancelled.

        In an ordered lane the table itself decides which row is first.
        """
        row = self._rows.get((entity, work_id))
        if row is None:
            return
        if row.owner is not None:
            row.state = replace(row.state, cancelled=state.cancelled)
            return
        was_dead, is_dead = row.state.dead_ms is not None, state.dead_ms is not None
        keeps_place = work_id.lane in ORDERED_LANES and not is_dead and not state.parked and state.next_ms is None
        row.state = state
        if not keeps_place:
            row.next_ms = due_ms(row.work, state)
        self._enqueue(row)
        if is_dead and not was_dead:
            self._leave_queue(entity, work_id)
        elif was_dead and not is_dead and work_id.lane in ORDERED_LANES:
            insort(self._queues.setdefault((entity, work_id.lane), []), work_id)

    def count_attempts(self, claim: Claim, *, attempts: int, failures: int) -> Claim:
        """Take over how often another system has tried claimed work; return the claim with these numbers."""
        row = self._held(claim)
        if row is None:
            return claim
        row.state = replace(row.state, attempts=attempts, failures=failures)
        return _claim(row)

    # Lines

    def _lines_of(self, lane: Lane, names: tuple[str, ...] | None) -> list[_Line]:
        if names is not None:
            return [(lane, name) for name in names]
        return [line for line in self._lines if line[0] == lane]

    def _enqueue(self, row: _Row) -> None:
        """Put a row in line, if it waits for a time."""
        work_id = row.work.id
        if row.next_ms is not None:
            line = (work_id.lane, row.work.name if work_id.lane == "effect" else "")
            heappush(self._lines.setdefault(line, []), (row.next_ms, row.entity, work_id))

    def _enqueue_first(self, entity: str, lane: Lane) -> None:
        """Put the first living row of an ordered lane in line, unless it is."""
        queue = self._queues.get((entity, lane))
        row = self._rows[entity, queue[0]] if queue else None
        if row is not None and row.next_ms is None:
            row.next_ms = row.work.due_ms
            self._enqueue(row)

    def _oldest(self, lines: list[_Line]) -> tuple[int, _Line, _Row] | None:
        """The first of all these lines: a handler with too much work must not starve the others."""
        rows = ((row.next_ms, line, row) for line in lines if (row := self._first(line)) is not None)
        waiting = ((next_ms, line, row) for next_ms, line, row in rows if next_ms is not None)
        return min(waiting, key=lambda each: each[0], default=None)

    def _first(self, line: _Line) -> _Row | None:
        """The first row in line; outdated places are dropped on the way."""
        waiting = self._lines.get(line)
        while waiting:
            next_ms, entity, work_id = waiting[0]
            row = self._rows.get((entity, work_id))
            if row is not None and row.next_ms == next_ms:
                return row
            heappop(waiting)
        self._lines.pop(line, None)
        return None

    def _held(self, claim: Claim) -> _Row | None:
        row = self._rows.get((claim.entity, claim.work.id))
        return row if row is not None and is_valid_claim(row.state, claim.attempt, claim.failures) else None

    def _leave_queue(self, entity: str, work_id: WorkId) -> None:
        """A row of an ordered lane leaves the queue of its entity: the one after it is next."""
        if work_id.lane not in ORDERED_LANES:
            return
        queue = self._queues[entity, work_id.lane]
        queue.remove(work_id)
        if not queue:
            del self._queues[entity, work_id.lane]
        self._enqueue_first(entity, work_id.lane)


def _claim(row: _Row) -> Claim:
    state = row.state
    return Claim(row.entity, row.work, state.attempts, state.failures, state.cancelled)


def _matches(row: _Row, query: WorkQuery) -> bool:
    return (
        query.kind in (None, row.entity.partition("/")[0])
        and query.lane in (None, row.work.id.lane)
        and query.name in (None, row.work.name)
        and query.entity in (None, row.entity)
        and query.id in (None, row.work.id)
        and query.dead in (None, row.state.dead_ms is not None)
    )


def _cursor(row: _Row) -> str:
    work_id = row.work.id
    return f"{row.entity}\0{work_id.lane}\0{work_id.version:020}\0{work_id.ordinal:06}"


def _listed(row: _Row) -> WorkRow:
    state = row.state
    return WorkRow(
        row.entity,
        row.work,
        state.attempts,
        state.failures,
        row.next_ms,
        row.owner,
        state.error,
        state.dead_ms,
        state.cancelled,
    )
