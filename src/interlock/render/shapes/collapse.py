"""Closed boxes: their states are counted, not drawn, and wires to them end at the box.

Rule 1: in a chart with too many states, boxes are closed automatically, the deepest level first.
Rule 2: wires inside a closed box are dropped. Wires across its border are kept and merged.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.render.shapes.boxes import Box, BoxTree, drop_undrawable_wires, merge_wires

STATES_SHOWN_MAX = 60
"""States in one picture, unless the caller gives a depth: more are not readable."""


def collapse_boxes(tree: BoxTree, *, depth: int | None = None, states: frozenset[str] = frozenset()) -> BoxTree:
    """Return the tree with closed boxes: the boxes of these states, and those `depth` levels below the root.

    Without a depth as many levels are drawn as the states shown allow.
    """
    shut = [key for key, box in tree.boxes.items() if box.state in states and _holds(box) and box.parent is not None]
    tree = _shut(tree, shut)
    if depth is not None:
        return _shut(tree, _at(tree, max(depth, 1)))
    while _shown(tree) > STATES_SHOWN_MAX:
        deepest = max((_depth(tree, key) for key, box in tree.boxes.items() if _holds(box)), default=0)
        if deepest < 1:
            break
        tree = _shut(tree, _at(tree, deepest))
    return tree


def _holds(box: Box) -> bool:
    return box.kind in ("group", "parallel")


def _depth(tree: BoxTree, key: str) -> int:
    return sum(1 for each in tree.above(key) if tree.boxes[each].kind != "niche")


def _at(tree: BoxTree, depth: int) -> list[str]:
    return [key for key, box in tree.boxes.items() if _holds(box) and _depth(tree, key) == depth]


def _shown(tree: BoxTree) -> int:
    return sum(1 for box in tree.boxes.values() if box.state is not None) - 1


def _shut(tree: BoxTree, keys: list[str]) -> BoxTree:
    if not keys:
        return tree
    chosen = set(keys)
    lifted: dict[str, str] = {}
    for key in tree.boxes:
        around = [each for each in (*tree.above(key),) if each in chosen]
        lifted[key] = around[-1] if around else key
    boxes: dict[str, Box] = {}
    for key, box in tree.boxes.items():
        if lifted[key] != key:
            continue
        if key in chosen:
            inside = [tree.boxes[each] for each, to in lifted.items() if to == key != each]
            count = sum(1 + each.hidden for each in inside if each.state is not None)
            boxes[key] = replace(box, kind="state", children=(), hidden=count)
        else:
            boxes[key] = box
    wires = [
        replace(wire, source=lifted[wire.source], target=lifted[wire.target])
        for wire in tree.wires
        if lifted[wire.source] != lifted[wire.target] or wire.source == wire.target == lifted[wire.source]
    ]
    return drop_undrawable_wires(replace(tree, boxes=boxes, wires=merge_wires(wires)))
