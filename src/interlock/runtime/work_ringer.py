"""Who is woken for the work of an entry: the worker of this process, or those of other processes.

Rule 1: work that this process can start immediately wakes no other process: where each process sends and works,
signals would only cost the others a look.
Rule 2: work that is due later than the next poll is found by that poll.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.model.journal.work import Lane, Work, WorkDelta
from interlock.model.limits import POLL_MS_MAX
from interlock.ports.clock import Clock
from interlock.ports.wakeups import Wakeups


class WorkRinger:
    """Rings for work that this process creates and does not run itself.

    `runs_here` is set by the worker of the process: whether it can start a piece of work now.
    """

    def __init__(self, wakeups: Wakeups, clock: Clock) -> None:
        self._wakeups = wakeups
        self._clock = clock
        self.runs_here: Callable[[Work], bool] | None = None

    def ring_for(self, entity: str, work: WorkDelta) -> None:  # noqa: ARG002 - a signal names no entity
        """Ring for the work of an entry that is durable now."""
        runs_here = self.runs_here
        elsewhere = work.created if runs_here is None else [each for each in work.created if not runs_here(each)]
        if elsewhere:
            soon_ms = self._clock.now_ms() + POLL_MS_MAX
            self.ring(
                frozenset(each.id.lane for each in elsewhere if each.due_ms is not None and each.due_ms <= soon_ms)
            )

    def ring(self, lanes: frozenset[Lane]) -> None:
        """Ring for lanes."""
        if lanes:
            self._wakeups.ring(lanes)
