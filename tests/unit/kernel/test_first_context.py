"""The first context of an entity: given values, defaults, and failures (S5, S6)."""

from decimal import Decimal
from typing import Any

import pytest

from interlock.errors import RejectedError, UsageError
from interlock.expression.codegen import Compiled
from interlock.expression.language import SAFE, Script
from interlock.expression.parser import Parsed
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from tests.unit.kernel.charts import ENTITY, PARENT, faults, kernel_of, last_step, payloads, started

PLAIN = """
context: {n: {type: integer, default: 1}, note: {type: string, nullable: true}, free: any}
states: {a: {on: {go: b}}, b: {}}
"""


class Trusting:
    """A language with scripts and without source: what a test may bring, and nothing in the package does."""

    def check(self, text: str) -> Parsed | None:
        return SAFE.check(text)

    def compile(self, text: str, inside: Any) -> Compiled:
        found = SAFE.compile(text, inside)
        return Compiled(source="", uses=frozenset(), function=found.function)

    def script(self, text: str) -> Script | None:
        def write(context: dict[str, Any], *_: Any) -> None:
            context["n"] = len(text)

        return write


def test_an_entity_starts_at_version_one_with_the_defaults() -> None:
    step = kernel_of(PLAIN).start(entity=ENTITY, parent=PARENT)

    assert (1, ("a",), PARENT) == (step.snapshot.version, step.snapshot.configuration, step.snapshot.parent)
    assert {"n": 1, "note": None, "free": None} == step.snapshot.context
    assert ("applied", None, ()) == (step.outcome, step.reason, step.effects)


def test_given_values_replace_the_roots_defaults() -> None:
    """S5: values given at creation replace those of root fields of the same name."""
    kernel = kernel_of(PLAIN)

    assert {"n": 7, "note": "x", "free": None} == started(kernel, {"n": 7, "note": "x"}).context
    assert {"n": 1, "note": None, "free": None} == started(kernel).context


def test_given_values_replace_defaults_that_have_to_be_evaluated() -> None:
    """S5 holds where the first step has to run, too."""
    kernel = kernel_of("""
        context: {n: {type: integer, default: "= 1 + 1"}, m: {type: integer, default: "= context.n * 10"}, free: any}
        states: {a: {}}
    """)

    assert {"n": 2, "m": 20, "free": None} == started(kernel).context
    assert {"n": 4, "m": 40, "free": [1]} == started(kernel, {"n": 4, "free": [1]}).context


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ({"m": 1}, "context.unknown"),
        ({"n": "1"}, "context.refused"),
        ({"n": True}, "context.refused"),
    ],
)
def test_a_context_that_does_not_fit_the_chart_is_rejected(context: dict[str, Any], code: str) -> None:
    with pytest.raises(RejectedError) as caught:
        kernel_of(PLAIN).start(context, entity=ENTITY)

    assert code == caught.value.code


@pytest.mark.parametrize("value", [{1: 2}, {1}, float("nan"), "\ud800", {"\ud800": 1}])
def test_a_value_without_a_json_form_is_a_mistake(value: Any) -> None:
    """Half a character could not be written as UTF-8 when the snapshot is kept."""
    with pytest.raises(UsageError) as caught:
        kernel_of(PLAIN).start({"free": value}, entity=ENTITY)

    assert "context.refused" == caught.value.code


def test_a_value_is_stored_in_its_json_form() -> None:
    assert "1.50" == started(kernel_of(PLAIN), {"free": Decimal("1.50")}).context["free"]


def test_a_chart_without_fields_rejects_any_context() -> None:
    with pytest.raises(RejectedError, match="its fields are none"):
        kernel_of("states: {a: {}}").start({"n": 1}, entity=ENTITY)


@pytest.mark.parametrize("context", [None, {}, {"m": 1}])
def test_a_required_field_must_be_given(context: dict[str, Any] | None) -> None:
    """Without context, with an empty one, and with another field only."""
    kernel = kernel_of("""
        context: {n: {type: integer, required: true}, m: {type: integer, default: 0}}
        states: {a: {}}
    """)

    with pytest.raises(RejectedError) as caught:
        kernel.start(context, entity=ENTITY)

    assert "context.missing" == caught.value.code
    assert {"n": 1, "m": 0} == started(kernel, {"n": 1}).context


