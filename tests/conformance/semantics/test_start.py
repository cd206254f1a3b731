"""S5 and S6: the context is built, then the initial states are entered."""

from __future__ import annotations

import pytest

from interlock.errors import RejectedError
from tests.conformance.semantics.life import Life


def test_s5_fields_are_bound_in_document_order() -> None:
    life = Life("""
        context: {a: {type: integer, default: 2}, b: {type: integer, default: "= context.a * 3"}}
        states: {s: {context: {c: {type: integer, default: "= context.a + context.b"}}}}
        """)

    assert {"a": 2, "b": 6, "c": 8} == life.context


def test_s5_early_binding_gives_values_to_fields_of_states_never_entered() -> None:
    life = Life("states: {s: {}, t: {context: {c: {default: 1}}}}")

    assert {"c": 1} == life.context


def test_s5_late_binding_waits_for_the_first_entry_and_happens_once() -> None:
    life = Life("""
        binding: late
        context: {n: {type: integer, default: 1}}
        states:
          s: {on: {go: t}}
          t:
            context: {c: {type: integer, default: "= context.n + 1"}}
            on: {back: s, set: {actions: [{assign: {c: 9}}]}}
        """)

    assert {"n": 1} == life.context
    life.send("go")
    assert {"n": 1, "c": 2} == life.context
    life.send_all("set", "back", "go")
    assert {"n": 1, "c": 9} == life.context


def test_s5_late_fields_are_bound_before_the_entry_blocks() -> None:
    """Entry already sees them (S22)."""
    life = Life("binding: late\nstates: {s: {context: {c: {default: here}}, entry: [{log: '= context.c'}]}}")

    assert "+s here" == life.trace


def test_s5_values_given_at_creation_replace_defaults_of_the_root() -> None:
    for binding in ("early", "late"):
        life = Life(f"binding: {binding}\ncontext: {{n: {{type: integer, default: 1}}}}\nstates: {{s: {{}}}}", {"n": 5})

        assert {"n": 5} == life.context


def test_s5_a_failing_default_leaves_the_field_unbound_and_queues_an_error() -> None:
    """The key is absent, `error.execution` comes, and the field can still be assigned (W3C 277)."""
    life = Life("""
        context: {n: {type: integer, default: "= 1 // 0"}}
        states: {s: {on: {error.execution: {target: t}}}, t: {entry: [{log: "= has(context, 'n')"}, {assign: {n: 3}}]}}
        """)

    assert "+s -s +t False" == life.trace
    assert {"n": 3} == life.context


def test_s5_a_default_that_its_type_refuses_is_an_error_too() -> None:
    life = Life("context: {n: {type: integer, default: \"= 'x' + 'y'\"}}\nstates: {s: {}}")

    assert ({}, ["context.refused"]) == (life.context, life.faults)


def test_s5_a_context_that_the_chart_does_not_know_is_refused() -> None:
    """Creation is refused as a whole: unknown field, wrong type, missing required field."""
    text = "context: {n: {type: integer, required: true}}\nstates: {s: {}}"
    refused = {}
    for context in ({}, {"n": "x"}, {"n": 1, "m": 2}):
        with pytest.raises(RejectedError) as caught:
            Life(text, context)
        refused[str(context)] = caught.value.code

    assert ["context.missing", "context.refused", "context.unknown"] == list(refused.values())


def test_s5_the_event_is_unbound_until_the_first_event() -> None:
    """Reading `event` at the start is an error (W3C 319)."""
    life = Life("states: {s: {entry: [{log: '= event.name'}]}}")

    assert ("+s", ["expression.unbound_event"]) == (life.trace, life.faults)


def test_s6_the_loop_runs_at_the_start() -> None:
    """Eventless transitions and raised events are part of the first step, which is version 1."""
    life = Life("""
        states: {a: {always: b}, b: {entry: [{raise: go}], on: {go: c}}, c: {}}
        """)

    assert "+a -a +b -b +c" == life.trace
    assert (1, "c") == (life.step.snapshot.version, life.states)
