"""Every limit that the kernel keeps: the step is void, the fault names the limit, nothing else has changed."""

import pytest

from interlock.errors import RejectedError
from interlock.kernel import microsteps, outcome, run
from interlock.model.event import Event
from interlock.model.limits import EFFECTS_MAX, EVALUATIONS_MAX, FOREACH_ITEMS_MAX
from interlock.model.step import Fault, Step
from tests.unit.kernel.charts import ENTITY, faults, kernel_of, last_step, payloads


def failure(text: str, *events: Event | str, **settings: bool) -> Fault:
    """The fault of the last event's step, which must be void."""
    kernel = kernel_of(text, **settings)
    before = last_step(kernel, *events[:-1]).snapshot
    event = events[-1]
    step = kernel.step(before, Event(event) if isinstance(event, str) else event)

    assert ("rejected", "failed", (), ()) == (step.outcome, step.reason, step.effects, step.transitions)
    assert before is step.snapshot
    (fault,) = step.faults
    return fault


ROUND = "context: {n: {type: integer, default: 0}}\n"


def to(state: str) -> str:
    """Return a state with a guarded eventless transition; the compiler detects loops without guards."""
    return f"{{always: {{target: {state}, guard: '= context.n == 0'}}}}"


def test_an_eventless_loop_is_stopped_with_its_cycle_named() -> None:
    """`step.microsteps_max`: the states it goes round in."""
    fault = failure(f"{ROUND}states: {{z: {{on: {{go: a}}}}, a: {to('b')}, b: {to('c')}, c: {to('a')}}}", "go")

    assert "step.microsteps_max" == fault.code
    assert "b -> c -> a" in fault.message


def test_a_raise_loop_is_stopped_with_its_cycle_named() -> None:
    """A transition of the root is named as such."""
    fault = failure("on: {again: {actions: [{raise: again}]}}\nstates: {a: {}}", "again")

    assert "step.microsteps_max" == fault.code
    assert "root" in fault.message


def test_a_loop_in_the_first_step_rejects_the_entity() -> None:
    with pytest.raises(RejectedError) as caught:
        last_step(kernel_of(f"{ROUND}states: {{a: {to('b')}, b: {to('a')}}}"))

    assert "step.microsteps_max" == caught.value.code


def test_the_last_microstep_allowed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is exact: as many as the limit says, and not one more."""
    chart = "context: {n: {type: integer, default: 0}}\nstates: {a: {on: {go: {actions: [{assign: {n: 1}}]}}, always: "
    chart += "{guard: '= context.n > 0 and context.n < 4', actions: [{assign: {n: '= context.n + 1'}}]}}}"
    monkeypatch.setattr(microsteps, "MICROSTEPS_MAX", 4)
    assert "applied" == last_step(kernel_of(chart), "go").outcome

    monkeypatch.setattr(microsteps, "MICROSTEPS_MAX", 3)
    assert ["step.microsteps_max"] == faults(last_step(kernel_of(chart), "go"))


def test_internal_events_are_counted_over_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "INTERNAL_EVENTS_MAX", 2)
    once = "{raise: x}"
    two, three = f"{once}, {once}", f"{once}, {once}, {once}"
    raises = f"states: {{a: {{on: {{two: {{actions: [{two}]}}, three: {{actions: [{three}]}}}}}}}}"

    assert "applied" == last_step(kernel_of(raises, fast=False), "two").outcome
    assert Fault("step.internal_events_max", "more than 2 internal events in one step") == failure(
        raises, "three", fast=False
    )


def test_a_guard_that_fails_for_ever_is_stopped() -> None:
    """Each error queues an event, after which the failing guard is asked again."""
    fault = failure("states: {a: {on: {go: b}}, b: {always: {target: a, guard: '= 1 // 0 > 0'}}}", "go")

    assert "step.internal_events_max" == fault.code


def test_effects_are_counted() -> None:
    """`step.effects_max`: one journal entry must stay small."""
    chart = "states: {a: {on: {go: {actions: [{foreach: {in: '= event.data', item: i, do: [x]}}]}}}}"

    assert EFFECTS_MAX == len(last_step(kernel_of(chart), Event("go", [0] * EFFECTS_MAX)).effects)
    assert Fault("step.effects_max", "more than 1,000 effects in one step") == failure(
        chart, Event("go", [0] * (EFFECTS_MAX + 1))
    )


def test_timers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`step.timers_max`: they live in the snapshot."""
    monkeypatch.setattr(run, "TIMERS_MAX", 2)
    chart = "states: {a: {on: {go: {actions: [{send: {event: e, delay: 1s}}]}}}}"

    assert 2 == len(last_step(kernel_of(chart, fast=False), "go", "go").snapshot.timers)
    assert Fault("step.timers_max", "more than 2 pending timers") == failure(chart, "go", "go", "go", fast=False)


