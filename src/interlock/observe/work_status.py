"""The status of a piece of work: one word, with the times and counts that belong to it.

The command line, the console and `operate` all use these words; each has its own table of texts for them.

Rule: the status depends on the row, the time and the registered handlers only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from interlock.effects.retry import policy_of
from interlock.model.journal.work import CHILD_WORK, ORDERED_LANES
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.work import WorkRow
from interlock.runtime.holds.held_work import NOTE

Word = Literal[
    "dead", "cancelled", "running", "expired", "retry", "pending", "scheduled", "waiting_child", "queued", "held"
]

DESCRIPTIONS: dict[Word, str] = {
    "dead": "is a dead letter",
    "cancelled": "is cancelled",
    "running": "is running",
    "expired": "is leased by a worker that stopped renewing its lease",
    "retry": "is waiting for its next attempt",
    "pending": "is pending",
    "scheduled": "is not due yet",
    "waiting_child": "is waiting for its child entity",
    "queued": "is queued behind earlier messages of its entity",
    "held": "is held, as its entity is, or was imported with a bundle",
}
"""Each word as the end of a sentence that starts with the work's key."""

OVERDUE_MS = 10_000
"""Work due for longer than this is overdue: a worker that has its handler polls every second."""


class WorkStatus(Struct, frozen=True):
    """The status of one piece of work.

    | `word` | meaning | `at_ms` |
    |---|---|---|
    | `dead` | a dead letter: all attempts failed | since when |
    | `cancelled` | the state that requested it was left; its worker will remove it | |
    | `running` | a worker has a lease on it | when the lease expires, unless renewed |
    | `expired` | the lease expired; another worker may claim it | when it expired |
    | `retry` | `failures` attempts failed; `retries_max` retries are allowed | the next attempt |
    | `pending` | it can be claimed now | since when |
    | `scheduled` | it is not due yet | when it is due |
    | `waiting_child` | its child entity is active; the child's result ends it | |
    | `queued` | earlier messages of its entity go first | |
    | `held` | an operator holds its entity; or it was imported with a bundle and has no due time | |

    `handler_missing`: none of the given handlers runs it. `overdue_ms`: for how long it should have been claimed, or
    its lease renewed; zero or less if it is not late.
    """

    word: Word
    at_ms: int | None = None
    failures: int = 0
    retries_max: int = 0
    handler_missing: bool = False
    overdue_ms: int = 0

    @property
    def is_overdue(self) -> bool:
        """Whether a worker should have claimed it long ago, or renewed its lease."""
        return self.word in ("pending", "scheduled", "retry", "expired") and self.overdue_ms > OVERDUE_MS

    @property
    def needs_attention(self) -> bool:
        """Whether it failed, is overdue, or has no handler."""
        return self.word in ("dead", "retry") or self.handler_missing or self.is_overdue


def work_status(row: WorkRow, *, now_ms: int, handlers: Collection[str] | None = None) -> WorkStatus:
    """Return the status of a row at a time. `handlers` are the registered names; None if they are not known."""
    missing = _is_handler_missing(row, handlers)
    if row.dead_ms is not None:
        return WorkStatus("dead", row.dead_ms, row.failures, handler_missing=missing)
    if row.cancelled:
        return WorkStatus("cancelled", handler_missing=missing)
    if row.owner is not None:
        is_expired = row.next_ms is not None and row.next_ms <= now_ms
        word: Word = "expired" if is_expired else "running"
        return WorkStatus(word, row.next_ms, row.failures, overdue_ms=now_ms - (row.next_ms or now_ms))
    if row.next_ms is None:
        if row.work.due_ms is None and row.work.id.lane not in ORDERED_LANES:
            return WorkStatus("held", handler_missing=missing)
        return WorkStatus("waiting_child" if row.work.name == CHILD_WORK else "queued")
    if isinstance(row.error, dict) and NOTE in row.error:
        return WorkStatus("held", failures=row.failures, handler_missing=missing)
    late_ms = now_ms - row.next_ms
    if row.failures:
        return WorkStatus("retry", row.next_ms, row.failures, retries_max(row), missing, late_ms)
    word = "pending" if late_ms >= 0 else "scheduled"
    return WorkStatus(word, row.next_ms, handler_missing=missing, overdue_ms=_never_claimed_ms(row, now_ms, late_ms))


def _never_claimed_ms(row: WorkRow, now_ms: int, late_ms: int) -> int:
    """How long work has been due that no attempt started.

    Work without a loaded chart is put off by every worker that claims it, so `next_ms` moves on each time. It is late
    since it was first due.
    """
    first_ms, is_timer = row.work.due_ms, row.work.id.lane == "timer"
    is_unattempted = row.error is None and (row.attempts == 0 or is_timer) and row.work.name != CHILD_WORK
    if is_unattempted and first_ms is not None and late_ms >= -OVERDUE_MS:
        return max(late_ms, now_ms - first_ms)
    return late_ms


def _is_handler_missing(row: WorkRow, handlers: Collection[str] | None) -> bool:
    if row.work.id.lane != "effect":
        return False
    if row.work.name == CHILD_WORK:  # the worker that claimed it last found no chart
        return isinstance(row.error, dict) and row.error.get("code") in CHART_MISSING_CODES
    return handlers is not None and row.work.name not in handlers


def retries_max(row: WorkRow) -> int:
    """Return how often a piece of work is tried again after its first failure; 0 for a timer, which cannot fail.

    A default of the worker counts once an attempt has failed there: no other process knows it before.
    """
    match row.work.id.lane:
        case "effect":
            given = row.error.get("retries") if isinstance(row.error, dict) else None
            return given if isinstance(given, int) else policy_of(row.work).retries_max
        case "timer":
            return 0
        case _:
            return MESSAGE_ATTEMPTS_MAX - 1
