"""One microstep: what is left, what runs, what is entered, in which order; conflicts, history, completion (S11-S29)."""

import pytest

from tests.unit.kernel.charts import calls, faults, kernel_of, last_step, payloads


def test_exits_come_first_then_transitions_then_entries() -> None:
    """S17, S18, S22: inner states leave first, outer ones are entered first."""
    kernel = kernel_of("""
        states:
          a: {exit: [-a], initial: x, states: {x: {exit: [-x], on: {go: {target: "#b.y", actions: [act]}}}}}
          b: {entry: [+b], initial: {target: z, actions: [init]}, states: {y: {entry: [+y]}, z: {entry: [+z]}}}
    """)

    assert ["-x", "-a", "act", "+b", "+y"] == calls(last_step(kernel, "go"))


def test_initial_content_runs_when_a_state_is_entered_by_default() -> None:
    """S22: after the state's own entry blocks, before its child's."""
    kernel = kernel_of("""
        states:
          a: {on: {go: b}}
          b: {entry: [+b], initial: {target: x, actions: [init]}, states: {x: {entry: [+x]}}}
    """)

    assert ["+b", "init", "+x"] == calls(last_step(kernel, "go"))


PARALLEL = """
states:
  p:
    type: parallel
    entry: [+p]
    exit: [-p]
    states:
      r1: {initial: a, states: {a: {exit: [-a], on: {e: b, jump: "#p.r2.d"}}, b: {entry: [+b]}}}
      r2: {initial: c, states: {c: {exit: [-c], on: {e: {target: d, actions: [t2]}}}, d: {entry: [+d]}}}
    on: {e: {actions: [outer]}}
"""


def test_regions_move_together() -> None:
    """Probe 9: all exits, all actions, all entries; a region's answer stops the walk at that region only."""
    step = last_step(kernel_of(PARALLEL), "e")

    assert ["-c", "-a", "t2", "+b", "+d"] == calls(step)
    assert ("p.r1.b", "p.r2.d") == step.snapshot.configuration


def test_a_region_without_transition_leaves_the_event_to_its_ancestors() -> None:
    """S11: `r1` answers itself, for `r2` the parallel does; both run."""
    step = last_step(kernel_of(PARALLEL), "e", "e")

    assert ["outer"] == calls(step)


def test_a_transition_between_regions_leaves_the_parallel() -> None:
    """S15, probe 4: the domain is the nearest compound."""
    step = last_step(kernel_of(PARALLEL), "jump")

    assert ["-c", "-a", "-p", "+p", "+d"] == calls(step)
    assert ("p.r1.a", "p.r2.d") == step.snapshot.configuration


def test_of_two_that_leave_the_same_states_the_first_wins() -> None:
    """S13: neither source lies inside the other."""
    kernel = kernel_of("""
        states:
          p: {type: parallel, states: {r: {on: {go: "#y"}}, s: {on: {go: "#z"}}}}
          y: {}
          z: {}
    """)

    assert ("y",) == last_step(kernel, "go").snapshot.configuration


def test_an_inner_transition_preempts_an_outer_one() -> None:
    """S13, 403c: the later one is a descendant of the earlier one's source."""
    kernel = kernel_of("""
        states:
          p:
            type: parallel
            on: {go: {target: "#z", actions: [outer]}}
            states:
              r: {}
              s: {initial: t, states: {t: {on: {go: {target: u, actions: [inner]}}}, u: {}}}
          z: {}
    """)
    step = last_step(kernel, "go")

    assert (["inner"], ("p.r", "p.s.u")) == (calls(step), step.snapshot.configuration)


@pytest.mark.parametrize(
    ("event", "trace"),
    [
        ("external", ["-x", "-a", "+a", "+y"]),
        ("internal", ["-x", "+y"]),
        ("self", ["-x", "-a", "+a", "+x"]),
        ("none", ["act"]),
        ("mixed", ["-x", "-a", "+b"]),
    ],
)
def test_a_transition_leaves_what_its_domain_says(event: str, trace: list[str]) -> None:
    """S15, S16: external, internal, to itself, without target, internal to the outside."""
    kernel = kernel_of("""
        dialect: scxml
        states:
          a:
            entry: [+a]
            exit: [-a]
            initial: x
            states: {x: {entry: [+x], exit: [-x]}, y: {entry: [+y], exit: [-y]}}
            on:
              external: {target: .y, reenter: true}
              internal: {target: .y, reenter: false}
              self: {target: a, reenter: true}
              none: {actions: [act]}
              mixed: {target: b, reenter: false}
          b: {entry: [+b]}
    """)

    assert trace == calls(last_step(kernel, event))


