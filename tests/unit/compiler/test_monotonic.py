"""Proof that a chart never goes back."""

from tests.unit.compiler.findings import told


def test_a_way_back_is_shown_with_its_path() -> None:
    """The path goes from the later state to the earlier one."""
    bad = """\
monotonic: [a, c]
states:
  a: {on: {e: b}}
  b: {on: {f: c, g: a}}
  c: {on: {h: b}}
"""
    good = """\
monotonic: [a, c]
states:
  a: {on: {e: b}}
  b: {on: {f: c}}
  c: {on: {h: b}}
"""

    assert [
        (
            'error 1:1 after "c", "a" can be entered again: "c" -["h"]-> "b" -["g"]-> "a"; take the '
            "transition out, lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_guards_do_not_help() -> None:
    """The proof holds for every guard, so a guarded way back is a way back."""
    bad = """\
monotonic: true
states:
  a: {on: {e: b}}
  b: {on: {f: {target: a, guard: never}}}
"""
    good = """\
monotonic: true
states:
  a: {on: {e: b}}
  b: {on: {f: {guard: never, actions: [x]}}}
"""

    assert [
        (
            'error 1:1 after "b", "a" can be entered again: "b" -["f"]-> "a"; take the transition out, '
            "lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_the_root_leads_back_from_everywhere() -> None:
    """A transition of the root is taken in every state that does not take the event itself."""
    bad = """\
monotonic: [a, b]
on: {e: a}
states:
  a: {on: {f: b}}
  b: {}
"""
    good = """\
monotonic: [a, b]
on: {e: a}
states:
  a: {on: {f: b}}
  b: {on: {e: {}}}
"""

    assert [
        (
            'error 1:1 after "b", "a" can be entered again: "b" -["e"]-> "a"; take the transition out, '
            "lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_an_entity_that_ended_goes_nowhere() -> None:
    """A final child of the root ends the entity, so no transition of the root follows."""
    bad = """\
monotonic: [a, b]
on: {e: a}
states:
  a: {on: {f: b}}
  b: {}
"""
    good = """\
monotonic: [a, b]
on: {e: a}
states:
  a: {on: {f: b}}
  b: {type: final}
"""

    assert [
        (
            'error 1:1 after "b", "a" can be entered again: "b" -["e"]-> "a"; take the transition out, '
            "lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_a_compound_state_left_and_entered_anew_goes_back() -> None:
    """Never again means never: being left in between does not help."""
    bad = """\
states:
  a: {monotonic: true, states: {x: {on: {e: y}}, y: {}}, on: {f: b}}
  b: {on: {g: a}}
"""
    good = """\
states:
  a: {monotonic: true, states: {x: {on: {e: y}}, y: {}}, on: {f: b}}
  b: {on: {g: a.y}}
"""

    assert [
        (
            'error 4:3 after "a.y", "a.x" can be entered again: "a.y" -["f"]-> "b" -["g"]-> "a"; take '
            "the transition out, lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_a_history_may_lead_back() -> None:
    """A history restores what was, so it may lead to an earlier state."""
    bad = """\
monotonic: ['#a.x', b]
states:
  a: {states: {x: {}, h: {type: history, target: x}}, on: {e: b}}
  b: {on: {f: a.h}}
"""
    good = """\
monotonic: ['#a.x', b]
states:
  a: {states: {x: {}, h: {type: history, target: x}}, on: {e: b}}
  b: {}
"""

    assert [
        (
            'error 1:1 after "b", "a.x" can be entered again: "b" -["f"]-> "a.x"; take the transition '
            "out, lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_a_region_beside_may_lead_back() -> None:
    """Another region can leave the parallel state, and so lead back."""
    bad = """\
monotonic: [a, '#p.r.y']
states:
  a: {on: {e: p}}
  p: {type: parallel, states: {r: {states: {x: {on: {f: y}}, y: {}}}, s: {on: {g: '#a'}}}}
"""
    good = """\
monotonic: [a, '#p.r.y']
states:
  a: {on: {e: p}}
  p: {type: parallel, states: {r: {states: {x: {on: {f: y}}, y: {}}}, s: {on: {g: {}}}}}
"""

    assert [
        (
            'error 1:1 after "p.r.y", "a" can be entered again: "p.r.y" -["g"]-> "a"; take the '
            "transition out, lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")


def test_states_that_are_active_together_have_no_order() -> None:
    """Only one of them may be active at a time."""
    bad = """\
monotonic: [p.a, p.b]
states: {p: {type: parallel, states: {a: {}, b: {}}}}
"""
    good = """\
monotonic: [p]
states: {p: {type: parallel, states: {a: {}, b: {}}}}
"""

    assert [
        ('error 1:1 "p.a" and "p.b" can be active together; name states of which only one is active at a time'),
    ] == told(bad, "monotonic.order")
    assert [] == told(good, "monotonic.order")


def test_a_state_stands_in_an_order_once() -> None:
    """Twice it would come before itself."""
    bad = """\
monotonic: [a, a]
states: {a: {}}
"""
    good = """\
monotonic: [a]
states: {a: {}}
"""

    assert [
        'error 1:1 monotonic names "a" twice; name each state once',
    ] == told(bad, "monotonic.order")
    assert [] == told(good, "monotonic.order")


def test_an_order_names_states() -> None:
    """By the name of a child, or by id."""
    bad = """\
monotonic: [a, be]
states:
  a: {states: {c: {id: be2}}}
"""
    good = """\
monotonic: [a]
states:
  a: {states: {c: {id: be, monotonic: [be]}}}
"""

    assert [
        'error 1:1 monotonic: no state "be"; did you mean "#be2"?',
    ] == told(bad, "target.unknown")
    assert [] == told(good, "target.unknown")


def test_an_unreachable_state_breaks_no_order() -> None:
    """What can never be active cannot come after anything."""
    bad = """\
monotonic: [a, b]
states:
  a: {on: {e: b}}
  b: {on: {e: a}}
"""
    good = """\
monotonic: [a, b]
states:
  a: {}
  b: {on: {e: a}}
"""

    assert [
        (
            'error 1:1 after "b", "a" can be entered again: "b" -["e"]-> "a"; take the transition out, '
            "lead it elsewhere, or take the state out of `monotonic`"
        ),
    ] == told(bad, "monotonic.violated")
    assert [] == told(good, "monotonic.violated")
