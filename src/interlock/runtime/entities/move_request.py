"""What is asked of a move to another revision, and its result. `EntityMover.move` performs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from interlock.evolve.move import MoveReason
from interlock.model.snapshot import Snapshot
from interlock.runtime.entities.mailbox import Priority

if TYPE_CHECKING:
    from interlock.evolve.carry import Carrier


class MoveRequest(Struct, frozen=True):
    """A move of an entity to another revision.

    `plan` names the migration that asks for it. With `is_cached` the entity stays in the cache; a migration of many
    entities must not displace those that are in use.
    """

    carrier: Carrier
    why: MoveReason = "upgrade"
    plan: str | None = None
    principal: dict[str, Any] | None = None
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
