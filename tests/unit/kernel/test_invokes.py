"""Invokes: start and end, forwarding, finalize, and stale results (S8, S9, S30)."""

import pytest

from interlock.errors import CorruptionError
from interlock.model.event import Event
from interlock.model.snapshot import Invocation, Snapshot
from interlock.model.step import Fault
from tests.unit.kernel.charts import (
    ENTITY,
    calls,
    effect_of,
    faults,
    kernel_of,
    last_step,
    payloads,
    result_of,
    started,
    xstate_kernel,
)

CHART = """
context: {got: {type: any, default: null}, seen: {type: array, default: []}}
states:
  a: {on: {go: work}}
  work:
    invoke:
      id: job
      src: do_it
      input: {n: "= event.data"}
      finalize: [{assign: {got: "= event.data"}}]
      onDone: {target: done, actions: [finished]}
      onError: {target: a, actions: [failed]}
    on: {leave: a, progress: {actions: [heard]}, note: {}}
  done: {}
"""


def working(data: object = 5) -> Snapshot:
    """The snapshot of an entity whose invoke is active."""
    return last_step(kernel_of(CHART), Event("go", data)).snapshot


def test_an_invoke_starts_when_the_step_is_stable() -> None:
    """S8, S30: an effect with its evaluated input, and an entry in the snapshot with the effect's key."""
    step = last_step(kernel_of(CHART), Event("go", 5))

    assert {"id": "job", "state": "work", "src": "do_it", "type": "handler", "input": {"n": 5}} == effect_of(
        step, "invoke"
    ).payload
    assert (Invocation("job", "work", 0, f"{ENTITY}/2/0"),) == step.snapshot.invokes


def test_a_result_runs_finalize_then_the_transition_and_ends_the_invoke() -> None:
    """S9, S31."""
    before = working()
    step = kernel_of(CHART).step(before, result_of(before, "job", {"ok": True}))

    assert (("done",), {"ok": True}, ()) == (
        step.snapshot.configuration,
        step.snapshot.context["got"],
        step.snapshot.invokes,
    )
    assert ["finished"] == calls(step)
    assert [] == payloads(step, "invoke_cancel")


def test_an_error_ends_the_invoke_too() -> None:
    """S31: when retries are spent or it timed out."""
    before = working()
    step = kernel_of(CHART).step(before, result_of(before, "job", {"code": "x"}, word="error"))

    assert (("a",), ["failed"], ()) == (step.snapshot.configuration, calls(step), step.snapshot.invokes)


def test_a_message_of_an_invoke_runs_finalize_and_leaves_it_active() -> None:
    """233: only its done and error events end it."""
    before = working()
    event = Event("progress", 7, invokeid="job", source=f"invoke/{before.invokes[0].key}")
    step = kernel_of(CHART).step(before, event)

    assert (7, before.invokes, ["heard"]) == (step.snapshot.context["got"], step.snapshot.invokes, calls(step))


def test_finalize_alone_makes_an_event_applied() -> None:
    """Outcomes: `finalize` did something though no transition was chosen."""
    before = working()
    step = kernel_of(CHART).step(before, Event("other", 8, invokeid="job"))

    assert ("applied", None, 8) == (step.outcome, step.reason, step.snapshot.context["got"])


def test_a_senders_event_runs_no_finalize() -> None:
    """S9: only what carries the invokeid."""
    step = kernel_of(CHART).step(working(), Event("progress", 7))

    assert (None, ["heard"]) == (step.snapshot.context["got"], calls(step))


def test_leaving_the_state_cancels_the_invoke() -> None:
    """S17: the effect has the id and the key of the invoke."""
    step = kernel_of(CHART).step(working(), Event("leave"))

    assert ({"id": "job", "key": f"{ENTITY}/2/0"}, ()) == (
        effect_of(step, "invoke_cancel").payload,
        step.snapshot.invokes,
    )


