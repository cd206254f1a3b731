"""Transitions that can never be chosen, that loop, or between which only their order decides."""

import pytest

from interlock.compiler.checks import transitions
from tests.unit.compiler.diagnostics import reported


def test_a_later_transition_for_the_same_event_is_never_chosen() -> None:
    bad = "states: {a: {on: {e: [{actions: [x]}, {guard: g, actions: [y]}]}}}"
    good = "states: {a: {on: {e: [{guard: g, actions: [y]}, {actions: [x]}]}}}"

    assert ["error 3:39"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_a_prefix_takes_the_longer_name_first() -> None:
    """`pay` takes `pay.card`, too."""
    bad = "states: {a: {on: {pay: {}, pay.card: {actions: [x]}}}}"
    good = "states: {a: {on: {pay.card: {actions: [x]}, pay: {}}}}"

    assert ["error 3:38"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_several_earlier_transitions_may_hide_a_later_one() -> None:
    bad = "states: {a: {on: {e: {}, f: {}, 'e.x, f': {actions: [x]}}}}"
    good = "states: {a: {on: {e: {}, f: {}, 'e.x, g': {actions: [x]}}}}"

    assert ["error 3:43"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_the_same_guard_twice_is_never_asked_twice_with_another_answer() -> None:
    bad = "states: {a: {on: {e: [{guard: g, actions: [x]}, {guard: g, actions: [y]}]}}}"
    good = "states: {a: {on: {e: [{guard: g, actions: [x]}, {guard: h, actions: [y]}]}}}"

    assert ["error 3:49"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_an_eventless_transition_may_hide_another() -> None:
    bad = """\
states:
  a: {always: [b, {target: c, guard: g}]}
  b: {on: {e: c}}
  c: {}
"""
    good = """\
states:
  a: {always: [{target: c, guard: g}, b]}
  b: {on: {e: c}}
  c: {}
"""

    assert ["error 4:19"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_roles_keep_a_transition_from_hiding_others() -> None:
    bad = "states: {a: {on: {e: [{actions: [x]}, {actions: [y], roles: [r]}]}}}"
    good = "states: {a: {on: {e: [{actions: [x], roles: [r]}, {actions: [y]}]}}}"

    assert ["error 3:39"] == reported(bad, "transition.shadowed")
    assert [] == reported(good, "transition.shadowed")


def test_guards_that_may_hold_together_are_reported() -> None:
    bad = """\
context: {n: {type: integer, default: 0}}
states: {a: {on: {e: [{guard: '= context.n > 1', actions: [x]}, {guard: '= context.n > 3',
    actions: [y]}]}}}
"""
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {on: {e: [{guard: '= context.n > 3', actions: [x]}, {guard: '= context.n <= 3',
    actions: [y]}]}}}
"""

    assert ["info 4:65"] == reported(bad, "transition.overlap")
    assert [] == reported(good, "transition.overlap")


def test_eventless_guards_that_may_hold_together_are_reported() -> None:
    bad = """\
states:
  a: {always: [{target: b, guard: g}, {target: c, guard: h}]}
  b: {}
  c: {}
"""
    good = """\
states:
  a: {always: [{target: b, guard: g}, {target: c, guard: {not: g}}, c]}
  b: {}
  c: {}
"""

    assert ["info 4:39"] == reported(bad, "transition.overlap")
    assert [] == reported(good, "transition.overlap")


def test_a_guard_that_reads_nothing_is_reported() -> None:
    bad = "states: {a: {on: {e: {guard: '= 1 < 2', actions: [x]}}}}"
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {on: {e: {guard: '= context.n < 2', actions: [x]}, f: {guard: g, actions: [x]}}}}
"""

    assert ["warning 3:33"] == reported(bad, "guard.constant")
    assert [] == reported(good, "guard.constant")


def test_a_guard_of_an_if_that_reads_nothing_is_reported() -> None:
    bad = "states: {a: {entry: [{if: {all: ['= true', g]}, then: [x]}]}}"
    good = "states: {a: {entry: [{if: {all: [h, g]}, then: [x]}]}}"

    assert ["warning 3:37"] == reported(bad, "guard.constant")
    assert [] == reported(good, "guard.constant")


def test_a_name_that_reads_like_an_expression_is_reported() -> None:
    """Without the `=` it is the name of a function that does not exist."""
    bad = "states: {a: {on: {e: {guard: {not: 'event.data.n > 3'}, actions: [x]}}}}"
    good = "states: {a: {on: {e: {guard: is.long, actions: [x]}, f: {guard: 'is long', actions: [x]}}}}"

    assert ["warning 3:36"] == reported(bad, "guard.unmarked")
    assert [] == reported(good, "guard.unmarked")


def test_eventless_transitions_without_guard_loop_forever() -> None:
    bad = """\
states:
  a: {always: b}
  b: {always: c}
  c: {always: a}
"""
    good = """\
states:
  a: {always: b}
  b: {always: c}
  c: {always: {target: a, guard: g}}
"""

    assert ["error 4:15"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_a_loop_is_found_from_outside_too() -> None:
    bad = """\
states:
  a: {always: b}
  b: {always: c}
  c: {always: b}
"""
    good = """\
states:
  a: {always: b}
  b: {always: c}
  c: {on: {e: b}}
"""

    assert ["error 5:15"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_an_eventless_transition_without_target_repeats_itself() -> None:
    bad = "states: {a: {always: {actions: [x]}}}"
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {always: {guard: '= context.n < 3', actions: [{assign: {n: '= context.n + 1'}}]}}}
"""

    assert ["error 3:22"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_a_compound_state_that_always_leads_to_its_own_child_repeats_itself() -> None:
    bad = "states: {a: {always: {target: .b, reenter: false}, states: {b: {}}}}"
    good = "states: {a: {always: {target: .b, reenter: false, guard: g}, states: {b: {}}}}"

    assert ["error 3:22"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_a_guarded_loop_that_changes_nothing_never_ends() -> None:
    bad = "states: {a: {always: {guard: g, actions: [x]}}}"
    good = """\
states:
  a: {always: {guard: g, actions: [{assign: f}]}, on: {e: p}}
  p: {type: parallel, states: {b: {always: {guard: g, actions: [x]}}, c: {always: {guard: h,
      actions: [{assign: f}]}}}}
"""

    assert ["error 3:22"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_entering_again_may_change_what_the_guard_reads() -> None:
    bad = "states: {a: {always: {target: a, reenter: true, guard: g}}}"
    good = "states: {a: {entry: [{assign: f}], always: {target: a, reenter: true, guard: g}}}"

    assert ["error 3:22"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_the_end_of_the_entity_ends_every_loop() -> None:
    bad = "states: {a: {always: b}, b: {always: a}}"
    good = """\
always: b
states: {a: {}, b: {type: final}}
"""

    assert ["error 3:22"] == reported(bad, "always.loop")
    assert [] == reported(good, "always.loop")


def test_two_regions_that_leave_by_one_event_are_reported() -> None:
    bad = """\
states:
  p: {type: parallel, states: {a: {on: {e: c}}, b: {on: {e: d}}}}
  c: {}
  d: {}
"""
    good = """\
states:
  p: {type: parallel, states: {a: {on: {e: c}}, b: {on: {f: d}}}}
  c: {}
  d: {}
"""

    assert ["warning 4:61"] == reported(bad, "parallel.conflict")
    assert [] == reported(good, "parallel.conflict")


def test_a_region_that_moves_while_another_leaves_is_reported() -> None:
    bad = """\
states:
  p: {type: parallel, states: {a: {states: {x: {on: {e: y}}, y: {}}}, b: {on: {e: c}}}}
  c: {}
"""
    good = """\
states:
  p: {type: parallel, states: {a: {states: {x: {on: {e: y}}, y: {}}}, b: {states: {x: {on: {e: y}},
      y: {}}}}}
  c: {}
"""

    assert ["warning 4:57"] == reported(bad, "parallel.conflict")
    assert [] == reported(good, "parallel.conflict")


def test_regions_with_exclusive_guards_do_not_conflict() -> None:
    bad = """\
states:
  p: {type: parallel, states: {a: {on: {e: {target: c, guard: g}}}, b: {on: {e: {target: d,
      guard: h}}}}}
  c: {}
  d: {}
"""
    good = """\
states:
  p: {type: parallel, states: {a: {on: {e: {target: c, guard: g}}}, b: {on: {e: {target: d,
      guard: {not: g}}}}}}
  c: {}
  d: {}
"""

    assert ["warning 4:81"] == reported(bad, "parallel.conflict")
    assert [] == reported(good, "parallel.conflict")


def test_a_wildcard_hides_the_timer_of_the_state_around() -> None:
    """`*` takes everything, timers too."""
    bad = """\
states:
  a: {after: {1h: c}, states: {b: {on: {'*': {actions: [x]}}}}}
  c: {}
"""
    good = """\
states:
  a: {after: {1h: c}, states: {b: {on: {'e.*': {actions: [x]}, '*': {guard: g, actions: [x]}}}}}
  c: {}
"""

    assert ["warning 4:46"] == reported(bad, "descriptor.hides_timer")
    assert [] == reported(good, "descriptor.hides_timer")


def test_a_wildcard_may_hide_results_two_levels_up() -> None:
    bad = """\
states:
  a: {invoke: {id: i, src: s, onError: d},
      states: {b: {states: {c: {on: {error: {actions: [x]}}}}}}}
  d: {}
"""
    good = """\
states:
  a: {invoke: {id: i, src: s, onError: d},
      states: {b: {states: {c: {on: {error.execution: {actions: [x]}}}}}}}
  d: {}
"""

    assert ["warning 5:45"] == reported(bad, "descriptor.hides_timer")
    assert [] == reported(good, "descriptor.hides_timer")


def test_a_parallel_state_inside_another_does_not_always_complete_it() -> None:
    """S29: only if the last final state entered is in a plain region."""
    bad = """\
states:
  p:
    type: parallel
    onDone: z
    states: {q: {type: parallel, states: {r: {states: {f: {type: final}}},
        s: {states: {f: {type: final}}}}}, t: {states: {f: {type: final}}}}
  z: {}
"""
    good = """\
states:
  p:
    type: parallel
    onDone: z
    states: {q: {states: {r: {type: parallel, onDone: f, states: {s: {states: {f: {type: final}}},
        u: {states: {f: {type: final}}}}}, f: {type: final}}}, t: {states: {f: {type: final}}}}
  z: {}
"""

    assert ["warning 6:13"] == reported(bad, "done.nested_parallel")
    assert [] == reported(good, "done.nested_parallel")


def test_pairs_of_transitions_beyond_the_limit_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "states: {p: {type: parallel, states: {a: {on: {e: c}}, b: {on: {e: d}}}}, c: {}, d: {}}\n"
    assert 1 == len(reported(text, "parallel.conflict"))

    monkeypatch.setattr(transitions, "CONFLICTS_MAX", 0)
    assert [] == reported(text, "parallel.conflict")


def test_a_self_target_says_reenter() -> None:
    """V2: to stay, the target is left out; so a self-target can only mean to leave and enter again."""
    bad = "states: {a: {on: {e: a}}}"
    good = "states: {a: {on: {e: {target: a, reenter: true}}}}"

    assert ["error 3:22"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_a_self_target_cannot_stay() -> None:
    """V2: `reenter: false` needs targets that are proper descendants."""
    bad = "states: {a: {on: {e: {target: a, reenter: false}}}}"
    good = "states: {a: {on: {e: {}}}}"

    assert ["error 3:22"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_an_inner_target_says_whether_its_source_is_left() -> None:
    """V2: where the source contains the target both readings are possible."""
    bad = "states: {a: {on: {e: .b}, states: {b: {}}}}"
    good = "states: {a: {on: {e: {target: .b, reenter: false}}, states: {b: {}}}}"

    assert ["error 3:22"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_a_parallel_source_is_always_left() -> None:
    """V2: only a compound state can stay while its child changes."""
    bad = "states: {p: {type: parallel, on: {e: {target: .b, reenter: false}}, states: {b: {}, c: {}}}}"
    good = "states: {p: {type: parallel, on: {e: {target: .b, reenter: true}}, states: {b: {}, c: {}}}}"

    assert ["error 3:38"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_reenter_has_no_place_where_the_source_is_left_anyway() -> None:
    """V2: an error anywhere else."""
    bad = """\
states:
  a: {on: {e: {target: b, reenter: true}}}
  b: {}
"""
    good = """\
states:
  a: {on: {e: {target: b}}}
  b: {}
"""

    assert ["error 4:15"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_reenter_has_no_place_without_a_target() -> None:
    """V2: without a target nothing is left or entered."""
    bad = "states: {a: {on: {e: {reenter: true}}}}"
    good = "states: {a: {on: {e: {}}}}"

    assert ["error 3:22"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_transitions_of_the_root_need_no_reenter() -> None:
    """V2: the root is never left, so there is nothing to choose."""
    bad = "states: {a: {on: {e: a}}}"
    good = """\
on: {e: a}
states: {a: {}}
"""

    assert ["error 3:22"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_results_of_invokes_follow_the_same_rule() -> None:
    """V2 holds for `onDone` of an invoke, too."""
    bad = "states: {a: {invoke: {id: i, src: s, onDone: a}}}"
    good = "states: {a: {invoke: {id: i, src: s, onDone: {target: a, reenter: true}}}}"

    assert ["error 3:46"] == reported(bad, "transition.reenter")
    assert [] == reported(good, "transition.reenter")


def test_targets_together_are_in_distinct_regions() -> None:
    bad = """\
states:
  a: {on: {e: {target: [b, c]}}}
  b: {}
  c: {}
"""
    good = """\
states:
  a: {on: {e: {target: [p.b, p.c]}}}
  p: {type: parallel, states: {b: {}, c: {}}}
"""

    assert ["error 4:15"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_a_target_is_named_once() -> None:
    bad = """\
states:
  a: {on: {e: {target: [b, b]}}}
  b: {}
"""
    good = """\
states:
  a: {on: {e: {target: [b]}}}
  b: {}
"""

    assert ["error 4:15"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_no_target_contains_another() -> None:
    bad = """\
states:
  a: {on: {e: {target: [b, b.c]}}}
  b: {states: {c: {}}}
"""
    good = """\
states:
  a: {on: {e: b.c}}
  b: {states: {c: {}}}
"""

    assert ["error 4:15"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_a_history_of_a_parallel_state_must_be_alone() -> None:
    bad = """\
states:
  a: {on: {e: {target: [p.b, p.h]}}}
  p: {type: parallel, states: {b: {}, c: {}, h: {type: history, target: [b, c]}}}
"""
    good = """\
states:
  a: {on: {e: p.h}}
  p: {type: parallel, states: {b: {}, c: {}, h: {type: history, target: [b, c]}}}
"""

    assert ["error 4:15"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_a_history_around_a_parallel_state_does_not_enter_its_regions_twice() -> None:
    """`p` stays active, because the default is in the region of the source: the other region would get two states."""
    bad = """\
states:
  s:
    states:
      p:
        type: parallel
        states:
          left: {states: {a: {on: {e: s.h}}, b: {}}}
          right: {states: {c: {on: {f: d}}, d: {}}}
      o: {}
      h: {type: history, history: deep, target: p.left.b}
"""
    good = [bad.replace("target: p.left.b", f"target: {each}") for each in ("p", "o", "p.right.c", "p.right")]

    assert ["error 9:39"] == reported(bad, "target.history")
    assert [[]] * 4 == [reported(each, "target.history") for each in good]


def test_a_history_that_is_exited_first_may_lead_anywhere() -> None:
    text = """\
states:
  s:
    states:
      p:
        type: parallel
        states:
          left: {states: {a: {}, b: {}}}
          right: {states: {c: {}, d: {}}}
      h: {type: history, history: deep, target: p.left.b}
  t: {on: {e: s.h}}
"""

    assert [] == reported(text, "target.history")


def test_a_cycle_of_histories_leads_nowhere() -> None:
    """It is reported as a cycle, and only so."""
    text = """\
states:
  s: {states: {a: {on: {e: s.h}}, h: {type: history, target: g}, g: {type: history, target: h}}}
"""

    assert [] == reported(text, "target.history")
    assert [] != reported(text, "history.cycle")


def test_initial_states_are_legal_together() -> None:
    """`initial` follows the rule of targets."""
    bad = """\
initial: [a, b]
states: {a: {}, b: {}}
"""
    good = """\
initial: a
states: {a: {}, b: {}}
"""

    assert ["error 3:10"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_defaults_of_a_history_are_legal_together() -> None:
    bad = "states: {a: {states: {b: {}, c: {}, h: {type: history, target: [b, c]}}}}"
    good = "states: {a: {states: {b: {}, c: {}, h: {type: history, target: b}}}}"

    assert ["error 3:37"] == reported(bad, "target.conflict")
    assert [] == reported(good, "target.conflict")


def test_the_root_is_not_a_target() -> None:
    bad = """\
id: top
states: {a: {on: {e: '#top'}}}
"""
    good = """\
id: top
states: {a: {on: {e: {target: '#a', reenter: true}}}}
"""

    assert ["error 4:22"] == reported(bad, "target.root")
    assert [] == reported(good, "target.root")