def test_a_default_that_fails_leaves_its_field_unbound() -> None:
    """S5: the field is declared but unbound, `error.execution` is queued, and the step continues."""
    step = last_step(
        kernel_of("""
        context: {n: {type: integer, default: "= 1 // 0"}, m: {type: integer, default: 2}}
        states: {a: {}}
    """)
    )

    assert {"m": 2} == step.snapshot.context
    assert ["expression.zero_division"] == faults(step)


def test_a_default_of_the_wrong_type_leaves_its_field_unbound() -> None:
    """S25 holds for first values: a field takes only what its type does."""
    step = last_step(kernel_of("context: {n: {type: integer, default: \"= 'x'\"}}\nstates: {a: {}}"))

    assert {} == step.snapshot.context
    assert ["context.refused"] == faults(step)


def test_a_constant_default_that_the_field_refuses_fails_at_every_start() -> None:
    """A chart of another dialect may hold one: it only warns there."""
    kernel = kernel_of("dialect: scxml\ncontext: {n: {type: integer, default: x}}\nstates: {a: {}}")

    assert [["context.refused"], ["context.refused"]] == [faults(last_step(kernel)), faults(last_step(kernel))]


def test_the_error_of_a_default_can_be_taken() -> None:
    """277: the chart reacts to its own failing field in the first step."""
    step = last_step(
        kernel_of("""
        context: {n: {type: integer, default: "= 1 // 0"}}
        states: {a: {on: {error.execution: b}}, b: {}}
    """)
    )

    assert ("b",) == step.snapshot.configuration
    assert [] == faults(step)


def test_fields_of_inner_states_are_bound_at_the_start() -> None:
    """S5, early binding: all fields, in document order."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {context: {n: {type: integer, default: 3}}}}")

    assert {"n": 3} == started(kernel).context


LATE = """
binding: late
context: {base: {type: integer, default: 1}}
states:
  a: {on: {go: b}}
  b:
    context:
      n: {type: integer, default: "= context.base + 1"}
      seen: {type: boolean, default: "= In('b')"}
      open: {type: integer, nullable: true}
    on: {back: a, grow: {actions: [{assign: {n: 10, base: 5}}]}}
"""


def test_late_fields_are_bound_when_their_state_is_entered_first() -> None:
    """S5, late binding: a state's own fields at its first entry, which `In()` sees already (S22)."""
    kernel = kernel_of(LATE)

    assert {"base": 1} == started(kernel).context
    assert {"base": 1, "n": 2, "seen": True, "open": None} == last_step(kernel, "go").snapshot.context
    assert ("b",) == last_step(kernel, "go").snapshot.entered


def test_late_fields_are_bound_once() -> None:
    """A second entry finds them as they are."""
    step = last_step(kernel_of(LATE), "go", "grow", "back", "go")

    assert (5, 10) == (step.snapshot.context["base"], step.snapshot.context["n"])
    assert ("b",) == step.snapshot.entered


def test_each_late_field_fails_alone() -> None:
    """An error leaves that field unbound and the others as they should be."""
    step = last_step(
        kernel_of("""
        binding: late
        states:
          a: {on: {go: b}}
          b: {context: {n: {type: integer, default: "= 1 // 0"}, m: {type: integer, default: 2}}}
    """),
        "go",
    )

    assert {"m": 2} == step.snapshot.context
    assert ["expression.zero_division"] == faults(step)


def test_the_first_step_may_have_effects_and_settle_elsewhere() -> None:
    """S6: entering runs content, then the loop runs until it settles."""
    step = last_step(kernel_of("states: {a: {entry: [hello], always: b}, b: {}}"))

    assert [{"name": "hello"}] == payloads(step, "call")
    assert (("b",), f"{ENTITY}/1/0") == (step.snapshot.configuration, step.effects[0].key)