def test_a_message_of_a_cancelled_invoke_is_ignored_and_journaled() -> None:
    """S30, 252: outcome `ignored`, reason `invoke_gone`; a driver's event still takes a version."""
    kernel = kernel_of(CHART)
    before = working()
    left = kernel.step(before, Event("leave")).snapshot
    step = kernel.step(left, result_of(before, "job", 1))

    assert ("ignored", "invoke_gone", left.version + 1) == (step.outcome, step.reason, step.snapshot.version)
    assert (left.configuration, left.context) == (step.snapshot.configuration, step.snapshot.context)


def test_a_senders_event_with_the_id_of_no_invoke_changes_nothing() -> None:
    """S30: nothing is journaled for an event that is not the driver's."""
    kernel = kernel_of(CHART)
    before = started(kernel)
    step = kernel.step(before, Event("go", invokeid="job"))

    assert ("ignored", "invoke_gone") == (step.outcome, step.reason)
    assert before is step.snapshot


def test_the_result_of_a_replaced_invoke_is_ignored() -> None:
    """S30: the id is the same, the key is not."""
    kernel = kernel_of(CHART)
    before = working()
    again = kernel.step(kernel.step(before, Event("leave")).snapshot, Event("go", 6)).snapshot
    step = kernel.step(again, result_of(before, "job", 1))

    assert ("ignored", "invoke_gone", again.invokes) == (step.outcome, step.reason, step.snapshot.invokes)


def test_the_last_message_of_a_child_is_delivered_after_its_state_was_left() -> None:
    """S30, 236: the event says `last`: nothing was left to cancel."""
    kernel = kernel_of(CHART)
    before = working()
    left = kernel.step(before, Event("leave")).snapshot
    event = Event("go", 9, invokeid="job", source=f"invoke/{before.invokes[0].key}", last=True)

    assert ("applied", ("work",)) == (kernel.step(left, event).outcome, kernel.step(left, event).snapshot.configuration)


def test_an_unhandled_result_ends_the_invoke() -> None:
    """S31: ignored, and the snapshot forgets it."""
    kernel = kernel_of("states: {a: {invoke: {id: job, src: f}, on: {x: {}}}}")
    before = started(kernel)
    step = kernel.step(before, result_of(before, "job", 1))

    assert ("ignored", "no_transition", (), 2) == (
        step.outcome,
        step.reason,
        step.snapshot.invokes,
        step.snapshot.version,
    )


def test_a_result_whose_step_fails_still_ends_the_invoke() -> None:
    """A failed step leaves everything as it was, but for the invoke whose event it was."""
    kernel = kernel_of("""
        errors: raise
        states:
          a: {invoke: {id: job, src: f, onDone: {target: b, actions: [{log: {value: "= 1 // 0"}}]}}}
          b: {}
    """)
    before = started(kernel)
    step = kernel.step(before, result_of(before, "job"))

    assert ("rejected", "failed", ("a",), ()) == (
        step.outcome,
        step.reason,
        step.snapshot.configuration,
        step.snapshot.invokes,
    )


def test_an_event_of_the_driver_without_invokeid_is_like_any_other() -> None:
    """A source alone matches nothing in the snapshot."""
    kernel = kernel_of(CHART)
    step = kernel.step(started(kernel), Event("go", 1, source="outbox/1"))
    unknown = kernel.step(started(kernel), Event("other", 1, source="outbox/1"))

    assert ("applied", ("work",)) == (step.outcome, step.snapshot.configuration)
    assert ("ignored", "no_transition") == (unknown.outcome, unknown.reason)


FORWARD = """
states:
  a:
    invoke:
      - {id: one, src: f, autoforward: true, finalize: [fin], onDone: {actions: [done_one]}}
      - {id: two, src: g, autoforward: true}
    on: {known: {actions: [taken]}}
"""


def test_autoforward_passes_every_event_on() -> None:
    """S9: in document order, before the transition; what is null is left out."""
    kernel = kernel_of(FORWARD)
    step = kernel.step(started(kernel), Event("known", {"n": 1}, sendid="s"))

    event = {"name": "known", "data": {"n": 1}, "sendid": "s"}
    assert [{"id": "one", "event": event}, {"id": "two", "event": event}] == payloads(step, "forward")
    assert ["forward", "forward", "call"] == [effect.type for effect in step.effects]


