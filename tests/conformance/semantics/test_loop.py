"""S7 to S10: the loop, settling, external events, the end."""

from __future__ import annotations

from tests.conformance.semantics.life import PARENT, Life


def test_s7_eventless_transitions_go_before_queued_events() -> None:
    """The internal queue waits until no eventless transition is enabled (W3C 419)."""
    life = Life("""
        context: {n: {type: integer, default: 0}}
        states:
          a:
            entry: [{raise: r}]
            always: {guard: "= context.n < 2", actions: [{assign: {n: "= context.n + 1"}}, tick]}
            on: {r: {actions: [raised]}}
        """)

    assert "+a tick tick raised" == life.trace


def test_s7_internal_events_are_taken_in_the_order_queued() -> None:
    """And before any event from outside (W3C 421)."""
    life = Life("states: {a: {on: {e: {actions: [{raise: x}, {raise: y}]}, x: {actions: [x]}, y: {actions: [y]}}}}")

    assert "x y" == life.send("e")


def test_s7_an_internal_event_is_bound_when_it_is_taken() -> None:
    """`event` is the one taken last; eventless transitions see it too."""
    life = Life("""
        states:
          a: {on: {e: {actions: [{raise: {event: r, data: 5}}]}, r: b}}
          b: {always: {target: c, guard: "= event.name == 'r'", actions: [{log: "= event.data"}]}}
          c: {}
        """)

    assert "-a +b -b 5 +c" == life.send("e")


def test_s7_an_unhandled_internal_event_is_dropped() -> None:
    """In every mode of `unhandled`; it is not a fault unless it is an error."""
    life = Life("unhandled: reject\nstates: {a: {on: {e: {actions: [{raise: nobody}, done]}}}}")

    assert ("done", "applied None", []) == (life.send("e"), life.verdict, life.faults)


def test_s8_invokes_start_when_the_step_settles() -> None:
    """After every microstep of the step, with arguments as they are then (W3C 422)."""
    life = Life("""
        context: {n: {type: integer, default: 0}}
        states:
          a:
            invoke: {id: job, src: work, input: "= context.n"}
            entry: [{raise: r}]
            on: {r: {actions: [{assign: {n: 4}}, last]}}
        """)

    assert ["log", "call", "invoke"] == [each.type for each in life.step.effects]
    assert 4 == life.effects("invoke")[0].input


def test_s8_invokes_of_several_states_start_in_document_order() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            invoke: [{id: one, src: w}, {id: two, src: w}]
            states: {r: {invoke: {id: three, src: w}}, q: {invoke: {id: four, src: w}}}
        """)

    assert ["one", "two", "three", "four"] == [each.payload["id"] for each in life.effects("invoke")]


def test_s8_an_invoke_whose_arguments_fail_is_not_started_and_the_loop_continues() -> None:
    """`error.execution` is queued and handled in the same step (W3C 554)."""
    life = Life("""
        states:
          a:
            invoke: [{id: bad, src: w, input: "= 1 // 0"}, {id: good, src: w}]
            on: {error.execution: {actions: [told]}}
        """)

    assert "+a told" == life.trace
    assert ["good"] == [each.id for each in life.step.snapshot.invokes]


def test_s8_an_invoke_of_a_state_left_after_settling_in_the_same_step_is_withdrawn() -> None:
    """Entered and exited within one step: nothing was started (S30)."""
    life = Life("""
        states:
          a: {invoke: [{id: bad, src: w, input: "= 1 // 0"}, {id: good, src: w}], on: {error.execution: b}}
          b: {}
        """)

    assert "+a -a +b" == life.trace
    assert ([], []) == (life.effects("invoke"), life.effects("invoke_cancel"))


def test_s9_finalize_runs_before_the_event_is_selected() -> None:
    """An event that carries the invokeid runs the finalize block of that invoke first (W3C 233)."""
    life = Life("""
        context: {n: {type: integer, default: 0}}
        states:
          a:
            invoke: {id: job, src: w, finalize: [{assign: {n: "= event.data.n"}}]}
            on: {news: {target: b, guard: "= context.n == 2"}}
          b: {}
        """)
    life.answer(life.invoke("job"), "news", {"n": 2})

    assert "b" == life.states


def test_s9_finalize_of_another_invoke_does_not_run() -> None:
    """Only the invoke that the event comes from (W3C 234)."""
    life = Life("""
        states:
          p:
            type: parallel
            states: {r: {invoke: {id: one, src: w, finalize: [one]}}, q: {invoke: {id: two, src: w, finalize: [two]}}}
        """)

    assert "two" == life.answer(life.invoke("two"), "news")
    assert "" == life.send("news")


def test_s9_autoforward_passes_the_event_on() -> None:
    """Every external event goes to the invoke as a `forward` effect, before the chart's own reaction (W3C 229)."""
    life = Life("states: {a: {invoke: {id: job, src: w, autoforward: true}, on: {e: {actions: [mine]}}}}")
    life.send("e", {"v": 1})

    assert ["forward", "call"] == [each.type for each in life.step.effects]
    assert {"id": "job", "event": {"name": "e", "data": {"v": 1}}} == life.effects("forward")[0].payload


