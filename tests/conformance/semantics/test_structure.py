"""S1 to S4: document order, kinds of states, the root, the initial state of a compound."""

from __future__ import annotations

from tests.conformance.semantics.life import Life, codes

REGIONS = """
states:
  p:
    type: parallel
    on: {out: z}
    states:
      r: {states: {a: {}}}
      q: {states: {b: {}}}
  z: {}
"""


def test_s1_entry_is_document_order() -> None:
    life = Life(REGIONS)

    assert "+p +r +a +q +b" == life.trace


def test_s1_exit_is_the_reverse_of_document_order() -> None:
    """States are left in the reverse order: the last written first, children before parents."""
    life = Life(REGIONS)

    assert "-b -q -a -r -p +z" == life.send("out")


def test_s2_a_compound_has_one_active_child_and_a_parallel_all() -> None:
    life = Life(REGIONS)

    assert "a b" == life.states


def test_s2_a_history_is_never_active() -> None:
    """Entering a history enters what it remembers; it is in no configuration (W3C 580)."""
    life = Life("""
        initial: c
        states:
          c: {initial: h, states: {a: {on: {in: {guard: {in: c.h}, actions: [seen]}}}, h: {type: history, target: a}}}
        """)

    assert "a" == life.states
    assert "" == life.send("in")


def test_s3_transitions_of_the_root_are_tried_last() -> None:
    life = Life("""
        on: {e: {actions: [root]}, f: {actions: [root]}}
        states: {a: {on: {e: {actions: [inner]}}}}
        """)

    assert ["inner", "root"] == [life.send("e"), life.send("f")]


def test_s3_the_root_is_not_left_by_its_own_transition() -> None:
    """The domain of a root transition is the root: its children are exited, its timers continue."""
    life = Life("""
        on: {e: b}
        after: {1h: a}
        states: {a: {}, b: {}}
        """)
    life.send("e")

    assert "b" == life.states
    assert [1] == [each.version for each in life.step.snapshot.timers]


def test_s3_a_final_child_of_the_root_ends_the_entity() -> None:
    """Entering it is the end: done, with its output, and the name of the final is kept."""
    life = Life("states: {a: {on: {e: f}}, f: {type: final, output: 7}}")
    life.send("e")

    assert ("done", 7, "f") == (life.step.snapshot.ended, life.step.snapshot.output, life.states)


def test_s3_a_deeper_final_does_not_end_the_entity() -> None:
    life = Life("states: {c: {states: {a: {on: {e: f}}, f: {type: final}}}}")
    life.send("e")

    assert (None, "f") == (life.step.snapshot.ended, life.states)


def test_s4_without_initial_the_first_child_is_entered() -> None:
    """The first child in document order that can be active (W3C 364)."""
    life = Life("states: {c: {states: {h: {type: history, target: a}, a: {}, b: {}}}}")

    assert "+c +a" == life.trace


def test_s4_initial_may_lie_deep_and_name_several_regions() -> None:
    """Initial states at any depth, several in distinct regions; other regions start by default (W3C 413, 576)."""
    life = Life("""
        initial: [p.r.b, p.q.d]
        states:
          p: {type: parallel, states: {r: {states: {a: {}, b: {}}}, q: {states: {c: {}, d: {}}}, o: {states: {e: {}}}}}
        """)

    assert "+p +r +b +q +d +o +e" == life.trace


def test_s4_initial_content_runs_after_entry_and_before_the_child() -> None:
    """`initial` as an element with content."""
    life = Life("states: {c: {entry: [mine], initial: {target: b, actions: [init]}, states: {a: {}, b: {}}}}")

    assert "+c mine init +b" == life.trace


def test_s4_initial_must_be_inside() -> None:
    assert "target.unknown" in codes("states: {c: {initial: z, states: {a: {}}}, z: {}}")


def test_s4_two_initial_states_in_one_compound_are_refused() -> None:
    """Several targets lie in distinct regions, or the configuration would be illegal."""
    assert {"target.conflict"} == codes("initial: [c.a, c.b]\nstates: {c: {states: {a: {}, b: {}}}}")