def test_forwarding_alone_makes_an_event_applied() -> None:
    kernel = kernel_of(FORWARD)
    step = kernel.step(started(kernel), Event("unknown"))

    assert ("applied", 2) == (step.outcome, len(payloads(step, "forward")))


def test_a_result_is_not_forwarded_to_the_invoke_it_ends() -> None:
    """S9: it is no longer active."""
    kernel = kernel_of(FORWARD)
    before = started(kernel)
    step = kernel.step(before, result_of(before, "one"))

    assert ["two"] == [each["id"] for each in payloads(step, "forward")]
    assert ["fin", "done_one"] == calls(step)


def test_a_forwarded_event_is_not_taken_for_a_message_of_ones_own_invoke() -> None:
    """229: the child of a parent that forwards may have an invoke of the same id."""
    kernel = kernel_of(FORWARD)
    step = kernel.step(started(kernel), Event("known", invokeid="one", forwarded=True))
    unknown = kernel.step(started(kernel), Event("known", invokeid="nobody", forwarded=True))

    assert ["taken"] == calls(step) == calls(unknown)


def test_an_invoke_carries_what_the_dispatcher_needs() -> None:
    """Retries, timeout and policy are the chart's to say and the driver's to do."""
    kernel = kernel_of("""
        context: {where: {type: string, default: ''}}
        states:
          a:
            invoke:
              src: f
              idLocation: where
              autoforward: true
              retry: {max: 3, backoff: 1s..30s, jitter: full, on: [busy]}
              timeout: 30s
              key: "= entity.id + '-x'"
              onRestore: fail
    """)
    step = last_step(kernel)

    assert {
        "id": "a.1.0",
        "state": "a",
        "src": "f",
        "type": "handler",
        "key": f"{ENTITY}-x",
        "autoforward": True,
        "retry": {"max": 3, "backoff": "1s..30s", "jitter": "full", "on": ["busy"]},
        "timeout_ms": 30_000,
        "restore": "fail",
    } == effect_of(step, "invoke").payload
    assert "a.1.0" == step.snapshot.context["where"]


def test_an_invoke_with_failing_arguments_does_not_start() -> None:
    """S8, 554: the error is queued, and the loop continues."""
    kernel = kernel_of("""
        states: {a: {invoke: {id: job, src: f, input: {n: "= 1 // 0"}}, on: {error.execution: b}}, b: {}}
    """)
    step = last_step(kernel)

    assert (("b",), (), ()) == (step.snapshot.configuration, step.snapshot.invokes, step.effects)


def test_an_unhandled_argument_error_is_a_fault() -> None:
    """S33: the entity stays in the state, without the invoke."""
    step = last_step(kernel_of("states: {a: {invoke: {id: job, src: f, input: '= 1 // 0'}}}"))

    assert (["expression.zero_division"], ()) == (faults(step), step.snapshot.invokes)


def test_a_state_entered_and_left_in_one_step_never_invokes() -> None:
    """S30, 422."""
    kernel = kernel_of("states: {a: {on: {go: b}}, b: {invoke: {id: job, src: f}, always: c}, c: {}}")
    step = last_step(kernel, "go")

    assert (("c",), ()) == (step.snapshot.configuration, step.effects)


def test_an_invoke_that_began_in_a_step_that_leaves_again_is_withdrawn() -> None:
    """S8: a second invoke fails, its error takes the entity out of the state before the step is kept."""
    kernel = kernel_of("""
        states:
          a: {on: {go: b}}
          b: {invoke: [{id: one, src: f}, {id: two, src: g, input: "= 1 // 0"}], on: {error.execution: c}}
          c: {}
    """)
    step = last_step(kernel, "go")

    assert (("c",), (), ()) == (step.snapshot.configuration, step.effects, step.snapshot.invokes)


