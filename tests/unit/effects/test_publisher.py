"""Messages to the bus: sent, put off while it is away, tried again, and dead letters."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from interlock.effects.lanes import RunningWork
from interlock.effects.publisher import BusPublisher
from interlock.errors import DeniedError, InterlockError, NotFoundError, RejectedError, UnavailableError
from interlock.model.journal.message import Message
from interlock.model.journal.work import BUS_WORK, Work, WorkId
from interlock.model.limits import MESSAGE_ATTEMPTS_MAX
from interlock.ports.admission import AdmissionPermit
from interlock.ports.work import Claim, Settlement
from interlock.testing.clock import VirtualClock

NOW = 1_000_000
AWAY = UnavailableError("no response", code="bus.away")


class NotingBus:
    """Takes messages, or raises what the test says."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.problem: InterlockError | None = None

    async def publish(self, message: Message) -> None:
        """Note it."""
        if self.problem is not None:
            raise self.problem
        self.taken.append(message)

    async def close(self) -> None:
        """Do nothing."""


class Shut:
    """A door that is shut."""

    def try_enter(self) -> AdmissionPermit | None:
        """Give no permit."""
        return None


class Scene:
    """A bus, a clock, and what gives messages to it."""

    def __init__(self) -> None:
        self.bus = NotingBus()
        self.clock = VirtualClock(NOW)
        self.messages = BusPublisher(self.bus, self.clock, source="/shop")

    async def settled(self, *, failures: int = 0, problem: InterlockError | None = None) -> Settlement:
        """How one message was settled."""
        self.bus.problem = problem
        return await self.messages.perform(RunningWork(claimed(failures)))


def claimed(failures: int = 0) -> Claim:
    """Return a running message."""
    work = Work(WorkId("message", 3, 1), BUS_WORK, {"type": "order.paid", "time_ms": 5}, 0)
    return Claim("order/1", work, failures + 1, failures)


async def test_a_message_is_done_once_the_bus_has_it() -> None:
    """It carries the place of its work as id and sequence."""
    scene = Scene()

    assert Settlement(claimed(), "done") == await scene.settled()
    assert [("order/1/3/1", "/shop/order", "000000000003.0001")] == [
        (each.id, each.source, each.sequence) for each in scene.bus.taken
    ]


async def test_an_unreachable_bus_is_not_a_failure_of_the_message() -> None:
    settled = await Scene().settled(failures=MESSAGE_ATTEMPTS_MAX - 1, problem=AWAY)

    assert ("again", True, False, NOW + 500, "bus.away") == (
        settled.verdict,
        settled.without_failure,
        settled.started,
        settled.next_ms,
        settled.error["code"],
    )


async def test_while_the_bus_is_unreachable_nothing_is_claimed_longer_each_time() -> None:
    scene = Scene()
    waits = []
    for _ in range(8):
        before = scene.clock.time_ms
        settled = await scene.settled(problem=AWAY)
        waits.append(settled.next_ms - before)
        assert scene.messages.try_enter() is None
        scene.clock.time_ms = settled.next_ms
        assert scene.messages.try_enter() is not None
    await scene.settled()
    again = await scene.settled(problem=AWAY)

    assert [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] == waits
    assert scene.clock.time_ms + 500 == again.next_ms


async def test_of_many_that_find_the_bus_away_together_the_first_counts() -> None:
    """Otherwise the wait would be the longest immediately."""
    scene = Scene()

    assert {NOW + 500} == {(await scene.settled(problem=AWAY)).next_ms for _ in range(64)}


async def test_the_gate_of_the_runtime_applies_to_messages_too() -> None:
    clock = VirtualClock(NOW)

    assert BusPublisher(NotingBus(), clock, gate=Shut()).try_enter() is None
    assert isinstance(BusPublisher(NotingBus(), clock).try_enter(), nullcontext)


@pytest.mark.parametrize("problem", [DeniedError("no right"), NotFoundError("no stream")])
async def test_a_bus_that_is_not_set_up_is_retried_and_then_a_dead_letter(problem: InterlockError) -> None:
    scene = Scene()
    first = await scene.settled(problem=problem)
    last = await scene.settled(problem=problem, failures=MESSAGE_ATTEMPTS_MAX - 1)

    assert ("again", False, NOW + 100) == (first.verdict, first.without_failure, first.next_ms)
    assert "dead" == last.verdict
    assert scene.messages.try_enter() is not None


async def test_a_rejected_message_is_a_dead_letter_immediately_with_a_hint() -> None:
    settled = await Scene().settled(problem=RejectedError("too large", code="bus.size", hint="emit less"))

    assert ("dead", {"code": "bus.size", "message": "too large", "hint": "emit less"}) == (
        settled.verdict,
        settled.error,
    )


async def test_a_bus_that_was_away_under_a_wrong_clock_is_asked_again_when_it_is_right() -> None:
    """And not in ten years."""
    scene = Scene()
    scene.clock.time_ms = 10**12
    await scene.settled(problem=AWAY)
    assert None is scene.messages.try_enter()
    scene.clock.time_ms = NOW

    assert scene.messages.try_enter() is not None
    settled = await scene.settled(problem=AWAY)
    assert (None, True) == (scene.messages.try_enter(), settled.next_ms < NOW + 60_000)
