"""The way of each wire through the boxes around its ends: one piece per level, a port at every border it crosses.

Rule 1: the middle piece runs in the innermost box that is or holds both ends; every box between that and an end owns
one piece more, from its border inwards or outwards.
Rule 2: on which side a border is crossed follows from the structure alone: with the flow a line enters at the start and
leaves at the end of a box, against it the other way round. Between regions of one parallel state lines leave and enter
at the end.
Rule 3: a label stands on the middle piece, except in a parallel state, whose level has no layers: there it stands on
the outermost piece in a level that has, on the source's side if it can.
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
    """A wire's part inside one box, between two of its children; None: the box's own border."""

    wire: int
    source: str | None
    target: str | None


@dataclass(slots=True, kw_only=True)
class Crossings:
    """The pieces of every level in the order of wires, the levels of each wire in order, loops, labels and sides."""

    pieces: dict[str, list[Segment]] = field(default_factory=dict)
    levels: dict[int, list[str]] = field(default_factory=dict)
    loops: dict[str, list[int]] = field(default_factory=dict)
    labelled: dict[int, str] = field(default_factory=dict)
    sides: dict[tuple[str, int], BorderSide] = field(default_factory=dict)
    counts: dict[tuple[str, BorderSide], int] = field(default_factory=dict)

    def end(self, key: str, wire: int, side: BorderSide) -> None:
        """Note that a wire ends on, or passes, this side of a box."""
        self.sides[key, wire] = side
        self.counts[key, side] = self.counts.get((key, side), 0) + 1

    def is_closed(self, tree: BoxTree, key: str) -> bool:
        """Whether nothing crosses the border of a box; it may then be drawn in either direction."""
        at_border = [each.wire for each in self.pieces.get(key, ()) if each.source is None or each.target is None]
        return all(key in (tree.wires[each].source, tree.wires[each].target) for each in at_border)

    def ends_on_a_side(self, key: str) -> int:
        """How many lines end on that side of a box where more of them do."""
        return max(self.counts.get((key, "top"), 0), self.counts.get((key, "bottom"), 0))

    def enters_at_the_end(self, key: str) -> bool:
        """Whether a line comes to a box against the flow."""
        return (key, "bottom") in self.counts


def find_crossings(tree: BoxTree) -> Crossings:
    """The ways of all wires of a tree."""
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
    """Cut one wire into pieces."""
    wire = tree.wires[number]
    container = tree.container(wire.source, wire.target)
    up = _until(tree, wire.source, container)
    down = _until(tree, wire.target, container)[::-1]
    levels = []
    for inner, outer in pairwise(up):
        found.pieces.setdefault(outer, []).append(Segment(number, inner, None))
        levels.append(outer)
    found.pieces.setdefault(container, []).append(Segment(number, up[-1] if up else None, down[0] if down else None))
    levels.append(container)
    for outer, inner in pairwise(down):
        found.pieces.setdefault(outer, []).append(Segment(number, None, inner))
        levels.append(outer)
    found.levels[number] = levels
    middle = levels.index(container)
    outwards = (*levels[middle::-1], *levels[middle + 1 :])
    found.labelled[number] = next(each for each in outwards if tree.boxes[each].kind != "parallel")


def _until(tree: BoxTree, key: str, container: str) -> list[str]:
    """The boxes from one up to, and without, the container."""
    found = []
    here: str | None = key
    while here is not None and here != container:
        found.append(here)
        here = tree.boxes[here].parent
    return found


def _choose_sides(found: Crossings, tree: BoxTree, key: str) -> None:
    """On which side of the children of a box its pieces end; the sides of its own border are known by now."""
    pieces = found.pieces.get(key, [])
    for piece in pieces:
        if (key, piece.wire) not in found.sides:
            found.sides[key, piece.wire] = "top" if piece.source is None else "bottom"
    turned = _turned(found, tree, key, pieces)
    between = tree.boxes[key].kind == "parallel"
    for piece, back in zip(pieces, turned, strict=True):
        if piece.source is not None:
            outwards: BorderSide = "bottom"
            if between and piece.target is None:
                outwards = found.sides[key, piece.wire]
            elif not between and back:
                outwards = "top"
            found.end(piece.source, piece.wire, outwards)
        if piece.target is not None:
            inwards: BorderSide = "top"
            if between:
                inwards = "bottom" if piece.source is not None else found.sides[key, piece.wire]
            elif back:
                inwards = "bottom"
            found.end(piece.target, piece.wire, inwards)


def _turned(found: Crossings, tree: BoxTree, key: str, pieces: list[Segment]) -> list[bool]:
    """Which pieces run against the flow of their level: the same question, with the same answer, as the layout asks."""
    children = tree.boxes[key].children
    numbers = {child: number for number, child in enumerate(children)}
    roles: list[str] = ["start" if tree.boxes[child].kind == "initial" else "box" for child in children]
    links = []
    for piece in pieces:
        ends = []
        for end in (piece.source, piece.target):
            if end is None:
                ends.append(len(roles))
                roles.append(found.sides[key, piece.wire])
            else:
                ends.append(numbers[end])
        links.append((ends[0], ends[1]))
    return against(roles, links)
