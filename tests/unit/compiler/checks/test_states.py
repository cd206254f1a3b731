"""What each type of state must have, may have and must not have."""

from dataclasses import replace
from typing import Literal

import pytest

from interlock.model.document.actions import Log
from interlock.model.document.document import Document, Initial, Invoke, State, Transition
from tests.unit.compiler.findings import errors, told


def test_a_chart_needs_a_state_that_can_be_active() -> None:
    """A root whose only child is a history can never be anywhere."""
    bad = "states: {h: {type: history, target: h}}"
    good = "states: {a: {}}"

    assert [
        "error 1:1 the chart has no states; write at least one under `states`",
    ] == told(bad, "chart.no_states")
    assert [] == told(good, "chart.no_states")


def test_a_compound_state_of_histories_cannot_begin() -> None:
    """A history is no state to begin in."""
    bad = "states: {a: {states: {h: {type: history, target: h}}}}"
    good = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"

    assert [
        ('error 3:10 "a" has only history states: it cannot begin anywhere; give it a child that can be active'),
    ] == told(bad, "state.no_initial")
    assert [] == told(good, "state.no_initial")


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

    assert [
        'error 4:16 "a" cannot begin in "b", which is not inside it; name one of its descendants',
    ] == told(bad, "initial.outside")
    assert [] == told(good, "initial.outside")


def test_an_atomic_state_has_no_initial() -> None:
    """There is nothing to begin in."""
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

    assert [
        'error 4:16 "a" cannot have `initial`: it has no children to begin in; take it out',
    ] == told(bad, "initial.misplaced")
    assert [] == told(good, "initial.misplaced")


def test_a_final_state_has_no_transitions() -> None:
    """Nothing happens in a final state."""
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

    assert [
        'error 5:28 the final state "b" cannot have transitions; take that out',
    ] == told(bad, "final.content")
    assert [] == told(good, "final.content")


def test_a_final_state_is_no_region() -> None:
    """A region that is final from the start would never run."""
    bad = "states: {p: {type: parallel, states: {a: {}, f: {type: final}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, r: {states: {f: {type: final}}}}}}"

    assert [
        'error 3:46 the final state "p.f" cannot be a region of "p"; put it inside a region',
    ] == told(bad, "final.region")
    assert [] == told(good, "final.region")


def test_a_history_says_where_it_leads_first() -> None:
    """Before its parent was left once, a history has recorded nothing."""
    bad = "states: {a: {states: {b: {}, h: {type: history}}}}"
    good = "states: {a: {states: {b: {}, h: {type: history, target: b}}}}"

    assert [
        ('error 3:30 the history "a.h" does not say where it leads before anything was recorded; write `target`'),
    ] == told(bad, "history.no_default")
    assert [] == told(good, "history.no_default")


def test_a_history_stays_inside_its_parent() -> None:
    """A history restores its parent, so its default lies there, too."""
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

    assert [
        'error 4:23 the history "a.h" cannot lead to "c", outside its parent; name a descendant of "a"',
    ] == told(bad, "history.outside")
    assert [] == told(good, "history.outside")


def test_histories_do_not_lead_back_to_themselves() -> None:
    """Following the defaults must end in a state."""
    bad = """\
states: {a: {states: {b: {initial: h, states: {c: {}, h: {type: history, target: '#a.g'}}},
    g: {type: history, target: b}}}}
"""
    good = """\
states: {a: {states: {b: {initial: h, states: {c: {}, h: {type: history, target: c}}},
    g: {type: history, target: b}}}}
"""

    assert [
        'error 3:55 the history "a.b.h" leads back to itself; name a state that is no history',
        'error 4:5 the history "a.g" leads back to itself; name a state that is no history',
    ] == told(bad, "history.cycle")
    assert [] == told(good, "history.cycle")


def test_a_parallel_state_needs_regions() -> None:
    """Without a region no atomic state would be active."""
    bad = "states: {p: {type: parallel, states: {h: {type: history, target: h}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, b: {}}}}"

    assert [
        'error 3:10 the parallel state "p" has no regions; give it two or more states',
    ] == told(bad, "parallel.no_region")
    assert [] == told(good, "parallel.no_region")


def test_one_region_is_no_parallel_state() -> None:
    """A parallel state with one region is a compound state in disguise."""
    bad = "states: {p: {type: parallel, states: {a: {}}}}"
    good = "states: {p: {type: parallel, states: {a: {}, b: {}}}}"

    assert [
        ('warning 3:10 the parallel state "p" has one region only; take `type: parallel` out, or add a region'),
    ] == told(bad, "parallel.one_region")
    assert [] == told(good, "parallel.one_region")


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

    assert [
        'error 4:15 "a" can never be done, so its `onDone` is never taken; give it a final child',
    ] == told(bad, "done.never")
    assert [] == told(good, "done.never")