def test_a_first_step_that_fails_is_rejected_with_its_place() -> None:
    """S34: under `errors: raise` no entity is created."""
    kernel = kernel_of("errors: raise\nstates: {a: {entry: [{log: {value: '= 1 // 0'}}]}}")

    with pytest.raises(RejectedError) as caught:
        kernel.start(entity=ENTITY)

    assert "expression.zero_division" == caught.value.code
    assert "the first step failed: division by zero at a.entry" == str(caught.value)


def test_time_is_what_the_caller_says() -> None:
    """Rule 1: the kernel reads no clock."""
    kernel = kernel_of("states: {a: {after: {5s: b}}, b: {}}")
    step = kernel.start(entity=ENTITY, time_ms=1_000)

    assert [6_000] == [timer.due_ms for timer in step.snapshot.timers]


def test_a_charts_script_runs_after_its_fields() -> None:
    """S5, with a trusted language only."""
    kernel = kernel_of("script: abc\ncontext: {n: {type: integer, default: 1}}\nstates: {a: {}}", language=Trusting())

    assert {"n": 3} == started(kernel).context


def test_a_script_in_a_block_writes_into_the_context() -> None:
    """A trusted language is called like any other content."""
    kernel = kernel_of(
        "context: {n: {type: integer, default: 1}}\nstates: {a: {entry: [{script: abcde}]}}", language=Trusting()
    )

    assert {"n": 5} == started(kernel).context


def test_a_language_may_give_functions_instead_of_source() -> None:
    """They are called like any expression, with and without the fast tier's help."""
    text = """
        context: {n: {type: integer, default: 1}}
        states: {a: {on: {go: {guard: "= In('a') and event.data > 1", actions: [{assign: {n: "= context.n + 2"}}]}}}}
    """
    kernel = kernel_of(text, language=Trusting())
    step = last_step(kernel, *[Event("go", 2)] * 70)

    assert (141, "rejected") == (step.snapshot.context["n"], kernel.step(step.snapshot, Event("go", 1)).outcome)


@pytest.mark.parametrize("text", ["script: abc\nstates: {a: {}}", "states: {a: {entry: [{script: abc}]}}"])
def test_a_script_is_refused_by_the_safe_language(text: str) -> None:
    """A chart compiled for a trusted language does not run without it."""
    chart = kernel_of(text, language=Trusting()).chart

    with pytest.raises(UsageError) as caught:
        Kernel(chart).start(entity=ENTITY)

    assert "script.untrusted" == caught.value.code


def test_what_the_caller_does_with_his_values_later_changes_no_snapshot() -> None:
    """A snapshot is a value: what was given is copied."""
    given = {"free": [1, {"k": [2]}]}
    step = kernel_of(PLAIN).start(given, entity=ENTITY)
    given["free"][1]["k"].append(3)  # type: ignore[index]  # a list, as written above

    assert [1, {"k": [2]}] == step.snapshot.context["free"]


@pytest.mark.parametrize("entry", ["", "entry: [x], "], ids=["nothing runs", "something runs"])
def test_two_entities_share_no_default(entry: str) -> None:
    """Code that writes into the context it was shown spoils that entity alone, neither the next one nor the chart."""
    context = "context: {n: {type: integer, default: 1}, tree: {type: any, default: [[1]]}}"
    kernel = kernel_of(f"{context}\nstates: {{a: {{{entry}}}}}")
    first = kernel.start(entity=ENTITY).snapshot
    first.context["n"] = 7
    first.context["tree"][0].append(2)

    assert {"n": 1, "tree": [[1]]} == kernel.start(entity=ENTITY).snapshot.context


def test_timers_count_from_the_clock_where_it_is_behind_the_time_of_the_entity() -> None:
    """Another clock was ahead when the entity was stamped; the event keeps that time, and the timer does not."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {after: {5s: a}}}")
    first = kernel.start(entity="x/1", time_ms=900_000).snapshot
    behind = kernel.step(first, Event("go", time_ms=900_000, clock_ms=1_000)).snapshot
    plain = kernel.step(first, Event("go", time_ms=900_000)).snapshot

    assert [(6_000, 1_000)] == [(timer.due_ms, timer.since_ms) for timer in behind.timers]
    assert [(905_000, None)] == [(timer.due_ms, timer.since_ms) for timer in plain.timers]
