"""Work in a SQLite file: the statements by which it is kept, taken up, held and let go.

Rule 1: work is born, ended and called off inside the transaction of its entry (`keep`); all else changes hands only.
Rule 2: every claim walks one index from its oldest row on; nothing here looks at work that is not due.
Rule 3: of an entity's ordered lanes only the first living row stands in line; whatever takes it out lets the next in.
Rule 4: a row that cannot be read is set aside as a dead letter that says so; the others go on.
`WorkTable` is the same in memory, and the tests hold the two against each other.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.codec import encode
from interlock.model.journal import work_state
from interlock.model.journal.work import ORDERED_LANES, Lane, Work, WorkDelta, WorkId
from interlock.model.journal.work_state import WorkState
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.stores.cursor import Milliseconds

Name = tuple[str, str, str]
"""Tenant, kind and id."""

Key = tuple[str, str, str, Lane, int, int]
"""A name, and which of its work: lane, version and ordinal."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON, or none that ends."""

INSERT_WORK = """
    INSERT INTO work (tenant, kind, id, lane, version, ordinal, line, name, body, due_ms, next_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DELETE_WORK = """
    DELETE FROM work WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
CALL_OFF = """
    UPDATE work SET cancelled = 1, next_ms = CASE WHEN owner IS NULL THEN due_ms ELSE next_ms END
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
DELETE_CALLED_OFF = """
    DELETE FROM work WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND (attempts = 0 OR dead_ms IS NOT NULL)"""
FIRST_SENT = """
    SELECT version, ordinal, due_ms, next_ms FROM work
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND dead_ms IS NULL
    ORDER BY version, ordinal LIMIT 1"""
LET_IN = """
    UPDATE work SET next_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_FENCE = """
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
SELECT_HELD = """
    SELECT cancelled FROM work
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND attempts = ? AND failures = ? AND dead_ms IS NULL"""
LET_GO = """
    UPDATE work SET owner = NULL, error = ?, next_ms = ?, dead_ms = ?, failures = failures + ?, attempts = attempts - ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
NOTE = """
    UPDATE work SET error = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?
      AND attempts = ? AND failures = ? AND dead_ms IS NULL"""
SET_ASIDE = """
    UPDATE work SET owner = NULL, next_ms = NULL, dead_ms = ?, error = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ?"""
SELECT_SOONEST = """
    SELECT min(next_ms) FROM work INDEXED BY work_by_time
    WHERE tenant = ? AND lane = ? AND line = ? AND next_ms IS NOT NULL"""
REVIVE = """
    UPDATE work SET dead_ms = NULL, attempts = 0, failures = 0, error = NULL, next_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND lane = ? AND version = ? AND ordinal = ? AND dead_ms IS NOT NULL"""
SELECT_WORKS = """
    SELECT kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
           cancelled
    FROM work
    WHERE tenant = ? AND (kind, id, lane, version, ordinal) > (?, ?, ?, ?, ?)
    ORDER BY kind, id, lane, version, ordinal"""
SELECT_WORKS_OF_ONE = """
    SELECT kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
           cancelled
    FROM work
    WHERE tenant = ?1 AND kind = ?7 AND id = ?8 AND (+kind, id, lane, version, ordinal) > (?2, ?3, ?4, ?5, ?6)
      AND (?9 IS NULL OR lane = ?9)
      AND (?10 IS NULL OR version = ?10) AND (?11 IS NULL OR ordinal = ?11) AND (?12 IS NULL OR name = ?12)
      AND (?13 IS NULL OR (dead_ms IS NOT NULL) = ?13)
    ORDER BY kind, id, lane, version, ordinal LIMIT ?14"""
"""Of one entity: every delivery to a parent or a child asks so. The `+` keeps the cursor from choosing the index."""
SELECT_WORKS_DEAD = """
    SELECT kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
           cancelled
    FROM work
    WHERE tenant = ? AND dead_ms IS NOT NULL AND (kind, id, lane, version, ordinal) > (?, ?, ?, ?, ?)
    ORDER BY kind, id, lane, version, ordinal"""
"""Dead letters only: millions of living rows are not walked over for them."""

WALK_MAX = 5_000
"""Rows that one answer reads at most: some ten milliseconds, at any size of the table. A filter by lane or name narrows
the walk: an index for it would be paid for by every effect, and is asked for by a person now and then."""


def keep(connection: sqlite3.Connection, name: Name, left: WorkDelta) -> None:
    """What an entry leaves, ends and calls off."""
    if left.born:
        connection.executemany(INSERT_WORK, [_row(name, each) for each in left.born])
    for place in left.ended:
        _remove(connection, name, place)
    for place in left.cancelled:
        key = (*name, *_parts(place))
        if connection.execute(DELETE_CALLED_OFF, key).rowcount == 0:
            connection.execute(CALL_OFF, key)
        elif place.lane in ORDERED_LANES:
            _let_in(connection, name, place.lane)
    for lane in ORDERED_LANES:
        if any(each.place.lane == lane for each in left.born):
            _let_in(connection, name, lane)


