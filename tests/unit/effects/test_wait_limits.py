"""How long work may wait: what is due later than its rules allow was put off by a wrong clock."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.effects.wait_limits import ENDING, is_lease_too_long, is_postponed_too_far
from interlock.model.journal.work import CHILD_WORK, Lane, Work, WorkId
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LEASE_MS_MAX, PAUSE_MS_MAX, SEND_BACKOFF_MS_MAX
from interlock.ports.work import WorkRow

NOW = 1_000_000
HOUR = 3_600_000


def row(longest_ms: int, lane: Lane = "effect", body: Any = None, name: str = "charge", **facts: Any) -> WorkRow:
    """Work that is due just as late as it may be, if this is the longest that it may wait."""
    work = Work(WorkId(lane, 2, 0), name, {"id": "x"} if body is None else body, NOW)
    return WorkRow("order/1", work, 1, 1, **{"next_ms": NOW + CLOCK_AHEAD_MS_MAX + longest_ms, **facts})


ROWS = [
    row(60_000),
    row(60_000, body={"name": "mail"}),
    row(2 * HOUR, body={"id": "x", "retry": {"max": 3, "backoff": "1s..2h", "jitter": "full", "on": None}}),
    row(5 * HOUR, body={"id": "x", "timeout_ms": 5 * HOUR}, name=CHILD_WORK),
    row(60_000, body={"id": "x", "timeout_ms": 5 * HOUR}),
    row(0, body="cannot be read"),
    row(PAUSE_MS_MAX, error={"code": "paused", "message": "429"}),
    row(3 * HOUR, error={"code": "ConnectionError", "retries": 3, "wait_ms_max": 3 * HOUR}),
    row(60_000, error={"code": "ConnectionError", "wait_ms_max": "9"}),
    row(SEND_BACKOFF_MS_MAX, "outbox"),
    row(SEND_BACKOFF_MS_MAX, "message"),
    row(LEASE_MS_MAX, owner="w"),
    row(LEASE_MS_MAX, "timer", owner="w"),
]
NAMES = [
    "invoke",
    "call",
    "policy",
    "child",
    "handler",
    "unread",
    "pause",
    "default policy",
    "unread default",
    "send",
    "message",
    "lease",
    "held timer",
]


@pytest.mark.parametrize("longest", ROWS, ids=NAMES)
def test_the_longest_wait_is_believed_and_no_longer_one(longest: WorkRow) -> None:
    """By one millisecond; a clock may differ by a minute."""
    assert not is_postponed_too_far(longest, NOW)
    assert is_postponed_too_far(longest, NOW - 1)
    assert (longest.owner is not None) == is_lease_too_long(longest, NOW - 1)


@pytest.mark.parametrize(
    "unbounded",
    [
        row(100 * HOUR, "timer"),
        row(100 * HOUR, name=CHILD_WORK, error={"code": ENDING}),
        row(100 * HOUR, dead_ms=5),
        row(0, next_ms=None),
    ],
    ids=["timer", "ending child", "dead letter", "waits for others"],
)
def test_work_without_a_limit_is_left_alone(unbounded: WorkRow) -> None:
    assert not is_postponed_too_far(unbounded, NOW)
