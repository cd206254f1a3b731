"""Proof that a chart never goes back."""

import pytest

from interlock.compiler.checks import graph, monotonic
from interlock.compiler.checks.graph import Graph
from tests.unit.compiler.diagnostics import chart_of, reported


def test_a_path_back_is_shown_with_its_path() -> None:
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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def test_guards_do_not_help() -> None:
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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def test_a_compound_state_left_and_entered_again_goes_back() -> None:
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

    assert ["error 4:3"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def test_a_history_may_lead_back() -> None:
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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def test_a_region_beside_may_lead_back() -> None:
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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def test_states_that_are_active_together_have_no_order() -> None:
    bad = """\
monotonic: [p.a, p.b]
states: {p: {type: parallel, states: {a: {}, b: {}}}}
"""
    good = """\
monotonic: [p]
states: {p: {type: parallel, states: {a: {}, b: {}}}}
"""

    assert ["error 1:1"] == reported(bad, "monotonic.order")
    assert [] == reported(good, "monotonic.order")


def test_a_state_is_in_an_order_once() -> None:
    """Twice it would come before itself."""
    bad = """\
monotonic: [a, a]
states: {a: {}}
"""
    good = """\
monotonic: [a]
states: {a: {}}
"""

    assert ["error 1:1"] == reported(bad, "monotonic.order")
    assert [] == reported(good, "monotonic.order")


def test_an_order_names_states() -> None:
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

    assert ["error 1:1"] == reported(bad, "target.unknown")
    assert [] == reported(good, "target.unknown")


def test_an_unreachable_state_breaks_no_order() -> None:
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

    assert ["error 1:1"] == reported(bad, "monotonic.violated")
    assert [] == reported(good, "monotonic.violated")


def lanes(regions: int, states: int, transitions: int) -> str:
    """Regions that each go forward in order, by several events."""
    lines = ["states:", "  p:", "    type: parallel", "    states:"]
    for region in range(regions):
        lines += [f"      r{region}:", "        initial: s0", "        monotonic: true", "        states:"]
        for state in range(states):
            ahead = [min(state + 1 + step, states - 1) for step in range(transitions)]
            taken = ", ".join(f"e{step}: s{target}" for step, target in enumerate(ahead) if target > state)
            lines.append(f"          s{state}: {{on: {{{taken}}}}}" if taken else f"          s{state}: {{}}")
    return "\n".join(lines) + "\n"


def test_many_orders_are_proved_by_one_walk_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """19 regions of 100 states with 10 transitions each took minutes, one walk through all of it for each state."""
    transitions = 10 * 50 * 5
    monkeypatch.setattr(monotonic, "EDGES_MAX", 10 * (50 * 500 // 8 + 50) + 10 * transitions)
    text = lanes(10, 50, 5)

    assert [] == reported(text, "monotonic.violated") + reported(text, "monotonic.unproved")


def test_a_chart_with_too_many_ways_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "monotonic: true\nstates: {a: {on: {e: b}}, b: {on: {e: c}}, c: {}}\n"
    assert [] == reported(text, "monotonic.unproved")

    monkeypatch.setattr(monotonic, "EDGES_MAX", 3)
    assert ["error 1:1"] == reported(text, "monotonic.unproved")


def test_a_path_back_that_may_be_hidden_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """After too many questions every transition seems possible: then nothing is refuted, and nothing is proved."""
    text = """\
monotonic: [a, b]
states:
  a: {on: {e: b}}
  b: {initial: x, on: {f: a}, states: {x: {on: {f: {actions: [y]}}}}}
"""
    assert [] == reported(text, "monotonic.violated")

    monkeypatch.setattr(graph, "QUESTIONS_MAX", 0)
    assert [] == reported(text, "monotonic.violated")
    assert 1 == len(reported(text, "monotonic.unproved"))


def test_questions_beyond_the_limit_are_answered_in_favour_of_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No state is called a trap, and no transition hidden, once there were too many."""
    text = "states: {a: {on: {e: b}}, b: {on: {f: {actions: [x]}}}}\n"
    assert 1 == len(reported(text, "state.trap"))

    monkeypatch.setattr(graph, "QUESTIONS_MAX", 0)
    assert [] == reported(text, "state.trap")


def test_entry_sets_beyond_the_limit_are_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = chart_of("states: {a: {on: {e: b}}, b: {initial: c, states: {c: {}}}}\n")
    kept, spared = Graph(chart), Graph(chart)
    monkeypatch.setattr(graph, "REMEMBERED_MAX", 0)
    transition = chart.transitions[0]

    assert spared.entered(transition, memory=False) == kept.entered(transition, memory=False)
    assert spared.entered(transition, memory=False) is not spared.entered(transition, memory=False)
