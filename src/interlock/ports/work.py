"""What the worker needs of a store: to claim work, renew and settle claims, and know when the next work is due.

Rule 1: work is created and ends in an `append`; here it only changes owner. Only committed work can be claimed.
Rule 2: a claim is a lease with a fence, the number of the attempt. Success counts from any attempt, a failure only from
the newest.
Rule 3: in the outbox and among messages, only the first row of an entity can be claimed. So each of these lanes
(`model.journal.work.ORDERED_LANES`) keeps the order per sender, and neither waits for the other.
Rule 4: `now_ms` is the clock of the runtime. A store on a server that many hosts share uses the server's clock.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from msgspec import Struct

from interlock.model.audit import AuditRow
from interlock.model.journal.work import Lane, Work, WorkId


class Claim(Struct, frozen=True, gc=False):
    """Claimed work: its entity, the number of this attempt, how often it failed, and whether it was cancelled."""

    entity: str
    work: Work
    attempt: int
    failures: int = 0
    cancelled: bool = False

    @property
    def key(self) -> str:
        """The key of the effect: the same for every attempt."""
        return self.work.key(self.entity)


class Settlement(Struct, frozen=True, gc=False):
    """How a claim is settled: `done`; `again` at a time, after a failure or, with `without_failure`, without one;
    `wait` until something else continues it; `dead`. Without `started` it does not count as an attempt.

    `done` counts from any attempt, the others only from the newest.
    """

    claim: Claim
    verdict: Literal["done", "again", "wait", "dead"]
    next_ms: int = 0
    error: Any = None
    without_failure: bool = False
    started: bool = True


class WorkQuery(Struct, frozen=True, kw_only=True):
    """Which work to list: by kind, lane, name, entity and place; dead letters or all; from a cursor on."""

    kind: str | None = None
    lane: Lane | None = None
    name: str | None = None
    entity: str | None = None
    id: WorkId | None = None
    dead: bool | None = None
    after: str | None = None
    limit: int = 50


class WorkRow(Struct, frozen=True):
    """One piece of work in a list."""

    entity: str
    work: Work
    attempts: int
    failures: int
    next_ms: int | None
    owner: str | None = None
    error: Any = None
    dead_ms: int | None = None
    cancelled: bool = False


class WorkPage(Struct, frozen=True):
    """Rows in order, and the cursor of the next page, or None when this is the last.

    `is_partial`: the store has just taken over its work from another process and is still reading it, so there may be
    more rows, on this page too.
    """

    rows: tuple[WorkRow, ...]
    after: str | None = None
    is_partial: bool = False


class WorkQueue(Protocol):
    """The work of a store that keeps it with its journals.

    An operator can retry and delete work; `audit` records who did it. The store writes it with the operation: both are
    durable, or neither is. A store that cannot write both in one operation (`FileStore`) writes the audit row first.
    When nothing is changed, no audit row is kept.
    """

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Claim due work, oldest first, for an owner, until a time. `names`: only work of these names (None: any)."""

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Extend leases. Returns each claim as it is now, or None when its lease was lost."""

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Settle claims. Returns False for each whose lease was lost."""

    async def next_due_ms(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """Return when the next work is due or its lease expires; None when there is none."""

    async def list_work(self, query: WorkQuery) -> WorkPage:
        """Return work by kind, lane, name and entity, page by page. A short page may still have a next one."""

    async def requeue_dead_letter(
        self, entity: str, work_id: WorkId, *, now_ms: int, audit: AuditRow | None = None
    ) -> bool:
        """Requeue a dead letter under its key, from its first attempt. Returns False when there is none."""

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: AuditRow | None = None) -> bool:
        """Requeue work that is not dead, as `settle` does. Returns False when it has changed since."""

    async def delete_work(self, entity: str, work_id: WorkId, *, audit: AuditRow | None = None) -> bool:
        """Delete work. Returns False when there is none."""

    async def save_details(self, claim: Claim, error: Any) -> bool:
        """Store details with the work of a claim, where its failure would be. Returns False when the lease was lost."""
