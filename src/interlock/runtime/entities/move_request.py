"""What is asked of a move to another revision, and its result. `EntityMover.move` performs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from interlock.evolve.move import MoveReason
from interlock.model.snapshot import Snapshot
from interlock.runtime.entities.mailbox import Priority

if TYPE_CHECKING:
    from interlock.evolve.carry import CarryResult
    from interlock.kernel.step import Kernel


class EntityCarrier(Protocol):
    """What carries entities to another revision: `evolve.carry` for a pair, `evolve.refold` for one correction."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the new definition."""

    @property
    def old_names(self) -> Collection[str]:
        """The names of the revision from which entities are carried."""

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the active states of which `entered_ms` is needed."""

    def carry(
        self, snapshot: Snapshot, *, time_ms: int, entered_ms: Mapping[str, int] | None = None, epoch: int = 0
    ) -> CarryResult:
        """Return the entity on the new definition, or why it stays."""


class MoveRequest(Struct, frozen=True):
    """A move of an entity to another revision.

    `plan` names the migration that asks for it. `reason` is what its sender wrote about it. With `is_cached` the entity
    stays in the cache; a migration of many entities must not displace those that are in use.
    """

    carrier: EntityCarrier
    why: MoveReason = "upgrade"
    plan: str | None = None
    principal: dict[str, Any] | None = None
    reason: str | None = None
    priority: Priority = Priority.CALLER
    is_cached: bool = True


class MoveResult(Struct, frozen=True):
    """The result of a move: the version and revision of the entity, and why it stayed if it did.

    `outcome` is `moved`, `stays` (it cannot be carried: see `reasons`) or `elsewhere`: it is not on the revision from
    which the carrier starts.
    """

    outcome: Literal["moved", "stays", "elsewhere"]
    snapshot: Snapshot
    reasons: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
