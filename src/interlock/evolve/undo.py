"""Take a move back: the entity as it was before, in its next version.

Rule 1: only the last entry of an entity is taken back. An entity that stepped since stays: its later steps count.
Rule 2: a move that started or cancelled an invoke, or did anything else outside, stays too.
Rule 3: timers get their old deadlines, under the version of the undo: work rows are made for timers of the newest
        version only.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from interlock.evolve.carry import CarryResult
from interlock.evolve.patch import make_patch
from interlock.kernel.run import run_from
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot, Timer
from interlock.model.step import Step

_QUIET = frozenset({"timer", "timer_cancel"})
"""Effects that an undo takes back with the timers themselves."""


class UndoCarrier:
    """Carries one entity back over its last entry, a move. `kernel` is that of the revision before it."""

    def __init__(self, before: Snapshot, moved: Entry, kernel: Kernel) -> None:
        self.before = before
        self.moved = moved
        self.kernel = kernel
        self.old_names = frozenset({moved.revision})
        self.written = before.revision

    def states_with_new_timers(self, snapshot: Snapshot) -> tuple[str, ...]:  # noqa: ARG002  # as of other carriers
        """Return nothing: all timers have their old deadlines."""
        return ()

    def carry(
        self,
        snapshot: Snapshot,
        *,
        time_ms: int,
        entered_ms: Mapping[str, int] | None = None,  # noqa: ARG002  # as of other carriers
        epoch: int = 0,
        spread_ms: int = 0,  # noqa: ARG002  # old deadlines are not spread
    ) -> CarryResult:
        """Return the entity as it was, or why it stays."""
        if snapshot.version != self.moved.version:
            return CarryResult(reasons=("it has stepped since it was moved",))
        done = sorted({each.type for each in self.moved.effects} - _QUIET)
        if done:
            return CarryResult(reasons=(f"the move did something outside: {', '.join(done)}",))
        run = run_from(snapshot, time_ms, {}, raises=False, epoch=epoch)
        kept = set(map(_identity, self.before.timers))
        run.drop_timers(tuple(each for each in snapshot.timers if _identity(each) not in kept))
        known = {_identity(each) for each in snapshot.timers}
        timers: list[Timer] = []
        for timer in self.before.timers:
            if _identity(timer) in known:
                timers.append(timer)
                continue
            payload = {"name": timer.name, "event": timer.event, "due_ms": timer.due_ms, "version": run.version}
            effect = run.effect("timer", payload)
            timers.append(replace(timer, version=run.version, ordinal=effect.ordinal))
        after = replace(self.before, version=run.version, moved=run.version, timers=tuple(timers))
        step = Step(after, tuple(run.effects), "applied")
        return CarryResult(step=step, patch=make_patch(snapshot, after))


def _identity(timer: Timer) -> tuple[str, int, int, int]:
    return timer.name, timer.version, timer.ordinal, timer.due_ms
