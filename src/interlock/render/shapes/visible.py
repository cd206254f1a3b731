"""The box tree of a chart without its hidden states: what readers see who may not see them.

Rule 1: a hidden state is dropped with everything inside it, and with every transition that may enter it or leaves it.
Rule 2: what is left keeps its keys and ids, so that colours and badges fit both drawings.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.model.charts.chart import Chart
from interlock.render.shapes.boxes import Box, BoxTree, make_box_tree


def make_visible_tree(chart: Chart) -> BoxTree:
    """Return the boxes and wires of a chart that are not of its hidden states."""
    tree = make_box_tree(chart)
    if chart.hidden is None:
        return tree
    crossing = {
        (state.id, ordinal)
        for state in chart.states
        for ordinal, number in enumerate(state.transitions)
        if number in chart.hidden.entering or state.id in chart.hidden.states
    }
    dropped = _dropped(tree, chart.hidden.states, crossing)
    boxes = {key: _without(tree, box, dropped, crossing) for key, box in tree.boxes.items() if key not in dropped}
    wires = []
    for wire in tree.wires:
        labels = tuple(each for each in wire.labels if each.id not in crossing)
        if not {wire.source, wire.target} & dropped and (labels or not wire.labels):
            wires.append(replace(wire, labels=labels))
    return replace(tree, boxes=boxes, wires=tuple(wires))


def _dropped(tree: BoxTree, states: frozenset[str], crossing: set[tuple[str, int]]) -> set[str]:
    """Return the keys of boxes in hidden states, of niches with nothing else inside, and of bars and dots before them.

    `crossing` are the transitions that may enter a hidden state, or leave one.
    """
    found = {
        key
        for key, box in tree.boxes.items()
        if any(tree.boxes[each].state in states for each in (key, *tree.above(key)) if tree.boxes[each].state)
        or (box.kind == "niche" and all(tree.boxes[each].state in states for each in box.children))
    }
    for wire in tree.wires:
        if tree.boxes[wire.target].kind == "fork" and any(each.id in crossing for each in wire.labels):
            found.add(wire.target)
        if tree.boxes[wire.source].kind == "initial" and wire.target in found:
            found.add(wire.source)
    return found


def _without(tree: BoxTree, box: Box, dropped: set[str], crossing: set[tuple[str, int]]) -> Box:
    children = tuple(each for each in box.children if each not in dropped)
    notes = tuple(each for each in box.notes if each.id not in crossing)
    holds = any(tree.boxes[each].state is not None or tree.boxes[each].kind == "niche" for each in children)
    kind = "state" if box.kind in ("group", "parallel") and not holds else box.kind
    return replace(box, kind=kind, children=children, notes=notes)
