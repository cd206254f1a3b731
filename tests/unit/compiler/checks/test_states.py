"""What each type of state must have, may have and must not have."""

from dataclasses import replace
from typing import Literal

import pytest

from interlock.model.document.actions import Log
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from tests.unit.compiler.diagnostics import errors, reported


def test_a_chart_needs_a_state_that_can_be_active() -> None:
    bad = "states: {h: {type: history, target: h}}"
    good = "states: {a: {}}"

    assert ["error 1:1"] == reported(bad, "chart.no_states")
    assert [] == reported(good, "chart.no_states")


def test_a_compound_state_of_histories_has_no_initial_state() -> None:
    bad = "states: {a: {states: {h: {type: history, target: h}}}}"
    good = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"

    assert ["error 3:10"] == reported(bad, "state.no_initial")
    assert [] == reported(good, "state.no_initial")


def test_initial_stays_inside() -> None:
    """`initial` names a proper descendant."""
    bad = """\
states:
  a: {initial: '#b', states: {c: {}}}
  b: {}
"""
    good = """\
states:
  a: {initial: c, states: {c: {}}}
  b: {}
"""

    assert ["error 4:16"] == reported(bad, "initial.outside")
    assert [] == reported(good, "initial.outside")


def test_an_atomic_state_has_no_initial() -> None:
    bad = """\
states:
  a: {initial: '#b'}
  b: {}
"""
    good = """\
states:
  a: {}
  b: {}
"""

    assert ["error 4:16"] == reported(bad, "initial.misplaced")
    assert [] == reported(good, "initial.misplaced")


def test_a_final_state_has_no_transitions() -> None:
    bad = """\
states:
  a: {on: {e: b}}
  b: {type: final, on: {e: a}}
"""
    good = """\
states:
  a: {on: {e: b}}
  b: {type: final}
"""

    assert ["error 5:28"] == reported(bad, "final.content")
    assert [] == reported(good, "final.content")


def test_a_final_state_is_not_a_region() -> None:
    """A region that is final from the start would never run."""
    bad = "states: {p: {type: parallel, states: {a: {}, f: {type: final}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, r: {states: {f: {type: final}}}}}}"

    assert ["error 3:46"] == reported(bad, "final.region")
    assert [] == reported(good, "final.region")


def test_a_history_says_where_it_leads_first() -> None:
    bad = "states: {a: {states: {b: {}, h: {type: history}}}}"
    good = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"

    assert ["error 3:30"] == reported(bad, "history.no_default")
    assert [] == reported(good, "history.no_default")


def test_a_history_stays_inside_its_parent() -> None:
    bad = """\
states:
  a: {states: {b: {}, h: {type: history, target: '#c'}}}
  c: {}
"""
    good = """\
states:
  a: {states: {b: {}, h: {type: history, target: b}}}
  c: {}
"""

    assert ["error 4:23"] == reported(bad, "history.outside")
    assert [] == reported(good, "history.outside")


def test_histories_do_not_lead_back_to_themselves() -> None:
    bad = """\
states: {a: {states: {b: {initial: h, states: {c: {}, h: {type: history, target: '#a.g'}}},
    g: {type: history, target: b}}}}
"""
    good = """\
states: {a: {states: {b: {initial: h, states: {c: {}, h: {type: history, target: c}}},
    g: {type: history, target: b}}}}
"""

    assert ["error 3:55", "error 4:5"] == reported(bad, "history.cycle")
    assert [] == reported(good, "history.cycle")


def test_a_parallel_state_needs_regions() -> None:
    """Without a region no atomic state would be active."""
    bad = "states: {p: {type: parallel, states: {h: {type: history, target: h}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, b: {}}}}"

    assert ["error 3:10"] == reported(bad, "parallel.no_region")
    assert [] == reported(good, "parallel.no_region")


def test_one_region_is_not_a_parallel_state() -> None:
    bad = "states: {p: {type: parallel, states: {a: {}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, b: {}}}}"

    assert ["warning 3:10"] == reported(bad, "parallel.one_region")
    assert [] == reported(good, "parallel.one_region")


def test_a_state_without_final_child_is_never_done() -> None:
    """`onDone` waits for a final child."""
    bad = """\
states:
  a: {onDone: c, states: {b: {}}}
  c: {}
"""
    good = """\
states:
  a: {onDone: c, states: {b: {type: final}}}
  c: {}
"""

    assert ["error 4:15"] == reported(bad, "done.never")
    assert [] == reported(good, "done.never")


def test_a_parallel_state_is_done_when_each_region_can_be() -> None:
    bad = """\
states:
  p: {type: parallel, onDone: c, states: {a: {states: {f: {type: final}}}, b: {}}}
  c: {}
"""
    good = """\
states:
  p: {type: parallel, onDone: c, states: {a: {states: {f: {type: final}}},
      b: {states: {f: {type: final}}}}}
  c: {}
"""

    assert ["error 4:31"] == reported(bad, "done.never")
    assert [] == reported(good, "done.never")


