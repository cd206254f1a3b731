"""The rules by which the state of a piece of work changes."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.journal.work import Work, WorkId
from interlock.model.journal.work_state import (
    NEW,
    Verdict,
    WorkState,
    cancel,
    due_ms,
    is_valid_claim,
    requeue,
    requeue_dead_letter,
    settle,
)

NOW_MS = 1_000
WORK = Work(WorkId("effect", 1, 0), "charge", {"amount": 5}, 10)
SAGA_STEP = Work(WorkId("effect", 1, 0), "charge", {"late": True}, 10)
STARTED = WorkState(attempts=2, failures=1, error="declined")


def released(verdict: Verdict, *, work: Work = WORK, state: WorkState = STARTED, **facts: Any) -> WorkState | None:
    """The state after a claim was released with this outcome."""
    defaults: dict[str, Any] = {"next_ms": 50, "error": "late", "without_failure": False, "started": True}
    return settle(work, state, verdict, now_ms=NOW_MS, **{**defaults, **facts})


@pytest.mark.parametrize(
    ("state", "expected"),
    [(NEW, 10), (WorkState(next_ms=50), 50), (WorkState(parked=True), None), (WorkState(dead_ms=5), None)],
)
def test_work_is_due_when_created_or_at_its_retry(state: WorkState, expected: int | None) -> None:
    assert expected == due_ms(WORK, state)


def test_a_claim_is_valid_while_it_is_the_newest_attempt_at_living_work() -> None:
    assert is_valid_claim(STARTED, 2, 1)
    assert not is_valid_claim(STARTED, 1, 1)
    assert not is_valid_claim(STARTED, 2, 0)
    assert not is_valid_claim(WorkState(attempts=2, failures=1, dead_ms=5), 2, 1)


def test_cancelled_work_is_gone_unless_it_was_started() -> None:
    waiting = WorkState(attempts=1, next_ms=50, parked=True)

    assert cancel(NEW) is None
    assert cancel(WorkState(attempts=3, dead_ms=5)) is None
    assert WorkState(attempts=1, cancelled=True) == cancel(waiting)


@pytest.mark.parametrize(
    ("verdict", "facts", "expected"),
    [
        ("again", {}, WorkState(attempts=2, failures=2, next_ms=50, error="late")),
        ("again", {"without_failure": True}, WorkState(attempts=2, failures=1, next_ms=50, error="late")),
        (
            "again",
            {"without_failure": True, "started": False},
            WorkState(attempts=1, failures=1, next_ms=50, error="late"),
        ),
        ("wait", {}, WorkState(attempts=2, failures=1, error="late", parked=True)),
        ("dead", {}, WorkState(attempts=2, failures=1, error="late", dead_ms=NOW_MS)),
    ],
)
def test_a_released_claim_changes_the_state_by_its_outcome(
    verdict: Verdict, facts: dict[str, Any], expected: WorkState
) -> None:
    """Only a failed attempt counts as a failure; one that was not started does not count as an attempt."""
    assert expected == released(verdict, **facts)


@pytest.mark.parametrize("verdict", ["again", "wait", "dead"])
def test_cancelled_work_ends_with_its_claim_unless_it_is_a_step_of_a_saga(verdict: Verdict) -> None:
    """The outcome of a step of a saga must be known: it may have to be compensated."""
    cancelled = WorkState(attempts=1, cancelled=True)
    kept = released(verdict, work=SAGA_STEP, state=cancelled)

    assert released(verdict, state=cancelled) is None
    assert kept is not None
    assert kept.cancelled


def test_an_operator_retries_work_with_its_attempts_and_dead_work_as_new() -> None:
    parked = WorkState(attempts=2, failures=1, parked=True, cancelled=True)
    dead = WorkState(attempts=9, failures=9, error="no", dead_ms=5, cancelled=True)

    assert WorkState(attempts=2, failures=1, next_ms=7, cancelled=True) == requeue(parked, next_ms=7, error=None)
    assert WorkState(next_ms=NOW_MS, cancelled=True) == requeue_dead_letter(dead, NOW_MS)
