"""Transitions that can never be chosen, that loop, or between which only their order decides."""

import pytest

from interlock.compiler.checks import transitions
from tests.unit.compiler.findings import told


def test_a_later_transition_for_the_same_event_is_never_chosen() -> None:
    """The earlier one has no guard."""
    bad = "states: {a: {on: {e: [{actions: [x]}, {guard: g, actions: [y]}]}}}"
    good = "states: {a: {on: {e: [{guard: g, actions: [y]}, {actions: [x]}]}}}"

    assert [
        (
            'error 3:39 "e" can never be chosen here: an earlier transition always takes it first; '
            "take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_a_prefix_takes_the_longer_name_first() -> None:
    """`pay` takes `pay.card`, too."""
    bad = "states: {a: {on: {pay: {}, pay.card: {actions: [x]}}}}"
    good = "states: {a: {on: {pay.card: {actions: [x]}, pay: {}}}}"

    assert [
        (
            'error 3:38 "pay.card" can never be chosen here: an earlier transition always takes it '
            "first; take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_several_earlier_transitions_may_hide_a_later_one() -> None:
    """Each of its events is taken by one of them."""
    bad = "states: {a: {on: {e: {}, f: {}, 'e.x, f': {actions: [x]}}}}"
    good = "states: {a: {on: {e: {}, f: {}, 'e.x, g': {actions: [x]}}}}"

    assert [
        (
            'error 3:43 "e.x, f" can never be chosen here: an earlier transition always takes it '
            "first; take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_the_same_guard_twice_is_never_asked_twice_with_another_answer() -> None:
    """The earlier transition asks the same."""
    bad = "states: {a: {on: {e: [{guard: g, actions: [x]}, {guard: g, actions: [y]}]}}}"
    good = "states: {a: {on: {e: [{guard: g, actions: [x]}, {guard: h, actions: [y]}]}}}"

    assert [
        (
            'error 3:49 "e" can never be chosen here: an earlier transition always takes it first; '
            "take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_an_eventless_transition_may_hide_another() -> None:
    """The first without guard is always taken."""
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

    assert [
        (
            "error 4:19 always can never be chosen here: an earlier transition always takes it first; "
            "take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_roles_keep_a_transition_from_hiding_others() -> None:
    """Who lacks the role falls through to the next."""
    bad = "states: {a: {on: {e: [{actions: [x]}, {actions: [y], roles: [r]}]}}}"
    good = "states: {a: {on: {e: [{actions: [x], roles: [r]}, {actions: [y]}]}}}"

    assert [
        (
            'error 3:39 "e" can never be chosen here: an earlier transition always takes it first; '
            "take it out, or put it first"
        ),
    ] == told(bad, "transition.shadowed")
    assert [] == told(good, "transition.shadowed")


def test_guards_that_may_hold_together_are_told() -> None:
    """Only the order of the two decides."""
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

    assert [
        (
            'info 4:65 for "e" both this guard and an earlier one may hold: their order decides; make '
            "the guards exclude each other, or leave it when the order says what you mean"
        ),
    ] == told(bad, "transition.overlap")
    assert [] == told(good, "transition.overlap")


def test_eventless_guards_that_may_hold_together_are_told() -> None:
    """The same holds without an event."""
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

    assert [
        (
            "info 4:39 for always both this guard and an earlier one may hold: their order decides; "
            "make the guards exclude each other, or leave it when the order says what you mean"
        ),
    ] == told(bad, "transition.overlap")
    assert [] == told(good, "transition.overlap")


def test_a_guard_that_reads_nothing_is_told() -> None:
    """Its answer is known before."""
    bad = "states: {a: {on: {e: {guard: '= 1 < 2', actions: [x]}}}}"
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {on: {e: {guard: '= context.n < 2', actions: [x]}, f: {guard: g, actions: [x]}}}}
"""

    assert [
        (
            'warning 3:33 the guard "1 < 2" reads nothing, so it always says the same; take it out, or '
            "compare something of the context or the event"
        ),
    ] == told(bad, "guard.constant")
    assert [] == told(good, "guard.constant")


def test_a_guard_of_an_if_that_reads_nothing_is_told() -> None:
    """Guards inside actions are guards."""
    bad = "states: {a: {entry: [{if: {all: ['= true', g]}, then: [x]}]}}"
    good = "states: {a: {entry: [{if: {all: [h, g]}, then: [x]}]}}"

    assert [
        (
            'warning 3:37 the guard "true" reads nothing, so it always says the same; take it out, or '
            "compare something of the context or the event"
        ),
    ] == told(bad, "guard.constant")
    assert [] == told(good, "guard.constant")


def test_a_name_that_reads_like_an_expression_is_told() -> None:
    """Whoever forgets the `=` has named a function that nobody will write."""
    bad = "states: {a: {on: {e: {guard: {not: 'event.data.n > 3'}, actions: [x]}}}}"
    good = "states: {a: {on: {e: {guard: is.long, actions: [x]}, f: {guard: 'is long', actions: [x]}}}}"

    assert [
        (
            'warning 3:36 the guard "event.data.n > 3" is the name of a function, and reads like an '
            "expression; begin it with `=`; in Python, make it with `build.expr`"
        ),
    ] == told(bad, "guard.unmarked")
    assert [] == told(good, "guard.unmarked")


def test_eventless_transitions_without_guard_go_round_for_ever() -> None:
    """No event can come in between."""
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

    assert [
        (
            'error 4:15 eventless transitions without a guard go round for ever: "a" -> "b" -> "c" -> '
            '"a"; give one of them a guard'
        ),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_a_loop_is_found_from_outside_too() -> None:
    """A way into a circle is not part of it."""
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

    assert [
        (
            'error 5:15 eventless transitions without a guard go round for ever: "b" -> "c" -> "b"; '
            "give one of them a guard"
        ),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_an_eventless_transition_without_target_repeats_itself() -> None:
    """Nothing it does ends it."""
    bad = "states: {a: {always: {actions: [x]}}}"
    good = """\
context: {n: {type: integer, default: 0}}
states: {a: {always: {guard: '= context.n < 3', actions: [{assign: {n: '= context.n + 1'}}]}}}
"""

    assert [
        ('error 3:22 eventless transitions without a guard go round for ever: "a" -> "a"; give one of them a guard'),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_a_compound_state_that_always_leads_to_its_own_child_repeats_itself() -> None:
    """It is still active, and so is its transition."""
    bad = "states: {a: {always: {target: .b, reenter: false}, states: {b: {}}}}"
    good = "states: {a: {always: {target: .b, reenter: false, guard: g}, states: {b: {}}}}"

    assert [
        ('error 3:22 eventless transitions without a guard go round for ever: "a" -> "a"; give one of them a guard'),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_a_guarded_loop_that_changes_nothing_never_ends() -> None:
    """What held once holds again."""
    bad = "states: {a: {always: {guard: g, actions: [x]}}}"
    good = """\
states:
  a: {always: {guard: g, actions: [{assign: f}]}, on: {e: p}}
  p: {type: parallel, states: {b: {always: {guard: g, actions: [x]}}, c: {always: {guard: h,
      actions: [{assign: f}]}}}}
"""

    assert [
        (
            "error 3:22 it leads back to where it was and changes nothing, so its guard holds again, "
            "for ever; let it change what its guard reads"
        ),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_entering_again_may_change_what_the_guard_reads() -> None:
    """Entry and exit actions count."""
    bad = "states: {a: {always: {target: a, reenter: true, guard: g}}}"
    good = "states: {a: {entry: [{assign: f}], always: {target: a, reenter: true, guard: g}}}"

    assert [
        (
            "error 3:22 it leads back to where it was and changes nothing, so its guard holds again, "
            "for ever; let it change what its guard reads"
        ),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_the_end_of_the_entity_ends_every_loop() -> None:
    """A final child of the root is not left."""
    bad = "states: {a: {always: b}, b: {always: a}}"
    good = """\
always: b
states: {a: {}, b: {type: final}}
"""

    assert [
        (
            'error 3:22 eventless transitions without a guard go round for ever: "a" -> "b" -> "a"; '
            "give one of them a guard"
        ),
    ] == told(bad, "always.loop")
    assert [] == told(good, "always.loop")


def test_two_regions_that_leave_by_one_event_are_told() -> None:
    """Only the first in document order happens."""
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

    assert [
        (
            'warning 4:61 "e" is also taken in "p.a", where it leaves "p": only the first in document '
            'order happens; let "p" itself take the event, or give the regions different events'
        ),
    ] == told(bad, "parallel.conflict")
    assert [] == told(good, "parallel.conflict")


def test_a_region_that_moves_while_another_leaves_is_told() -> None:
    """Which of the two happens depends on their order."""
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

    assert [
        (
            'warning 4:57 "e" is also taken in "p.b", where it leaves "p": only the first in document '
            'order happens; let "p" itself take the event, or give the regions different events'
        ),
    ] == told(bad, "parallel.conflict")
    assert [] == told(good, "parallel.conflict")


def test_regions_with_exclusive_guards_do_not_conflict() -> None:
    """Only one of them is ever taken."""
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

    assert [
        (
            'warning 4:81 "e" is also taken in "p.a", where it leaves "p": only the first in document '
            'order happens; let "p" itself take the event, or give the regions different events'
        ),
    ] == told(bad, "parallel.conflict")
    assert [] == told(good, "parallel.conflict")


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

    assert [
        (
            'warning 4:46 "*" also takes "after.1h.a", which "a" waits for; name the events you mean, '
            "or give it a guard on `event.name`"
        ),
    ] == told(bad, "descriptor.hides_timer")
    assert [] == told(good, "descriptor.hides_timer")


def test_a_wildcard_may_hide_results_two_levels_up() -> None:
    """Any state around it counts."""
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

    assert [
        (
            'warning 5:45 "error" also takes "error.invoke.i", which "a" waits for; name the events '
            "you mean, or give it a guard on `event.name`"
        ),
    ] == told(bad, "descriptor.hides_timer")
    assert [] == told(good, "descriptor.hides_timer")


def test_a_parallel_state_inside_another_does_not_always_complete_it() -> None:
    """S29: only when the last final state entered lies in a plain region."""
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

    assert [
        (
            'warning 6:13 "p" is not done when the last final state entered lies in "p.q", a parallel '
            'state directly inside it; put a compound state between "p" and "p.q"'
        ),
    ] == told(bad, "done.nested_parallel")
    assert [] == told(good, "done.nested_parallel")


def test_pairs_of_transitions_beyond_the_limit_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of regions that leave by one event: a hint less, and no minutes."""
    text = "states: {p: {type: parallel, states: {a: {on: {e: c}}, b: {on: {e: d}}}}, c: {}, d: {}}\n"
    assert 1 == len(told(text, "parallel.conflict"))

    monkeypatch.setattr(transitions, "CONFLICTS_MAX", 0)
    assert [] == told(text, "parallel.conflict")
