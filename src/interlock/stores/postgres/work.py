"""Work on a PostgreSQL server: how it is claimed, held and released.

Rule 1: work is created, finished and cancelled in the statement of its entry (`commit`); here it only changes hands.
Rule 2: every claim reads one index from its oldest row, queue by queue, and skips rows that another claim has locked:
any number of workers claim concurrently, and none waits for another.
Rule 3: the server's clock decides what is due and when a lease expires. A time that a caller gives is by the caller's
clock: only its distance from the caller's `now_ms` is used, so hosts whose clocks differ neither steal from each other
nor wait too long. Times that are returned are by the caller's clock again, as far as it was known at its last claim
(`ClockSkew`). Lists and dead letters show the server's time.
Rule 4: no batch waits for a row that another transaction has locked: a transaction of a caller (`join`) may hold it for
long. A renewal is repeated by the next one; a settlement waits apart, for `SETTLE_PATIENCE_MS` at most.
`WorkTable` is the reference in memory, and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from interlock.model.encoding.codec import UNDECODABLE
from interlock.model.journal.work import LANES, Lane, WorkId
from interlock.ports.work import Claim, Settlement
from interlock.stores.postgres.commit import columns
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions
from interlock.stores.sql.work_lists import (
    RELEASED_MAX,
    claim_values,
    decode_claim,
    encode_error,
    place_values,
    unreadable_error,
)

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
NEXT_DUE = """
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
WAIT = "SELECT wait_for_work($1, $2, $3, $4, $5, $6, $7)"
RELEASE_OWNED = """
    WITH owned AS MATERIALIZED (
      SELECT d.place
      FROM unnest($3::text[]) AS l (line) CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.owner FROM work AS w
        WHERE w.tenant = $1 AND w.lane = $2 AND w.line = l.line AND w.next_ms IS NOT NULL
        ORDER BY w.next_ms LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED) AS d
      WHERE d.owner = $4)
    UPDATE work AS w SET owner = NULL, next_ms = coalesce(w.due_ms, 0)
    WHERE w.ctid = ANY (ARRAY (SELECT place FROM owned)) AND w.owner = $4
    RETURNING 1"""
DELETE = "SELECT drop_work($1, $2, $3, $4, $5, $6)"

SETTLE_PATIENCE_MS = 200
"""How long a settlement waits for a locked row: our own transactions last as long as a flush. The row of a longer one
is left as it is; its lease expires, and the work runs again under its key."""


class ClockSkew:
    """How far the server's clock is ahead of the caller's, as it was at the last claim."""

    def __init__(self) -> None:
        self.ms = 0

    def record(self, server_ms: int, caller_ms: int) -> None:
        """Record two clocks that were read one shortly after the other."""
        self.ms = server_ms - caller_ms


class PostgresWork:
    """The rules of work, for one tenant."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._skew = ClockSkew()

    def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> Questions[tuple[Claim, ...]]:
        """Claim work that is due, oldest first over all queues, so that a busy handler does not starve the others."""
        lines = yield from self._lines(lane, names)
        rows = yield Ask(CLAIM, (self._tenant, lane, lines, owner, until_ms - now_ms, max(0, limit)))
        self._skew.record(rows[0][0], now_ms)
        claims: list[Claim] = []
        for row in rows if rows[0][1] is not None else ():
            try:
                claims.append(decode_claim(row[1:]))
            except UNDECODABLE as error:  # it becomes a dead letter, and delays no other work
                unreadable = decode_claim((*row[1:7], b"null", *row[8:]))
                dead = Settlement(unreadable, "dead", error=unreadable_error(error))
                yield from self.settle((dead,), now_ms=now_ms)
        return tuple(claims)

    def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> Questions[tuple[Claim | None, ...]]:
        """Extend the leases of claims; None for each that is no longer valid."""
        order = _lock_order(claims)
        values = columns([claim_values(claims[n]) for n in order], 7)
        ((answers,),) = yield Ask(RENEW, (self._tenant, *values, until_ms + self._skew.ms))
        found: dict[int, bool | None] = dict(zip(order, answers, strict=True))
        return tuple(
            None if (is_cancelled := found[n]) is None else replace(each, cancelled=is_cancelled)
            for n, each in enumerate(claims)
        )

    def settle(self, settlements: tuple[Settlement, ...], *, now_ms: int) -> Questions[tuple[bool, ...]]:
        """Release claims; False for each that was no longer valid, or whose row stays locked."""
        order = _lock_order([each.claim for each in settlements])
        rows = [(*claim_values(settlements[n].claim), *_settlement_values(settlements[n], now_ms)) for n in order]
        ((answers,),) = yield Ask(SETTLE, (self._tenant, *columns(rows, 13)))
        found: dict[int, bool | None] = dict(zip(order, answers, strict=True))
        for n, row in zip(order, rows, strict=True):
            if found[n] is None:
                found[n] = yield from self._settle_locked(row)
        return tuple(bool(found[n]) for n in range(len(settlements)))

    def _settle_locked(self, row: tuple[Any, ...]) -> Questions[bool]:
        """Settle a claim whose row is locked; False when it stays locked for too long."""
        ((is_free,),) = yield Ask(WAIT, (self._tenant, *row[:5], SETTLE_PATIENCE_MS))
        if not is_free:
            return False
        (((answer,),),) = yield Ask(SETTLE, (self._tenant, *columns([row], 13)))
        return bool(answer)

    def release_owner(self, owner: str) -> Questions[int]:
        """Make all claims of an owner due now; return how many. Their attempts stay counted: that is their fence."""
        count = 0
        for lane in LANES:
            lines = yield from self._lines(lane, None)
            count += len((yield Ask(RELEASE_OWNED, (self._tenant, lane, lines, owner, RELEASED_MAX))))
        return count

    def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> Questions[int | None]:
        """Return when the next work is due or its lease expires, by the caller's clock; None when there is none."""
        lines = yield from self._lines(lane, names)
        ((found,),) = yield Ask(NEXT_DUE, (self._tenant, lane, lines))
        return None if found is None else int(found) - self._skew.ms

    def delete(self, entity: str, work_id: WorkId) -> Questions[bool]:
        """Delete work; False when there is none."""
        ((is_deleted,),) = yield Ask(DELETE, (self._tenant, *split_entity(entity), *place_values(work_id)))
        return bool(is_deleted)

    def _lines(self, lane: Lane, names: tuple[str, ...] | None) -> Questions[list[str]]:
        """Return the queues of a lane: one for each handler, one for any other lane."""
        if lane != "effect":
            return [""]
        if names is not None:
            return list(names)
        return [row[0] for row in (yield Ask(LINES, (self._tenant, lane)))]


def _lock_order(claims: Sequence[Claim]) -> list[int]:
    """Return the order in which rows are locked; several changes of one row stay in their order."""
    return sorted(range(len(claims)), key=lambda n: (split_entity(claims[n].entity), claims[n].work.id))


def _settlement_values(settlement: Settlement, now_ms: int) -> tuple[Any, ...]:
    is_retry = settlement.verdict == "again"
    return (
        settlement.verdict,
        settlement.claim.work.is_saga_step,
        settlement.next_ms - now_ms if is_retry else None,
        encode_error(settlement.error),
        is_retry and not settlement.without_failure,
        settlement.started,
    )
