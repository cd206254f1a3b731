"""S32 to S35 and the table of outcomes: how an event was taken, and what errors do."""

from __future__ import annotations

import pytest

from interlock.errors import RejectedError
from interlock.model.event import Event
from tests.conformance.semantics.life import Life, codes


def test_applied_when_something_with_target_or_content_was_chosen() -> None:
    life = Life("states: {a: {on: {e: b}}, b: {}}")
    life.send("e")

    assert ("applied None", 2) == (life.verdict, life.step.snapshot.version)


def test_ignored_when_the_author_said_already_done() -> None:
    """Only transitions with neither target nor content: nothing is written, the version stays."""
    life = Life("states: {a: {on: {e: {}}}}")
    before = life.step.snapshot
    life.send("e")

    assert ("ignored no_content", before) == (life.verdict, life.step.snapshot)


def test_rejected_when_no_transition_takes_it() -> None:
    life = Life("states: {a: {on: {e: {}}}}")
    before = life.step.snapshot
    life.send("other")

    assert ("rejected no_transition", before) == (life.verdict, life.step.snapshot)


def test_rejected_for_a_guard_names_the_guard_and_what_it_read() -> None:
    life = Life("""
        context: {n: {type: integer, default: 2}}
        states: {a: {on: {e: {target: b, guard: "= context.n > 3"}}}, b: {}}
        """)
    life.send("e")

    assert "rejected guard" == life.verdict
    assert [("context.n > 3", {"context.n": 2})] == [
        (each.guard.lstrip("= "), each.values) for each in life.step.trials
    ]


def test_an_eventless_transition_that_reads_the_event_counts() -> None:
    life = Life("states: {a: {always: {target: b, guard: \"= get({'e': 1}, event.name, 0) == 1\"}}, b: {}}")
    life.send("e")

    assert ("applied None", "b") == (life.verdict, life.states)


def test_undeclared_and_payload_are_refused_before_the_chart_sees_them() -> None:
    """When `events` is there it is complete."""
    life = Life(
        "events: {e: {payload: {n: integer}}, i: {direction: internal}}\nstates: {a: {on: {e: {actions: [x]}, i: {}}}}"
    )
    verdicts = []
    for name, data in (("other", None), ("e", {"n": "x"}), ("e", {}), ("i", None)):
        life.step = life.kernel.step(life.step.snapshot, Event(name, data=data))
        verdicts.append(life.verdict)

    assert ["rejected undeclared", "rejected payload", "rejected payload", "rejected undeclared"] == verdicts


def test_s32_unhandled_ignore() -> None:
    """The mode of imported charts (W3C 423)."""
    life = Life("unhandled: ignore\nstates: {a: {}}")
    life.send("e")

    assert "ignored no_transition" == life.verdict


DEFER = """
unhandled: defer
states:
  a: {on: {go: b, same: {target: a, reenter: true}}}
  b: {on: {x: {actions: [x]}}}
"""


def test_s32_defer_keeps_the_event_until_the_configuration_changes() -> None:
    """Then all kept events come back, in order, as sends to itself under a new id and key."""
    life = Life(DEFER)
    life.send("x", 1, id="i1", key="k1")
    life.send("y", id="i2")

    assert ("applied deferred", ["x", "y"]) == (life.verdict, [each.name for each in life.step.snapshot.deferred])
    life.send("go")
    assert () == life.step.snapshot.deferred
    assert [
        {"event": "x", "to": "tale/1", "data": 1, "id": "i1/4", "key": "k1/4"},
        {"event": "y", "to": "tale/1", "id": "i2/4"},
    ] == [each.payload for each in life.effects("send")]


def test_s32_a_step_that_comes_back_to_the_same_configuration_returns_nothing() -> None:
    """The set of active states is what was before, so the event would only be kept again."""
    life = Life(DEFER)
    life.send_all("x", "same")

    assert (1, []) == (len(life.step.snapshot.deferred), life.effects("send"))


def test_s33_a_failing_guard_is_false_and_queues_an_error() -> None:
    """The next candidate is tried (W3C 309, 344)."""
    life = Life("""
        states:
          a:
            on:
              e: [{guard: "= 1 // 0 == event.id", actions: [no]}, {guard: "= event.name == 'e'", actions: [yes]}]
              error.execution: {actions: [told]}
        """)

    assert ("yes told", []) == (life.send("e"), life.faults)


def test_s33_an_error_nobody_takes_is_listed() -> None:
    life = Life("unhandled: ignore\nstates: {a: {invoke: {id: job, src: w}, on: {e: {actions: [{log: '= 1 // 0'}]}}}}")
    life.send("e")
    assert ["expression.zero_division"] == life.faults

    life.answer(life.invoke("job"), "error", {"code": "broken", "message": "", "attempts": 1, "done": "no"})
    assert ["broken"] == life.faults


def test_s33_an_error_dropped_by_the_end_is_listed_too() -> None:
    life = Life("states: {a: {on: {e: f}}, f: {type: final, entry: [{log: '= 1 // 0'}]}}")
    life.send("e")

    assert ["expression.zero_division"] == life.faults


def test_s34_errors_raise_aborts_the_step() -> None:
    life = Life("""
        errors: raise
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {e: {target: b, actions: [{assign: {n: 1}}, effect, {log: "= 1 // 0"}]}}}, b: {}}
        """)
    before = life.step.snapshot
    life.send("e")

    assert ("rejected failed", before, ()) == (life.verdict, life.step.snapshot, life.step.effects)
    assert ["expression.zero_division"] == life.faults


def test_s34_a_failing_start_is_refused() -> None:
    with pytest.raises(RejectedError) as caught:
        Life("errors: raise\nstates: {a: {entry: [{log: '= 1 // 0'}]}}")

    assert "expression.zero_division" == caught.value.code


def test_s34_only_the_timer_whose_event_failed_is_taken_out() -> None:
    life = Life("""
        errors: raise
        states:
          a:
            entry: [{send: {event: t, delay: 1s, id: t}}, {send: {event: u, delay: 1s, id: u}}]
            on: {t: {actions: [{log: "= 1 // 0"}]}}
        """)
    life.fire(life.timer("t"))

    assert ("rejected failed", ["u"]) == (life.verdict, [each.name for each in life.step.snapshot.timers])


def test_s34_an_untaken_error_of_an_invoke_ends_the_entity_as_failed() -> None:
    """XState's actor error."""
    life = Life("errors: raise\nstates: {a: {invoke: {id: job, src: w}}}")
    life.answer(life.invoke("job"), "error", {"code": "broken", "message": "", "attempts": 1, "done": "no"})

    assert "failed" == life.step.snapshot.ended


def test_s34_a_taken_error_of_an_invoke_does_not() -> None:
    life = Life("errors: raise\nstates: {a: {invoke: {id: job, src: w, onError: {}}}}")
    life.answer(life.invoke("job"), "error", {"code": "broken", "message": "", "attempts": 1, "done": "no"})

    assert (None, "ignored no_content") == (life.step.snapshot.ended, life.verdict)


def test_s35_a_malformed_expression_fails_when_it_is_evaluated_in_scxml() -> None:
    text = "states: {a: {on: {e: {actions: [{log: '= context..x'}, lost]}, error.execution: {actions: [told]}}}}"
    life = Life(f"dialect: scxml\n{text}")

    assert "told" == life.send("e")
    assert "expression.syntax" in codes(text)
