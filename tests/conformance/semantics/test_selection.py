"""S11 to S13: which transitions an event enables, when guards are asked, and what happens when two want the same."""

from __future__ import annotations

from typing import Any

from interlock.model.event import Event
from tests.conformance.semantics.life import Life


def test_s11_inner_states_win_over_outer_ones() -> None:
    life = Life("states: {c: {on: {e: {actions: [outer]}}, states: {a: {on: {e: {actions: [inner]}}}}}}")

    assert "inner" == life.send("e")


def test_s11_a_false_guard_lets_the_walk_go_on() -> None:
    life = Life("""
        states:
          c:
            on: {e: {actions: [outer]}}
            states: {a: {on: {e: [{guard: "= false", actions: [no]}, {guard: "= 1 > 2", actions: [no]}]}}}
        """)

    assert "outer" == life.send("e")


def test_s11_of_one_state_the_first_in_document_order_is_taken() -> None:
    life = Life("""
        states:
          a: {transitions: [{event: "*", guard: "= true or event.id", actions: [first]}, {event: e, actions: [second]}]}
        """)

    assert "first" == life.send("e")


def test_s11_each_region_has_its_own_walk() -> None:
    """One transition per region, in document order (W3C 403)."""
    life = Life("""
        states:
          p:
            type: parallel
            states: {r: {states: {a: {on: {e: {actions: [r]}}}}}, q: {states: {b: {on: {e: {actions: [q]}}}}}}
        """)

    assert "r q" == life.send("e")


def test_s11_a_transition_above_two_regions_is_taken_once() -> None:
    life = Life("states: {p: {type: parallel, on: {e: {actions: [once]}}, states: {r: {}, q: {}}}}")

    assert "once" == life.send("e")


def test_s12_a_guard_is_asked_once_per_selection() -> None:
    asked: list[str] = []

    def ask(context: Any, event: Any) -> bool:
        asked.append(event.name)
        return False

    life = Life(
        "unhandled: ignore\nstates: {p: {type: parallel, on: {e: {guard: ask, actions: [x]}}, states: {r: {}, q: {}}}}",
        guards={"ask": ask},
    )
    asked.clear()
    life.kernel.step(life.step.snapshot, Event("e"))

    assert ["e"] == asked


def test_s12_guards_are_asked_no_further_than_needed() -> None:
    """What comes after the first that holds is not asked, so its error is not seen."""
    life = Life("""
        states:
          a: {on: {e: [{guard: "= event.name == 'e'", actions: [ok]}, {guard: "= 1 // 0 == event.id", actions: [no]}]}}
        """)

    assert ("ok", []) == (life.send("e"), life.faults)


def test_s12_a_failing_guard_is_visible_once() -> None:
    life = Life("""
        unhandled: ignore
        states: {p: {type: parallel, on: {e: {guard: "= 1 // 0 == event.id", actions: [x]}}, states: {r: {}, q: {}}}}
        """)
    life.send("e")

    assert ["expression.zero_division"] == life.faults


PREEMPTION = """
states:
  p:
    type: parallel
    on: {e: {target: z, actions: [whole]}}
    states:
      r: {states: {a: {on: {e: {target: a2, actions: [inner]}}}, a2: {}}}
      q: {states: {b: {}}}
  z: {}
"""


def test_s13_an_inner_transition_preempts_an_outer_one() -> None:
    """Region q would leave the whole parallel, region r moves inside it: the inner source wins (W3C 403c)."""
    life = Life(PREEMPTION)

    assert "-a inner +a2" == life.send("e")
    assert "a2 b" == life.states


def test_s13_between_two_regions_the_first_in_document_order_wins() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            states:
              r: {states: {a: {on: {e: {target: "#y", actions: [r]}}}}}
              q: {states: {b: {on: {e: {target: "#z", actions: [q]}}}}}
          y: {}
          z: {}
        """)

    assert "-b -q -a -r -p r +y" == life.send("e")


def test_s13_a_dropped_transition_drops_nothing() -> None:
    """The third conflicts with both kept ones but is inside only one of them: it goes, they stay."""
    life = Life("""
        dialect: scxml
        states:
          p:
            type: parallel
            states:
              r: {states: {a: {on: {e: {target: "#p.r.a2", actions: [first]}}}, a2: {}}}
              q:
                type: parallel
                on: {e: {target: "#z", actions: [outer]}}
                states: {q1: {states: {b: {}}}, q2: {states: {c: {on: {e: {target: "#p.r", actions: [third]}}}}}}
          z: {}
        """)

    assert "first" in life.send("e").split()
    assert "third" not in life.trace.split()


def test_s13_transitions_without_target_conflict_with_nothing() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            states: {r: {states: {a: {on: {e: {actions: [stays]}}}}}, q: {states: {b: {on: {e: "#z"}}}}}
          z: {}
        """)

    assert "-b -q -a -r -p stays +z" == life.send("e")