def test_a_parallel_state_is_done_when_each_region_can_be() -> None:
    """One region that cannot end keeps the whole from being done."""
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

    assert [
        'error 4:31 "p" can never be done, so its `onDone` is never taken; give each region a final child',
    ] == told(bad, "done.never")
    assert [] == told(good, "done.never")


def test_a_long_path_needs_a_short_id() -> None:
    """Ids are keys of rows and labels of metrics, so they are bounded."""
    bad = f"states: {{{'a' * 200}: {{states: {{{'b' * 200}: {{}}}}}}}}"
    good = f"states: {{{'a' * 200}: {{states: {{{'b' * 200}: {{id: b}}}}}}}}"

    assert [
        f'error 3:222 the id "{"a" * 40}..." has more than 256 bytes; give the state a short `id`',
    ] == told(bad, "state.id_length")
    assert [] == told(good, "state.id_length")


def test_a_state_key_is_letters_digits_underscore_and_hyphen() -> None:
    """V6: what else a document brings is an error in our own dialect, and left alone in others."""
    document = Document(kind="test", root=State(states=(State(key="a b"),)))

    assert ['error 1:1 "a b" cannot be the key of a state; use letters, digits, _ and -'] == told(document, "state.key")
    assert [] == told(replace(document, dialect="scxml"), "state.key")


def test_siblings_have_different_keys() -> None:
    """A target could not tell them apart."""
    document = Document(kind="test", root=State(states=(State(key="a"), State(key="a", id="b"))))

    assert ['error 1:1 the root has two states with the key "a"; rename one of them'] == told(
        document, "state.duplicate_key"
    )


@pytest.mark.parametrize("type", ["final", "history"])
def test_the_root_is_a_state_or_parallel(type: Literal["final", "history"]) -> None:
    """Nothing could ever happen in another root."""
    document = Document(kind="test", root=State(type=type, targets=("a",), states=(State(key="a"),)))

    assert [f"error 1:1 the root cannot be a {type} state"] == told(document, "chart.root")


def test_a_parallel_root_is_a_root() -> None:
    """Its regions are the children; two of them are no lint, none is no chart."""
    regions = (State(key="a"), State(key="b"))

    assert [] == errors(Document(kind="test", root=State(type="parallel", states=regions)))
    assert ["chart.no_states"] == errors(Document(kind="test", root=State(type="parallel")))


def test_a_parallel_state_has_no_initial() -> None:
    """All its regions begin."""
    regions = (State(key="a"), State(key="b"))
    parallel = State(key="p", type="parallel", initial=Initial(targets=("a",)), states=regions)
    document = Document(kind="test", root=State(states=(parallel,)))

    assert ['error 1:1 "p" cannot have `initial`: all its regions begin; take it out'] == told(
        document, "initial.misplaced"
    )
    assert ['warning 1:1 "p" cannot have `initial`: all its regions begin; take it out'] == told(
        replace(document, dialect="xstate"), "initial.misplaced"
    )


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
        'error 1:1 the final state "x" cannot have an invoke; take that out',
        'error 1:1 the final state "x" cannot have states; take that out',
        'error 1:1 the final state "x" cannot have transitions; take that out',
    ] == sorted(told(Document(kind="test", root=State(states=(State(key="a"), final))), "final.content"))
    assert [
        'error 1:1 the history "x" cannot have an invoke; take that out',
        'error 1:1 the history "x" cannot have entry or exit actions; take that out',
        'error 1:1 the history "x" cannot have states; take that out',
        'error 1:1 the history "x" cannot have transitions; take that out',
    ] == sorted(told(Document(kind="test", root=State(states=(State(key="a"), history))), "history.content"))


def test_an_unknown_default_of_a_history_is_told_once() -> None:
    """The unknown name is the error, not the missing default."""
    text = "states: {a: {states: {b: {}, h: {type: history, target: c}}}}"

    assert ["target.unknown"] == errors(text)


def test_an_unknown_initial_is_told_once() -> None:
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
    assert [] == told(document, "done.never")
    assert ["final.region"] == errors(replace(document, dialect="scxml"))


def test_a_history_may_lead_to_a_parallel_state() -> None:
    """Its regions are followed, too, in the search for a circle."""
    text = """\
states:
  a:
    states:
      p: {type: parallel, states: {r: {initial: k, states: {s: {}, k: {type: history, target: s}}}, q: {}}}
      h: {type: history, target: p}
"""

    assert [] == errors(text)
