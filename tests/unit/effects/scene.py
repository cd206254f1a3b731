"""A delivery that only records what it gets, and claims to run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from interlock.effects.handlers import Handler, HandlerRunner
from interlock.effects.lanes import RunningWork
from interlock.errors import InterlockError, NotFoundError
from interlock.model.event import Event
from interlock.model.journal.attempts import PastAttempt
from interlock.model.journal.cause import NO_CAUSES, Cause
from interlock.model.journal.entry import Receipt
from interlock.model.journal.work import Work, WorkId
from interlock.model.step import Outcome
from interlock.ports.delivery import Child, TimersFired
from interlock.ports.work import Claim, Settlement
from interlock.testing.clock import VirtualClock
from tests.support.eventually import PATIENCE_SECONDS

CHARGE = WorkId("effect", 2, 0)
NOW = 1_000_000
ONE = {"max": 1, "backoff": "1s", "jitter": "none", "on": None}


class RecordingDelivery:
    """Answers every delivery with one outcome."""

    def __init__(self, outcome: Outcome = "applied") -> None:
        self.outcome = outcome
        self.given: list[tuple[str, Event, str, WorkId | None, int | None]] = []
        self.causes: list[Cause | None] = []
        self.attempts: list[tuple[PastAttempt, ...]] = []
        self.fired: frozenset[WorkId] = frozenset()
        self.waiting: dict[WorkId, int] = {}
        self.children: dict[str, Child] = {}
        self.started: list[tuple[str, Any, int]] = []
        self.missing: set[str] = set()
        self.elsewhere: set[str] = set()
        self.refusal: InterlockError | None = None
        self.troubles: list[InterlockError] = []

    async def opened(self, value: Any) -> Any:
        """No value is personal."""
        return value

    async def has_chart(self, entity: str) -> bool:
        """Whether the chart is in this process, as the test says."""
        return entity not in self.elsewhere

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
        """Record it."""
        if entity in self.missing:
            raise NotFoundError(f"no entity `{entity}`", code="entity.unknown")
        if self.troubles:
            raise self.troubles.pop(0)
        self.given.append((entity, event, key, finishes, fence))
        self.causes.append(cause)
        self.attempts.append(attempts)
        return Receipt(entity, self.outcome, 3)

    async def fire_timers(self, entity: str, *, causes: Mapping[WorkId, Cause] = NO_CAUSES) -> TimersFired:
        """Return what the test set."""
        return TimersFired(self.fired, self.waiting)

    async def start_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child:
        """Return the child that the test set."""
        self.started.append((parent, payload, restarts))
        if self.refusal is not None:
            raise self.refusal
        name = f"{payload['src']}/{restarts}"
        if name not in self.children:
            raise NotFoundError(f"no chart `{payload['src']}`", code="kind.unknown")
        return self.children[name]

    async def find_child(self, parent: str, work_id: WorkId, payload: Any, *, restarts: int) -> Child | None:
        """Return the child that the test set, if any."""
        return self.children.get(f"{payload['src']}/{restarts}")


def call(**facts: Any) -> RunningWork:
    """Return running work of a named action."""
    return held({"name": "charge", "input": {"amount": 3}}, **facts)


def invoke(
    *, attempt: int = 1, failures: int = 0, cancelled: bool = False, name: str = "charge", **payload: Any
) -> RunningWork:
    """Return running work of an invoke."""
    body = {"id": "pay", "src": name, "type": "handler", "state": "a", "input": 3, **payload}
    return held(body, attempt=attempt, failures=failures, cancelled=cancelled, name=name)


def held(
    body: Any, *, attempt: int = 1, failures: int = 0, cancelled: bool = False, name: str = "charge"
) -> RunningWork:
    """Return running work."""
    return RunningWork(Claim("order/1", Work(CHARGE, name, body, 0), attempt, failures, cancelled))


class Scene:
    """Handlers with a recording delivery and a virtual clock."""

    def __init__(self) -> None:
        self.driver = RecordingDelivery()
        self.clock = VirtualClock(NOW)

    async def performed(
        self, function: Handler, held: RunningWork, *, advance_ms: int = 0, **settings: Any
    ) -> Settlement | None:
        """Run the work, advance the clock, and return how the work was settled."""
        handlers = HandlerRunner({"charge": function}, self.driver, self.clock, **settings)
        work = asyncio.ensure_future(handlers.perform(held))
        await self.clock.advance(advance_ms)
        return await asyncio.wait_for(work, PATIENCE_SECONDS)

    def delivered(self) -> list[tuple[str, Any, bool]]:
        """Return the delivered events: name, data, and whether they are fenced."""
        return [(event.name, event.data, fence is not None) for _, event, _, _, fence in self.driver.given]
