"""The work and the bytes of one step are bounded while it is built: whatever content does is counted as it is done.

Work is counted by the meter, never by a clock. The charts are made to do as much as they can below every other limit.
"""

from __future__ import annotations

from typing import Any

import pytest

from interlock.assemble.charts import compile_reading, read_text
from interlock.errors import RejectedError
from interlock.kernel import explain, fast_path
from interlock.kernel.errors import StepFailed
from interlock.kernel.run import StepRun, run_from
from interlock.kernel.step import Kernel
from interlock.model.document.actions import Expression
from interlock.model.event import Event
from interlock.model.limits import (
    EVALUATION_WORK,
    NAME_BYTES_MAX,
    STRING_LENGTH_MAX,
    UNMEASURED_MAX,
    WORK_MAX,
)
from interlock.model.snapshot import Snapshot
from interlock.model.step import Fault
from tests.unit.kernel.charts import PARENT, event_of, faults, kernel_of, last_step, started, xstate_kernel

LONG = "x" * STRING_LENGTH_MAX
"""A string of a million bytes: nine of them are more than a step may hold."""

WIDE = "\U0001d54f" * STRING_LENGTH_MAX
"""As many characters, four bytes each."""


def run_of(kernel: Kernel, snapshot: Snapshot, event: Event | str) -> StepRun:
    """The run of one step, as it stands when the step has settled."""
    event = event_of(event)
    configuration = kernel.planner.configuration(snapshot.configuration)
    assert configuration is not None
    run = run_from(snapshot, 0, kernel.actions.fields, raises=False)
    run.event = event
    plan = kernel.microsteps.plan_for(run, configuration, event)
    assert plan is not None
    kernel.microsteps.run_until_stable(run, kernel.microsteps.apply(run, plan))
    return run


def work_of(kernel: Kernel, snapshot: Snapshot, event: Event | str) -> int:
    """The units of work that one step is charged."""
    return WORK_MAX - run_of(kernel, snapshot, event).meter.left


def work(text: str, event: Event | str = "go", context: dict[str, Any] | None = None) -> int:
    """The units of work of the first step of an entity."""
    kernel = kernel_of(text)
    return work_of(kernel, started(kernel, context), event)


def fault(text: str, event: Event | str = "go", context: dict[str, Any] | None = None) -> Fault:
    """The fault of a step that must be void."""
    kernel = kernel_of(text)
    before = started(kernel, context)
    step = kernel.step(before, event_of(event))

    assert ("rejected", "failed", ()) == (step.outcome, step.reason, step.effects)
    assert before is step.snapshot
    (found,) = step.faults
    return found


FIELDS = (
    "context: {s: {type: string, default: ''}, i: {type: any}, l: {type: array, default: []}, "
    "n: {type: integer, default: 0}}"
)


def acting(actions: str, head: str = FIELDS) -> str:
    """A chart that does this on `go`."""
    return f"{head}\nstates: {{a: {{on: {{go: {{actions: [{actions}]}}}}}}}}"


def each(action: str, items: str = "event.data") -> str:
    """An action for each item of the event's data."""
    return f"{{foreach: {{in: '= {items}', item: i, do: [{action}]}}}}"


# Bytes


@pytest.mark.parametrize(
    "action",
    [
        "{do: x, with: {s: '= context.s'}}",
        "{emit: {type: x, data: '= context.s'}}",
        "{log: '= context.s'}",
        "{raise: {event: x, data: {s: '= context.s'}}}",
        "{send: {event: x, to: test/2, data: {s: '= context.s'}}}",
        "{send: {event: x, to: internal, data: {s: '= context.s'}}}",
        "{send: {event: x, delay: 1s, data: {s: '= context.s'}}}",
    ],
)
def test_values_that_leave_the_step_are_counted_each_time(action: str) -> None:
    """`step.bytes_max`: one string in memory, and a thousand copies of it in the entry."""
    found = fault(acting(each(action)), Event("go", [0] * 1_000), {"s": LONG})

    assert "step.bytes_max" == found.code


def test_a_few_values_that_leave_the_step_are_not_even_counted() -> None:
    """The limits on entries are checked when they are encoded; most steps carry little."""
    chart = acting(", ".join(["{emit: {type: x, data: '= context.s'}}"] * UNMEASURED_MAX))
    kernel = kernel_of(chart)

    assert "applied" == kernel.step(started(kernel, {"s": LONG}), Event("go")).outcome
    assert UNMEASURED_MAX * (EVALUATION_WORK + 10) == work(chart, context={"s": LONG})


