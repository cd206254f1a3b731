"""S14 to S22: domains, exit sets, the order of exit, action and entry, entry sets."""

from __future__ import annotations

from tests.conformance.semantics.life import Life, codes

HISTORY = """
states:
  c: {states: {a: {on: {n: b, out: "#z"}}, b: {on: {out: "#z"}}, h: {type: history, target: a}}}
  z: {on: {back: c.h}}
"""


def test_s14_a_history_target_stands_for_what_it_recorded() -> None:
    life = Life(HISTORY)

    assert "-z +c +b" == life.send_all("n", "out", "back")


def test_s14_the_domain_follows_the_effective_targets() -> None:
    life = Life("""
        states: {c: {states: {x: {states: {a: {on: {e: "#c.h"}}, b: {}}}, h: {type: history, target: x.b}}}}
        """)

    assert "-a +b" == life.send("e")
    assert "b" == life.states


def test_s15_a_transition_without_target_leaves_and_enters_nothing() -> None:
    """Only its content runs (W3C 503)."""
    life = Life("states: {c: {on: {e: {actions: [act]}}, states: {a: {}}}}")

    assert ("act", "a") == (life.send("e"), life.states)


def test_s15_an_internal_transition_of_a_compound_stays_in_it() -> None:
    """Every target is a proper descendant: the source is the domain (W3C 505)."""
    life = Life("states: {c: {on: {e: {target: c.b, reenter: false, actions: [act]}}, states: {a: {}, b: {}}}}")

    assert "-a act +b" == life.send("e")


def test_s15_an_external_transition_to_a_descendant_leaves_its_source() -> None:
    life = Life("states: {c: {on: {e: {target: c.b, reenter: true, actions: [act]}}, states: {a: {}, b: {}}}}")

    assert "-a -c act +c +b" == life.send("e")


def test_s15_a_self_target_leaves_and_enters_the_state() -> None:
    life = Life("states: {a: {on: {e: {target: a, reenter: true, actions: [act]}}}}")

    assert "-a act +a" == life.send("e")


def test_s15_parallels_are_no_domains() -> None:
    """From region to region the whole parallel is left and entered (W3C 504)."""
    life = Life("""
        states:
          p:
            type: parallel
            states: {r: {states: {a: {on: {e: "#p.q.b2"}}}}, q: {states: {b1: {}, b2: {}}}}
        """)

    assert "-b1 -q -a -r -p +p +r +a +q +b2" == life.send("e")


def test_s15_the_nearest_compound_that_contains_all_targets() -> None:
    life = Life("states: {o: {states: {c: {states: {a: {on: {e: d}}}}, d: {}}}}")

    assert "-a -c +d" == life.send("e")


def test_s16_internal_on_a_source_that_is_not_compound_is_external() -> None:
    """A parallel that moves to a state inside it is left (W3C 533)."""
    life = Life("""
        dialect: scxml
        states:
          p:
            type: parallel
            on: {e: {target: p.r.b, reenter: false}}
            states: {r: {states: {a: {}, b: {}}}, q: {}}
        """)

    assert "-q -a -r -p +p +r +b +q" == life.send("e")


def test_s16_internal_with_a_target_outside_is_external() -> None:
    """It leaves its source (W3C 506)."""
    life = Life("""
        dialect: scxml
        states: {c: {on: {e: {target: c, reenter: false}}, states: {a: {}}}}
        """)

    assert "-a -c +c +a" == life.send("e")


def test_s16_yaml_refuses_an_internal_that_would_be_external() -> None:
    """What is written must be what happens (V2)."""
    assert {"transition.reenter"} == codes("states: {a: {on: {e: {target: a, reenter: false}}}}")


def test_s17_exit_blocks_run_in_document_order_and_inner_states_first() -> None:
    life = Life("""
        states:
          c: {exit: [[c1], [c2]], states: {a: {exit: [[a1], [a2]], on: {e: "#z"}}}}
          z: {}
        """)

    assert "-a a1 a2 -c c1 c2 +z" == life.send("e")


def test_s17_in_no_longer_sees_states_already_left() -> None:
    """`In()` in an exit block sees the configuration of its moment (W3C 409)."""
    life = Life("""
        states:
          c:
            exit: [{log: "= In('c')"}, {log: "= In('c.a')"}]
            states: {a: {exit: [{log: "= In('c.a')"}], on: {e: "#z"}}}
          z: {}
        """)

    assert "-a True -c True False +z" == life.send("e")


