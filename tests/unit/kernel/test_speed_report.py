"""`explain_speed`: which steps take the general path, and that they give the same results all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interlock.assemble.charts import loads
from interlock.kernel import speed_report
from interlock.model.document.actions import Send
from interlock.model.event import Event
from interlock.model.limits import EFFECTS_MAX
from tests.unit.kernel.charts import HEAD, CheckedKernel, chart_of, faults, kernel_of, last_step, xstate_kernel
from tests.unit.kernel.realistic_charts import REALISTIC
from tests.unit.kernel.test_first_context import Trusting

DEEP = "{do: x}"
for _ in range(42):
    DEEP = f"{{if: '= event.data', then: [{DEEP}]}}"

GENERAL = {
    "finalize": "states: {a: {invoke: {id: j, src: f, finalize: [x], onDone: {actions: [go]}}}}",
    "late binding": "binding: late\nstates: {a: {on: {go: b}}, b: {context: {n: {type: integer, default: 1}}}}",
    "a malformed expression": "dialect: scxml\nstates: {a: {on: {go: {actions: [{do: x, with: {n: '= 1 +'}}]}}}}",
    "an invalid constant": """
        dialect: scxml
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {go: {actions: [{assign: {n: no}}]}}}}
    """,
    "a computed internal event": "states: {a: {on: {go: {actions: [{raise: {event: \"= 'x'\"}}]}}}}",
    "an internal event inside if": "states: {a: {on: {go: {actions: [{if: '= event.data', then: [{raise: x}]}]}}}}",
    "a reserved name": "dialect: scxml\nstates: {a: {on: {go: {actions: [{raise: error.x}]}}}}",
    "a send that stores its id": """
        context: {s: {type: string, default: ''}}
        states: {a: {on: {go: {actions: [{send: {event: e, idLocation: s}}]}}}}
    """,
    "a computed send id": "states: {a: {on: {go: {actions: [{send: {event: e, id: \"= 'x'\"}}]}}}}",
    "a delayed internal event": "states: {a: {on: {go: {actions: [{send: {event: e, to: internal, delay: 1s}}]}}}}",
    "an invoke that stores its id": """
        context: {s: {type: string, default: ''}}
        states: {a: {on: {go: b}}, b: {invoke: {src: f, idLocation: s}}}
    """,
    "a computed invoke": "states: {a: {on: {go: b}}, b: {invoke: {src: \"= 'f'\"}}}",
    "nested branches": f"states: {{a: {{on: {{go: {{actions: [{DEEP}]}}}}}}}}",
    "a history of regions": """
        states:
          a: {on: {go: p.h}}
          p:
            type: parallel
            states: {r: {initial: x, states: {x: {}, y: {}}}, s: {}, h: {type: history, target: [r.y, s]}}
    """,
    "many microsteps": """
        context: {n: {type: integer, default: 0}}
        states:
          a: {on: {go: b}}
          b:
            always:
              - {guard: "= context.n < 99", actions: [{assign: {n: "= context.n + 1"}}]}
    """,
    "many internal events": f"states: {{a: {{on: {{go: {{actions: [{', '.join(['{raise: x}'] * 30)}]}}}}}}}}",
    "many ways": f"""
        type: parallel
        states: {{{", ".join(f"r{n}: {{on: {{go: {{guard: '= event.data', actions: [x]}}}}}}" for n in range(6))}}}
    """,
    "many regions with guards": f"""
        type: parallel
        states: {{{", ".join(f"r{n}: {{on: {{go: {{guard: '= event.data', actions: [x]}}}}}}" for n in range(40))}}}
    """,
    "many timers": f"""
        states: {{a: {{after: {{{", ".join(f"{n}s: b" for n in range(1, 70))}}}, on: {{go: b}}}}, b: {{on: {{go: a}}}}}}
    """,
    "many actions": f"states: {{a: {{on: {{go: {{actions: [{', '.join(['x'] * (EFFECTS_MAX + 1))}]}}}}}}}}",
    "an invalid foreach": """
        dialect: scxml
        states: {a: {on: {go: {actions: [{foreach: {in: [1], item: '1x', do: [x]}}]}}}}
    """,
}
"""Charts whose event `go`, or the result of whose invoke, takes the general path."""


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_step_is_listed_with_its_reason(name: str) -> None:
    report = kernel_of(GENERAL[name]).explain_speed()

    assert report.general
    for each in report.general:
        assert each.reason
        assert each.transitions
        assert str(each) in str(report)


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_step_runs(name: str) -> None:
    """The kernel of the tests compares it with the compiled form, which must leave it alone."""
    assert last_step(kernel_of(GENERAL[name]), Event("go", 1)).outcome in ("applied", "rejected")


@pytest.mark.parametrize("name", REALISTIC)
def test_realistic_charts_are_compiled(name: str) -> None:
    report = kernel_of(REALISTIC[name]).explain_speed()

    assert (report.general, report.is_complete) == ((), True)
    assert str(report).startswith(f"{report.compiled} of {report.compiled} steps")


def test_the_public_chart_has_the_report() -> None:
    report = loads(f"{HEAD}states: {{a: {{on: {{go: b}}}}, b: {{}}}}").explain_speed()

    assert (report.compiled, report.general) == (1, ())


def test_a_report_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_report, "CONFIGURATIONS_MAX", 2)
    report = kernel_of("states: {a: {on: {go: b}}, b: {on: {go: c}}, c: {on: {go: a}}}").explain_speed()

    assert (report.compiled, report.is_complete) == (2, False)
    assert "first 2 configurations" in str(report)


def test_guards_in_regions_of_an_xstate_chart_take_the_general_path() -> None:
    guard = '{"on": {"GO": {"guard": "yes", "actions": "x"}}}'
    text = f'{{"id": "m", "type": "parallel", "states": {{"a": {guard}, "b": {guard}}}}}'
    kernel = xstate_kernel(text, guards={"yes": lambda context, event: True})

    assert ["GO"] == [each.event for each in kernel.explain_speed().general]


def test_an_invoke_that_is_started_and_cancelled_in_one_step_takes_the_general_path() -> None:
    """XState starts it when its state is entered, and withdraws it when the state is exited immediately."""
    text = """
        {"id": "m", "initial": "a", "states": {"a": {"on": {"GO": "b"}},
         "b": {"invoke": {"id": "j", "src": "f"}, "always": "c"}, "c": {}}}
    """
    kernel = xstate_kernel(text)
    step = kernel.step(kernel.start(entity="m/1").snapshot, Event("GO"))

    assert (("c",), ()) == (step.snapshot.configuration, step.effects)
    assert ["GO"] == [each.event for each in kernel.explain_speed().general]


def test_two_timers_of_one_name_take_the_general_path() -> None:
    chart = chart_of("states: {a: {on: {go: b}}, b: {after: {1s: a, 2s: a}}}")
    states = tuple(
        replace(state, after=tuple(replace(after, event="after.x") for after in state.after)) for state in chart.states
    )
    step = last_step(CheckedKernel(replace(chart, states=states)), "go")

    assert ["after.x", "after.x~2.1"] == [each.name for each in step.snapshot.timers]


def test_an_invalid_delay_takes_the_general_path() -> None:
    """Definitions are checked, so only a chart that was made in another way has one."""
    chart = chart_of("states: {a: {on: {go: {actions: [x]}}}}")
    (transition,) = chart.transitions
    block = (Send(event="e", delay="soon"),)
    step = last_step(CheckedKernel(replace(chart, transitions=(replace(transition, block=block),))), "go")

    assert ["send.delay"] == faults(step)


def test_scripts_and_other_languages_take_the_general_path() -> None:
    text = """
        states:
          a: {on: {go: {actions: [{script: abc}]}, set: {guard: "= event.data", actions: [x]}, stop: {actions: [x]}}}
    """
    report = kernel_of(text, language=Trusting()).explain_speed()

    assert (1, ["go", "set"]) == (report.compiled, [each.event for each in report.general])