def test_one_action_with_many_values_is_counted() -> None:
    """Not the number of effects decides, but the number of values in them."""
    data = ", ".join(f"k{number}: '= context.s'" for number in range(20))

    assert "step.bytes_max" == fault(acting(f"{{emit: {{type: x, data: {{{data}}}}}}}"), context={"s": LONG}).code
    assert "step.bytes_max" == fault(acting(f"{{do: x, with: {{{data}}}}}"), context={"s": LONG}).code


def test_written_values_are_counted_too() -> None:
    """A long text of the definition in each of many effects."""
    assert "step.bytes_max" == fault(acting(each(f"{{log: {LONG[:500_000]}}}")), Event("go", [0] * 100)).code


def test_characters_beyond_ascii_count_for_four() -> None:
    """As in memory, and about as in JSON."""
    three = acting(each("{emit: {type: x, data: '= context.s'}}"))

    assert "step.bytes_max" == fault(three, Event("go", [0] * 9), {"s": WIDE[: STRING_LENGTH_MAX // 4]}).code
    kernel = kernel_of(three)
    step = kernel.step(started(kernel, {"s": LONG[: STRING_LENGTH_MAX // 4]}), Event("go", [0] * 9))
    assert "applied" == step.outcome


MANY = ", ".join(f"f{number}: {{type: TYPE}}" for number in range(20))


@pytest.mark.parametrize("type", ["any", "string, nullable: true", "array, nullable: true", "'any', enum: [null]"])
def test_values_that_are_written_into_the_context_are_counted_each_time(type: str) -> None:
    """Twenty fields that share one long value; what a field refuses is not written, and ends the block."""
    value = "[context.s]" if "array" in type else "context.s"
    fields = f"context: {{s: {{type: string, default: ''}}, {MANY.replace('TYPE', type)}}}"
    actions = ", ".join(f"{{assign: {{f{number}: '= {value}'}}}}" for number in range(20))
    chart = acting(actions, fields)

    if "enum" in type:
        assert ["assign.refused"] == faults(last_step(kernel_of(chart), "go", context={"s": LONG}))
    else:
        assert "step.bytes_max" == fault(chart, context={"s": LONG}).code


def test_written_texts_are_counted_in_the_context() -> None:
    """A definition may hold three long texts; with eight copies of a field they are more than a step may hold."""
    fields = f"context: {{s: {{type: string, default: ''}}, {MANY.replace('TYPE', 'any')}}}"
    texts = [f"{{assign: {{f0: &long {LONG[:990_000]}}}}}", "{assign: {f1: *long}}", "{assign: {f2: *long}}"]
    copies = [f"{{assign: {{f{number}: '= context.s'}}}}" for number in range(3, 11)]

    kernel = kernel_of(acting(", ".join(copies), fields))
    assert "applied" == kernel.step(started(kernel, {"s": LONG}), Event("go")).outcome
    assert "step.bytes_max" == fault(acting(", ".join([*texts, *copies]), fields), context={"s": LONG}).code


def test_items_of_a_loop_are_written_into_the_context() -> None:
    """Each loop has its own field for them."""
    fields = f"context: {{s: {{type: string, default: ''}}, {MANY.replace('TYPE', 'any')}}}"
    loops = ", ".join(f"{{foreach: {{in: '= [context.s]', item: f{number}, do: []}}}}" for number in range(20))

    assert "step.bytes_max" == fault(acting(loops, fields), context={"s": LONG}).code


def test_nested_paths_are_counted() -> None:
    """Each write is small, what they make together is not."""
    actions = ", ".join(f"{{assign: {{o.k{number}: '= context.s'}}}}" for number in range(20))
    head = "context: {s: {type: string, default: ''}, o: {type: object, default: {}}}"

    assert "step.bytes_max" == fault(acting(actions, head), context={"s": LONG}).code


def test_a_field_may_be_written_again_and_again() -> None:
    """What was overwritten is no longer held."""
    text = acting(each("{assign: {s: \"= context.s + 'y'\"}}"))
    kernel = kernel_of(text)
    step = kernel.step(started(kernel, {"s": LONG[:-60]}), Event("go", [0] * 60))

    assert ("applied", ()) == (step.outcome, step.faults)
    assert STRING_LENGTH_MAX == len(step.snapshot.context["s"])


def test_events_that_were_taken_are_not_held_any_more() -> None:
    """Twenty long events in one step, one after the other."""
    text = f"""
        {FIELDS}
        states:
          a:
            on:
              go: {{actions: [{{raise: {{event: next, data: '= context.s'}}}}]}}
              next:
                guard: '= context.n < 20'
                actions: [{{assign: {{n: '= context.n + 1'}}}}, {{raise: {{event: next, data: '= event.data'}}}}]
    """
    kernel = kernel_of(text)
    step = kernel.step(started(kernel, {"s": LONG}), Event("go"))

    assert ("applied", 20) == (step.outcome, step.snapshot.context["n"])


def test_output_is_counted() -> None:
    """That of final states within, and that of the entity."""
    output = ", ".join(f"k{number}: '= context.s'" for number in range(20))
    inner = f"""
        {FIELDS}
        states:
          a: {{on: {{go: b}}}}
          b: {{initial: c, states: {{c: {{type: final, output: {{{output}}}}}}}, onDone: a}}
    """
    outer = f"{FIELDS}\nstates: {{a: {{on: {{go: b}}}}, b: {{type: final, output: {{{output}}}}}}}"
    whole = (
        f"{FIELDS}\nstates: {{a: {{on: {{go: b}}}}, b: {{type: final, output: '= [{', '.join(['context.s'] * 3)}]'}}}}"
    )

    assert "step.bytes_max" == fault(inner, context={"s": LONG}).code
    assert "step.bytes_max" == fault(outer, context={"s": LONG}).code
    assert "applied" == last_step(kernel_of(whole), "go", context={"s": LONG}).outcome


def test_the_input_of_invokes_is_counted() -> None:
    """One invoke with many values, and many invokes with one."""
    given = ", ".join(f"k{number}: '= context.s'" for number in range(20))
    one = f"{FIELDS}\nstates: {{a: {{on: {{go: b}}}}, b: {{invoke: {{src: f, input: {{{given}}}}}}}}}"
    many = ", ".join(["{src: f, input: {s: '= context.s'}}"] * 20)

    assert "step.bytes_max" == fault(one, context={"s": LONG}).code
    assert (
        "step.bytes_max"
        == fault(f"{FIELDS}\nstates: {{a: {{on: {{go: b}}}}, b: {{invoke: [{many}]}}}}", context={"s": LONG}).code
    )


def test_the_first_step_is_bounded_too() -> None:
    """An entity whose defaults are too large is refused."""
    fields = ", ".join(f"f{number}: {{type: any, default: '= context.s'}}" for number in range(20))
    kernel = kernel_of(f"context: {{s: {{type: string, required: true}}, {fields}}}\nstates: {{a: {{}}}}")

    with pytest.raises(RejectedError) as caught:
        kernel.start({"s": LONG}, entity="test/1", parent=PARENT)
    assert "step.bytes_max" == caught.value.code


def test_counting_is_work() -> None:
    """A step that holds much and writes much pays for every count of it."""
    text = acting(each("{assign: {s: \"= context.s + 'y'\"}}"))
    kernel = kernel_of(text)
    small, large = ({"s": LONG[:900_000], "l": [0] * length} for length in (0, 90_000))
    event = Event("go", [0] * 40)

    assert work_of(kernel, started(kernel, small), event) + 5 * 90_000 < work_of(kernel, started(kernel, large), event)


def test_a_count_that_uses_up_the_work_ends_the_step() -> None:
    kernel = kernel_of(acting("x"))
    run = run_from(started(kernel), 0, {}, raises=False)
    run.meter.left = 10

    with pytest.raises(StepFailed) as caught:
        run.effect("log", {"value": [0] * 50}, UNMEASURED_MAX + 1)
    assert "expression.evaluations" == caught.value.fault.code
    with pytest.raises(StepFailed) as caught:
        run.charge(100)
    assert "expression.evaluations" == caught.value.fault.code


# Work


COMPARISONS = " or ".join(["context.l < event.data.l"] * 40)


def test_comparisons_of_lists_are_work_item_by_item() -> None:
    """Lists under any threshold, compared in every turn of a loop: 25 seconds without this."""
    chart = acting(each(f"{{assign: {{i: '= {COMPARISONS}'}}}}", "event.data.n"))
    data = {"l": list(range(990)), "n": [0] * 400}

    assert "expression.evaluations" == fault(chart, Event("go", data), {"l": list(range(990))}).code


@pytest.mark.parametrize(
    ("action", "least"),
    [
        ("x", 10),
        ("{log: done}", 10),
        ("{raise: x}", 10),
        ("{cancel: x}", 10),
        ("{assign: {n: 1}}", 10),
        ("{if: \"= In('a')\", then: [x], else: [y]}", 30),
        ("{emit: {type: x, data: {k: [1, 2, 3, 4]}}}", 10 + 5),
        (f"{{emit: {{type: x, data: [{', '.join(['0'] * 200)}]}}}}", 10 + 200),
        (f"{{assign: {{l: [{', '.join(['0'] * 200)}]}}}}", 10 + 200 + 200),
        ("{assign: {n: '= context.n + 1'}}", 10 + EVALUATION_WORK),
        (f"{{assign: {{i: '= [{', '.join(['context.n'] * 90)}]'}}}}", 10 + 181 + 90),
    ],
)
def test_every_action_is_work(action: str, least: int) -> None:
    chart = acting(action)

    assert least <= work(chart) < 2 * least + EVALUATION_WORK
    turns = work(acting(each(action)), Event("go", [0] * 100)) - work(acting(each(action)), Event("go", []))
    assert 100 * (least + EVALUATION_WORK) <= turns


def test_a_write_into_a_tree_is_work_for_all_that_is_copied() -> None:
    """Paths copy what lies on the way."""
    tree = {"k": {str(key): key for key in range(5_000)}, "l": [0] * 5_000}
    head = "context: {o: {type: object, default: {}}}"

    for path in ("o.k.7", "o.l.7"):
        spent = work(acting(f"{{assign: {{{path}: 1}}}}", head), context={"o": tree})
        assert 5_000 <= spent < 6_000


@pytest.mark.parametrize(
    ("field", "value", "least"),
    [
        ("{type: array, items: {type: integer, min: 0}, default: []}", [1] * 1_000, 9_000),
        ("{type: array, items: {type: number}, default: []}", [1.5] * 1_000, 9_000),
        ("{type: array, items: {type: object, fields: {a: integer}}, default: []}", [{"a": 1}] * 500, 10_000),
        ("{type: array, items: {type: integer}, default: []}", [1] * 1_000, 1_000),
    ],
)
def test_checks_of_typed_fields_are_work(field: str, value: Any, least: int) -> None:
    assert least <= work(acting("{assign: {f: '= event.data'}}", f"context: {{f: {field}}}"), Event("go", value))
    nested = acting("{assign: {f.0: '= event.data[0]'}}", f"context: {{f: {field}}}")
    assert least // 2 <= work(nested, Event("go", value), {"f": value})


def test_timers_are_work_for_all_that_are_pending() -> None:
    """Each is compared with the others by name; to cancel one is to look at all of them."""
    send, cancel = "{send: {event: e, delay: 1s}}", "{cancel: x}"
    hundred, two_hundred = (work(acting(each(send)), Event("go", [0] * count)) for count in (100, 200))
    assert two_hundred > 2 * hundred + 9_000

    kernel = kernel_of(
        f"{FIELDS}\nstates: {{a: {{on: {{set: {{actions: [{each(send)}]}}, go: {{actions: [{cancel}]}}}}}}}}"
    )
    few, many = (kernel.step(started(kernel), Event("set", [0] * count)).snapshot for count in (1, 500))
    assert work_of(kernel, few, "go") + 499 == work_of(kernel, many, "go")


def test_leaving_a_state_is_work_for_all_timers_and_invokes() -> None:
    """Those of the state are looked for among all."""
    text = """
        states:
          a:
            type: parallel
            states:
              p: {initial: q, states: {q: {after: {1h: r}, invoke: {src: f}, on: {go: r}}, r: {}}}
              s: {on: {more: {actions: [SENDS]}}}
    """.replace("SENDS", ", ".join(["{send: {event: e, delay: 1s}}"] * 50))
    kernel = kernel_of(text)
    few = started(kernel)
    many = kernel.step(few, Event("more")).snapshot

    assert work_of(kernel, few, "go") + 50 <= work_of(kernel, many, "go")


def test_late_fields_are_work_for_all_states_that_were_entered() -> None:
    """Each entry asks whether it is the first."""
    states = "\n".join(
        f'<state id="s{number}"><datamodel><data id="d{number}" expr="1"/></datamodel>'
        f'<transition event="go" target="s{number + 1}"/></state>'
        for number in range(30)
    )
    text = (
        '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" name="test" binding="late" initial="s0">'
        f'{states}<state id="s30"/></scxml>'
    )

    chart = compile_reading(read_text(text, format="scxml", source="test.scxml")).chart
    assert chart is not None
    kernel = Kernel(chart)
    early = started(kernel)
    late = early
    for _ in range(20):
        late = kernel.step(late, Event("go")).snapshot

    assert work_of(kernel, early, "go") + 20 <= work_of(kernel, late, "go")


def regions(count: int, rest: str = "") -> str:
    """Return a parallel state with this many regions. Each has a transition for its own event and for `all`."""
    two = "{initial: x, states: {x: {on: {eN: y, all: y}}, y: {on: {eN: x, all: x}}}}"
    inner = "\n".join(f"{' ' * 14}r{number}: {two.replace('N', str(number))}" for number in range(count))
    loop = each("{raise: {event: '= context.i'}}")
    return f"""
        {FIELDS}
        states:
          p:
            type: parallel
            on: {{go: {{actions: [{loop}]}}{rest}}}
            states:
{inner}
    """


def test_microsteps_are_work_for_every_active_state() -> None:
    """The plan of a new configuration looks at all of them; a plan that is kept costs the same (see `plan`)."""
    names = [f"e{number}" for number in range(100)]
    kernel = kernel_of(regions(100))
    snapshot = started(kernel)
    first, again = (work_of(kernel, snapshot, Event("go", names)) for _ in range(2))

    assert first == again
    assert 100 * 4 * 2 * 200 < first
    wide = work_of(kernel, snapshot, Event("go", ["all"] * 100))
    assert 100 * 20 * 4 * 100 < wide


def test_wide_charts_use_up_their_work() -> None:
    """Rather than minutes: hundreds of regions, hundreds of microsteps, a new configuration in each."""
    names = [f"e{number}" for number in range(600)] + ["all"] * 200

    assert "expression.evaluations" == fault(regions(600), Event("go", names)).code


def test_small_plans_are_free() -> None:
    """What every ordinary chart does: its content is what counts."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {on: {go: a}}}")

    assert 0 == work_of(kernel, started(kernel), "go")


def test_selection_is_work_for_every_transition_that_matches() -> None:
    """Raised events are matched again each time; names that nothing takes cost nothing but themselves."""
    kernel = kernel_of(regions(2, "".join(f", x.e{number}: {{actions: [y]}}" for number in range(500))))
    snapshot = started(kernel)
    foreign, known = (work_of(kernel, snapshot, Event("go", [name] * 50)) for name in ("foreign", "x.e7"))
    assert foreign < known < foreign + 50 * 50

    guards = ", ".join(f"{{guard: '= context.n > {number}', actions: [y]}}" for number in range(300))
    kernel = kernel_of(regions(2, f", x: [{guards}]"))
    assert 50 * 300 * EVALUATION_WORK < work_of(kernel, started(kernel), Event("go", ["x"] * 50))


def test_a_guard_of_a_common_ancestor_is_evaluated_once() -> None:
    """Not once for each of its regions (S12); what no region takes, the state around them does."""
    kernel = kernel_of(regions(50, ", x: [{guard: '= context.n > 0', actions: [y]}, {guard: '= context.n < 0'}]"))
    run = run_from(started(kernel), 0, kernel.actions.fields, raises=False)
    configuration = kernel.planner.configuration(started(kernel).configuration)
    assert configuration is not None

    assert () == kernel.selector.enabled(configuration, Event("x"), run)
    assert WORK_MAX - run.meter.left < 2 * EVALUATION_WORK + 1_000


def test_xstate_tries_each_state_once() -> None:
    """Inner states first, those around them if none of these answered."""
    text = """
        {"id": "m", "type": "parallel", "on": {"GO": {"actions": "outer"}},
         "states": {"a": {"on": {"GO": {"guard": "no", "actions": "inner"}}}, "b": {}}}
    """
    asked = []
    kernel = xstate_kernel(text, guards={"no": lambda context, event: asked.append(1)})  # the form of guards
    step = kernel.step(kernel.start(entity="m/1").snapshot, Event("GO"))

    assert (["outer"], [1]) == ([effect.name for effect in step.effects], asked)


# Names


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("{raise: {event: '= context.s'}}", "raise.event"),
        ("{send: {event: '= context.s'}}", "send.event"),
        ("{send: {event: e, id: '= context.s'}}", "send.id"),
        ("{send: {event: e, to: '= context.s'}}", "send.target"),
        ("{send: {event: e, type: '= [context.s]'}}", "send.type"),
    ],
)
def test_computed_names_are_short(action: str, code: str) -> None:
    """They are compared with those of the chart, of timers and of invokes, and that is not charged."""
    step = last_step(kernel_of(acting(action)), "go", context={"s": "x/" * 500})

    assert [code] == faults(step)
    assert max(len(each.message) for each in step.faults) < 200
    fitting = acting(action.replace("'= [context.s]'", "scxml"))
    fits = last_step(kernel_of(fitting), "go", context={"s": "x" * NAME_BYTES_MAX})
    assert [] == [each for each in faults(fits) if each != "send.undeliverable"]


# Refusals


def test_a_rejection_lists_the_first_guards_only() -> None:
    guards = ", ".join(
        f"{{guard: '= context.n > {number}', actions: [y]}}" for number in range(explain.FAILED_GUARDS_MAX + 20)
    )
    kernel = kernel_of(f"{FIELDS}\nstates: {{a: {{on: {{go: [{guards}]}}}}}}")
    step = kernel.step(started(kernel), Event("go"))

    assert ("rejected", "guard", explain.FAILED_GUARDS_MAX) == (step.outcome, step.reason, len(step.failed_guards))
    assert all({"context.n": 0} == each.values for each in step.failed_guards)


def test_a_rejection_does_not_repeat_long_values() -> None:
    guards = ", ".join(f"{{guard: \"= context.s == '{number}'\", actions: [y]}}" for number in range(20))
    kernel = kernel_of(f"{FIELDS}\nstates: {{a: {{on: {{go: [{guards}]}}}}}}")
    step = kernel.step(started(kernel, {"s": LONG}), Event("go"))

    assert 20 == len(step.failed_guards)
    assert [True] + [False] * 19 == ["context.s" in each.values for each in step.failed_guards]


def test_a_value_that_uses_up_the_work_has_none() -> None:
    """What a driver asks for outside of a step is bounded alike."""
    kernel = kernel_of(acting("x"))
    snapshot = started(kernel, {"l": [0.5] * 99_990})

    assert 0 == kernel.evaluate(Expression("context.n"), snapshot, Event("go"))
    long = " or ".join(["sum(context.l) < 0"] * 20)
    assert kernel.evaluate(Expression(long), snapshot, Event("go")) is None


# The fast tier


HEAVY = {
    "a long string": "{assign: {s: '= event.data'}}",
    "a large list": "{assign: {i: '= event.data'}}",
    "a list of strings": "{assign: {i: '= [event.data]'}}",
    "many inputs": f"{{do: x, with: {{{', '.join(f'k{number}: EACH' for number in range(12))}}}}}".replace(
        "EACH", "'= event.data'"
    ),
}


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("value", ["x", LONG, ["x" * 900] * 100, [0] * 990, [0] * 90_000], ids=range(5))
def test_both_tiers_agree_about_what_is_heavy(name: str, value: Any) -> None:
    chart = acting(HEAVY[name])
    quick, slow = kernel_of(chart), kernel_of(chart, fast=False)
    snapshot = started(quick)
    for _ in range(fast_path.COMPILE_AFTER_USES + 1):
        quick.step(snapshot, Event("go", "x"))
    configuration = quick.planner.configuration(snapshot.configuration)
    assert configuration is not None
    assert "go" in configuration.plain_steps

    assert slow.step(snapshot, Event("go", value)) == quick.step(snapshot, Event("go", value))


def test_long_content_is_not_compiled() -> None:
    """A hundred evaluations and more: there the general path charges them."""
    short, long = (acting(", ".join(["{assign: {i: '= [context.n]'}}"] * count)) for count in (50, 150))

    for chart, expected in ((short, True), (long, False)):
        kernel = kernel_of(chart)
        snapshot = started(kernel)
        for _ in range(fast_path.COMPILE_AFTER_USES + 1):
            kernel.step(snapshot, Event("go"))
        configuration = kernel.planner.configuration(snapshot.configuration)
        assert configuration is not None
        assert expected == ("go" in configuration.plain_steps)
