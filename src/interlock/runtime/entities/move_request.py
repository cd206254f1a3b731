"""The request for a move to another revision, and its result. `EntityMover.move` performs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from interlock.evolve.move import MoveReason
from interlock.model.snapshot import Snapshot
from interlock.runtime.entities.mailbox import Priority

if TYPE_CHECKING:
    from interlock.evolve.carry import CarryResult
    from interlock.kernel.step import Kernel


class EntityCarrier(Protocol):
    """Carries entities from some names of a revision to another one, which `kernel` runs."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the revision that a carried entity is on."""

    @property
    def old_names(self) -> frozenset[str]:
        """The names of the revision that it starts from."""

    @property
    def written(self) -> str:
        """The name that a carried entity gets."""

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the states whose time of entry `carry` uses."""

    def carry(
        self,
        snapshot: Snapshot,
        *,
        time_ms: int,
        entered_ms: Mapping[str, int] | None = None,
        epoch: int = 0,
        spread_ms: int = 0,
    ) -> CarryResult:
        """Return the carried entity, or why it stays."""


class MoveRequest(Struct, frozen=True):
    """A move of an entity to another revision.

    `plan` names the migration that asks for it. `reason` is what its sender wrote about it. With `is_cached` the entity
    stays in the cache; a migration of many entities must not displace those that are in use. `spread_ms` is the time
    over which timers fire that are overdue by the move. `undoes` is the version of the move that this one takes back.
    """

    carrier: EntityCarrier
    why: MoveReason = "upgrade"
    plan: str | None = None
    principal: dict[str, Any] | None = None
    reason: str | None = None
    priority: Priority = Priority.CALLER
    is_cached: bool = True
    spread_ms: int = 0
    undoes: int | None = None


class MoveResult(Struct, frozen=True):
    """The result of a move: the version and revision of the entity, and why it stayed if it did.

    `outcome` is `moved`, `stays` (it cannot be carried: see `reasons`) or `elsewhere`: it is not on the revision from
    which the carrier starts. `overdue` timers would have fired before.
    """

    outcome: Literal["moved", "stays", "elsewhere"]
    snapshot: Snapshot
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    overdue: int = 0
