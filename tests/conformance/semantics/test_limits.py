"""The table of limits: nothing that a chart writes runs for ever or grows without bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interlock.compiler.build import compile_document
from interlock.errors import RejectedError
from interlock.model import limits
from interlock.model.document.document import State
from interlock.model.event import Event
from tests.conformance.semantics.life import Life, read

COUNTING = """
context: {{n: {{type: integer, default: 0}}}}
states:
  a: {{on: {{e: b}}}}
  b: {{always: {{guard: "= context.n < {count}", actions: [{{assign: {{n: "= context.n + 1"}}}}]}}}}
"""


def test_microsteps_within_the_limit_are_carried_out() -> None:
    life = Life(COUNTING.format(count=limits.MICROSTEPS_MAX - 10))
    life.send("e")

    assert "applied None" == life.verdict


def test_microsteps_beyond_the_limit_fail_the_step() -> None:
    life = Life(COUNTING.format(count=limits.MICROSTEPS_MAX + 10))
    before = life.step.snapshot
    life.send("e")

    assert ("rejected failed", ["step.microsteps_max"], before) == (life.verdict, life.faults, life.step.snapshot)
    assert "b" in life.step.faults[0].message


def test_an_error_that_queues_itself_for_ever_is_stopped() -> None:
    """An eventless guard that fails queues an error, and taking it asks the guard again: no microstep, yet no end."""

    def broken(context: object, event: object) -> bool:
        raise ValueError("broken")

    life = Life("states: {a: {on: {e: b}}, b: {always: {target: a, guard: broken}}}", guards={"broken": broken})
    life.send("e")

    assert ("rejected failed", ["step.internal_events_max"]) == (life.verdict, life.faults)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("{raise: r}", "step.internal_events_max"),
        ("work", "step.effects_max"),
        ("{send: {event: t, delay: 1s}}", "step.timers_max"),
    ],
)
def test_what_one_step_makes_is_bounded(action: str, code: str) -> None:
    life = Life(f"""
        states:
          a: {{on: {{e: {{actions: [{{foreach: {{in: "= event.data", item: x, do: [{action}]}}}}]}}, r: {{}}}}}}
        """)
    life.send("e", list(range(limits.EFFECTS_MAX - 1)))
    assert "applied None" == life.verdict

    life.send("e", list(range(limits.EFFECTS_MAX + 1)))
    assert "rejected failed" == life.verdict
    assert life.faults in ([code], ["step.effects_max"])


def test_foreach_is_bounded() -> None:
    life = Life("states: {a: {on: {e: {actions: [{foreach: {in: '= event.data', item: x, do: []}}]}}}}")
    life.send("e", [0] * limits.FOREACH_ITEMS_MAX)
    assert "applied None" == life.verdict

    life.send("e", [0] * (limits.FOREACH_ITEMS_MAX + 1))
    assert ("rejected failed", ["step.foreach_items_max"]) == (life.verdict, life.faults)


def test_deferred_events_are_bounded() -> None:
    life = Life("unhandled: defer\nstates: {a: {}}")
    for _ in range(limits.DEFERRED_MAX):
        life.send("x")
    assert "applied deferred" == life.verdict

    life.send("x")
    assert ("rejected failed", ["step.deferred_max"]) == (life.verdict, life.faults)


def test_active_invokes_are_bounded() -> None:
    invokes = ", ".join("{src: w}" for _ in range(limits.INVOKES_MAX + 1))
    with pytest.raises(RejectedError) as caught:
        Life(f"states: {{a: {{invoke: [{invokes}]}}}}")

    assert "step.invokes_max" == caught.value.code


def test_evaluations_are_bounded() -> None:
    life = Life("""
        context: {n: {type: integer, default: 0}}
        states:
          a:
            on:
              e:
                actions:
                  - foreach:
                      in: "= event.data"
                      item: x
                      do: [{foreach: {in: "= event.data", item: y, do: [{assign: {n: 1}}]}}]
        """)
    step = life.kernel.step(life.step.snapshot, Event("e", data=[0] * 2_000))

    assert ("rejected", "failed", "expression.evaluations") == (step.outcome, step.reason, step.faults[0].code)


def test_states_and_depth_of_a_chart_are_bounded() -> None:
    document = read("states: {a: {}}")
    wide = tuple(State(key=f"s{number}") for number in range(limits.STATES_MAX + 1))
    deep = State(key="s")
    for _ in range(limits.DEPTH_MAX + 1):
        deep = State(key="s", states=(deep,))
    found = [
        {each.code for each in compile_document(replace(document, root=State(states=states))).diagnostics}
        for states in (wide, (deep,))
    ]

    assert "chart.states" in found[0]
    assert "chart.depth" in found[1]
