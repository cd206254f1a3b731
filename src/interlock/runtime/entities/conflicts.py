"""A lost swap: another writer changed the entity first. What the loser does."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from interlock.errors import ConflictError
from interlock.model.backoff import Backoff
from interlock.model.limits import BACKOFF_MS_MAX, BACKOFF_MS_MIN, CONFLICT_RETRIES_MAX

CONFLICT_WAIT = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX)
"""The wait before the next try."""


class _Swap(Enum):
    LOST = "lost"


LOST: Final = _Swap.LOST
"""The result of an attempt that has to be repeated on a fresh snapshot."""

Lost = Literal[_Swap.LOST]


def too_many_conflicts(entity: str, doing: str) -> ConflictError:
    """Return the error for a write that lost every swap. `doing`: what the write was for."""
    message = f"`{entity}` changed {CONFLICT_RETRIES_MAX} times in a row while {doing}"
    return ConflictError(message, code="conflict.retries", hint="nothing was written; try again later")


def joined_conflict(entity: str) -> ConflictError:
    """Return the error for a lost swap in a transaction of a caller, who has to repeat it."""
    message = f"`{entity}` was changed by another transaction while this event was applied"
    return ConflictError(message, code="conflict.joined", hint="roll back, and run the whole transaction again")
