"""The end of an entity: reached, cancelled by its parent, or failed; what runs, what is said, what is kept (S10)."""

import pytest
from msgspec.structs import replace

from interlock.model.event import Event
from tests.unit.kernel.charts import PARENT, calls, effect_of, faults, kernel_of, last_step, payloads, started

CHART = """
context: {n: {type: integer, default: 0}}
states:
  a:
    exit: [-a]
    initial: x
    states:
      x:
        exit: [-x, {send: {event: bye, to: order/7}}, {raise: lost}, {assign: {n: 5}}]
        invoke: {id: job, src: f}
        after: {1s: y}
        on: {end: {target: "#f", actions: [{raise: dropped}, {send: {event: e, id: t, delay: 5s}}]}}
      y: {}
  f: {type: final, entry: [+f], exit: [-f], output: {n: "= context.n", here: "= In('f')"}}
  g: {type: final, output: "= 1 // 0"}
on: {fail: g, dropped: {actions: [never]}, lost: {actions: [never]}, plain: h}
"""
CHART = CHART.replace("  g: {", "  h: {type: final}\n  g: {")


def test_the_entity_ends_in_a_final_child_of_the_root() -> None:
    """S10: the snapshot keeps the final state's name, so that people see where it ended."""
    step = last_step(kernel_of(CHART), "end")

    assert ("applied", "done", ("f",)) == (step.outcome, step.snapshot.ended, step.snapshot.configuration)
    assert {"n": 5, "here": False} == step.snapshot.output


def test_a_chart_has_the_states_of_an_entity_or_not() -> None:
    kernel = kernel_of(CHART)
    living, ended = started(kernel), last_step(kernel, "end").snapshot
    places = [("a.x",), ("f",), ("gone",)]

    assert [True, False] == [kernel.has(replace(living, configuration=each)) for each in (places[0], places[2])]
    assert [True, True, False] == [kernel.has(replace(ended, configuration=each)) for each in places]
    assert not kernel.has(replace(living, history={"h": ("gone",)}))


def test_exit_blocks_run_and_queued_events_are_dropped() -> None:
    """S10: the final state's own, too."""
    assert ["-x", "-a", "+f", "-f"] == calls(last_step(kernel_of(CHART), "end"))


def test_every_entity_of_a_chart_ends_with_its_own_output() -> None:
    """What was worked out for one end serves the next."""
    kernel = kernel_of(CHART)

    assert [{"n": 5, "here": False}] * 2 == [last_step(kernel, "end").snapshot.output for _ in range(2)]


def test_nothing_is_left_pending() -> None:
    """S10, 187: timers are dropped, invokes cancelled; the driver is notified of each."""
    step = last_step(kernel_of(CHART), "end")

    assert ((), ()) == (step.snapshot.timers, step.snapshot.invokes)
    assert ["after.1s.a.x", "t"] == [each["name"] for each in payloads(step, "timer_cancel")]
    assert ["job"] == [each["id"] for each in payloads(step, "invoke_cancel")]


def test_the_parent_is_notified_last() -> None:
    """236: after anything the exit blocks sent."""
    kernel = kernel_of(CHART)
    step = kernel.step(started(kernel, parent=PARENT), Event("end"))

    assert "done" == step.effects[-1].type
    assert {"data": {"n": 5, "here": False}} == step.effects[-1].payload


def test_an_output_that_fails_is_null_and_a_fault() -> None:
    step = last_step(kernel_of(CHART), "fail")

    assert ("done", None, ["expression.zero_division"]) == (step.snapshot.ended, step.snapshot.output, faults(step))


def test_a_final_state_without_output_gives_null() -> None:
    ended = last_step(kernel_of(CHART), "plain").snapshot

    assert ("done", None) == (ended.ended, ended.output)


def test_errors_of_the_last_exit_blocks_are_faults() -> None:
    kernel = kernel_of("""
        states:
          a: {on: {end: {target: f, actions: [{log: {value: "= 1 // 0"}}]}}}
          f: {type: final, exit: [{log: {value: "= context.none"}}]}
    """)

    assert ["expression.zero_division", "expression.missing_key"] == faults(last_step(kernel, "end"))


def test_an_entity_that_starts_in_a_final_state_notifies_its_parent() -> None:
    """An entity may end in its first step."""
    step = last_step(kernel_of("states: {a: {always: f}, f: {type: final, output: 3}}"))

    assert ("done", 3, 1) == (step.snapshot.ended, step.snapshot.output, step.snapshot.version)


def test_a_chart_that_starts_in_a_final_state_ends_immediately() -> None:
    """Nothing has to run, and it is still an end."""
    assert "done" == last_step(kernel_of("states: {f: {type: final}, a: {}}\ninitial: f")).snapshot.ended


def test_a_cancelled_child_runs_its_exit_blocks_and_sends_no_result() -> None:
    """S10, 250: no `done`; the configuration is the one it was cancelled in."""
    kernel = kernel_of(CHART)
    step = kernel.step(started(kernel, parent=PARENT), Event("_cancel", type="platform"))

    assert ("applied", "cancelled", "cancelled") == (step.outcome, step.reason, step.snapshot.ended)
    assert (("a.x",), ["-x", "-a"]) == (step.snapshot.configuration, calls(step))
    assert [] == payloads(step, "done")
    assert None is step.snapshot.output


def test_a_cancel_before_the_first_settling_starts_no_invoke() -> None:
    kernel = kernel_of(CHART)
    step = kernel.step(started(kernel), Event("_cancel", type="platform"))

    assert [] == payloads(step, "invoke")
    assert "job" == effect_of(step, "invoke_cancel").payload["id"]


def test_a_cancel_that_fails_leaves_the_entity() -> None:
    """S34: under `errors: raise` a failing exit block voids this step, too."""
    kernel = kernel_of("errors: raise\nstates: {a: {exit: [{log: {value: '= 1 // 0'}}]}}")
    before = started(kernel)
    step = kernel.step(before, Event("_cancel", type="platform"))

    assert ("rejected", "failed", ["expression.zero_division"]) == (step.outcome, step.reason, faults(step))
    assert before is step.snapshot


@pytest.mark.parametrize("parent", [None, PARENT])
def test_only_a_child_notifies_a_parent(parent: object) -> None:
    """The `done` effect is for a parent."""
    kernel = kernel_of("states: {a: {on: {end: f}}, f: {type: final}}")
    step = kernel.step(kernel.start(entity="test/1", parent=PARENT if parent else None).snapshot, Event("end"))

    assert ([] if parent is None else [{"data": None}]) == payloads(step, "done")