def test_a_transition_of_the_root_stays_inside_it() -> None:
    """S15: its domain is the root."""
    kernel = kernel_of("on: {home: a}\nstates: {a: {entry: [+a], on: {go: b}}, b: {exit: [-b]}}")

    assert ["-b", "+a"] == calls(last_step(kernel, "go", "home"))


def test_in_sees_the_configuration_of_its_moment() -> None:
    """S17, S22: an exit block no longer sees what was left, an entry block not yet what comes."""
    kernel = kernel_of("""
        states:
          a:
            exit: [{do: -a, with: {x: "= In('a.x')"}}]
            initial: x
            states: {x: {exit: [{do: -x, with: {a: "= In('a')"}}]}}
            on: {go: {target: b, actions: [{do: act, with: {a: "= In('a')"}}]}}
          b: {entry: [{do: +b, with: {y: "= In('b.y')", b: "= In('b')"}}], initial: y, states: {y: {}}}
    """)

    assert [{"a": True}, {"x": False}, {"a": False}, {"y": False, "b": True}] == [
        each["input"] for each in payloads(last_step(kernel, "go"), "call")
    ]


HISTORY = """
states:
  a:
    initial: m
    states:
      m: {initial: x, states: {x: {on: {next: y}}, y: {}}, on: {side: n}}
      n: {}
      shallow: {type: history, target: m, actions: [default]}
      deep: {type: history, history: deep, target: m.y}
    on: {out: b}
    entry: [+a]
  b: {on: {back: a.shallow, deeply: a.deep, both: a}}
"""


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (("out", "back"), "a.m.x"),
        (("next", "out", "back"), "a.m.x"),
        (("next", "out", "deeply"), "a.m.y"),
        (("side", "out", "back"), "a.n"),
        (("side", "out", "deeply"), "a.n"),
        (("side", "out", "both"), "a.m.x"),
    ],
)
def test_history_leads_back(events: tuple[str, ...], state: str) -> None:
    """S26: shallow remembers the child, deep the atomic states."""
    assert (state,) == last_step(kernel_of(HISTORY), *events).snapshot.configuration


def test_a_history_default_is_used_until_something_is_recorded() -> None:
    """S27: its content runs after the parent's entry blocks, then no more."""
    kernel = kernel_of("""
        states:
          b: {on: {back: a.h}}
          a:
            entry: [+a]
            initial: x
            states: {x: {entry: [+x]}, h: {type: history, target: x, actions: [default]}}
            on: {out: b}
    """)

    assert ["+a", "default", "+x"] == calls(last_step(kernel, "back"))
    assert ["+a", "+x"] == calls(last_step(kernel, "back", "out", "back"))


def test_the_history_of_a_parallel_brings_back_all_regions() -> None:
    """S20: deep, each in its own state; other regions start in their initial state."""
    kernel = kernel_of("""
        states:
          p:
            type: parallel
            states:
              r: {initial: a, states: {a: {on: {go: b}}, b: {}}}
              s: {initial: c, states: {c: {on: {go: d}}, d: {}}}
              h: {type: history, history: deep, target: r.b}
            on: {out: z}
          z: {on: {back: p.h, plain: p, one: p.s.d}}
    """)

    assert ("p.r.b", "p.s.d") == last_step(kernel, "go", "out", "back").snapshot.configuration
    assert ("p.r.a", "p.s.d") == last_step(kernel, "out", "one").snapshot.configuration
    assert ("p.r.a", "p.s.c") == last_step(kernel, "out", "plain").snapshot.configuration


def test_a_default_may_lead_to_another_history() -> None:
    """S14: effective targets go through both."""
    kernel = kernel_of("""
        states:
          z: {on: {back: a.h}}
          a:
            initial: m
            states:
              m: {initial: x, states: {x: {}, y: {}, inner: {type: history, target: y}}}
              h: {type: history, target: m.inner}
    """)

    assert ("a.m.y",) == last_step(kernel, "back").snapshot.configuration


