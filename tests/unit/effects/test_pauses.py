"""Pauses of handlers: how long, for whom, and what a store that cannot answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import interlock
from interlock.effects.handlers import Attempt
from interlock.effects.pauses import PAUSES_READ_MS, HandlerPauses
from interlock.errors import UnavailableError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.journal.attempts import failed_attempts
from interlock.model.limits import PAUSE_MS_MAX, PAUSE_MS_MIN
from interlock.testing import Simulation
from interlock.testing.clock import VirtualClock
from tests.unit.effects.scene import NOW, Scene, invoke


class Facts:
    """Facts in memory, which can fail."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.is_away = False
        self.reads = 0

    async def read_facts(self) -> Mapping[str, str]:
        """Return all facts."""
        self.reads += 1
        if self.is_away:
            raise UnavailableError("away", code="store.away")
        return dict(self.stored)

    async def save_fact(self, name: str, value: str | None, *, audit: AuditRow | None = None) -> None:
        """Set a fact."""
        if self.is_away:
            raise UnavailableError("away", code="store.away")
        self.stored[name] = value or ""


@pytest.mark.parametrize(
    ("until", "wait_ms"),
    [
        (timedelta(seconds=30), 30_000),
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        (datetime.fromtimestamp(NOW / 1000 + 60, UTC), 60_000),
        (datetime.fromtimestamp(NOW / 1000 + 60, timezone(timedelta(hours=2))), 60_000),
        (timedelta(seconds=-5), PAUSE_MS_MIN),
        (timedelta(days=400), PAUSE_MS_MAX),
    ],
    ids=str,
)
async def test_the_effect_runs_again_then_without_a_failure(until: Any, wait_ms: int) -> None:
    scene = Scene()

    async def charge(attempt: Attempt) -> None:
        raise attempt.pause(until=until, reason="429")

    settled = await scene.performed(charge, invoke(retry={"max": 0, "backoff": None, "jitter": None, "on": None}))

    assert settled is not None
    assert ("again", NOW + wait_ms, True, False) == (
        settled.verdict,
        settled.next_ms,
        settled.without_failure,
        settled.started,
    )
    assert ("paused", "429", ()) == (
        settled.error["code"],
        settled.error["message"],
        failed_attempts(settled.error),
    )
    assert [] == scene.delivered()


async def test_a_plain_handler_pauses_from_its_thread() -> None:
    def charge(attempt: Attempt) -> None:
        raise attempt.pause(until="2s")

    scene = Scene()
    work = asyncio.ensure_future(scene.performed(charge, invoke()))
    settled = await work

    assert settled is not None
    assert ("again", NOW + 2_000) == (settled.verdict, settled.next_ms)


@pytest.mark.parametrize("until", [None, 5, "soon", datetime(2026, 1, 1), True], ids=str)  # noqa: DTZ001 - without a zone is the point
def test_an_invalid_time_is_a_mistake_of_the_handler(until: Any) -> None:
    attempt = Attempt("order/1", "charge", None, "k", 1, None, asyncio.Event())
    with pytest.raises(UsageError) as caught:
        attempt.pause(until=until)

    assert "handler.pause" == caught.value.code


async def test_a_pause_of_one_process_is_noticed_by_another() -> None:
    clock, facts = VirtualClock(NOW), Facts()
    mine, theirs = HandlerPauses(clock, facts), HandlerPauses(clock, facts)
    before = await theirs.running_names(("charge", "mail"))
    await mine.pause("charge", NOW + 60_000)
    known = await theirs.running_names(("charge", "mail"))  # it has read a moment ago
    await clock.advance(PAUSES_READ_MS)
    noticed = await theirs.running_names(("charge", "mail"))
    await clock.advance(60_000)
    after = await theirs.running_names(("charge", "mail"))

    assert (("charge", "mail"), ("charge", "mail"), ("mail",), ("charge", "mail")) == (before, known, noticed, after)


async def test_the_latest_end_counts() -> None:
    clock, facts = VirtualClock(NOW), Facts()
    pauses = HandlerPauses(clock, facts)
    await pauses.pause("charge", NOW + 60_000)
    await pauses.pause("charge", NOW + 5_000)

    assert {"pause/charge": str(NOW + 60_000)} == facts.stored
    assert NOW + 60_000 == pauses.next_end_ms()


async def test_a_store_that_is_away_stops_nobody() -> None:
    clock, facts = VirtualClock(NOW), Facts()
    facts.is_away = True
    pauses = HandlerPauses(clock, facts)
    first = await pauses.running_names(("charge",))
    await pauses.pause("charge", NOW + 60_000)

    assert (("charge",), ()) == (first, await pauses.running_names(("charge",)))


@pytest.mark.parametrize("value", ["never", "", "-1", str(NOW + PAUSE_MS_MAX + 1), str(NOW - 1), "٣"])
async def test_a_fact_that_is_wrong_pauses_nothing(value: str) -> None:
    facts = Facts()
    facts.stored["pause/charge"] = value

    assert ("charge",) == await HandlerPauses(VirtualClock(NOW), facts).running_names(("charge",))


def test_a_simulation_pauses_as_a_runtime_does() -> None:
    order = interlock.loads("""
interlock: 1
kind: order
states:
  charging:
    invoke: {src: charge, timeout: 10s, onDone: paid, onError: failed}
  paid: {type: final}
  failed: {type: final}
""")
    calls: list[tuple[str, int]] = []

    @order.handler("charge")
    def charge(attempt: Attempt) -> None:
        calls.append((attempt.entity, attempt.number))
        if len(calls) == 1:
            raise attempt.pause(until=timedelta(minutes=1))

    simulation = Simulation(order)
    simulation.create("order/1")
    simulation.create("order/2")
    simulation.advance(0)
    held = list(calls)
    simulation.advance(59_000)
    still = list(calls)
    simulation.advance(2_000)

    assert ([("order/1", 1)], [("order/1", 1)]) == (held, still)
    assert [("order/1", 1), ("order/2", 1)] == sorted(calls[1:])
    assert {("paid",)} == {each.configuration for each in simulation.snapshots.values()}