def test_s9_finalize_and_forward_follow_document_order() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            states:
              r: {invoke: {id: one, src: w, autoforward: true}}
              q: {invoke: {id: two, src: w, finalize: [two]}}
        """)
    life.answer(life.invoke("two"))

    assert ["forward", "call"] == [each.type for each in life.step.effects]


def test_s9_a_forwarded_event_is_not_taken_for_one_of_our_own_invokes() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w, finalize: [wrong]}, on: {e: {actions: [taken]}}}}")

    assert "taken" == life.send("e", invokeid="job", forwarded=True)


ENDING = """
states:
  p:
    type: parallel
    on: {end: {target: f, actions: [{raise: lost}]}}
    states: {r: {states: {a: {}}}, q: {invoke: {id: job, src: w}, states: {b: {}}}}
  f: {type: final, output: {n: 1}, entry: [{raise: lost}], exit: [{send: {event: bye, to: parent}}]}
on: {lost: {actions: [wrong]}}
"""


def test_s10_the_end_leaves_every_state_and_drops_the_queue() -> None:
    life = Life(ENDING, parent=PARENT)

    assert "-b -q -a -r -p +f -f" == life.send("end")
    assert ("done", "f", {"n": 1}) == (life.step.snapshot.ended, life.states, life.step.snapshot.output)


def test_s10_the_parent_is_notified_last() -> None:
    """After anything that exit blocks send (W3C 236)."""
    life = Life(ENDING, parent=PARENT)
    life.send("end")

    assert "done" == life.step.effects[-1].type
    assert {"data": {"n": 1}} == life.effects("done")[0].payload
    assert ["bye"] == [each.payload["event"] for each in life.effects("send")]


def test_s10_without_a_parent_there_is_no_done_effect() -> None:
    life = Life("states: {a: {on: {e: f}}, f: {type: final}}")
    life.send("e")

    assert [] == life.effects("done")


def test_s10_timers_are_dropped_and_invokes_cancelled_at_the_end() -> None:
    """Nothing of an ended entity can come back (W3C 187)."""
    life = Life("""
        states:
          a: {entry: [{send: {event: t, delay: 1s}}], on: {e: b}}
          b: {invoke: {id: job, src: w}, always: {target: f, guard: "= event.name == 'go'"}}
          f: {type: final}
        """)
    life.send("e")
    life.send("go")

    assert ((), ()) == (life.step.snapshot.timers, life.step.snapshot.invokes)
    assert (1, 1) == (len(life.effects("timer_cancel")), len(life.effects("invoke_cancel")))


def test_s10_the_microstep_that_ends_it_is_finished() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            states: {r: {states: {a: {on: {e: {actions: [moved]}}}}}, q: {states: {b: {on: {e: "#f"}}}}}
          f: {type: final}
        """)

    assert "-b -q -a -r -p moved +f -f" == life.send("e")


def test_s10_a_cancelled_child_runs_its_exit_blocks_and_says_nothing() -> None:
    """The parent's cancel ends it without `done.invoke` (W3C 250)."""
    life = Life("states: {c: {states: {a: {}}}}", parent=PARENT)

    assert "-a -c" == life.send("_cancel", type="platform")
    assert ("cancelled", []) == (life.step.snapshot.ended, life.effects("done"))


def test_s10_an_ended_entity_rejects_events() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w}, on: {e: f}}, f: {type: final}}")
    job = life.invoke("job")
    life.send("e")

    life.send("e")
    assert "rejected ended" == life.verdict
    life.answer(job)
    assert "ignored ended" == life.verdict
