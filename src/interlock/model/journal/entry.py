"""An entry: one record of an entity's journal, and the receipt that `send` gives for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from interlock.errors import DeniedError, RejectedError
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from interlock.model.step import FailedGuard, Fault, Outcome

CREATE = "_create"
"""The event that creates an entity: entry 1. Its data holds the `context` given, and the `parent` if any."""


class Entry(Struct, frozen=True, omit_defaults=True, rename={"before": "from", "after": "to"}):
    """What happened to an entity at one version: the event, how it was taken, where it led, what it caused.

    Everything one step causes stands in its one entry: that is the atomic write of duty 3.
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


class Receipt(Struct, frozen=True, omit_defaults=True):
    """The answer to `send`: the outcome, the entity's version, and, when the event was stepped here, what it gave.

    `duplicate`: the key was taken before; `version` is that entry's. `snapshot` is None where the answer needed none.
    """

    entity: str
    outcome: Outcome
    version: int
    reason: str | None = None
    snapshot: Snapshot | None = None
    effects: tuple[Effect, ...] = ()
    faults: tuple[Fault, ...] = ()
    trials: tuple[FailedGuard, ...] = ()

    def expect(self) -> Receipt:
        """This receipt, once it is known to be good. Raises RejectedError or DeniedError for a refusal."""
        if self.outcome == "rejected":
            raise RejectedError(f"`{self.entity}` rejected the event: {self._why()}", code=f"rejected.{self.reason}")
        if self.outcome == "denied":
            raise DeniedError(f"`{self.entity}` denied the event: {self.reason}", code=f"denied.{self.reason}")
        return self

    def _why(self) -> Any:
        guards = ", ".join(f"{each.guard} with {each.values}" for each in self.trials)
        faults = ", ".join(each.message for each in self.faults)
        return guards or faults or self.reason
