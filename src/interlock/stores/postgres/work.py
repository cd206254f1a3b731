"""Work on a PostgreSQL server: the statements by which it is taken up, held, let go and listed.

Rule 1: work is born, ended and called off in the statement of its entry (`postgres_statements`); here it changes hands.
Rule 2: every claim walks one index from its oldest row on, line by line, and passes over what another just takes up:
any number of workers claim side by side, and none waits for another.
Rule 3: the server's clock decides what is due and when a lease lapses. What a caller gives is a time of its own clock:
of that only the distance from its `now_ms` is used, so hosts whose clocks differ neither steal from each other nor wait
too long. Times that are given back to it are by its own clock again, as far as it was known at its last claim
(`ClockSkew`).
Lists and dead letters show the server's time.
Rule 4: several rows are locked in one order, so that batches wait for each other and never in a circle.
`WorkTable` is the same in memory, and the tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.codec import encode
from interlock.model.journal.work import Lane, Work, WorkId
from interlock.ports.store import PAGE_MAX
from interlock.ports.work import Claim, Settlement, WorkPage, WorkQuery, WorkRow
from interlock.stores.postgres.connection import Connection
from interlock.stores.sql.commit_plan import split_entity

CLAIM = """
    WITH due AS MATERIALIZED (
      SELECT d.place, d.next_ms
      FROM unnest($3::text[]) AS l (line) CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.next_ms FROM work AS w
        WHERE w.tenant = $1 AND w.lane = $2 AND w.line = l.line AND w.next_ms <= clock_ms()
        ORDER BY w.next_ms LIMIT $6 FOR NO KEY UPDATE SKIP LOCKED) AS d
      ORDER BY d.next_ms LIMIT $6),
    claimed AS (
      UPDATE work AS w SET attempts = w.attempts + 1, owner = $4, next_ms = clock_ms() + $5::bigint
      FROM due AS d
      WHERE w.ctid = ANY (ARRAY (SELECT place FROM due)) AND w.ctid = d.place
      RETURNING d.next_ms AS was_ms, w.kind, w.id, w.lane, w.version, w.ordinal, w.name, w.body, w.due_ms, w.attempts,
                w.failures, w.cancelled)
    SELECT clock_ms(), c.kind, c.id, c.lane, c.version, c.ordinal, c.name, c.body, c.due_ms, c.attempts, c.failures,
           c.cancelled
    FROM (SELECT) AS always LEFT JOIN claimed AS c ON true
    ORDER BY c.was_ms"""
LINES = """
    WITH RECURSIVE found (line) AS (
      (SELECT line FROM work WHERE tenant = $1 AND lane = $2 AND next_ms IS NOT NULL ORDER BY line LIMIT 1)
      UNION ALL
      SELECT (SELECT w.line FROM work AS w
              WHERE w.tenant = $1 AND w.lane = $2 AND w.line > f.line AND w.next_ms IS NOT NULL ORDER BY w.line LIMIT 1)
      FROM found AS f WHERE f.line IS NOT NULL)
    SELECT line FROM found WHERE line IS NOT NULL"""
SOONEST = """
    SELECT min(s.next_ms)
    FROM unnest($3::text[]) AS l (line) CROSS JOIN LATERAL (
      SELECT w.next_ms FROM work AS w
      WHERE w.tenant = $1 AND w.lane = $2 AND w.line = l.line AND w.next_ms IS NOT NULL
      ORDER BY w.next_ms LIMIT 1) AS s"""
RENEW = """
    SELECT renew_work($1, $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                      $9::bigint)"""
SETTLE = """
    SELECT settle_work($1, $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                       $9::text[], $10::boolean[], $11::bigint[], $12::bytea[], $13::boolean[], $14::boolean[])"""
NOTE = """
    UPDATE work SET error = $9
    WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND version = $5 AND ordinal = $6
      AND attempts = $7 AND failures = $8 AND dead_ms IS NULL
    RETURNING true"""
REVIVE = """
    UPDATE work SET dead_ms = NULL, attempts = 0, failures = 0, error = NULL, next_ms = clock_ms()
    WHERE tenant = $1 AND kind = $2 AND id = $3 AND lane = $4 AND version = $5 AND ordinal = $6 AND dead_ms IS NOT NULL
    RETURNING true"""
DROP = "SELECT drop_work($1, $2, $3, $4, $5, $6)"

_COLUMNS = """
    kind, id, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms,
    cancelled"""
_BEHIND = "tenant = $1 AND (kind, id, lane, version, ordinal) > ($2, $3, $4, $5::bigint, $6::bigint)"
_WANTED = """
    ($7::text IS NULL OR lane = $7) AND ($8::bigint IS NULL OR version = $8)
      AND ($9::bigint IS NULL OR ordinal = $9) AND ($10::text IS NULL OR name = $10)
      AND ($11::boolean IS NULL OR (dead_ms IS NOT NULL) = $11)"""

# A walk gives what is wanted among the next rows, and the last of them, wanted or not: from there the next one goes on.

_WALK = """
    WITH walked AS MATERIALIZED (
      SELECT {columns}, row_number() OVER (ORDER BY kind, id, lane, version, ordinal) AS n
      FROM work WHERE {behind} {narrowed} ORDER BY kind, id, lane, version, ordinal LIMIT $13),
    found AS (
      SELECT {columns}, n, {wanted} AND ($14::text IS NULL OR kind = $14) AS wanted FROM walked)
    SELECT {columns}, n, wanted FROM found WHERE wanted OR n = $13 ORDER BY n LIMIT $12"""
WALK = _WALK.format(columns=_COLUMNS, behind=_BEHIND, wanted=_WANTED, narrowed="")
WALK_DEAD = _WALK.format(columns=_COLUMNS, behind=_BEHIND, wanted=_WANTED, narrowed="AND dead_ms IS NOT NULL")
WORKS_OF_ONE = f"""
    SELECT {_COLUMNS} FROM work
    WHERE {_BEHIND} AND kind = $13 AND id = $14 AND {_WANTED}
    ORDER BY kind, id, lane, version, ordinal LIMIT $12"""  # noqa: S608 - made of constants

WALK_MAX = 5_000
"""Rows that one answer reads at most: some ten milliseconds, at any size of the table. A filter by lane or name narrows
the walk: an index for it would be paid for by every effect, and is asked for by a person now and then."""

START = ("", "", "", 0, 0)
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What the server can compare with."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON, or none that ends."""