def test_a_long_path_needs_a_short_id() -> None:
    bad = f"states: {{{'a' * 200}: {{states: {{{'b' * 200}: {{}}}}}}}}"
    good = f"states: {{{'a' * 200}: {{states: {{{'b' * 200}: {{id: b}}}}}}}}"

    assert ["error 3:222"] == reported(bad, "state.id_length")
    assert [] == reported(good, "state.id_length")


def test_a_state_key_is_letters_digits_underscore_and_hyphen() -> None:
    """V6: what else a document brings is an error in our own dialect, and left alone in others."""
    document = Document(kind="test", root=State(states=(State(key="a b"),)))

    assert ["error 1:1"] == reported(document, "state.key")
    assert [] == reported(replace(document, dialect="scxml"), "state.key")


def test_siblings_have_different_keys() -> None:
    document = Document(kind="test", root=State(states=(State(key="a"), State(key="a", id="b"))))

    assert ["error 1:1"] == reported(document, "state.duplicate_key")


@pytest.mark.parametrize("type", ["final", "history"])
def test_the_root_is_a_state_or_parallel(type: Literal["final", "history"]) -> None:
    document = Document(kind="test", root=State(type=type, targets=("a",), states=(State(key="a"),)))

    assert ["error 1:1"] == reported(document, "chart.root")


def test_a_parallel_root_is_a_root() -> None:
    regions = (State(key="a"), State(key="b"))

    assert [] == errors(Document(kind="test", root=State(type="parallel", states=regions)))
    assert ["chart.no_states"] == errors(Document(kind="test", root=State(type="parallel")))


def test_a_parallel_state_has_no_initial() -> None:
    regions = (State(key="a"), State(key="b"))
    parallel = State(key="p", type="parallel", initial=Initial(targets=("a",)), states=regions)
    document = Document(kind="test", root=State(states=(parallel,)))

    assert ["error 1:1"] == reported(document, "initial.misplaced")
    assert ["warning 1:1"] == reported(replace(document, dialect="xstate"), "initial.misplaced")


def test_a_final_state_and_a_history_have_nothing_inside() -> None:
    """States, transitions, invokes and, for a history, actions would never come to anything."""
    full = State(
        key="x",
        states=(State(key="y"),),
        transitions=(Transition(events=("e",)),),
        invokes=(Invoke(src="s"),),
        entry=((Log(label="in"),),),
    )
    final = replace(full, type="final")
    history = replace(full, type="history", targets=("a",))

    assert [
        "error 1:1",
        "error 1:1",
        "error 1:1",
    ] == sorted(reported(Document(kind="test", root=State(states=(State(key="a"), final))), "final.content"))
    assert [
        "error 1:1",
        "error 1:1",
        "error 1:1",
        "error 1:1",
    ] == sorted(reported(Document(kind="test", root=State(states=(State(key="a"), history))), "history.content"))


def test_an_unknown_default_of_a_history_is_reported_once() -> None:
    text = "states: {a: {states: {b: {}, h: {type: history, target: c}}}}"

    assert ["target.unknown"] == errors(text)


def test_an_unknown_initial_is_reported_once() -> None:
    """So it is with `initial`."""
    assert ["target.unknown"] == errors("states: {a: {initial: c, states: {b: {}}}}")


def test_xstate_lets_a_final_state_be_a_region() -> None:
    """X5: there it completes its parallel state."""
    regions = (State(key="a", states=(State(key="f", type="final"),)), State(key="f", type="final"))
    parallel = State(
        key="p", type="parallel", states=regions, transitions=(Transition(origin="onDone", targets=("z",)),)
    )
    document = Document(kind="test", dialect="xstate", root=State(states=(parallel, State(key="z"))))

    assert [] == errors(document)
    assert [] == reported(document, "done.never")
    assert ["final.region"] == errors(replace(document, dialect="scxml"))


def test_a_history_may_lead_to_a_parallel_state() -> None:
    text = """\
states:
  a:
    states:
      p: {type: parallel, states: {r: {initial: k, states: {s: {}, k: {type: history, target: s}}}, q: {}}}
      h: {type: history, target: p}
"""

    assert [] == errors(text)


