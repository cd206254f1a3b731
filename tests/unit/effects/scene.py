"""A driver that only notes what it is given, and claims to perform."""

from __future__ import annotations

from typing import Any

from interlock.effects.lane import Held
from interlock.errors import NotFoundError
from interlock.model.entry import Receipt
from interlock.model.event import Event
from interlock.model.step import Outcome
from interlock.model.work import Place, Work
from interlock.ports.driver import Child, Fired
from interlock.ports.work import Claim

CHARGE = Place("effect", 2, 0)


class NotingDriver:
    """Answers every delivery with one outcome."""

    def __init__(self, outcome: Outcome = "applied") -> None:
        self.outcome = outcome
        self.given: list[tuple[str, Event, str, Place | None, int | None]] = []
        self.fired: frozenset[Place] = frozenset()
        self.waiting: dict[Place, int] = {}
        self.children: dict[str, Child] = {}
        self.begun: list[tuple[str, Any, int]] = []
        self.missing: set[str] = set()
        self.elsewhere: set[str] = set()

    async def is_here(self, entity: str) -> bool:
        """Unless the test says that its chart is elsewhere."""
        return entity not in self.elsewhere

    async def deliver(
        self, entity: str, event: Event, *, key: str, answers: Place | None = None, fence: int | None = None
    ) -> Receipt:
        """Notes it."""
        if entity in self.missing:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown")
        self.given.append((entity, event, key, answers, fence))
        return Receipt(entity, self.outcome, 3)

    async def fire(self, entity: str) -> Fired:
        """As the test said."""
        return Fired(self.fired, self.waiting)

    async def begin_child(self, parent: str, place: Place, payload: Any, *, restarts: int) -> Child:
        """The child that the test put there."""
        self.begun.append((parent, payload, restarts))
        name = f"{payload['src']}/{restarts}"
        if name not in self.children:
            raise NotFoundError(f"no chart `{payload['src']}`", code="kind.unknown")
        return self.children[name]

    async def find_child(self, parent: str, place: Place, payload: Any, *, restarts: int) -> Child | None:
        """The child that the test put there, if it did."""
        return self.children.get(f"{payload['src']}/{restarts}")


def call(**facts: Any) -> Held:
    """Work of a named action in hand."""
    return held({"name": "charge", "input": {"amount": 3}}, **facts)


def invoke(
    *, attempt: int = 1, failures: int = 0, cancelled: bool = False, name: str = "charge", **payload: Any
) -> Held:
    """Work of an invoke in hand."""
    body = {"id": "pay", "src": name, "type": "handler", "state": "a", "input": 3, **payload}
    return held(body, attempt=attempt, failures=failures, cancelled=cancelled, name=name)


def held(body: Any, *, attempt: int = 1, failures: int = 0, cancelled: bool = False, name: str = "charge") -> Held:
    """Work in hand."""
    return Held(Claim("order/1", Work(CHARGE, name, body, 0), attempt, failures, cancelled))