DONE = """
context: {n: {type: integer, default: 0}}
states:
  p:
    type: parallel
    states:
      r:
        initial: a
        states: {a: {on: {e: f}}, f: {type: final, output: {n: "= 1 // context.n", m: 2}}}
        onDone: {actions: [{do: r_done, with: {data: "= event.data"}}]}
      s: {initial: b, states: {b: {on: {g: g}}, g: {type: final, output: "= 1 // context.n"}}}
      h: {type: history, target: r.a}
    onDone: {target: z, actions: [{do: p_done, with: {data: "= event.data"}}]}
  z: {}
"""


def test_a_final_child_queues_the_done_event_of_its_parent() -> None:
    """S28: with its output. A part that fails is left out, and its error is queued first."""
    step = last_step(kernel_of(DONE), "e")

    assert [{"name": "r_done", "input": {"data": {"m": 2}}}] == payloads(step, "call")
    assert ["expression.zero_division"] == faults(step)
    assert ("p.r.f", "p.s.b") == step.snapshot.configuration


def test_a_parallel_is_done_when_every_region_is() -> None:
    """S28: without data, after the last region's own."""
    step = last_step(kernel_of(DONE), "e", "g")

    assert (("z",), [{"name": "p_done", "input": {"data": None}}]) == (
        step.snapshot.configuration,
        payloads(step, "call"),
    )


def test_an_output_of_which_nothing_is_left_is_null() -> None:
    kernel = kernel_of("""
        states:
          a:
            initial: x
            states: {x: {on: {e: f, g: g}}, f: {type: final, output: {n: "= 1 // 0"}}, g: {type: final, output: {}}}
            onDone: {target: z, actions: [{do: done, with: {data: "= event.data"}}]}
          z: {}
    """)

    assert [[{"data": None}], [{"data": {}}]] == [
        [each["input"] for each in payloads(last_step(kernel, event), "call")] for event in ("e", "g")
    ]


def test_a_nested_parallel_completes_only_through_a_plain_region() -> None:
    """S29: appendix D looks one parallel up, and no further."""
    kernel = kernel_of("""
        states:
          p:
            type: parallel
            states:
              q: {type: parallel, states: {r: {initial: a, states: {a: {on: {e: f}}, f: {type: final}}}}}
              s: {initial: b, states: {b: {on: {g: g}}, g: {type: final}}}
            onDone: z
          z: {}
    """)

    assert ("p.q.r.f", "p.s.g") == last_step(kernel, "g", "e").snapshot.configuration
    assert ("z",) == last_step(kernel, "e", "g").snapshot.configuration


def test_eventless_transitions_run_before_queued_events() -> None:
    """S7: and see the event bound last."""
    kernel = kernel_of("""
        states:
          a: {on: {go: {target: b, actions: [{raise: inner}]}}}
          b: {always: {target: c, actions: [{do: eventless, with: {name: "= event.name"}}]}}
          c: {on: {inner: {actions: [{do: queued, with: {name: "= event.name"}}]}}}
    """)

    assert [("eventless", "go"), ("queued", "inner")] == [
        (each["name"], each["input"]["name"]) for each in payloads(last_step(kernel, "go"), "call")
    ]


def test_unhandled_internal_events_are_dropped() -> None:
    """S32: in every mode. Only errors are faults."""
    step = last_step(kernel_of("states: {a: {on: {go: {actions: [{raise: nobody}]}}}}"), "go")

    assert ("applied", []) == (step.outcome, faults(step))


def test_a_target_may_name_states_of_several_regions() -> None:
    """S19: other regions start in their initial state."""
    kernel = kernel_of("""
        states:
          z: {on: {go: {target: [p.r.b, p.s.d]}}}
          p:
            type: parallel
            states:
              r: {initial: a, states: {a: {}, b: {}}}
              s: {initial: c, states: {c: {}, d: {}}}
              t: {initial: e, states: {e: {}}}
    """)

    assert ("p.r.b", "p.s.d", "p.t.e") == last_step(kernel, "go").snapshot.configuration


def test_a_chart_may_start_in_a_deep_state() -> None:
    """S4: several states in distinct regions, any depth."""
    kernel = kernel_of("""
        initial: [p.r.b, p.s.d]
        states:
          p: {type: parallel, states: {r: {states: {a: {}, b: {}}}, s: {states: {c: {}, d: {}}}}}
    """)

    assert ("p.r.b", "p.s.d") == last_step(kernel).snapshot.configuration
