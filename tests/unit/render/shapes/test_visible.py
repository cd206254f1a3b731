"""The drawing of a chart without its hidden states."""

from __future__ import annotations

import pytest

import interlock
from interlock.errors import UsageError
from interlock.render.drawing import Options, draw_svg, draw_visible_svg, lay_out
from interlock.render.layout.invariants import broken_rules
from interlock.render.shapes.boxes import make_box_tree
from interlock.render.shapes.visible import make_visible_tree
from tests.support.accounts import account

CASE = interlock.loads("""
interlock: 1
kind: case
initial: open
states:
  open:
    initial: fresh
    on:
      seized: secret
      touched: {actions: [{raise: {event: touched}}]}
    states:
      fresh: {on: {moved: [{guard: "= context.x == 1", target: known}, {target: secret}]}}
      known: {on: {spread: {target: ["#noted", "#watched"]}, both: {target: ["#noted", "#calm"]}}}
  wrapper:
    initial: within
    states:
      within: {sensitive: true, on: {freed: open}}
  working:
    type: parallel
    states:
      left: {initial: noted, states: {noted: {id: noted}}}
      right: {initial: calm, states: {calm: {id: calm}, watched: {id: watched, sensitive: true}}}
    on: {done: closed}
  twin: {type: parallel, states: {one: {}, two: {sensitive: true}}}
  secret:
    sensitive: true
    initial: inner
    on: {freed: open, closed: closed}
    states: {inner: {}}
  closed: {type: final}
context: {x: {type: integer, default: 0}}
""").chart


def test_hidden_states_and_what_leads_there_are_not_drawn() -> None:
    tree, whole = make_visible_tree(CASE), make_box_tree(CASE)
    assert CASE.hidden is not None
    left = {key for key, box in whole.boxes.items() if box.state in CASE.hidden.states}

    assert set() == left & set(tree.boxes)
    assert {box.state for box in tree.boxes.values() if box.state} == {
        each.id for each in CASE.states[1:] if each.id not in CASE.hidden.states
    }
    ends = {each for wire in tree.wires for each in (wire.source, wire.target)}
    assert ends <= set(tree.boxes)
    assert {each for box in tree.boxes.values() for each in box.children} <= set(tree.boxes)
    texts = [label.text for wire in tree.wires for label in wire.labels]
    notes = [note.text for box in tree.boxes.values() for note in box.notes]
    assert not any(word in each for each in [*texts, *notes] for word in ("seized", "freed", "spread"))
    assert any("both" in each for each in texts)
    assert ["f/s/open.known/1"] == [key for key, box in tree.boxes.items() if box.kind == "fork"]
    assert "i/wrapper" not in tree.boxes
    assert [] == list(broken_rules(lay_out(tree)))


def test_a_state_whose_children_are_all_hidden_is_drawn_as_a_plain_state() -> None:
    kinds = {box.state: box.kind for box in make_visible_tree(CASE).boxes.values() if box.state}

    assert ("state", "group", "parallel") == (kinds["wrapper"], kinds["open"], kinds["working"])


def test_a_chart_without_hidden_states_is_drawn_whole() -> None:
    plain = interlock.loads("{interlock: 1, kind: lamp, initial: off, states: {off: {on: {flip: lit}}, lit: {}}}").chart

    assert draw_svg(plain) == draw_visible_svg(plain)


def test_a_hidden_state_in_the_options_is_unknown() -> None:
    chart = account().chart
    shown = draw_visible_svg(chart, Options(active=frozenset({"active"})))

    assert "frozen" not in shown.svg
    with pytest.raises(UsageError, match="frozen"):
        draw_visible_svg(chart, Options(active=frozenset({"frozen"})))
