"""Can a state be entered, can it be left, can it wait for ever, is its name honest."""

from tests.unit.compiler.findings import told


def test_a_state_without_a_way_in_is_told() -> None:
    """Nothing leads there, by any event."""
    bad = """\
states:
  a: {on: {e: b}}
  b: {}
  c: {states: {d: {}}}
"""
    good = """\
states:
  a: {on: {e: b}}
  b: {on: {e: c}}
  c: {states: {d: {}}}
"""

    assert [
        'warning 6:3 no way leads into the state "c"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_history_that_nobody_targets_is_told() -> None:
    """A history is only ever entered as a target."""
    bad = """\
states:
  a: {states: {b: {}, h: {type: history, target: b}}, on: {e: c}}
  c: {on: {e: a}}
"""
    good = """\
states:
  a: {states: {b: {}, h: {type: history, target: b}}, on: {e: c}}
  c: {on: {e: a.h}}
"""

    assert [
        'warning 4:23 no way leads into the history "a.h"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_history_may_be_reached_as_initial_or_as_default() -> None:
    """An `initial` and another history lead to it, too."""
    bad = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"
    good = """\
states: {a: {initial: g, states: {b: {}, h: {type: history, target: b}, g: {type: history,
    target: h}}}}
"""

    assert [
        'warning 3:30 no way leads into the history "a.h"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_state_behind_a_hidden_transition_is_unreachable() -> None:
    """An inner transition without guard takes the event first."""
    bad = """\
states:
  a: {on: {e: c}, states: {b: {on: {e: {}}}}}
  c: {}
"""
    good = """\
states:
  a: {on: {e: c}, states: {b: {on: {e: {guard: g}}}}}
  c: {}
"""

    assert [
        'warning 5:3 no way leads into the state "c"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_state_after_the_end_is_unreachable() -> None:
    """Nothing follows a final child of the root."""
    bad = """\
states:
  a: {type: final}
  b: {}
"""
    good = """\
on: {e: b}
states:
  a: {on: {e: b}}
  b: {}
"""

    assert [
        'warning 5:3 no way leads into the state "b"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_completion_needs_the_final_state() -> None:
    """`onDone` is not taken while a child is active that is not final."""
    bad = """\
states:
  a: {onDone: b, states: {x: {}, f: {type: final}}}
  b: {}
"""
    good = """\
states:
  a: {onDone: b, states: {x: {on: {e: f}}, f: {type: final}}}
  b: {}
"""

    assert [
        'warning 4:34 no way leads into the state "a.f"; add a transition to it, or take it out',
        'warning 5:3 no way leads into the state "b"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_regions_complete_a_parallel_state() -> None:
    """Each region in a final state completes it."""
    bad = """\
states:
  p: {type: parallel, onDone: b, states: {r: {states: {x: {}, f: {type: final}}},
      s: {states: {g: {on: {e: f}}, f: {type: final}}}}}
  b: {}
  c: {}
"""
    good = """\
states:
  p: {type: parallel, onDone: b, states: {r: {states: {f: {type: final}}},
      s: {states: {g: {on: {e: f}}, f: {type: final}}}}}
  b: {}
"""

    assert [
        'warning 4:63 no way leads into the state "p.r.f"; add a transition to it, or take it out',
        'warning 7:3 no way leads into the state "c"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_target_in_one_region_enters_the_others() -> None:
    """The regions that are not named begin where they begin."""
    bad = """\
states:
  a: {on: {e: p.r.y}}
  p: {type: parallel, states: {r: {states: {x: {}, y: {}}}, s: {}}}
"""
    good = """\
states:
  a: {on: {e: p.r.y}}
  p: {type: parallel, states: {r: {states: {y: {}}}, s: {states: {z: {}}}}}
"""

    assert [
        'warning 5:45 no way leads into the state "p.r.x"; add a transition to it, or take it out',
    ] == told(bad, "state.unreachable")
    assert [] == told(good, "state.unreachable")


def test_a_state_without_a_way_out_is_told() -> None:
    """A state that is not final should be left some day."""
    bad = """\
states:
  a: {on: {e: b}}
  b: {on: {e: {}}}
"""
    good = """\
states:
  a: {on: {e: b}}
  b: {type: final}
"""

    assert [
        'warning 5:3 "b" is not final and has no way out; add a transition, or make it `type: final`',
    ] == told(bad, "state.trap")
    assert [] == told(good, "state.trap")


def test_leading_back_to_itself_is_no_way_out() -> None:
    """Entering it again is not leaving it."""
    bad = "states: {a: {on: {e: {target: a, reenter: true}}}}"
    good = """\
states:
  a: {on: {e: b}}
  b: {on: {e: a}}
"""

    assert [
        'warning 3:10 "a" is not final and has no way out; add a transition, or make it `type: final`',
    ] == told(bad, "state.trap")
    assert [] == told(good, "state.trap")


def test_another_region_may_be_the_way_out() -> None:
    """A region that leaves the parallel state takes the others along."""
    bad = """\
states:
  p: {type: parallel, states: {a: {}, b: {on: {e: {}}}}}
"""
    good = """\
states:
  p: {type: parallel, states: {a: {}, b: {on: {e: c}}}}
  c: {on: {e: p}}
"""

    assert [
        'warning 4:32 "p.a" is not final and has no way out; add a transition, or make it `type: final`',
        'warning 4:39 "p.b" is not final and has no way out; add a transition, or make it `type: final`',
    ] == told(bad, "state.trap")
    assert [] == told(good, "state.trap")


def test_the_state_around_may_be_the_way_out() -> None:
    """Unless the inner state takes the event itself."""
    bad = """\
states:
  a: {on: {e: c}, states: {b: {on: {e: {}}}}}
  c: {on: {e: a}}
"""
    good = """\
states:
  a: {on: {e: c}, states: {b: {}}}
  c: {on: {e: a}}
"""

    assert [
        'warning 4:28 "a.b" is not final and has no way out; add a transition, or make it `type: final`',
    ] == told(bad, "state.trap")
    assert [] == told(good, "state.trap")


def test_the_completion_of_the_state_around_is_no_way_out() -> None:
    """It waits for a final child, which this one is not."""
    bad = """\
states:
  a: {onDone: c, states: {x: {on: {e: f, g: y}}, y: {}, f: {type: final}}}
  c: {type: final}
"""
    good = """\
states:
  a: {onDone: c, states: {x: {on: {e: f, g: y}}, y: {on: {e: f}}, f: {type: final}}}
  c: {type: final}
"""

    assert [
        'warning 4:50 "a.y" is not final and has no way out; add a transition, or make it `type: final`',
    ] == told(bad, "state.trap")
    assert [] == told(good, "state.trap")


def test_a_state_that_waits_needs_somebody_who_notices() -> None:
    """Without a timer or an expectation an entity may be forgotten."""
    bad = "states: {a: {on: {e: b}}, b: {type: final}}"
    good = "states: {a: {on: {e: b}, after: {1h: b}}, b: {type: final}}"

    assert [
        (
            'warning 3:10 "a" waits for events, and nothing happens when none comes; add `after`, or '
            "`expect` with `within: forever` when resting here is normal"
        ),
    ] == told(bad, "state.no_timeout")
    assert [] == told(good, "state.no_timeout")


def test_resting_can_be_normal() -> None:
    """`within: forever` says so, and descendants inherit it."""
    bad = "states: {a: {states: {b: {on: {e: c}}, c: {expect: {within: 1h}}}}}"
    good = "states: {a: {expect: {within: forever}, states: {b: {on: {e: c}}, c: {}}}}"

    assert [
        (
            'warning 3:23 "a.b" waits for events, and nothing happens when none comes; add `after`, or '
            "`expect` with `within: forever` when resting here is normal"
        ),
    ] == told(bad, "state.no_timeout")
    assert [] == told(good, "state.no_timeout")


def test_a_state_that_waits_for_a_result_or_passes_on_does_not_wait_for_events() -> None:
    """An invoke, a delayed send, and a way on without event end the wait."""
    bad = "states: {a: {always: {target: b, guard: g}}, b: {type: final}}"
    good = """\
states:
  a: {always: b}
  b: {invoke: {id: i, src: s, onDone: c}}
  c: {entry: [{send: {event: e, delay: 1s}}], on: {e: a}}
"""

    assert [
        (
            'warning 3:10 "a" waits for events, and nothing happens when none comes; add `after`, or '
            "`expect` with `within: forever` when resting here is normal"
        ),
    ] == told(bad, "state.no_timeout")
    assert [] == told(good, "state.no_timeout")


def test_one_failure_state_for_two_causes_is_told() -> None:
    """Recovery then needs somebody to find out which it was."""
    bad = """\
states:
  a: {on: {e: failed, f: failed}}
  failed: {}
"""
    good = """\
states:
  a: {on: {e: failed, f: payment_failed}}
  failed: {}
  payment_failed: {}
"""

    assert [
        (
            'warning 5:3 "failed" is entered for 2 causes ("a" by "e", "a" by "f"); one state per '
            "cause, each with its own way on"
        ),
    ] == told(bad, "state.catch_all_failure")
    assert [] == told(good, "state.catch_all_failure")


def test_a_verb_is_two_states_in_one() -> None:
    """A state says what is so, not what is done."""
    bad = "states: {order-processing: {}}"
    good = "states: {payment_pending: {}, missing: {}, outstanding: {}, incoming: {}}"

    assert [
        (
            'warning 3:10 "order-processing" names something that is done: usually two states in one; '
            "name what is so meanwhile, such as payment_pending"
        ),
    ] == told(bad, "state.verb_name")
    assert [] == told(good, "state.verb_name")


def _list(count: int) -> str:
    return ", ".join(f"s{each}: {{}}" for each in range(count))


def test_a_flat_list_hides_a_hierarchy() -> None:
    """More than twenty children should be grouped; histories do not count."""
    bad = f"states: {{a: {{states: {{{_list(21)}}}}}}}"
    good = f"states: {{a: {{states: {{{_list(20)}, h: {{type: history, target: s1}}}}}}}}"

    assert [
        'warning 3:10 "a" has 21 children; a flat list of more than 20 hides a hierarchy; group what belongs together'
    ] == told(bad, "state.too_many_children")
    assert [] == told(good, "state.too_many_children")


def test_a_chart_of_many_states_is_several_kinds() -> None:
    """More than a hundred states are too many for one kind."""
    assert [
        (
            "warning 1:1 the chart has 101 states; more than 100 are usually several kinds in one; "
            "split it, and `invoke` one chart from the other"
        )
    ] == told(f"states: {{{_list(101)}}}", "chart.too_many_states")
    assert [] == told(f"states: {{{_list(100)}}}", "chart.too_many_states")
