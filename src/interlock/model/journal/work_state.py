"""The state of one piece of work, and the rules by which it changes. Memory, SQLite and files store what these return.

Rule 1: cancelled work that never started, or is dead, is removed. Cancelled work that started is marked: its worker
stops it, or it ends at its next attempt.
Rule 2: a claim is valid while it is the newest attempt, with the same number of failures, at work that is not dead.
Rule 3: only a failed attempt counts as a failure; a claim that expired, or work that waits for another, does not.
Rule 4: an attempt that was never started does not count.
Rule 5: cancelled work ends when its claim is released, whatever the outcome. A step of a saga does not: its outcome
must be known.

PostgreSQL has the same rules in SQL functions, for its order of locks; tests compare all stores with each other.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from interlock.model.journal.work import Work

Verdict = Literal["again", "wait", "dead"]
"""The outcome of a claim that does not end the work: retry at a time, wait for another, or give up."""


class WorkState(Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of a piece of work. `next_ms`: when to retry; None: when first due. `parked`: it waits for another."""

    attempts: int = 0
    failures: int = 0
    next_ms: int | None = None
    error: Any = None
    dead_ms: int | None = None
    cancelled: bool = False
    parked: bool = False


NEW = WorkState()
"""The state of work that was just created."""


def due_ms(work: Work, state: WorkState) -> int | None:
    """When unclaimed work may be claimed; None: not before something else happens."""
    if state.dead_ms is not None or state.parked:
        return None
    return work.due_ms if state.next_ms is None else state.next_ms


def is_valid_claim(state: WorkState, attempt: int, failures: int) -> bool:
    """Whether a claim with these numbers is still valid (rule 2)."""
    return state.dead_ms is None and (state.attempts, state.failures) == (attempt, failures)


def cancel(state: WorkState) -> WorkState | None:
    """The state after a cancellation; None: the work is removed (rule 1)."""
    if state.attempts == 0 or state.dead_ms is not None:
        return None
    return replace(state, cancelled=True, next_ms=None, parked=False)


def settle(
    work: Work,
    state: WorkState,
    verdict: Verdict,
    *,
    next_ms: int,
    error: Any,
    without_failure: bool,
    started: bool,
    now_ms: int,
) -> WorkState | None:
    """The state after a valid claim was released with this outcome; None: the work is removed (rules 3 to 5).

    `without_failure`: the claim ended without a failed attempt, as by expiry. `started`: the attempt was started.
    """
    if state.cancelled and not work.is_saga_step:
        return None
    return replace(
        state,
        attempts=state.attempts - (not started),
        failures=state.failures + (verdict == "again" and not without_failure),
        next_ms=next_ms if verdict == "again" else None,
        error=error,
        dead_ms=now_ms if verdict == "dead" else None,
        parked=verdict == "wait",
    )


def requeue(state: WorkState, *, next_ms: int, error: Any) -> WorkState:
    """The state after an operator retries work that is not dead."""
    return replace(state, next_ms=next_ms, error=error, parked=False)


def requeue_dead_letter(state: WorkState, now_ms: int) -> WorkState:
    """The state after an operator retries dead work: as new, due now."""
    return WorkState(next_ms=now_ms, cancelled=state.cancelled)
