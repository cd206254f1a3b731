"""S26 to S29: what a history remembers, and when a state is done."""

from __future__ import annotations

import pytest

from tests.conformance.semantics.life import Life

NESTED = """
states:
  c:
    on: {{out: z}}
    states:
      x: {{states: {{a: {{on: {{n: b}}}}, b: {{}}}}}}
      y: {{}}
      h: {{type: history, history: {kind}, target: y}}
  z: {{on: {{back: c.h}}}}
"""


@pytest.mark.parametrize(("kind", "trace"), [("shallow", "-z +c +x +a"), ("deep", "-z +c +x +b")])
def test_s26_shallow_records_children_and_deep_records_atomic_states(kind: str, trace: str) -> None:
    """A child recorded by a shallow history starts again inside (W3C 387, 388)."""
    life = Life(NESTED.format(kind=kind))

    assert trace == life.send_all("n", "out", "back")


def test_s26_history_is_recorded_before_any_exit_block_runs() -> None:
    life = Life("""
        states:
          p:
            type: parallel
            on: {out: z}
            states:
              r: {states: {a: {on: {n: a2}}, a2: {}}}
              q: {states: {b: {on: {n: b2}}, b2: {}}}
              h: {type: history, history: deep, target: [r, q]}
          z: {on: {back: p.h}}
        """)

    assert "-z +p +r +a2 +q +b2" == life.send_all("n", "out", "back")
    assert {"p.h": ("p.r.a2", "p.q.b2")} == life.step.snapshot.history


def test_s26_history_stays_until_the_next_exit() -> None:
    life = Life(NESTED.format(kind="deep"))
    life.send_all("n", "out", "back")

    assert {"c.h": ("c.x.b",)} == life.step.snapshot.history
    assert "-z +c +x +b" == life.send_all("out", "back")


def test_s26_a_microstep_sees_the_history_it_records_itself() -> None:
    life = Life("""
        dialect: scxml
        states:
          c: {on: {e: {target: "#c.h", reenter: true}}, states: {a: {on: {n: b}}, b: {}, h: {type: history, target: a}}}
        """)

    assert "-b -c +c +b" == life.send_all("n", "e")


def test_s27_the_default_is_used_until_something_was_recorded() -> None:
    """Its content runs only then, after the parent's entry blocks (W3C 579)."""
    life = Life("""
        states:
          z: {on: {e: c.h}}
          c: {on: {out: z}, states: {a: {}, h: {type: history, target: a, actions: [default]}}}
        """)

    assert ["-z +c default +a", "-a -c +z", "-z +c +a"] == [life.send(each) for each in ("e", "out", "e")]


DONE = """
states:
  c:
    onDone: {target: z, actions: [{log: "= event.data"}]}
    states: {a: {on: {e: f}}, f: {type: final, entry: [{raise: first}], output: "= 6 * 7"}}
    on: {first: {actions: [first]}}
  z: {}
"""


def test_s28_a_final_child_completes_its_compound() -> None:
    """`done.state` with the output, queued after the final's entry blocks (W3C 372, 416)."""
    life = Life(DONE)

    assert "-a +f first -f -c 42 +z" == life.send("e")


def test_s28_the_parallel_is_done_when_every_region_is() -> None:
    """Its event follows that of the last region, without data (W3C 417, 570)."""
    life = Life("""
        states:
          p:
            type: parallel
            onDone: {target: z, actions: [{log: "= event.data"}]}
            states:
              r: {onDone: {actions: [r]}, states: {a: {on: {e: f}}, f: {type: final, output: 1}}}
              q: {onDone: {actions: [q]}, states: {b: {on: {g: h}}, h: {type: final, output: 2}}}
          z: {}
        """)

    assert "-a +f r" == life.send("e")
    assert "-b +h q -h -q -f -r -p None +z" == life.send("g")


def test_s28_onDone_takes_exactly_its_own_state() -> None:  # noqa: N802  the key is written so
    """`done.state.c.x` is not `done.state.c`, although it starts like it (section 4)."""
    life = Life("""
        states:
          c:
            onDone: {actions: [wrong]}
            states: {x: {onDone: {actions: [right]}, states: {a: {on: {e: f}}, f: {type: final}}}, g: {type: final}}
        """)

    assert "-a +f right" == life.send("e")


def test_s28_an_output_that_fails_is_null_with_an_error_before_it() -> None:
    """The state is done all the same (W3C 343, 488)."""
    life = Life("""
        states:
          c:
            onDone: {target: z, actions: [{log: "= event.data"}]}
            on: {error.execution: {actions: [told]}}
            states: {a: {on: {e: f}}, f: {type: final, output: "= 1 // 0"}}
          z: {}
        """)

    assert "-a +f told -f -c None +z" == life.send("e")


def test_s29_a_parallel_inside_a_parallel_completes_it_only_through_a_plain_region() -> None:
    text = """
        states:
          p:
            type: parallel
            onDone: z
            states:
              q: {type: parallel, states: {r: {states: {a: {on: {e: f}}, f: {type: final}}}}}
              s: {states: {b: {on: {g: h}}, h: {type: final}}}
          z: {}
        """
    inner_last, plain_last = Life(text), Life(text)
    inner_last.send_all("g", "e")
    plain_last.send_all("e", "g")

    assert ("f h", "z") == (inner_last.states, plain_last.states)


def test_s29_an_atomic_region_is_never_in_a_final_state() -> None:
    life = Life("""
        dialect: scxml
        states:
          p:
            type: parallel
            on: {done.state.p: {guard: "= event.name == 'done.state.p'", actions: [wrong]}}
            states: {r: {states: {a: {on: {e: f}}, f: {type: final}}}, q: {}}
        """)

    assert "-a +f" == life.send("e")