def test_a_state_without_an_entry_is_reported() -> None:
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

    assert ["warning 6:3"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_history_that_is_not_a_target_is_reported() -> None:
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

    assert ["warning 4:23"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_history_may_be_reached_as_initial_or_as_default() -> None:
    """An `initial` and another history lead to it, too."""
    bad = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"
    good = """\
states: {a: {initial: g, states: {b: {}, h: {type: history, target: b}, g: {type: history,
    target: h}}}}
"""

    assert ["warning 3:30"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_state_behind_a_hidden_transition_is_unreachable() -> None:
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

    assert ["warning 5:3"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_state_after_the_end_is_unreachable() -> None:
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

    assert ["warning 5:3"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


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

    assert ["warning 4:34", "warning 5:3"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_regions_complete_a_parallel_state() -> None:
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

    assert ["warning 4:63", "warning 7:3"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_target_in_one_region_enters_the_others() -> None:
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

    assert ["warning 5:45"] == reported(bad, "state.unreachable")
    assert [] == reported(good, "state.unreachable")


def test_a_state_without_an_exit_is_reported() -> None:
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

    assert ["warning 5:3"] == reported(bad, "state.trap")
    assert [] == reported(good, "state.trap")


def test_leading_back_to_itself_does_not_leave_it() -> None:
    bad = "states: {a: {on: {e: {target: a, reenter: true}}}}"
    good = """\
states:
  a: {on: {e: b}}
  b: {on: {e: a}}
"""

    assert ["warning 3:10"] == reported(bad, "state.trap")
    assert [] == reported(good, "state.trap")


def test_another_region_may_be_the_way_out() -> None:
    bad = """\
states:
  p: {type: parallel, states: {a: {}, b: {on: {e: {}}}}}
"""
    good = """\
states:
  p: {type: parallel, states: {a: {}, b: {on: {e: c}}}}
  c: {on: {e: p}}
"""

    assert ["warning 4:32", "warning 4:39"] == reported(bad, "state.trap")
    assert [] == reported(good, "state.trap")


def test_the_state_around_may_be_the_way_out() -> None:
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

    assert ["warning 4:28"] == reported(bad, "state.trap")
    assert [] == reported(good, "state.trap")


def test_the_completion_of_the_state_around_does_not_leave_it() -> None:
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

    assert ["warning 4:50"] == reported(bad, "state.trap")
    assert [] == reported(good, "state.trap")


def test_a_state_that_waits_needs_somebody_who_notices() -> None:
    bad = "states: {a: {on: {e: b}}, b: {type: final}}"
    good = "states: {a: {on: {e: b}, after: {1h: b}}, b: {type: final}}"

    assert ["warning 3:10"] == reported(bad, "state.no_timeout")
    assert [] == reported(good, "state.no_timeout")


def test_resting_can_be_normal() -> None:
    """`within: forever` says so, and descendants inherit it."""
    bad = "states: {a: {states: {b: {on: {e: c}}, c: {expect: {within: 1h}}}}}"
    good = "states: {a: {expect: {within: forever}, states: {b: {on: {e: c}}, c: {}}}}"

    assert ["warning 3:23"] == reported(bad, "state.no_timeout")
    assert [] == reported(good, "state.no_timeout")


def test_a_state_that_waits_for_a_result_or_passes_on_does_not_wait_for_events() -> None:
    bad = "states: {a: {always: {target: b, guard: g}}, b: {type: final}}"
    good = """\
states:
  a: {always: b}
  b: {invoke: {id: i, src: s, onDone: c}}
  c: {entry: [{send: {event: e, delay: 1s}}], on: {e: a}}
"""

    assert ["warning 3:10"] == reported(bad, "state.no_timeout")
    assert [] == reported(good, "state.no_timeout")


def test_one_failure_state_for_two_causes_is_reported() -> None:
    """Recovery would have to find out the cause."""
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

    assert ["warning 5:3"] == reported(bad, "state.catch_all_failure")
    assert [] == reported(good, "state.catch_all_failure")


def test_a_verb_is_two_states_in_one() -> None:
    bad = "states: {order-processing: {}}"
    good = "states: {payment_pending: {}, missing: {}, outstanding: {}, incoming: {}}"

    assert ["warning 3:10"] == reported(bad, "state.verb_name")
    assert [] == reported(good, "state.verb_name")


def _list(count: int) -> str:
    return ", ".join(f"s{each}: {{}}" for each in range(count))


def test_a_flat_list_hides_a_hierarchy() -> None:
    bad = f"states: {{a: {{states: {{{_list(21)}}}}}}}"
    good = f"states: {{a: {{states: {{{_list(20)}, h: {{type: history, target: s1}}}}}}}}"

    assert ["warning 3:10"] == reported(bad, "state.too_many_children")
    assert [] == reported(good, "state.too_many_children")


def test_a_chart_of_many_states_is_several_kinds() -> None:
    assert [("warning 1:1")] == reported(f"states: {{{_list(101)}}}", "chart.too_many_states")
    assert [] == reported(f"states: {{{_list(100)}}}", "chart.too_many_states")
