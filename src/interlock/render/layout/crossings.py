"""Which borders each wire crosses: one segment per level, and a port at every border.

Rule 1: the middle segment runs in the innermost box that is or contains both ends. Every box between that one and an
        end has one more segment, from its border inwards or outwards.
Rule 2: the side on which a border is crossed follows from the structure alone. With the flow, a line enters at the
        start of a box and leaves at its end; against the flow, the other way round. Between regions of one parallel
        state, lines leave and enter at the end.
Rule 3: a label is on the middle segment. The level of a parallel state has no layers; there the label is on the
        outermost segment in a level that has, on the source's side if possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from interlock.render.layout.layering import against
from interlock.render.shapes.boxes import BoxTree

BorderSide = Literal["top", "bottom"]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a wire inside one box, between two of its children. None is the border of the box."""

    wire: int
    source: str | None
    target: str | None


@dataclass(slots=True, kw_only=True)
class Crossings:
    """The segments of every level in the order of wires, the levels of each wire, self-loops, labels and sides."""

    segments: dict[str, list[Segment]] = field(default_factory=dict)
    levels: dict[int, list[str]] = field(default_factory=dict)
    loops: dict[str, list[int]] = field(default_factory=dict)
    labelled: dict[int, str] = field(default_factory=dict)
    sides: dict[tuple[str, int], BorderSide] = field(default_factory=dict)
    counts: dict[tuple[str, BorderSide], int] = field(default_factory=dict)

    def end(self, key: str, wire: int, side: BorderSide) -> None:
        """Record that a wire ends on, or passes, this side of a box."""
        self.sides[key, wire] = side
        self.counts[key, side] = self.counts.get((key, side), 0) + 1

    def is_closed(self, tree: BoxTree, key: str) -> bool:
        """Return whether no line crosses the border of a box. It can then be drawn in either direction."""
        at_border = [each.wire for each in self.segments.get(key, ()) if each.source is None or each.target is None]
        return all(key in (tree.wires[each].source, tree.wires[each].target) for each in at_border)

    def ends_on_a_side(self, key: str) -> int:
        """Return the number of lines on the side of a box that has more of them."""
        return max(self.counts.get((key, "top"), 0), self.counts.get((key, "bottom"), 0))

    def enters_at_the_end(self, key: str) -> bool:
        """Return whether a line reaches a box against the flow."""
        return (key, "bottom") in self.counts


def find_crossings(tree: BoxTree) -> Crossings:
    """Return the crossings of all wires of a tree."""
    found = Crossings()
    for number, wire in enumerate(tree.wires):
        if wire.source == wire.target:
            found.loops.setdefault(wire.source, []).append(number)
        else:
            _add(found, tree, number)
    for key, box in tree.boxes.items():
        if box.children:
            _choose_sides(found, tree, key)
    return found


def _add(found: Crossings, tree: BoxTree, number: int) -> None:
    """Divide one wire into segments."""
    wire = tree.wires[number]
    container = tree.container(wire.source, wire.target)
    up = _until(tree, wire.source, container)
    down = _until(tree, wire.target, container)[::-1]
    levels = []
    for inner, outer in pairwise(up):
        found.segments.setdefault(outer, []).append(Segment(number, inner, None))
        levels.append(outer)
    found.segments.setdefault(container, []).append(Segment(number, up[-1] if up else None, down[0] if down else None))
    levels.append(container)
    for outer, inner in pairwise(down):
        found.segments.setdefault(outer, []).append(Segment(number, None, inner))
        levels.append(outer)
    found.levels[number] = levels
    middle = levels.index(container)
    outwards = (*levels[middle::-1], *levels[middle + 1 :])
    found.labelled[number] = next(each for each in outwards if tree.boxes[each].kind != "parallel")


def _until(tree: BoxTree, key: str, container: str) -> list[str]:
    """Return the boxes from one up to the container, without the container."""
    found = []
    here: str | None = key
    while here is not None and here != container:
        found.append(here)
        here = tree.boxes[here].parent
    return found


def _choose_sides(found: Crossings, tree: BoxTree, key: str) -> None:
    """Choose the sides of a box's children on which its segments end. The sides of its own border are known."""
    segments = found.segments.get(key, [])
    for segment in segments:
        if (key, segment.wire) not in found.sides:
            found.sides[key, segment.wire] = "top" if segment.source is None else "bottom"
    turned = _turned(found, tree, key, segments)
    between = tree.boxes[key].kind == "parallel"
    for segment, back in zip(segments, turned, strict=True):
        if segment.source is not None:
            outwards: BorderSide = "bottom"
            if between and segment.target is None:
                outwards = found.sides[key, segment.wire]
            elif not between and back:
                outwards = "top"
            found.end(segment.source, segment.wire, outwards)
        if segment.target is not None:
            inwards: BorderSide = "top"
            if between:
                inwards = "bottom" if segment.source is not None else found.sides[key, segment.wire]
            elif back:
                inwards = "bottom"
            found.end(segment.target, segment.wire, inwards)


def _turned(found: Crossings, tree: BoxTree, key: str, segments: list[Segment]) -> list[bool]:
    """Return which segments run against the flow of their level, as the layout decides it."""
    children = tree.boxes[key].children
    numbers = {child: number for number, child in enumerate(children)}
    roles: list[str] = ["start" if tree.boxes[child].kind == "initial" else "box" for child in children]
    links = []
    for segment in segments:
        ends = []
        for end in (segment.source, segment.target):
            if end is None:
                ends.append(len(roles))
                roles.append(found.sides[key, segment.wire])
            else:
                ends.append(numbers[end])
        links.append((ends[0], ends[1]))
    return against(roles, links)
