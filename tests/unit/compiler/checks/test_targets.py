"""Where transitions lead: several targets, the root, and `reenter` (V2, V5)."""

from tests.unit.compiler.findings import told


def test_a_self_target_says_reenter() -> None:
    """V2: to stay, the target is left out; so a self-target can only mean to leave and enter again."""
    bad = "states: {a: {on: {e: a}}}"
    good = "states: {a: {on: {e: {target: a, reenter: true}}}}"

    assert [
        (
            'error 3:22 "a" is its own target; write `reenter: true` to leave and enter it again; to '
            "stay in it, leave `target` out"
        ),
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_a_self_target_cannot_stay() -> None:
    """V2: `reenter: false` needs targets that are proper descendants."""
    bad = "states: {a: {on: {e: {target: a, reenter: false}}}}"
    good = "states: {a: {on: {e: {}}}}"

    assert [
        (
            'error 3:22 "a" is its own target; write `reenter: true` to leave and enter it again; to '
            "stay in it, leave `target` out"
        ),
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_an_inner_target_says_whether_its_source_is_left() -> None:
    """V2: where the source contains the target both readings are possible."""
    bad = "states: {a: {on: {e: .b}, states: {b: {}}}}"
    good = "states: {a: {on: {e: {target: .b, reenter: false}}, states: {b: {}}}}"

    assert [
        (
            'error 3:22 "a" contains the target "a.b": is it left on the way?; write `reenter: false` '
            'to stay in "a", or `reenter: true` to leave and enter it again'
        ),
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_a_parallel_source_is_always_left() -> None:
    """V2: only a compound state can stay while its child changes."""
    bad = "states: {p: {type: parallel, on: {e: {target: .b, reenter: false}}, states: {b: {}, c: {}}}}"
    good = "states: {p: {type: parallel, on: {e: {target: .b, reenter: true}}, states: {b: {}, c: {}}}}"

    assert [
        'error 3:38 "p" contains the target "p.b" and must be left on the way; write `reenter: true`',
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


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

    assert [
        'error 4:15 `reenter` has no meaning here: it leads out of "a"; take `reenter` out',
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_reenter_has_no_place_without_a_target() -> None:
    """V2: without a target nothing is left or entered."""
    bad = "states: {a: {on: {e: {reenter: true}}}}"
    good = "states: {a: {on: {e: {}}}}"

    assert [
        "error 3:22 `reenter` has no meaning here: it has no target; take `reenter` out",
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_transitions_of_the_root_need_no_reenter() -> None:
    """V2: the root is never left, so there is nothing to choose."""
    bad = "states: {a: {on: {e: a}}}"
    good = """\
on: {e: a}
states: {a: {}}
"""

    assert [
        (
            'error 3:22 "a" is its own target; write `reenter: true` to leave and enter it again; to '
            "stay in it, leave `target` out"
        ),
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_results_of_invokes_follow_the_same_rule() -> None:
    """V2 holds for `onDone` of an invoke, too."""
    bad = "states: {a: {invoke: {id: i, src: s, onDone: a}}}"
    good = "states: {a: {invoke: {id: i, src: s, onDone: {target: a, reenter: true}}}}"

    assert [
        (
            'error 3:46 "a" is its own target; write `reenter: true` to leave and enter it again; to '
            "stay in it, leave `target` out"
        ),
    ] == told(bad, "transition.reenter")
    assert [] == told(good, "transition.reenter")


def test_targets_together_are_in_distinct_regions() -> None:
    """Two children of one compound state are never active together."""
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

    assert [
        'error 4:15 "b" and "c" are never active together; name one state in each of several regions',
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


def test_a_target_is_named_once() -> None:
    """The same state twice says nothing more."""
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

    assert [
        'error 4:15 "b" is named twice; name one state in each of several regions',
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


def test_no_target_contains_another() -> None:
    """Entering a state enters what is around it."""
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

    assert [
        'error 4:15 of "b" and "b.c" one contains the other; name one state in each of several regions',
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


def test_a_history_of_a_parallel_state_stands_alone() -> None:
    """It restores every region, so nothing is left to name beside it."""
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

    assert [
        (
            'error 4:15 the history "p.h" restores every region, so "p.b" and "p.h" exclude each '
            "other; name one state in each of several regions"
        ),
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


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

    assert [
        'error 3:10 "a" and "b" are never active together; name one state in each of several regions',
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


def test_defaults_of_a_history_are_legal_together() -> None:
    """So does the default of a history."""
    bad = "states: {a: {states: {b: {}, c: {}, h: {type: history, target: [b, c]}}}}"
    good = "states: {a: {states: {b: {}, c: {}, h: {type: history, target: b}}}}"

    assert [
        'error 3:37 "a.b" and "a.c" are never active together; name one state in each of several regions',
    ] == told(bad, "target.conflict")
    assert [] == told(good, "target.conflict")


def test_the_root_is_no_target() -> None:
    """The root is active as long as the entity lives."""
    bad = """\
id: top
states: {a: {on: {e: '#top'}}}
"""
    good = """\
id: top
states: {a: {on: {e: {target: '#a', reenter: true}}}}
"""

    assert [
        ("error 4:22 the root is always active and cannot be a target; name the state that it should go on in"),
    ] == told(bad, "target.root")
    assert [] == told(good, "target.root")