def test_invokes_of_several_states_start_in_entry_order() -> None:
    """S8: by state in entry order, then in document order."""
    kernel = kernel_of("""
        states:
          p:
            type: parallel
            invoke: {id: p1, src: f}
            states:
              r: {invoke: [{id: r1, src: f}, {id: r2, src: f}]}
              s: {invoke: {id: s1, src: f}}
    """)

    assert ["p1", "r1", "r2", "s1"] == [each["id"] for each in payloads(last_step(kernel), "invoke")]


def test_an_untaken_error_of_an_invoke_ends_the_entity_under_errors_raise() -> None:
    """S34: it ends as `failed`; exit blocks run and the other invokes are cancelled."""
    kernel = kernel_of("""
        errors: raise
        states: {a: {exit: [bye], invoke: [{id: job, src: f}, {id: other, src: g}]}}
    """)
    before = started(kernel)
    step = kernel.step(before, result_of(before, "job", {"code": "x", "message": "no"}, word="error"))

    assert ("applied", "failed", "failed") == (step.outcome, step.reason, step.snapshot.ended)
    assert (Fault("x", "no"),) == step.faults
    assert (["bye"], ["other"]) == (calls(step), [each["id"] for each in payloads(step, "invoke_cancel")])


def test_an_untaken_result_does_not_end_the_entity_under_errors_raise() -> None:
    """S34 is about errors only."""
    kernel = kernel_of("errors: raise\nstates: {a: {invoke: {id: job, src: f}}}")
    before = started(kernel)

    assert None is kernel.step(before, result_of(before, "job")).snapshot.ended


def test_an_end_that_fails_leaves_the_entity_without_the_invoke() -> None:
    """S34: exit blocks may fail too; the error must not be sent again and again."""
    kernel = kernel_of("""
        errors: raise
        states: {a: {exit: [{log: {value: "= 1 // 0"}}], invoke: {id: job, src: f}}}
    """)
    before = started(kernel)
    step = kernel.step(before, result_of(before, "job", word="error"))

    assert ("rejected", "failed", None, ()) == (
        step.outcome,
        step.reason,
        step.snapshot.ended,
        step.snapshot.invokes,
    )


XSTATE = """
{"id": "m", "initial": "a", "states": {
  "a": {"on": {"GO": "b", "SKIP": "c"}},
  "b": {"entry": "hello", "invoke": {"id": "job", "src": "f", "input": {"n": 1}},
        "initial": "x", "states": {"x": {"entry": "inner"}}, "on": {"BACK": "a"}},
  "c": {"invoke": {"id": "brief", "src": "f"}, "always": "a"}}}
"""


def test_an_xstate_invoke_starts_at_entry() -> None:
    """X16: between the entry actions and what is inside."""
    step = last_step(xstate_kernel(XSTATE), "GO")

    assert ["hello", "f", "inner"] == [effect.name for effect in step.effects]
    assert ["job"] == [each.id for each in step.snapshot.invokes]


def test_an_xstate_invoke_of_a_transient_state_is_withdrawn() -> None:
    """X16: created and not started; ordinals of later effects keep their place."""
    step = last_step(xstate_kernel(XSTATE), "SKIP")

    assert ((), ()) == (step.effects, step.snapshot.invokes)


@pytest.mark.parametrize("position", [3, -1, -9])
def test_an_invoke_that_the_chart_does_not_have_is_corruption(position: int) -> None:
    """A snapshot of another revision is not guessed at."""
    kernel = kernel_of(CHART)
    good = working()
    bad = Snapshot(
        good.kind, good.entity, good.version, "9", good.configuration, good.context,
        invokes=(Invocation("job", "work", position, "k"),),
    )  # fmt: skip

    with pytest.raises(CorruptionError) as caught:
        kernel.step(bad, Event("note"))

    assert "snapshot.invokes" == caught.value.code
    assert "`test/1` has an invoke `job` that state `work` of its chart does not have" == caught.value.message
    assert "the snapshot was written by another revision; migrate it, or load that revision" == caught.value.hint
