"""What effects need of the runtime: to deliver results, timers and messages to entities, durably.

Rule: everything comes back as an event, through the same step and append as an event from a caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from interlock.errors import RejectedError, UnavailableError
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import NO_CAUSES, Cause
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkId


class Child(Struct, frozen=True):
    """A child entity: its id, when it was created, and whether it has ended."""

    entity: str
    created_ms: int
    ended: bool


class TimersFired(Struct, frozen=True):
    """Which timers of an entity fired, which wait until when, and why one of those cannot fire."""

    fired: frozenset[WorkId]
    waiting: dict[WorkId, int]
    refused: dict[WorkId, RejectedError] = {}


CHART_MISSING_CODES = frozenset(
    {
        "definition.damaged",
        "definition.newer",
        "function.missing",
        "kind.unknown",
        "revision.ambiguous",
        "revision.unknown",
    }
)
"""Codes of an error that a process with other charts would not raise: the work waits for such a process."""


HELD_CODES = frozenset({"entity.held", "kind.held"})
"""Codes of an error for an entity that an operator holds: what is sent to it waits."""


def is_held(error: Exception) -> bool:
    """Whether an error says that an operator holds the entity."""
    return isinstance(error, UnavailableError) and error.code in HELD_CODES


class EventDelivery(Protocol):
    """The runtime, as the workers of its lanes use it."""

    async def opened(self, value: Any) -> Any:
        """Return the input of a handler with its personal values opened.

        Raises RejectedError (`personal.erased`) when one was erased, UnavailableError when this process has no keys.
        """

    async def has_chart(self, entity: str) -> bool:
        """Whether this process can deliver to the entity: it has its chart, in its revision."""

    async def deliver(
        self,
        entity: str,
        event: Event,
        *,
        key: str,
        finishes: WorkId | None = None,
        fence: int | None = None,
        cause: Cause | None = None,
        attempts: tuple[PastAttempt, ...] = (),
    ) -> Receipt:
        """Send an entity an event of the runtime itself, under a key of the runtime.

        `finishes`: the work of this entity that ends with the entry. `fence`: only if that is still its newest attempt;
        otherwise nothing is written and the outcome is `duplicate`. `cause`: of that work, with the span of its
        attempt. `attempts` are stored with the entry.
        """

    async def fire_timers(self, entity: str, *, causes: Mapping[WorkId, Cause] = NO_CAUSES) -> TimersFired:
        """Fire every timer of the entity that is due, in order, one step each. `causes` are those that are known.

        A timer whose step cannot be stored is skipped; the ones after it still fire. Raises UnavailableError when this
        process lacks the entity's chart.
        """

    async def start_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child:
        """Return the child of an invoke, created if it does not exist.

        Raises NotFoundError when this process lacks its chart, RejectedError for an input that the chart refuses.
        """

    async def find_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """Return the child that an invoke started, if it exists.

        Raises UnavailableError when this process cannot know: it lacks the chart of one of the two.
        """
