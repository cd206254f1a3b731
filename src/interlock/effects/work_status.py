"""How a piece of work stands: a word and the numbers that go with it, for whoever shows it to people.

Rule: it is read off the row alone; whether somebody performs it can only be said of the handlers one is told of.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from interlock.effects.retry import CALL_POLICY, RetryPolicy, retry_policy
from interlock.model.journal.work import CHILD_WORK
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.work import WorkRow

Word = Literal["dead", "called_off", "in_hand", "retry", "due", "scheduled", "child", "behind"]

DESCRIPTIONS: dict[Word, str] = {
    "dead": "is a dead letter",
    "called_off": "was called off",
    "in_hand": "is in hand",
    "retry": "waits for its next try",
    "due": "waits to be taken up",
    "scheduled": "waits for its time",
    "child": "waits for its child",
    "behind": "waits for those before it",
}
"""How each is told in a sentence that begins with `it`."""


class WorkStatus(Struct, frozen=True):
    """How work stands.

    | `word` | meaning | `at_ms` |
    |---|---|---|
    | `dead` | a dead letter: a person must look | since when |
    | `called_off` | the state that asked was left; it goes with its worker | |
    | `in_hand` | somebody performs it | until when, unless renewed |
    | `retry` | it failed `tries` times of `tries_max` + 1 | when it is tried again |
    | `due` | it may be taken up now | since when |
    | `scheduled` | its time has not come | when it comes |
    | `child` | its child lives; the child's answer ends it | |
    | `behind` | what its entity sent before it goes first | |

    `missing`: nobody among those asked about performs it.
    """

    word: Word
    at_ms: int | None = None
    tries: int = 0
    tries_max: int = 0
    missing: bool = False


def work_status(row: WorkRow, *, now_ms: int, handlers: Collection[str] | None = None) -> WorkStatus:
    """How a row stands now. `handlers`: the names that are performed here; None: that is not known."""
    missing = _is_missing(row, handlers)
    if row.dead_ms is not None:
        return WorkStatus("dead", row.dead_ms, row.failures, missing=missing)
    if row.cancelled:
        return WorkStatus("called_off", missing=missing)
    if row.owner is not None:
        return WorkStatus("in_hand", row.next_ms, row.failures)
    if row.next_ms is None:
        return WorkStatus("child" if row.work.name == CHILD_WORK else "behind")
    if row.failures:
        return WorkStatus("retry", row.next_ms, row.failures, _tries_max(row), missing)
    return WorkStatus("due" if row.next_ms <= now_ms else "scheduled", row.next_ms, missing=missing)


def _is_missing(row: WorkRow, handlers: Collection[str] | None) -> bool:
    if row.work.place.lane != "effect":
        return False
    if row.work.name == CHILD_WORK:  # whoever looked last said so
        return isinstance(row.error, dict) and row.error.get("code") in CHART_MISSING_CODES
    return handlers is not None and row.work.name not in handlers


def _tries_max(row: WorkRow) -> int:
    body = row.work.body
    if row.work.place.lane != "effect" or not isinstance(body, dict):
        return MESSAGE_ATTEMPTS_MAX - 1
    return retry_policy(body, default=RetryPolicy() if "id" in body else CALL_POLICY).retries_max
