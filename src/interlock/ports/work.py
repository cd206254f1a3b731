"""What a dispatcher needs of a store: to take work up, hold it, settle it, and know when the next is due.

Rule 1: work is born and ends in an `append`; here it only changes hands. Nothing that was not committed can be claimed.
Rule 2: a claim is a lease with a fence: the attempt's number. Success counts from any attempt, a failure only from the
newest.
Rule 3: of the outbox, and of messages, only the first of an entity's rows can be claimed: order per sender is kept in
each of these lanes (`model.work.ORDERED`), and none of them waits for the other.
Rule 4: `now_ms` is the driver's clock. A store on a server that many hosts share goes by the server's.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from interlock.model.journal.work import Lane, Work, WorkId
from interlock.ports.store import Refusal


class Claim(Struct, frozen=True):
    """Work in hand: whose, what, the number of this attempt, how often it failed, and whether it was called off."""

    entity: str
    work: Work
    attempt: int
    failures: int = 0
    cancelled: bool = False

    @property
    def key(self) -> str:
        """The key of the effect: the same for every attempt."""
        place = self.work.place
        return f"{self.entity}/{place.version}/{place.ordinal}"


class Settlement(Struct, frozen=True):
    """What became of a claim: `done`; `again` at a time, after a failure or (`lapsed`) without one; `wait` for another
    to go on with it; `dead`. One that was not even `begun` does not count as an attempt.

    `done` counts from any attempt, the others only from the newest.
    """

    claim: Claim
    verdict: Literal["done", "again", "wait", "dead"]
    next_ms: int = 0
    error: Any = None
    lapsed: bool = False
    begun: bool = True


class WorkQuery(Struct, frozen=True, kw_only=True):
    """Which work to list: by kind, lane, name, entity and place; dead letters or all; from a cursor on."""

    kind: str | None = None
    lane: Lane | None = None
    name: str | None = None
    entity: str | None = None
    place: WorkId | None = None
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
    """Rows in order, and the cursor of the next page, or None when this was the last."""

    rows: tuple[WorkRow, ...]
    after: str | None = None


@runtime_checkable
class WorkStore(Protocol):
    """A store that keeps work beside its journals."""

    async def claim(
        self, lane: Lane, names: tuple[str, ...] | None, *, owner: str, now_ms: int, until_ms: int, limit: int
    ) -> tuple[Claim, ...]:
        """Take up work that is due, oldest first, for an owner, until a time. `names`: only these (None: any)."""

    async def renew(self, claims: tuple[Claim, ...], *, until_ms: int) -> tuple[Claim | None, ...]:
        """Hold claims longer: each as it stands now, or None when it is no longer ours."""

    async def settle(self, settled: tuple[Settlement, ...], *, now_ms: int) -> tuple[bool, ...]:
        """Let go of claims; False for each that was no longer ours to let go."""

    async def soonest(self, lane: Lane, names: tuple[str, ...] | None) -> int | None:
        """When the next work is due or its lease lapses; None when there is none."""

    async def works(self, query: WorkQuery) -> WorkPage:
        """Work by kind, lane, name and entity, page by page. A page may be short and still have a next one."""


@runtime_checkable
class WorkAdmin(Protocol):
    """A store on which an operator can retry or drop work.

    `audit` says who did it. The store keeps it with the act: both are durable, or neither is. A store that cannot keep
    both in one write (`FileStore`) keeps the audit row first. When the act does nothing, no audit row is kept.
    """

    async def revive(self, entity: str, place: WorkId, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let dead work be tried again under its key, from its first attempt; False when there is no such."""

    async def requeue(self, settled: Settlement, *, now_ms: int, audit: Refusal | None = None) -> bool:
        """Let work that is not dead be tried again, as `WorkStore.settle` does; False when it has changed since."""

    async def drop(self, entity: str, place: WorkId, *, audit: Refusal | None = None) -> bool:
        """Forget work; False when there is no such."""


@runtime_checkable
class WorkNotes(Protocol):
    """A store that keeps what is told of work while it is in hand."""

    async def note(self, claim: Claim, error: Any) -> bool:
        """Keep this beside the work of a claim, as a failure of it would be; False when it is no longer ours."""
