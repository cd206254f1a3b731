"""Why an event is or is not accepted: candidates and trials, with what guards read and how they failed."""

from interlock.kernel.explain import Candidate
from interlock.model.event import Event
from interlock.model.step import FailedGuard
from tests.unit.kernel.charts import kernel_of, last_step, started

CHART = """
context: {n: {type: integer, default: 1}, tree: {type: any, default: {list: [5]}}}
on: {"*": {actions: [x]}}
states:
  p:
    always: {target: q, guard: "= context.n > 100"}
    initial: a
    states:
      a:
        on:
          go: {target: .b, guard: "= context.n > 1 and context.tree.list[0] == 5"}
          "pay, order.*": {target: b, guard: {all: [big, {not: {in: b}}]}, roles: [clerk]}
          odd: {target: b, guard: "= context.tree['none'] == context.tree[event.name]"}
          free: b
      b: {}
  q: {}
""".replace(".b,", "b,")
GUARDS = {"big": lambda context, event: context["n"] > 10}


def test_candidates_are_the_evented_transitions_of_active_states_inner_first() -> None:
    """Each with its guard as written, the values it reads, and its verdict now."""
    kernel = kernel_of(CHART, guards=GUARDS)
    found = kernel.candidates(started(kernel))

    assert [
        ("go", "p.a", False),
        ("pay, order.*", "p.a", False),
        ("odd", "p.a", False),
        ("free", "p.a", True),
        ("*", "", True),
    ] == [(each.event, each.state, each.accepted) for each in found]


def test_a_candidate_has_the_values_that_its_guard_read() -> None:
    """Paths as written; a path that leads nowhere is left out."""
    kernel = kernel_of(CHART, guards=GUARDS)
    go, pay, odd, free, _ = kernel.candidates(started(kernel), Event("odd"))

    assert {"context.n": 1, "context.tree.list[0]": 5} == go.values
    assert ("big and (not In('p.b'))", {}) == (pay.guard, pay.values)
    assert ({"context.tree": {"list": [5]}, "event.name": "odd"}, 'no field "none"') == (odd.values, odd.error)
    assert (None, {}, None) == (free.guard, free.values, free.error)


def test_a_candidate_is_judged_for_the_event_in_question() -> None:
    """Without one, a guard that reads it says so."""
    kernel = kernel_of("states: {a: {on: {go: {actions: [x], guard: '= event.data == 1'}}}}")
    before = started(kernel)

    assert (Candidate("go", 0, "a", True, "event.data == 1", {"event.data": 1}),) == kernel.candidates(
        before, Event("go", 1)
    )
    assert (
        Candidate("go", 0, "a", False, "event.data == 1", {}, "no event has been received yet"),
    ) == kernel.candidates(before)


def test_a_transition_of_an_outer_state_is_one_candidate_for_all_regions() -> None:
    """Each transition once, however many atomic states lie below its source."""
    kernel = kernel_of("""
        type: parallel
        on: {out: {actions: [x]}}
        states: {a: {on: {e: {actions: [x]}}}, b: {on: {e: {actions: [x]}}}}
    """)

    assert [("e", "a"), ("out", ""), ("e", "b")] == [
        (each.event, each.state) for each in kernel.candidates(started(kernel))
    ]


def test_an_ended_entity_has_no_candidates() -> None:
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {type: final}}")

    assert () == kernel.candidates(last_step(kernel, "go").snapshot)


def test_trials_name_each_guard_once() -> None:
    """A guard of an outer state is asked once, though two regions lie below it."""
    kernel = kernel_of("""
        type: parallel
        context: {n: {type: integer, default: 1}}
        on: {go: {actions: [x], guard: "= context.n == 2"}}
        states: {a: {on: {go: {actions: [x], guard: "= len(context) == 5"}}}, b: {}}
    """)

    assert (FailedGuard(1, "len(context) == 5", {}), FailedGuard(0, "context.n == 2", {"context.n": 1})) == last_step(
        kernel, "go"
    ).failed_guards


def test_a_malformed_guard_of_another_dialect_has_an_error() -> None:
    """S35: it compiled to an error of the step, and reads nothing."""
    kernel = kernel_of("dialect: scxml\nunhandled: reject\nstates: {a: {on: {go: {target: b, guard: '= 1 +'}}}, b: {}}")
    (trial,) = last_step(kernel, "go").failed_guards

    assert ("1 +", {}) == (trial.guard, trial.values)
    assert trial.error is not None


def test_arguments_of_a_registered_guard_are_read_too() -> None:
    kernel = kernel_of(
        "context: {n: {type: integer, default: 1}}\n"
        "states: {a: {on: {go: {target: b, guard: {name: over, with: {limit: '= context.n'}}}}}, b: {}}",
        guards={"over": lambda context, event, given: given["limit"] > 5},
    )

    assert (FailedGuard(0, "over", {"context.n": 1}),) == last_step(kernel, "go").failed_guards


def test_candidates_do_not_change_the_snapshot() -> None:
    """The step keeps no record of it."""
    kernel = kernel_of(CHART, guards=GUARDS)
    before = started(kernel)
    first = kernel.candidates(before, Event("go"))

    assert first == kernel.candidates(before, Event("go"))
    assert started(kernel) == before
