"""Work in a SQLite file: how it is written, claimed, held and released.

Rule 1: work is created, finished and cancelled in the transaction of its entry (`write_work`); everything else only
changes who holds it.
Rule 2: a claim reads one index from its oldest row; nothing here looks at work that is not due.
Rule 3: in the ordered lanes of an entity only its first living row can be claimed; when that row goes, the next one
becomes due.
Rule 4: a row that cannot be decoded becomes a dead letter with the reason; the others continue.
`WorkTable` is the reference in memory, and the tests compare the two.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal import work_state
from interlock.model.journal.work import LANES, ORDERED_LANES, Lane, Work, WorkDelta, WorkId
from interlock.model.journal.work_state import WorkState
from interlock.ports.work import Claim, Settlement
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Name, Questions
from interlock.stores.sql.work_lists import (
    RELEASED_MAX,
    claim_values,
    decode_claim,
    encode_error,
    place_values,
    queue_line,
    unreadable_error,
)
from interlock.stores.sqlite.connection import run_questions

Key = tuple[str, str, str, Lane, int, int]
"""Name of the entity, and lane, version and ordinal of the work."""

INSERT_WORK = """
    INSERT INTO work (tenant, kind, id, lane, version, ordinal, line, name, body, due_ms, next_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DELETE_WORK = """
    DELETE FROM work WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
    RETURNING 1"""
DELETE_FINISHED = """
    DELETE FROM work WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
MARK_CANCELLED = """
    UPDATE work SET cancelled = 1, next_ms = CASE WHEN owner IS NULL THEN due_ms ELSE next_ms END
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
DELETE_UNSTARTED = """
    DELETE FROM work WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND (attempts = 0 OR dead_ms IS NOT NULL)"""
DELETE_CANCELLED = f"{DELETE_UNSTARTED} RETURNING 1"
SELECT_FIRST = """
    SELECT version, ordinal, due_ms, next_ms FROM work
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND dead_ms IS NULL
    ORDER BY version, ordinal LIMIT 1"""
MAKE_DUE = """
    UPDATE work SET next_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_ATTEMPT = """
    SELECT attempts FROM work
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_LINES = (
    "SELECT DISTINCT line FROM work INDEXED BY work_by_time WHERE tenant = ? AND lane = ? AND next_ms IS NOT NULL"
)
SELECT_DUE = """
    SELECT next_ms, kind, id, version, ordinal FROM work INDEXED BY work_by_time
    WHERE tenant = ? AND lane = ? AND line = ? AND next_ms <= ?
    ORDER BY next_ms LIMIT ?"""
CLAIM = """
    UPDATE work SET attempts = attempts + 1, owner = ?, next_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
    RETURNING kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, cancelled"""
RENEW = """
    UPDATE work SET next_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND attempts = ? AND failures = ? AND dead_ms IS NULL
    RETURNING cancelled"""
SELECT_CLAIMED = """
    SELECT cancelled FROM work
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND attempts = ? AND failures = ? AND dead_ms IS NULL"""
RELEASE = """
    UPDATE work SET owner = NULL, error = ?, next_ms = ?, dead_ms = ?, failures = failures + ?, attempts = attempts - ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_OWNED = """
    SELECT kind, id, version, ordinal FROM (
      SELECT kind, id, version, ordinal, owner FROM work INDEXED BY work_by_time
      WHERE tenant = ? AND lane = ? AND line = ? AND next_ms IS NOT NULL
      ORDER BY next_ms LIMIT ?)
    WHERE owner = ?"""
RELEASE_OWNED = """
    UPDATE work SET owner = NULL, next_ms = coalesce(due_ms, 0)
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ? AND owner = ?"""
BURY = """
    UPDATE work SET owner = NULL, next_ms = NULL, dead_ms = ?, error = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_NEXT_DUE = """
    SELECT min(next_ms) FROM work INDEXED BY work_by_time
    WHERE tenant = ? AND lane = ? AND line = ? AND next_ms IS NOT NULL"""


class SqliteWork:
    """The rules of work, for one tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    def is_due(self, lane: Lane, names: tuple[str, ...] | None, now_ms: int) -> Questions[bool]:
        """Return whether a claim would find something. It writes nothing."""
        for line in (yield from self._lines(lane, names)):
            if (yield Ask(SELECT_DUE, (self._tenant, lane, line, now_ms, 1))):
                return True
        return False

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> Questions[tuple[Claim, ...]]:
        """Claim work that is due, oldest first."""
        due: list[tuple[int, str, str, int, int]] = []
        for line in (yield from self._lines(lane, names)):
            due += yield Ask(SELECT_DUE, (self._tenant, lane, line, now_ms, limit))
        due.sort(key=lambda row: row[0])  # over all lines: a busy handler must not starve the others
        claims: list[Claim] = []
        keys = [(kind, own, lane, version, ordinal) for _, kind, own, version, ordinal in due[:limit]]
        rows = (yield Ask(CLAIM, (owner, until_ms, self._tenant), keys)) if keys else ()
        for key, row in zip(keys, rows, strict=True):
            try:
                claims.append(decode_claim(row))
            except UNDECODABLE as error:
                yield from self._bury((self._tenant, *key), error, now_ms)
        return tuple(claims)

    def _bury(self, key: Key, error: BaseException, now_ms: int) -> Questions[None]:
        """Make a dead letter of a row that cannot be decoded."""
        yield Ask(BURY, (now_ms, encode(unreadable_error(error)), *key))
        if key[3] in ORDERED_LANES:
            yield from _make_first_due(key[:3], key[3])

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> Questions[tuple[Claim | None, ...]]:
        """Extend the leases of claims; None for each that is no longer valid."""
        renewed: list[Claim | None] = []
        for each in claims:
            rows = yield Ask(RENEW, (until_ms, self._tenant, *claim_values(each)))
            renewed.append(replace(each, cancelled=bool(rows[0][0])) if rows else None)
        return tuple(renewed)

    def settle(self, settlements: tuple[Settlement, ...], *, now_ms: int) -> Questions[tuple[bool, ...]]:
        """Release claims; False for each that was no longer valid."""
        settled: list[bool] = []
        for each in settlements:
            settled += [(yield from self._settle(each, now_ms))]
        return tuple(settled)

    def _settle(self, settlement: Settlement, now_ms: int) -> Questions[bool]:
        claim = settlement.claim
        name, work_id = (self._tenant, *split_entity(claim.entity)), claim.work.id
        if settlement.verdict == "done":
            return (yield from _delete(name, work_id))
        held = yield Ask(SELECT_CLAIMED, (self._tenant, *claim_values(claim)))
        if not held:
            return False
        state = work_state.settle(
            claim.work,
            WorkState(attempts=claim.attempt, failures=claim.failures, cancelled=bool(held[0][0])),
            settlement.verdict,
            next_ms=settlement.next_ms,
            error=settlement.error,
            without_failure=settlement.without_failure,
            started=settlement.started,
            now_ms=now_ms,
        )
        if state is None:
            return (yield from _delete(name, work_id))
        counts = (state.failures - claim.failures, claim.attempt - state.attempts)
        values = (encode_error(state.error), state.next_ms, state.dead_ms, *counts)
        yield Ask(RELEASE, (*values, *name, *place_values(work_id)))
        if state.dead_ms is not None and work_id.lane in ORDERED_LANES:
            yield from _make_first_due(name, work_id.lane)
        return True

    def release_owner(self, owner: str) -> Questions[int]:
        """Make all claims of an owner due now; return how many. Their attempts stay counted: that is their fence."""
        count = 0
        for lane in LANES:
            for line in (yield from self._lines(lane, None)):
                rows = yield Ask(SELECT_OWNED, (self._tenant, lane, line, RELEASED_MAX, owner))
                for kind, own, version, ordinal in rows:
                    yield Ask(RELEASE_OWNED, (self._tenant, kind, own, lane, version, ordinal, owner))
                count += len(rows)
        return count

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> Questions[int | None]:
        """Return when the next work is due or its lease expires; None when there is none."""
        found: list[int] = []
        for line in (yield from self._lines(lane, names)):
            rows = yield Ask(SELECT_NEXT_DUE, (self._tenant, lane, line))
            found += [each for (each,) in rows if each is not None]
        return min(found, default=None)

    def delete(self, entity: str, work_id: WorkId) -> Questions[bool]:
        """Delete work; False when there is none."""
        return (yield from _delete((self._tenant, *split_entity(entity)), work_id))

    def _lines(self, lane: Lane, names: tuple[str, ...] | None) -> Questions[tuple[str, ...]]:
        """Return the queues of a lane: one for each handler, one for any other lane."""
        if lane != "effect":
            return ("",)
        if names is not None:
            return names
        return tuple(line for (line,) in (yield Ask(SELECT_LINES, (self._tenant, lane))))


def write_work(connection: sqlite3.Connection, deltas: Sequence[tuple[Name, WorkDelta]]) -> None:
    """Write the work that entries of different entities create, finish and cancel.

    Each statement runs once over the rows of all entries. Ordered lanes are the exception: there a row that is created
    or removed decides which row of its entity is due.
    """
    created = [_insert_values(name, each) for name, delta in deltas for each in delta.created]
    finished = [
        (*name, *place_values(each)) for name, delta in deltas for each in delta.finished if not _is_ordered(each)
    ]
    cancelled = [
        (*name, *place_values(each)) for name, delta in deltas for each in delta.cancelled if not _is_ordered(each)
    ]
    for statement, rows in (
        (INSERT_WORK, created),
        (DELETE_FINISHED, finished),
        (DELETE_UNSTARTED, cancelled),
        (MARK_CANCELLED, cancelled),  # those that are still there
    ):
        if rows:
            connection.executemany(statement, rows)
    for name, delta in deltas:
        ordered = [each for each in (*delta.finished, *delta.cancelled) if _is_ordered(each)]
        if ordered or any(_is_ordered(each.id) for each in delta.created):
            run_questions(connection, _write_ordered(name, delta))


def _is_ordered(work_id: WorkId) -> bool:
    return work_id.lane in ORDERED_LANES


def _write_ordered(name: Name, delta: WorkDelta) -> Questions[None]:
    """Finish and cancel the work of ordered lanes, and let the first row of each be claimed."""
    for work_id in filter(_is_ordered, delta.finished):
        yield from _delete(name, work_id)
    for work_id in filter(_is_ordered, delta.cancelled):
        key = (*name, *place_values(work_id))
        if (yield Ask(DELETE_CANCELLED, key)):
            yield from _make_first_due(name, work_id.lane)
        else:
            yield Ask(MARK_CANCELLED, key)
    for lane in ORDERED_LANES:
        if any(each.id.lane == lane for each in delta.created):
            yield from _make_first_due(name, lane)


def newest_attempt(connection: sqlite3.Connection, name: Name, work_id: WorkId) -> int | None:
    """Return the number of the newest attempt at some work; None when there is no such work."""
    found = connection.execute(SELECT_ATTEMPT, (*name, *place_values(work_id))).fetchone()
    return None if found is None else int(found[0])


def _delete(name: Name, work_id: WorkId) -> Questions[bool]:
    deleted = yield Ask(DELETE_WORK, (*name, *place_values(work_id)))
    if deleted and work_id.lane in ORDERED_LANES:
        yield from _make_first_due(name, work_id.lane)
    return bool(deleted)


def _make_first_due(name: Name, lane: Lane) -> Questions[None]:
    """Let the first living row of an ordered lane be claimed, unless it can be already."""
    found = yield Ask(SELECT_FIRST, (*name, lane))
    if found and found[0][3] is None:
        version, ordinal, due_ms, _ = found[0]
        yield Ask(MAKE_DUE, (due_ms, *name, lane, version, ordinal))


def _insert_values(name: Name, work: Work) -> tuple[Any, ...]:
    work_id = work.id
    next_ms = None if work_id.lane in ORDERED_LANES else work.due_ms
    line = queue_line(work_id.lane, work.name)
    return (*name, *place_values(work_id), line, work.name, encode(work.body), work.due_ms, next_ms)
