"""A box laid out by itself: its size, what is inside at which place, and where lines cross its border.

Rule 1: everything in a plate is relative to the box's own corner, so that a plate can be put anywhere.
Rule 2: a title gives way to lines that enter through the header: it moves to a gap between them, or the box widens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from interlock.render.layout.ports import port_range
from interlock.render.shapes.boxes import Box
from interlock.render.shapes.geometry import Point
from interlock.render.shapes.text_metrics import (
    DOT,
    HISTORY,
    MARGIN,
    RING,
    SLANT,
    header_size,
)

PADDING = 20.0
"""Between a box's border and what is inside it."""
_BELOW_HEADER = 12.0
_TITLE_CLEARANCE = 6.0
_SHAPE_WANTED = 1.5
_SIZE_COST = 0.0004
_PAGE_WIDTH = 1_100.0


@dataclass(slots=True, kw_only=True)
class BoxLayout:
    """A laid-out box. `ports` holds, by wire, where its border is crossed: the coordinate across the flow; `rims` which
    end of the wire's piece lies there, 0 or -1.

    `bare`: nothing of the box itself is painted. `aside`: its caption stands beside it, where no line comes from.
    """

    box: Box
    width: float
    height: float
    title: float = MARGIN
    bare: bool = False
    aside: bool = False
    inside: list[tuple[float, float, BoxLayout]] = field(default_factory=list)
    pieces: dict[int, list[Point]] = field(default_factory=dict)
    labels: dict[int, Point] = field(default_factory=dict)
    ports: dict[int, float] = field(default_factory=dict)
    rims: dict[int, int] = field(default_factory=dict)

    def across(self, *, down: bool) -> float:
        """Its size across the flow."""
        return self.width if down else self.height

    def along(self, *, down: bool) -> float:
        """Its size along the flow."""
        return self.height if down else self.width


def stretched(plate: BoxLayout, *, width: float, height: float) -> BoxLayout:
    """The plate with another size: lines that end at its far borders go on to where they are now."""
    pieces = dict(plate.pieces)
    for wire, end in plate.rims.items():
        line = list(pieces[wire])
        x, y = line[end]
        line[end] = (width if x == plate.width else x, height if y == plate.height else y)
        pieces[wire] = line
    return replace(plate, width=width, height=height, pieces=pieces)


def shape_cost(plate: BoxLayout) -> float:
    """How far a plate is from the shape of a page; large ones count a little more, those wider than a page a lot."""
    shape = (plate.width + 60.0) / (plate.height + 60.0) / _SHAPE_WANTED
    wide = max(plate.width / _PAGE_WIDTH - 1.0, 0.0)
    return abs(math.log(shape)) + _SIZE_COST * math.sqrt(plate.width * plate.height) + wide


def framed(
    box: Box, content: tuple[float, float], doors: list[float], *, lead: float = 0.0
) -> tuple[BoxLayout, float, float]:
    """A plate around content of this size, and where the content begins. `doors`: where lines pass the header.

    `lead` is room kept free before the content.
    """
    if box.parent is None and box.kind == "group" and not box.notes:
        return BoxLayout(box=box, width=content[0], height=content[1], bare=True), 0.0, 0.0
    width, height = header_size(box)
    top = height + (_BELOW_HEADER if height else PADDING)
    whole = max(content[0] + 2 * PADDING, width)
    x = max((whole - content[0]) / 2, PADDING)
    title, missing = title_place(width, whole, [x + door for door in doors])
    if missing or lead:
        # The room kept free comes on top: else what asks for it would see nothing move until the title has its own.
        whole, x = whole + missing + lead, x + missing + lead
        title, _ = title_place(width, whole, [x + door for door in doors])
    return BoxLayout(box=box, width=whole, height=top + content[1] + PADDING, title=title), x, top


def title_place(width: float, whole: float, doors: list[float]) -> tuple[float, float]:
    """Where a title of this width begins, given the lines that pass the header; and by how much the box must widen.

    A box that must widen does so before its content, where the title then is.
    """
    block, start = width - MARGIN, MARGIN
    for door in sorted(doors):
        if start + block <= door - _TITLE_CLEARANCE:
            return start, 0.0
        start = max(start, door + _TITLE_CLEARANCE)
    if not doors or start + block <= whole:
        return start, 0.0
    return MARGIN, MARGIN + block + _TITLE_CLEARANCE - min(doors)


def item_range(plate: BoxLayout, *, down: bool) -> tuple[float, float]:
    """Where on a side of a box lines may end, measured from its corner."""
    across = plate.across(down=down)
    middle = across / 2
    match plate.box.kind:
        case "initial":
            return middle - DOT / 2, middle + DOT / 2
        case "history":
            return middle - HISTORY * 0.7, middle + HISTORY * 0.7
        case "final":
            middle = middle if down != plate.aside else RING
            return middle - RING * 0.7, middle + RING * 0.7
        case "choice":
            return (SLANT + 4.0, across - SLANT - 4.0) if down else (3.0, across - 3.0)
        case "fork":
            return 3.0, across - 3.0
        case _:
            return port_range(across)


def inset(plate: BoxLayout, offset: float, *, down: bool) -> float:
    """How far inside the plate's rectangle its outline is at this offset: round and slanted ones leave corners free."""
    match plate.box.kind:
        case "initial":
            return _round(DOT, offset - DOT)
        case "history":
            return _round(HISTORY, offset - HISTORY)
        case "final" if plate.aside and down:
            return plate.height / 2 - RING + _round(RING, offset - RING)
        case "final" if plate.aside:
            return _round(RING, offset - plate.height / 2)
        case "final" if down:
            return _round(RING, offset - plate.width / 2)
        case "final":
            return plate.width / 2 - RING + _round(RING, offset - RING)
        case "choice" if not down:
            return SLANT * abs(offset / (plate.height / 2) - 1.0)
        case _:
            return 0.0


def _round(radius: float, offset: float) -> float:
    return radius - math.sqrt(max(radius * radius - offset * offset, 0.0))
