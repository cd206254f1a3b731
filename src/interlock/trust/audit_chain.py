"""Follows the chain of the audit from its start, and names the first row that does not fit.

A chain shows accidents and partial edits. Someone who can write to the store can also write a whole new chain, or
remove its end: the signed checkpoints show that (`trust/checkpoints.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.audit import FORMER_STREAM, AuditRecord, index_actor, next_head
from interlock.model.journal.record import chain_start
from interlock.ports.trust.audit import AuditLog

Damage = Literal["altered", "missing", "repeated"]

PAGE = 1_000


class ChainReport(Struct, frozen=True):
    """The rows that are linked, the last of them with its head, and the first that is not, with the kind of damage."""

    linked: int
    sequence: int
    head: str
    broken: int | None = None
    damage: Damage | None = None


async def verify_chain(
    log: AuditLog,
    *,
    on_row: Callable[[AuditRecord], object] = lambda _: None,
    sequence: int = 0,
    head: str | None = None,
) -> ChainReport:
    """Follow the chain, from its start or after a row whose head is known. `on_row` is called with each linked row."""
    linked = 0
    known = log.first_audit_head if head is None else head
    former_heads = await _former_heads(log)
    last_former = 0
    while page := await log.audit_after(sequence, limit=PAGE):
        for record in page:
            if record.sequence != sequence + 1:
                damage: Damage = "missing" if record.sequence > sequence + 1 else "repeated"
                return ChainReport(linked, sequence, known, sequence + 1, damage)
            if record.former is not None:
                is_linked = record.former > last_former and former_heads.get(record.former) == record.head
                last_former = record.former
            else:
                is_linked = next_head(known, record.body) == record.head
                last_former = 2**63  # rows of earlier releases come first
            if not is_linked or not _is_indexed(record):
                return ChainReport(linked, sequence, known, record.sequence, "altered")
            on_row(record)
            linked, sequence, known = linked + 1, record.sequence, record.head
    return ChainReport(linked, sequence, known)


def _is_indexed(record: AuditRecord) -> bool:
    """Whether a row is found by what its bytes say."""
    try:
        row = record.decode()
    except CorruptionError:
        return False
    return record.time_ms == row.time_ms and record.actor == (
        row.actor if record.former is not None else index_actor(row.actor)
    )


async def _former_heads(log: AuditLog) -> dict[int, str]:
    """Return the head of each row of earlier releases, as the rows before it make it."""
    heads: dict[int, str] = {}
    head, former = chain_start(FORMER_STREAM), 0
    while page := await log.former_audit_after(former, limit=PAGE):
        for record in page:
            former = record.former or former
            head = next_head(head, record.body)
            heads[former] = head
            if head != record.head:
                return heads  # the rows after it prove nothing
    return heads