def test_invokes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`step.invokes_max`: they live in the snapshot."""
    monkeypatch.setattr(run, "INVOKES_MAX", 1)
    chart = "states: {a: {on: {go: b, one: c}}, b: {invoke: [{src: f}, {src: g}]}, c: {invoke: {src: f}}}"

    assert 1 == len(last_step(kernel_of(chart, fast=False), "one").snapshot.invokes)
    assert Fault("step.invokes_max", "more than 1 active invokes") == failure(chart, "go", fast=False)


def test_items_of_foreach_are_counted() -> None:
    """`step.foreach_items_max`: before the first turn."""
    chart = "states: {a: {on: {go: {actions: [{foreach: {in: '= event.data', item: i, do: []}}]}}}}"

    assert "applied" == last_step(kernel_of(chart), Event("go", [0] * FOREACH_ITEMS_MAX)).outcome
    assert Fault("step.foreach_items_max", "foreach over more than 10,000 items") == failure(
        chart, Event("go", [0] * (FOREACH_ITEMS_MAX + 1))
    )


NESTED = """
states:
  a:
    on:
      go:
        actions:
          - foreach:
              in: "= event.data"
              item: i
              do: [{foreach: {in: "= event.data", item: j, do: [{if: "= context.j == 1", then: [x]}]}}]
"""


def test_evaluations_are_counted() -> None:
    """`expression.evaluations`: the time of a step is bounded, and no error event could stop it."""
    assert "expression.evaluations" == failure(NESTED, Event("go", [0] * 300)).code


def test_a_step_within_its_evaluations_is_applied() -> None:
    """A turn costs one evaluation and what it evaluates."""
    turns = 200

    assert 3 * turns * turns > EVALUATIONS_MAX
    assert 2 * turns * turns < EVALUATIONS_MAX
    assert "expression.evaluations" == failure(NESTED, Event("go", [0] * (turns + 25))).code
    assert "applied" == last_step(kernel_of(NESTED), Event("go", [0] * turns)).outcome


def test_a_tree_that_grows_in_the_context_is_counted() -> None:
    """Shared parts count each time they appear: small in memory, they would be huge when encoded."""
    chart = """
        context: {tree: {type: any, default: [0]}}
        states: {a: {on: {go: {actions: [{assign: {tree: "= [context.tree, context.tree]"}}]}}}}
    """
    kernel = kernel_of(chart)
    step = last_step(kernel)
    codes: set[str] = set()
    for _ in range(20):
        step = kernel.step(step.snapshot, Event("go"))
        codes |= set(faults(step))

    assert {"expression.limit"} == codes


def deferring(count: int, actions: str = "") -> Step:
    """An entity that keeps events back, and the step after which it would return them."""
    kernel = kernel_of(f"unhandled: defer\nstates: {{a: {{on: {{go: {{target: b, actions: [{actions}]}}}}}}, b: {{}}}}")
    return last_step(kernel, *(["later"] * count), Event("go", [0] * (EFFECTS_MAX - 1)))


def test_deferred_events_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """`step.deferred_max`: they live in the snapshot with their payloads."""
    monkeypatch.setattr(outcome, "DEFERRED_MAX", 2)
    fault = failure("unhandled: defer\nstates: {a: {on: {go: b}}, b: {}}", "later", "later", "later")

    assert ("step.deferred_max", "later") == (fault.code, fault.place)


def test_events_that_come_back_are_effects_and_counted() -> None:
    """The step that would return too many is void: they are kept on, and nothing else happened."""
    step = deferring(2, "{foreach: {in: '= event.data', item: i, do: [x]}}")

    assert ("rejected", "failed", ["step.effects_max"]) == (step.outcome, step.reason, faults(step))
    assert (("a",), 2) == (step.snapshot.configuration, len(step.snapshot.deferred))


def test_events_that_come_back_within_the_limit_do() -> None:
    step = deferring(1, "{foreach: {in: '= event.data', item: i, do: [x]}}")

    assert (("b",), (), EFFECTS_MAX) == (step.snapshot.configuration, step.snapshot.deferred, len(step.effects))
    assert [{"event": "later", "to": ENTITY}] == payloads(step, "send")