def test_s17_invokes_are_cancelled_after_the_exit_blocks() -> None:
    life = Life("states: {a: {invoke: {id: job, src: w}, exit: [bye], on: {e: b}}, b: {}}")
    life.send("e")

    assert ["log", "call", "invoke_cancel", "log"] == [each.type for each in life.step.effects]


def test_s18_actions_run_between_all_exits_and_all_entries() -> None:
    """All transitions together, never region by region (W3C 405)."""
    life = Life("""
        states:
          p:
            type: parallel
            states:
              r: {states: {a: {on: {e: {target: a2, actions: [t1]}}}, a2: {}}}
              q: {states: {b: {on: {e: {target: b2, actions: [t2]}}}, b2: {}}}
        """)

    assert "-b -a t1 t2 +a2 +b2" == life.send("e")


def test_s18_the_content_of_a_transition_is_one_block() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            states:
              r: {states: {a: {on: {e: {actions: [one, {log: "= 1 // 0"}, lost]}}}}}
              q: {states: {b: {on: {e: {actions: [two]}}}}}
        """)

    assert "one two" == life.send("e")


def test_s19_several_targets_are_entered_together() -> None:
    life = Life("""
        states:
          z: {on: {e: [{target: [p.q.b2, p.r.a2]}]}}
          p: {type: parallel, states: {r: {states: {a: {}, a2: {}}}, q: {states: {b: {}, b2: {}}}}}
        """)

    assert "-z +p +r +a2 +q +b2" == life.send("e")


def test_s20_regions_without_a_target_are_entered_by_default() -> None:
    """With their `initial` content."""
    life = Life("""
        states:
          z: {on: {e: p.r.a2}}
          p:
            type: parallel
            states: {r: {states: {a: {}, a2: {}}}, q: {initial: {target: b, actions: [init]}, states: {b: {}}}}
        """)

    assert "-z +p +r +a2 +q init +b" == life.send("e")


def test_s20_a_deep_initial_brings_the_states_between() -> None:
    """They are entered, but not by default: their own `initial` content does not run."""
    life = Life("""
        states:
          c:
            initial: {target: x.b, actions: [outer]}
            states: {x: {initial: {target: a, actions: [inner]}, states: {a: {}, b: {}}}}
        """)

    assert "+c outer +x +b" == life.trace


def test_s21_ancestors_added_on_the_way_are_not_entered_by_default() -> None:
    """A target deep inside: the `initial` content of what contains it does not run."""
    life = Life("""
        states:
          z: {on: {e: c.b}}
          c: {initial: {target: a, actions: [init]}, states: {a: {}, b: {}}}
        """)

    assert "-z +c +b" == life.send("e")


def test_s21_a_state_that_was_not_left_is_not_entered() -> None:
    """A history in an outer state with a default deeper than the domain does not enter the states between again."""
    life = Life("""
        states:
          c:
            states:
              x: {after: {1h: "#z"}, states: {a: {on: {e: "#c.h"}}, b: {}}}
              h: {type: history, target: x.b}
          z: {}
        """)

    assert "-a +b" == life.send("e")
    assert ["after.1h.c.x"] == [each.name for each in life.step.snapshot.timers]


def test_s22_everything_that_happens_on_entry_has_its_order() -> None:
    """Join, fields, entry blocks, timers, `initial` content, then the child."""
    life = Life("""
        binding: late
        states:
          c:
            context: {f: {default: bound}}
            entry: [[{log: "= In('c')"}], [{log: "= context.f"}]]
            after: {1s: "#z"}
            initial: {target: a, actions: [init]}
            states: {a: {}}
          z: {}
        """)

    assert "+c True bound init +a" == life.trace
    assert ["log", "log", "log", "timer", "call", "log"] == [each.type for each in life.step.effects]


def test_s22_default_content_of_a_history_runs_after_initial_content() -> None:
    """After the parent's entry blocks (W3C 579)."""
    life = Life("""
        states:
          z: {on: {e: c.h}}
          c: {entry: [mine], states: {a: {}, h: {type: history, target: a, actions: [default]}}}
        """)

    assert "-z +c mine default +a" == life.send("e")
