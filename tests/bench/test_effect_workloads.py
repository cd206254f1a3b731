"""W7 to W10: hand-written code has exactly the outputs of Interlock, and less work is found."""

from __future__ import annotations

import pytest

from bench.inprocess.peers.hand_written_effects import MUTABLE, PURE, Reminder
from bench.inprocess.peers.interlock_charts import EFFECT_CHARTS, demo_life, effect_events
from bench.inprocess.workloads import ENTITY, SCENARIOS, Given, Output, WrongResultError, drive_effects, given_events

CYCLES = 3


def outputs_of_interlock(workload: str, *, bare: bool) -> list[list[Output]]:
    """Return the effects of every step of some cycles."""
    chart = EFFECT_CHARTS[workload]
    snapshot = chart.start(entity=ENTITY).snapshot
    found: list[list[Output]] = []
    for event, time_ms in effect_events(workload, CYCLES * len(SCENARIOS[workload].events), bare=bare):
        step = chart.step(snapshot, event, None, time_ms)
        assert "applied" == step.outcome
        snapshot = step.snapshot
        found.append([(each.type, each.ordinal, each.key, each.payload) for each in step.effects])
    return found


@pytest.mark.parametrize("workload", list(SCENARIOS))
def test_hand_written_code_has_the_outputs_of_interlock(workload: str) -> None:
    """Types, ordinals, keys and payloads of every effect of every step."""
    expected = outputs_of_interlock(workload, bare=False)

    assert expected == outputs_of_interlock(workload, bare=True)
    for make in (MUTABLE[workload], PURE[workload]):
        entity = make()
        assert expected == [list(entity.send(event)) for event in given_events(workload, len(expected))]


class Forgetful(Reminder):
    """Does not return the timer that it sets."""

    def send(self, event: Given) -> tuple[Output, ...]:
        return super().send(event)[:1]


class Mixed(Reminder):
    """Returns as many outputs, but of another type."""

    def send(self, event: Given) -> tuple[Output, ...]:
        outputs = super().send(event)
        return (outputs[1], outputs[1])


@pytest.mark.parametrize("wrong", [Forgetful, Mixed])
def test_an_implementation_with_other_outputs_is_caught(wrong: type[Reminder]) -> None:
    assert drive_effects("W7", Reminder(), 10) > 0
    with pytest.raises(WrongResultError):
        drive_effects("W7", wrong(), 10)


def test_an_order_of_the_demo_is_delivered_in_five_events() -> None:
    first, events = demo_life()

    assert (("draft",), 5) == (first.configuration, len(events))
