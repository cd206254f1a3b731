"""An entry of an entity's journal, and the receipt that `send` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import Struct

from interlock.errors import DeniedError, RejectedError
from interlock.model.actor import Actor
from interlock.model.effect import Effect
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.snapshot import Shown, Snapshot
from interlock.model.step import FailedGuard, Fault, Outcome

CREATE = "_create"
"""The event that creates an entity: entry 1. Its data has the given `context`, and the `parent` if there is one."""

MOVED = "_revision.moved"
"""The event that moves an entity to another revision. Its data is a patch: see `evolve.move`."""


ERASE = "_erase"
"""The event that erases the personal data of an entity: it names the time, and the entity forgets its data key."""


class Entry(
    Struct, frozen=True, gc=False, omit_defaults=True, rename={"before": "from", "after": "to", "originator": "for"}
):
    """What happened to an entity at one version: the event, its outcome, the states before and after, the effects.

    Everything that a step causes is in its one entry, which is appended in one atomic write. `reason` explains the
    outcome; `reason_given` is what the sender wrote about the event. `digest` is the hash of the snapshot after it, as
    it is stored; None in an entry of an earlier release. `shown` is what readers see of it who may not see hidden
    states; `unseen` counts the entries of which they see nothing, up to this one.

    `trace` is the W3C traceparent of this step, or of its sender if no spans are made. `originator` is for whom it
    happened, if its event has no principal: a result, a timer or the creation of a child. `attempts` are those of the
    effect whose result it is, if one failed.
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
    reason_given: str | None = None
    unseen: int = 0
    shown: Shown = "whole"
    originator: Actor | None = None
    attempts: tuple[PastAttempt, ...] = ()


UPDATED = "updated"
"""The event under which others see that an entity left a hidden state and changed there."""

SYSTEM = "system"
"""Who they see as its sender."""


def visible_version(entry: Entry) -> int:
    """Return the number of an entry for readers who may not see hidden states."""
    return entry.version - entry.unseen


def shown_change(entry: Entry, before: tuple[str, ...]) -> Entry:
    """Return what others see of an entry that is shown as a change: where it led, and from which visible states."""
    event = Event(UPDATED, principal={"id": SYSTEM}, time_ms=entry.event.time_ms, clock_ms=entry.event.clock_ms)
    return Entry(
        entry.version,
        event,
        "applied",
        before,
        entry.after,
        entry.revision,
        "_updated",
        unseen=entry.unseen,
        shown="change",
    )


class Receipt(Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of `send`: the outcome, the entity's version and, if this call ran the step, its results.

    For the outcome `duplicate`, the key was used before and `version` is the one of that entry. `explanation` says why
    an event was rejected or denied, without sensitive values; `expect` raises it. `joined`: it is provisional until the
    caller has committed the transaction that it joined.
    """

    entity: str
    outcome: Outcome
    version: int
    reason: str | None = None
    snapshot: Snapshot | None = None
    effects: tuple[Effect, ...] = ()
    faults: tuple[Fault, ...] = ()
    failed_guards: tuple[FailedGuard, ...] = ()
    explanation: str | None = None
    joined: bool = False

    def expect(self) -> Accepted:
        """Return this receipt, which then has a snapshot. Raises RejectedError or DeniedError if the event was refused.

        The message names the event, the state, and why: the guard and its values, the role, or where it is accepted.
        """
        if self.outcome == "rejected":
            raise RejectedError(self._why(), code=f"rejected.{self.reason}")
        if self.outcome == "denied":
            raise DeniedError(self._why(), code=f"denied.{self.reason}")
        return cast("Accepted", self)

    def _why(self) -> str:
        if self.explanation is not None:
            return self.explanation
        guards = ", ".join(each.guard for each in self.failed_guards)
        faults = ", ".join(each.message for each in self.faults)
        return f"`{self.entity}` {self.outcome} the event: {guards or faults or self.reason}"


if TYPE_CHECKING:

    class Accepted(Receipt, frozen=True):
        """A receipt after `expect`: the event was not refused, and there is a snapshot."""

        snapshot: Snapshot = Snapshot("", "", 0, "", (), {})  # a field of a base that has a default needs one

else:
    Accepted = Receipt