def fence(connection: sqlite3.Connection, name: Name, place: WorkId) -> int | None:
    """The number of the newest attempt at some work; None when there is no such work."""
    found = connection.execute(SELECT_FENCE, (*name, *_parts(place))).fetchone()
    return None if found is None else int(found[0])


def is_due(connection: sqlite3.Connection, tenant: str, lane: Lane, names: tuple[str, ...] | None, now_ms: int) -> bool:
    """Whether a claim would find something: a question that writes nothing."""
    lines = _lines(connection, tenant, lane, names)
    return any(connection.execute(SELECT_DUE, (tenant, lane, line, now_ms, 1)).fetchone() for line in lines)


def claim(
    connection: sqlite3.Connection,
    tenant: str,
    lane: Lane,
    names: tuple[str, ...] | None,
    *,
    owner: str,
    now_ms: int,
    until_ms: int,
    limit: int,
) -> tuple[Claim, ...]:
    """Take up work that is due, oldest first."""
    due: list[tuple[int, str, str, int, int]] = []
    for line in _lines(connection, tenant, lane, names):
        due += connection.execute(SELECT_DUE, (tenant, lane, line, now_ms, limit)).fetchall()
    due.sort(key=lambda row: row[0])  # of all lines: a handler with too much to do must not starve the others
    keys = [(tenant, kind, own, lane, version, ordinal) for _, kind, own, version, ordinal in due[:limit]]
    claims = (_claimed(connection, key, owner, now_ms=now_ms, until_ms=until_ms) for key in keys)
    return tuple(each for each in claims if each is not None)


def _claimed(connection: sqlite3.Connection, key: Key, owner: str, *, now_ms: int, until_ms: int) -> Claim | None:
    """Take up one row; one that cannot be read is set aside instead."""
    try:
        return _claim(connection.execute(CLAIM, (owner, until_ms, *key)).fetchone())
    except UNREADABLE as error:
        why = {"code": "work.unreadable", "message": f"what is to be done cannot be read: {error}"[:500]}
        connection.execute(SET_ASIDE, (now_ms, encode(why), *key))
        if key[3] in ORDERED_LANES:
            _let_in(connection, key[:3], key[3])
        return None


def renew(
    connection: sqlite3.Connection, tenant: str, claims: tuple[Claim, ...], until_ms: int
) -> tuple[Claim | None, ...]:
    """Hold claims longer."""
    answers: list[Claim | None] = []
    for each in claims:
        key = (*_name(tenant, each.entity), *_parts(each.work.place))
        row = connection.execute(RENEW, (until_ms, *key, each.attempt, each.failures)).fetchone()
        answers.append(None if row is None else replace(each, cancelled=bool(row[0])))
    return tuple(answers)


def note(connection: sqlite3.Connection, tenant: str, each: Claim, error: Any) -> bool:
    """Keep this beside the work of a claim."""
    key = (*_name(tenant, each.entity), *_parts(each.work.place))
    kept = None if error is None else encode(error)
    return connection.execute(NOTE, (kept, *key, each.attempt, each.failures)).rowcount == 1


def settle(
    connection: sqlite3.Connection, tenant: str, settled: tuple[Settlement, ...], now_ms: int
) -> tuple[bool, ...]:
    """Let go of claims."""
    return tuple(_settle(connection, tenant, each, now_ms) for each in settled)


def _settle(connection: sqlite3.Connection, tenant: str, settled: Settlement, now_ms: int) -> bool:
    each = settled.claim
    name, place = _name(tenant, each.entity), each.work.place
    if settled.verdict == "done":
        return _remove(connection, name, place)
    key = (*name, *_parts(place))
    held = connection.execute(SELECT_HELD, (*key, each.attempt, each.failures)).fetchone()
    if held is None:
        return False
    state = work_state.settle(
        each.work,
        WorkState(attempts=each.attempt, failures=each.failures, cancelled=bool(held[0])),
        settled.verdict,
        next_ms=settled.next_ms,
        error=settled.error,
        expired=settled.lapsed,
        started=settled.begun,
        now_ms=now_ms,
    )
    if state is None:
        return _remove(connection, name, place)
    error = None if state.error is None else encode(state.error)
    counts = (state.failures - each.failures, each.attempt - state.attempts)
    connection.execute(LET_GO, (error, state.next_ms, state.dead_ms, *counts, *key))
    if state.dead_ms is not None and place.lane in ORDERED_LANES:
        _let_in(connection, name, place.lane)
    return True


def soonest(connection: sqlite3.Connection, tenant: str, lane: Lane, names: tuple[str, ...] | None) -> int | None:
    """When the next work is due."""
    lines = _lines(connection, tenant, lane, names)
    found = (connection.execute(SELECT_SOONEST, (tenant, lane, line)).fetchone()[0] for line in lines)
    return min((each for each in found if each is not None), default=None)