class ClockSkew:
    """How far the server's clock is ahead of the driver's, as it was at the last claim: all that is known of it."""

    def __init__(self) -> None:
        self.ms = 0

    def note(self, server_ms: int, driver_ms: int) -> None:
        """Both clocks were read, one soon after the other."""
        self.ms = server_ms - driver_ms


async def claim(
    connection: Connection,
    tenant: str,
    lane: Lane,
    names: tuple[str, ...] | None,
    *,
    owner: str,
    now_ms: int,
    until_ms: int,
    limit: int,
    skew: ClockSkew,
) -> tuple[Claim, ...]:
    """Take up work that is due, oldest first: of all lines, so that a busy handler does not starve the others."""
    lines = await _lines(connection, tenant, lane, names)
    rows = await connection.fetch(CLAIM, tenant, lane, lines, owner, until_ms - now_ms, max(0, limit))
    skew.note(rows[0][0], now_ms)
    claims: list[Claim] = []
    for row in rows if rows[0][1] is not None else ():
        try:
            claims.append(_claim(row[1:]))
        except UNREADABLE as error:  # it is set aside for a person, and holds up nobody else
            unread = _claim((*row[1:7], b"null", *row[8:]))
            why = {"code": "work.unreadable", "message": f"what is to be done cannot be read: {error}"[:500]}
            await settle(connection, tenant, (Settlement(unread, "dead", error=why),), now_ms=now_ms)
    return tuple(claims)


async def renew(
    connection: Connection, tenant: str, claims: tuple[Claim, ...], *, until_ms: int, skew: ClockSkew
) -> tuple[Claim | None, ...]:
    """Hold claims longer."""
    order = _ordered(claims)
    columns = _columns([_held(claims[n]) for n in order], 7)
    answers = await connection.fetchval(RENEW, tenant, *columns, until_ms + skew.ms)
    found: dict[int, bool | None] = dict(zip(order, answers, strict=True))
    return tuple(None if (off := found[n]) is None else replace(each, cancelled=off) for n, each in enumerate(claims))


async def settle(
    connection: Connection, tenant: str, settled: tuple[Settlement, ...], *, now_ms: int
) -> tuple[bool, ...]:
    """Let go of claims."""
    order = _ordered([each.claim for each in settled])
    columns = _columns([(*_held(settled[n].claim), *_let_go(settled[n], now_ms)) for n in order], 13)
    answers = dict(zip(order, await connection.fetchval(SETTLE, tenant, *columns), strict=True))
    return tuple(answers[n] for n in range(len(settled)))


async def note(connection: Connection, tenant: str, claim: Claim, error: Any) -> bool:
    """Keep something beside the work of a claim."""
    return bool(await connection.fetchval(NOTE, tenant, *_held(claim), _encoded(error)))


async def soonest(
    connection: Connection, tenant: str, lane: Lane, names: tuple[str, ...] | None, *, skew: ClockSkew
) -> int | None:
    """When the next work is due, by the driver's clock."""
    found = await connection.fetchval(SOONEST, tenant, lane, await _lines(connection, tenant, lane, names))
    return None if found is None else int(found) - skew.ms


