"""Work of a SQL store as rows: how they are decoded, listed, annotated and requeued.

Rule 1: a list is in the order of the primary key. It stops after `WALK_MAX` rows and returns a cursor to continue from,
so a page may be short, or empty, and still have a next one.
Rule 2: a body that cannot be decoded is shown as None: the list is how an operator finds the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.work import Work, WorkId
from interlock.ports.store import PAGE_MAX
from interlock.ports.work import Claim, WorkPage, WorkQuery, WorkRow
from interlock.stores.cursor import invalid_cursor
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, Statements

WALK_MAX = 5_000
"""Rows that one page reads at most: about ten milliseconds, whatever the size of the table. Filters by lane and name
have no index: every effect would pay for it, and only an operator asks now and then."""

RELEASED_MAX = 10_000
"""Rows of a queue that are looked at for the claims of a dead worker, those due first: its claims are among them, since
a lease is shorter than ten minutes. Beyond that they end with their lease."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number that a database can compare with."""


def list_work(sql: Statements, tenant: str, query: WorkQuery) -> Questions[WorkPage]:
    """Return work by kind, lane, name, entity and place. Raises UsageError (`cursor.malformed`) for a bad cursor."""
    after = (query.kind or "", "", "", 0, 0) if query.after is None else _decode_cursor(query.after)
    limit = max(1, min(query.limit, PAGE_MAX))
    if query.entity is not None:
        return (yield from _list_of_entity(sql, tenant, query, after, limit))
    statement = sql.dead_work if query.dead else sql.work
    found: list[WorkRow] = []
    piece, remaining = limit + 1, WALK_MAX
    while remaining > 0:
        rows = yield Ask(statement, (tenant, *after, min(piece, remaining)))
        for row in rows:
            if query.kind not in (None, row[0]):  # the rows of a kind lie together
                return WorkPage(tuple(found))
            if len(found) == limit:
                return WorkPage(tuple(found), _encode_cursor(after))
            after = tuple(row[:5])
            if _matches(row, query):
                found.append(decode_row(row))
        if len(rows) < min(piece, remaining):
            return WorkPage(tuple(found))
        remaining -= len(rows)
        piece *= 2
    return WorkPage(tuple(found), _encode_cursor(after))


def _list_of_entity(
    sql: Statements, tenant: str, query: WorkQuery, after: tuple[Any, ...], limit: int
) -> Questions[WorkPage]:
    assert query.entity is not None
    kind, own = split_entity(query.entity)
    if query.kind not in (None, kind):
        return WorkPage(())
    place = (query.lane, None, None) if query.id is None else place_values(query.id)
    values = (tenant, *after, kind, own, *place, query.name, query.dead, limit + 1)
    rows = yield Ask(sql.work_of_entity, values)
    page = rows[:limit]
    return WorkPage(tuple(map(decode_row, page)), _encode_cursor(page[-1]) if len(rows) > limit else None)


def annotate_work(sql: Statements, tenant: str, claim: Claim, error: Any) -> Questions[bool]:
    """Store a note with the work of a claim; False when the claim is no longer valid."""
    return bool((yield Ask(sql.annotate_work, (tenant, *claim_values(claim), encode_error(error)))))


def requeue_dead_work(sql: Statements, tenant: str, entity: str, work_id: WorkId, now_ms: int) -> Questions[bool]:
    """Requeue a dead letter from its first attempt; False when there is none."""
    at_ms = sql.clock_value(now_ms, now_ms=now_ms)
    return bool((yield Ask(sql.requeue_dead_work, (tenant, *split_entity(entity), *place_values(work_id), at_ms))))


def _matches(row: Sequence[Any], query: WorkQuery) -> bool:
    lane, version, ordinal, name, dead_ms = row[2], row[3], row[4], row[5], row[13]
    return (
        query.lane in (None, lane)
        and query.name in (None, name)
        and query.id in (None, WorkId(lane, version, ordinal))
        and query.dead in (None, dead_ms is not None)
    )


# Rows and values


def place_values(work_id: WorkId) -> tuple[str, int, int]:
    """Return the values that name one piece of work of an entity."""
    return work_id.lane, work_id.version, work_id.ordinal


def queue_line(lane: str, name: str) -> str:
    """Return the queue within a lane: one for each handler, one for all work of any other lane."""
    return name if lane == "effect" else ""


def claim_values(claim: Claim) -> tuple[Any, ...]:
    """Return the values by which a claim is recognized: name, place, attempt and failures."""
    return (*split_entity(claim.entity), *place_values(claim.work.id), claim.attempt, claim.failures)


def encode_error(error: Any) -> bytes | None:
    """Return an error as it is stored."""
    return None if error is None else encode(error)


def unreadable_error(error: BaseException) -> dict[str, str]:
    """Return what is stored with work whose body cannot be decoded."""
    return {"code": "work.unreadable", "message": f"cannot decode the work: {error}"[:500]}


def decode_claim(row: Sequence[Any]) -> Claim:
    """Return a claimed row. Raises one of `UNDECODABLE` when its body cannot be decoded."""
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, cancelled = row
    work = Work(WorkId(lane, version, ordinal), name, msgspec.json.decode(body), due_ms)
    return Claim(f"{kind}/{own}", work, attempts, failures, bool(cancelled))


def decode_row(row: Sequence[Any]) -> WorkRow:
    """Return a listed row."""
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms, off = row
    return WorkRow(
        f"{kind}/{own}",
        Work(WorkId(lane, version, ordinal), name, _decode_or_none(body), due_ms),
        attempts,
        failures,
        next_ms,
        owner,
        _decode_or_none(error),
        dead_ms,
        bool(off),
    )


def _decode_or_none(text: bytes | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except UNDECODABLE:
        return None


def _encode_cursor(row: Sequence[Any]) -> str:
    return encode(tuple(row[:5])).decode()


def _decode_cursor(cursor: str) -> tuple[Any, ...]:
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str, str, Number, Number])
    except UNDECODABLE as error:
        raise invalid_cursor() from error