def works(connection: sqlite3.Connection, tenant: str, query: WorkQuery) -> WorkPage:
    """Work by lane, name, entity and place, page by page; a page may be short, or empty, and still have a next one."""
    after = (query.kind or "", "", "", 0, 0) if query.after is None else _decoded_cursor(query.after)
    if query.entity is None:
        return _walked(connection, (tenant, *after), query)
    place = (query.lane, None, None) if query.place is None else _parts(query.place)
    dead = None if query.dead is None else int(query.dead)
    kind, own = query.entity.split("/", 1)
    if query.kind not in (None, kind):
        return WorkPage(())
    values = (tenant, *after, kind, own, *place, query.name, dead, query.limit + 1)
    rows = connection.execute(SELECT_WORKS_OF_ONE, values).fetchall()
    page = rows[: query.limit]
    return WorkPage(tuple(_listed(row) for row in page), _cursor(page[-1]) if len(rows) > len(page) else None)


def _walked(connection: sqlite3.Connection, start: tuple[Any, ...], query: WorkQuery) -> WorkPage:
    """Walk along the order of lists, or along the dead in it, for as many rows as one answer may read."""
    found: list[WorkRow] = []
    last: tuple[Any, ...] | None = None
    rows = connection.execute(SELECT_WORKS_DEAD if query.dead else SELECT_WORKS, start)
    try:
        for read, row in enumerate(rows):
            if query.kind not in (None, row[0]):  # its rows lie together
                break
            if read == WALK_MAX or len(found) == query.limit:
                return WorkPage(tuple(found), None if last is None else _cursor(last))
            last = row
            if _wanted(row, query):
                found.append(_listed(row))
    finally:
        rows.close()  # an open walk would keep the log from being put away
    return WorkPage(tuple(found))


def _wanted(row: tuple[Any, ...], query: WorkQuery) -> bool:
    _, _, lane, version, ordinal, name, *_, dead_ms, _ = row
    return (
        query.lane in (None, lane)
        and query.name in (None, name)
        and query.place in (None, WorkId(lane, version, ordinal))
        and query.dead in (None, dead_ms is not None)
    )


def revive(connection: sqlite3.Connection, tenant: str, entity: str, place: WorkId, now_ms: int) -> bool:
    """Let dead work be tried again, from its first attempt."""
    name = _name(tenant, entity)
    return connection.execute(REVIVE, (now_ms, *name, *_parts(place))).rowcount == 1


def drop(connection: sqlite3.Connection, tenant: str, entity: str, place: WorkId) -> bool:
    """Forget work."""
    return _remove(connection, _name(tenant, entity), place)


def _remove(connection: sqlite3.Connection, name: Name, place: WorkId) -> bool:
    removed = connection.execute(DELETE_WORK, (*name, *_parts(place))).rowcount == 1
    if removed and place.lane in ORDERED_LANES:
        _let_in(connection, name, place.lane)
    return removed


def _let_in(connection: sqlite3.Connection, name: Name, lane: Lane) -> None:
    """Put the first living row of an ordered lane in line, unless it stands there."""
    found = connection.execute(FIRST_SENT, (*name, lane)).fetchone()
    if found is not None and found[3] is None:
        version, ordinal, due_ms, _ = found
        connection.execute(LET_IN, (due_ms, *name, lane, version, ordinal))


def _lines(connection: sqlite3.Connection, tenant: str, lane: Lane, names: tuple[str, ...] | None) -> tuple[str, ...]:
    if lane != "effect":
        return ("",)
    if names is not None:
        return names
    return tuple(line for (line,) in connection.execute(SELECT_LINES, (tenant, lane)))


def _name(tenant: str, entity: str) -> Name:
    kind, _, own = entity.partition("/")
    return tenant, kind, own


def _parts(place: WorkId) -> tuple[str, int, int]:
    return place.lane, place.version, place.ordinal


def _row(name: Name, work: Work) -> tuple[Any, ...]:
    place = work.place
    line = work.name if place.lane == "effect" else ""
    next_ms = None if place.lane in ORDERED_LANES else work.due_ms
    return (*name, *_parts(place), line, work.name, encode(work.body), work.due_ms, next_ms)


def _claim(row: tuple[Any, ...]) -> Claim:
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, cancelled = row
    work = Work(WorkId(lane, version, ordinal), name, msgspec.json.decode(body), due_ms)
    return Claim(f"{kind}/{own}", work, attempts, failures, bool(cancelled))


def _listed(row: tuple[Any, ...]) -> WorkRow:
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms, off = row
    return WorkRow(
        f"{kind}/{own}",
        Work(WorkId(lane, version, ordinal), name, _readable(body), due_ms),
        attempts,
        failures,
        next_ms,
        owner,
        None if error is None else _readable(error),
        dead_ms,
        bool(off),
    )


def _readable(text: bytes) -> Any:
    """What was kept; None when it cannot be read: a list shows the row all the same."""
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return None


def _cursor(row: tuple[Any, ...]) -> str:
    return encode(row[:5]).decode()


def _decoded_cursor(cursor: str) -> tuple[str, str, str, int, int]:
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str, str, Milliseconds, Milliseconds])
    except (*UNREADABLE, UnicodeEncodeError) as error:
        raise UsageError(
            "this is not a cursor of a list", code="cursor.malformed", hint="take it from the last page"
        ) from error