async def works(connection: Connection, tenant: str, query: WorkQuery) -> WorkPage:
    """Work by lane, name, entity and place, page by page; a page may be short, or empty, and still have a next one."""
    after = (query.kind or "", *START[1:]) if query.after is None else _decoded_cursor(query.after)
    place = (query.lane, None, None) if query.place is None else _parts(query.place)
    limit = max(1, min(query.limit, PAGE_MAX))
    values = (tenant, *after, *place, query.name, query.dead, limit + 1)
    if query.entity is not None:
        rows = await connection.fetch(WORKS_OF_ONE, *values, *split_entity(query.entity))
        rows = [row for row in rows if query.kind in (None, row[0])]
        page = rows[:limit]
        return WorkPage(tuple(_listed(row) for row in page), _cursor(page[-1]) if len(rows) > limit else None)
    narrowed = place != (None, None, None) or query.name is not None or query.dead is False
    reach = WALK_MAX if narrowed else limit + 1
    rows = await connection.fetch(WALK_DEAD if query.dead else WALK, *values, reach, query.kind)
    found = [row for row in rows if row[-1]]
    page = found[:limit]
    last = page[-1] if len(found) > limit else rows[-1] if rows and rows[-1][-2] == reach else None
    if last is not None and query.kind not in (None, last[0]):  # its rows lie together: those of others are behind them
        last = None
    return WorkPage(tuple(_listed(row[:-2]) for row in page), None if last is None else _cursor(last))


async def revive(connection: Connection, tenant: str, entity: str, place: WorkId) -> bool:
    """Let dead work be tried again, from its first attempt."""
    return bool(await connection.fetchval(REVIVE, tenant, *split_entity(entity), *_parts(place)))


async def drop(connection: Connection, tenant: str, entity: str, place: WorkId) -> bool:
    """Forget work."""
    return bool(await connection.fetchval(DROP, tenant, *split_entity(entity), *_parts(place)))


async def _lines(connection: Connection, tenant: str, lane: Lane, names: tuple[str, ...] | None) -> list[str]:
    if lane != "effect":
        return [""]
    if names is not None:
        return list(names)
    return [row[0] for row in await connection.fetch(LINES, tenant, lane)]


def _ordered(claims: Sequence[Claim]) -> list[int]:
    """The order in which their rows are locked; what is asked of one row stays in its order."""
    return sorted(range(len(claims)), key=lambda n: (split_entity(claims[n].entity), claims[n].work.place))


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True))) if rows else tuple([] for _ in range(width))


def _parts(place: WorkId) -> tuple[str, int, int]:
    return place.lane, place.version, place.ordinal


def _held(claim: Claim) -> tuple[Any, ...]:
    return (*split_entity(claim.entity), *_parts(claim.work.place), claim.attempt, claim.failures)


def _let_go(settled: Settlement, now_ms: int) -> tuple[Any, ...]:
    again = settled.verdict == "again"
    return (
        settled.verdict,
        settled.claim.work.is_saga_step,
        settled.next_ms - now_ms if again else None,
        _encoded(settled.error),
        again and not settled.lapsed,
        settled.begun,
    )


def _encoded(error: Any) -> bytes | None:
    return None if error is None else encode(error)


def _claim(row: Sequence[Any]) -> Claim:
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, cancelled = row
    work = Work(WorkId(lane, version, ordinal), name, msgspec.json.decode(body), due_ms)
    return Claim(f"{kind}/{own}", work, attempts, failures, cancelled)


def _listed(row: Sequence[Any]) -> WorkRow:
    kind, own, lane, version, ordinal, name, body, due_ms, attempts, failures, next_ms, owner, error, dead_ms, off = row
    return WorkRow(
        f"{kind}/{own}",
        Work(WorkId(lane, version, ordinal), name, _read(body), due_ms),
        attempts,
        failures,
        next_ms,
        owner,
        _read(error),
        dead_ms,
        off,
    )


def _read(body: bytes | None) -> Any:
    """What a list shows: nothing in place of what does not read, because the list is how a person finds it."""
    try:
        return None if body is None else msgspec.json.decode(body)
    except UNREADABLE:
        return None


def _cursor(row: Sequence[Any]) -> str:
    return encode(tuple(row[:5])).decode()


def _decoded_cursor(cursor: str) -> tuple[str, str, str, int, int]:
    try:
        return msgspec.json.decode(cursor, type=tuple[str, str, str, Number, Number])
    except (*UNREADABLE, UnicodeEncodeError) as error:
        raise UsageError(
            "this is not a cursor of a list", code="cursor.malformed", hint="take it from the last page"
        ) from error
