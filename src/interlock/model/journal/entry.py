"""An entry of an entity's journal, and the receipt that `send` returns."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from interlock.errors import DeniedError, RejectedError
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault, Outcome

CREATE = "_create"
"""The event that creates an entity: entry 1. Its data has the given `context`, and the `parent` if there is one."""

MOVED = "_revision.moved"
"""The event that moves an entity to another revision. Its data is a patch: see `evolve.move`."""


class Entry(Struct, frozen=True, omit_defaults=True, rename={"before": "from", "after": "to"}):
    """What happened to an entity at one version: the event, its outcome, the states before and after, the effects.

    Everything that a step causes is in its one entry, which is appended in one atomic write. `digest` is the hash of
    the snapshot after it, as it is stored; None in an entry of an earlier release.
    """

    version: int
    event: Event
    outcome: Outcome
    before: tuple[str, ...]
    after: tuple[str, ...]
    revision: str
    key: str
    reason: str | None = None
    trace: str | None = None
    effects: tuple[Effect, ...] = ()
    digest: str | None = None


class Receipt(Struct, frozen=True, omit_defaults=True):
    """The result of `send`: the outcome, the entity's version and, if this call ran the step, its results.

    For the outcome `duplicate`, the key was used before and `version` is the one of that entry. `snapshot` is None if
    it was not needed. `joined`: it is provisional until the caller has committed the transaction that it joined.
    """

    entity: str
    outcome: Outcome
    version: int
    reason: str | None = None
    snapshot: Snapshot | None = None
    effects: tuple[Effect, ...] = ()
    faults: tuple[Fault, ...] = ()
    failed_guards: tuple[FailedGuard, ...] = ()
    joined: bool = False

    def expect(self) -> Receipt:
        """Return this receipt. Raises RejectedError or DeniedError if the event was rejected or denied."""
        if self.outcome == "rejected":
            raise RejectedError(f"`{self.entity}` rejected the event: {self._why()}", code=f"rejected.{self.reason}")
        if self.outcome == "denied":
            raise DeniedError(f"`{self.entity}` denied the event: {self.reason}", code=f"denied.{self.reason}")
        return self

    def _why(self) -> Any:
        guards = ", ".join(f"{each.guard} with {each.values}" for each in self.failed_guards)
        faults = ", ".join(each.message for each in self.faults)
        return guards or faults or self.reason
