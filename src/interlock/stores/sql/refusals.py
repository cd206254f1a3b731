"""Refusals of a SQL store: a bounded queue in front of one hash chain for the whole database.

Rule 1: callers do not wait for refusals, and a flood of them delays no step: refusals beyond `QUEUE_MAX` are counted
and dropped, and the count is stored as one row.
Rule 2: the head of a refusal is the hash of the head before it and of its body, so a row that was changed or deleted
is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from interlock.model.codec import encode
from interlock.model.journal.record import chain_start
from interlock.ports.refusals import Refusal, RefusalRow, RefusalVerification
from interlock.ports.store import PAGE_MAX
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import Ask, Questions, Statements

QUEUE_MAX = 1_024
"""Refusals that wait for the writer: a few batches of it."""

LAST_SEQUENCE = 2**63 - 1

_decode_refusal = msgspec.json.Decoder(Refusal).decode


class RefusalQueue:
    """Refusals that wait for the writer. Not safe for threads without a lock."""

    def __init__(self) -> None:
        self._waiting: deque[Refusal] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Queue refusals, and count the ones that do not fit."""
        for refusal in refusals:
            if len(self._waiting) < QUEUE_MAX:
                self._waiting.append(refusal)
            else:
                self._dropped += 1

    def count_dropped(self, number: int) -> None:
        """Count refusals that could not be written."""
        self._dropped += number

    def take(self) -> list[Refusal]:
        """Return all queued refusals, with a row for dropped ones, and empty the queue."""
        taken = list(self._waiting)
        self._waiting.clear()
        if taken and self._dropped:
            taken.append(Refusal("", "", "dropped", f"{self._dropped} more", taken[-1].time_ms))
            self._dropped = 0
        return taken


def append_refusals(sql: Statements, tenant: str, refusals: Sequence[Refusal]) -> Questions[None]:
    """Append refusals to the chain, inside a transaction."""
    if sql.lock_refusals is not None:
        yield Ask(sql.lock_refusals)
    found = yield Ask(sql.last_refusal)
    head = found[0][0] if found else chain_start("audit_refusal")
    rows = []
    for refusal in refusals:
        body = encode(refusal)
        head = _next_head(head, body)
        rows.append((*split_entity(refusal.entity), refusal.principal, refusal.time_ms, body, head))
    yield Ask(sql.insert_refusals, (tenant,), rows)


def refusals_before(
    sql: Statements, tenant: str, sequence: int | None, principal: str | None, limit: int
) -> Questions[tuple[RefusalRow, ...]]:
    """Return refusals before a sequence number, newest first."""
    values = (tenant, LAST_SEQUENCE if sequence is None else sequence, max(1, min(limit, PAGE_MAX)))
    if principal is None:
        rows = yield Ask(sql.refusals, values)
    else:
        rows = yield Ask(sql.refusals_by_principal, (*values, principal))
    return tuple(RefusalRow(row[0], _decode_refusal(row[1])) for row in rows)


def verify_refusals(sql: Statements) -> Questions[RefusalVerification]:
    """Follow the chain of all tenants from its start."""
    head, linked, last = chain_start("audit_refusal"), 0, 0
    while rows := (yield Ask(sql.refusal_chain, (last, PAGE_MAX))):
        for sequence, body, stored in rows:
            if sequence != last + 1 and not sql.refusals_have_gaps:
                return RefusalVerification(linked, last + 1)
            head = _next_head(head, body)
            if head != stored:
                return RefusalVerification(linked, sequence)
            linked, last = linked + 1, sequence
    return RefusalVerification(linked)


def _next_head(head: str, body: bytes) -> str:
    return blake2b(head.encode() + body, digest_size=16).hexdigest()
