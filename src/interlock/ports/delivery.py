"""What those who perform work need of the driver: to bring results, firings and sends to entities, durably.

Rule: everything comes back as an event through the same step and append as a sender's; nothing here is a side door.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from interlock.errors import RejectedError
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import WorkId


class Child(Struct, frozen=True):
    """A child entity: its id, when it was created, and whether it has ended."""

    entity: str
    created_ms: int
    ended: bool


class TimersFired(Struct, frozen=True):
    """Which timers of an entity have fired, which still wait, until when, and why one of those cannot fire."""

    fired: frozenset[WorkId]
    waiting: dict[WorkId, int]
    refused: dict[WorkId, RejectedError] = {}


CHART_MISSING_CODES = frozenset({"kind.unknown", "revision.unknown"})
"""Codes of an UnavailableError that another process, with other charts, would not raise: work for those waits."""


class EventDelivery(Protocol):
    """The driver, seen from the work it left."""

    async def is_here(self, entity: str) -> bool:
        """Whether this process can bring anything to the entity: it has its chart, in its revision."""

    async def deliver(
        self, entity: str, event: Event, *, key: str, answers: WorkId | None = None, fence: int | None = None
    ) -> Receipt:
        """Give an entity an event of the driver's own, under a key of the driver's own.

        `answers`: the work of this entity that ends with the entry. `fence`: only if that is still its newest attempt;
        else nothing is written and the outcome is `duplicate`.
        """

    async def fire(self, entity: str) -> TimersFired:
        """Fire every timer of the entity that is due, in order, one step each; give those that fired and the others.

        One whose step cannot be kept is passed over: those behind it may be the way out.
        Raises UnavailableError when this process does not have its chart.
        """

    async def begin_child(self, parent: str, place: WorkId, payload: Any, *, restarts: int) -> Child:
        """The child that an invoke asks for, created unless it is there.

        Raises NotFoundError for a chart that is not here, RejectedError for an input that the chart refuses.
        """

    async def find_child(self, parent: str, place: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """The child that an invoke began, if it was begun.

        Raises UnavailableError when this process cannot know: it does not have the chart of one of the two.
        """
