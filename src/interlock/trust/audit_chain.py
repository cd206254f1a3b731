"""Follows the chain of the audit from its start, and names every place where it is damaged.

A chain shows accidents and partial edits. Someone who can write to the store can also write a whole new chain, or
remove its end: the signed checkpoints show that (`trust/checkpoints.py`).

Rule 1: a row follows the one before if its head is the hash over that head and its own bytes. The head before is the
stored one or, if only that was changed, the one that the bytes give: so one changed byte is one damaged row.
Rule 2: the row after missing or unreadable ones cannot be verified by the chain. It is neither linked nor damaged, and
the rows after it are compared with it.
Rule 3: rows that are damaged in sequence are one place. All are counted; the first `AUDIT_PLACES_MAX` are named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.audit import FORMER_STREAM, AuditRecord, index_actor, next_head
from interlock.model.journal.record import chain_start
from interlock.model.limits import AUDIT_PLACES_MAX
from interlock.ports.trust.audit import AuditLog

Damage = Literal["altered", "missing", "repeated"]

PAGE = 1_000

_HEADS_MAX = 4
"""Heads that a row after damaged ones may follow: as many rows in sequence may have a changed head only."""

_LAST_FORMER = 2**63


class ChainDamage(Struct, frozen=True):
    """A damaged place: its first row, how many rows, and what happened to them."""

    sequence: int
    rows: int
    damage: Damage


class ChainReport(Struct, frozen=True):
    """How many rows are linked, and the last row with its head. `damaged` rows at `places` places are not as they were
    written; `damages` are the first of these places.
    """

    linked: int
    sequence: int
    head: str
    damaged: int = 0
    places: int = 0
    damages: tuple[ChainDamage, ...] = ()

    @property
    def broken(self) -> int | None:
        """The first damaged row."""
        return self.damages[0].sequence if self.damages else None

    @property
    def damage(self) -> Damage | None:
        """What happened to the first damaged row."""
        return self.damages[0].damage if self.damages else None


async def verify_chain(
    log: AuditLog,
    *,
    on_row: Callable[[AuditRecord], object] = lambda _: None,
    sequence: int = 0,
    head: str | None = None,
) -> ChainReport:
    """Follow the chain, from its start or after a row whose head is known, to its end.

    `on_row` is called with each row that is not damaged.
    """
    chain = _Chain(log.first_audit_head if head is None else head, sequence, await _former_rows(log))
    after = sequence
    while page := await log.audit_after(after, limit=PAGE):
        for record in page:
            if chain.follow(record):
                on_row(record)
        after = max(chain.sequence, page[-1].sequence)
    return chain.report()


class _Link:
    """What the next row may follow (rule 1). `follows` is None when that is not known (rule 2)."""

    def __init__(self, head: str) -> None:
        self._heads: tuple[str, ...] = (head,)

    def follows(self, record: AuditRecord) -> bool | None:
        """Whether a row follows."""
        return record.head in self._made(record) if self._heads else None

    def take(self, record: AuditRecord, *, is_damaged: bool) -> None:
        """Continue after a row."""
        if not record.head:  # nothing of it can be read
            self._heads = ()
        elif is_damaged:
            self._heads = (record.head, *self._made(record))[:_HEADS_MAX]
        else:
            self._heads = (record.head,)

    def forget(self) -> None:
        """Continue after rows that are missing."""
        self._heads = ()

    def _made(self, record: AuditRecord) -> tuple[str, ...]:
        return tuple(next_head(each, record.body) for each in self._heads)


class _Chain:
    """The rows up to here, and what is wrong with them."""

    def __init__(self, head: str, sequence: int, former_rows: dict[int, bool]) -> None:
        self.sequence = sequence
        self._linked = self._damaged = self._places = 0
        self._head = head
        self._link = _Link(head)
        self._former_rows = former_rows
        self._last_former = 0
        self._damages: list[ChainDamage] = []
        self._renumbered: set[tuple[int, str]] = set()  # rows with another number, which may be read twice
        self._open: ChainDamage | None = None  # the last place, which may continue

    def follow(self, record: AuditRecord) -> bool:
        """Continue with a row; return whether it is not damaged."""
        is_former = record.former is not None
        follows = self._is_next_former(record) if is_former else self._link.follows(record)
        expected = self.sequence + 1
        if record.sequence != expected and not (follows and not is_former):
            if (record.sequence, record.head) in self._renumbered:
                return False  # it was read before, in its place
            if record.sequence < expected:
                self._fail(record.sequence, 1, "repeated" if record.head else "altered")
                return False
            self._fail(expected, record.sequence - expected, "missing")
            self._link.forget()
            follows, expected = follows if is_former else None, record.sequence
        if record.sequence != expected:
            self._renumbered.add((record.sequence, record.head))
        is_damaged = follows is False or record.sequence != expected or not _is_indexed(record)
        self.sequence, self._head = expected, record.head
        if is_former:
            self._link = _Link(record.head)  # of rows of this release, the first one follows it
        else:
            self._link.take(record, is_damaged=is_damaged)
            self._last_former = _LAST_FORMER  # rows of earlier releases come first
        if is_damaged:
            self._fail(expected, 1, "altered")
            return False
        self._linked += follows is True
        return True

    def _is_next_former(self, record: AuditRecord) -> bool:
        before, self._last_former = self._last_former, record.former or 0
        return self._last_former > before and self._former_rows.get(self._last_former, False)

    def _fail(self, sequence: int, rows: int, damage: Damage) -> None:
        last = self._open
        if last is not None and last.damage == damage and sequence <= last.sequence + last.rows:
            more = max(0, sequence + rows - last.sequence - last.rows)
            self._damaged += more
            self._open = ChainDamage(last.sequence, last.rows + more, damage)
            if self._places <= AUDIT_PLACES_MAX:
                self._damages[-1] = self._open
            return
        self._damaged += rows
        self._places += 1
        self._open = ChainDamage(sequence, rows, damage)
        if self._places <= AUDIT_PLACES_MAX:
            self._damages.append(self._open)

    def report(self) -> ChainReport:
        """Return the result."""
        return ChainReport(self._linked, self.sequence, self._head, self._damaged, self._places, tuple(self._damages))


def _is_indexed(record: AuditRecord) -> bool:
    """Whether a row is found by what its bytes say."""
    try:
        row = record.decode()
    except CorruptionError:
        return False
    return record.time_ms == row.time_ms and record.actor == (
        row.actor if record.former is not None else index_actor(row.actor)
    )


async def _former_rows(log: AuditLog) -> dict[int, bool]:
    """Return, for each row of earlier releases, whether it follows the row before, which may be of another tenant."""
    found: dict[int, bool] = {}
    link, former = _Link(chain_start(FORMER_STREAM)), 0
    while page := await log.former_audit_after(former, limit=PAGE):
        for record in page:
            is_repeated = record.former in found
            former = record.former or former
            follows = link.follows(record) is not False
            found[former] = follows and not is_repeated
            link.take(record, is_damaged=not follows)
    return found
