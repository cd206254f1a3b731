"""Errors of a chart that no transition handled are logged."""

from __future__ import annotations

import logging

import pytest

import interlock
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock

CAREFUL = """
interlock: 1
kind: count
context: {n: {type: integer, default: 0, max: 3}}
initial: low
states:
  low: {after: {1s: {target: high, actions: [{assign: {n: "= context.n + 10"}}]}}}
  high: {on: {error.execution: low}}
"""
CARELESS = CAREFUL.replace("on: {error.execution: low}", "on: {set: {actions: [{assign: {n: '= event.data.n'}}]}}")


async def told(text: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the log says of faults once the timer has fired."""
    clock = VirtualClock()
    runtime = Runtime(MemoryStore(), ChartRegistry([interlock.loads(text).kernel]), clock)
    worker = Worker(runtime, {})
    await worker.start()
    await runtime.create("count/1")
    with caplog.at_level(logging.WARNING, logger="interlock.runtime"):
        await clock.advance(1_000)
    await worker.stop()
    return [each for each in caplog.records if each.getMessage() == "no transition handled an error"]


async def test_an_error_in_the_step_of_a_timer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without its message, which may quote a payload."""
    (record,) = await told(CARELESS, caplog)
    facts = {name: vars(record)[name] for name in ("entity_id", "version", "event", "code", "place")}

    assert ("count/1", 2, "after.1s.low") == (facts["entity_id"], facts["version"], facts["event"])
    assert not any("at most" in str(value) for value in vars(record).values())
    assert "assign.refused" == facts["code"]
    assert facts["place"].startswith("states.low")


async def test_an_error_that_a_transition_handles_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert [] == await told(CAREFUL, caplog)
