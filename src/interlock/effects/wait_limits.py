"""How long work may wait at most, by the rules that set its next time. A later time was set by a wrong clock.

Timers are not judged here: their delay comes from the chart, and only the entry that set one shows whether it is wrong.
"""

from __future__ import annotations

from interlock.effects.pauses import PAUSED
from interlock.effects.retry import LONGEST_WAIT, policy_of
from interlock.model.journal.work import CHILD_WORK
from interlock.model.limits import CLOCK_AHEAD_MS_MAX, LEASE_MS_MAX, PAUSE_MS_MAX, SEND_BACKOFF_MS_MAX
from interlock.ports.work import WorkRow

ENDING = "child.ending"
"""The code stored with the work of a child while its end is delivered: such work waits without a limit."""


def is_postponed_too_far(row: WorkRow, now_ms: int) -> bool:
    """Whether its next time, or the end of its lease, is later than any rule allows. Never for a timer's own time."""
    if row.next_ms is None or row.dead_ms is not None:
        return False
    longest_ms = _longest_ms(row)
    return longest_ms is not None and row.next_ms > now_ms + CLOCK_AHEAD_MS_MAX + longest_ms


def is_lease_too_long(row: WorkRow, now_ms: int) -> bool:
    """Whether its lease ends later than any lease may: it was claimed under a wrong clock."""
    return row.owner is not None and is_postponed_too_far(row, now_ms)


def _longest_ms(row: WorkRow) -> float | None:
    """Return the longest wait that a rule allows; None for no limit."""
    if row.owner is not None:
        return LEASE_MS_MAX
    lane, body = row.work.id.lane, row.work.body
    stored = row.error if isinstance(row.error, dict) else {}
    if lane == "timer" or stored.get("code") == ENDING:
        return None
    if lane != "effect":
        return SEND_BACKOFF_MS_MAX
    if not isinstance(body, dict):
        return 0
    if stored.get("code") == PAUSED:
        return PAUSE_MS_MAX
    timeout_ms = body.get("timeout_ms") or 0 if row.work.name == CHILD_WORK else 0
    default_ms = stored.get(LONGEST_WAIT)
    return max(policy_of(row.work).backoff.ms_max, timeout_ms, default_ms if type(default_ms) is int else 0)
