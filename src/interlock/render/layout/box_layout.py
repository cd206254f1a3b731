"""The layout of one box: its size, its content, where lines cross its border, and the lanes next to its content.

Rule 1: coordinates are relative to the corner of the box, so that a layout can be placed anywhere.
Rule 2: a title makes room for lines that enter through the header: it moves to a gap between them, or the box widens.
Rule 3: a box whose flow runs across the flow around it has lanes next to its content. A line enters the box where the
        flow around it requires, follows its lane past the content, and turns into the flow inside. Lines that turn
        earlier have the lanes nearer to the content, so that they do not cross.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from interlock.render.layout.crossings import BorderSide
from interlock.render.layout.level import PORT_GAP
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
"""Between the border of a box and its content."""
_BELOW_HEADER = 12.0
_TITLE_CLEARANCE = 6.0
_SHAPE_WANTED = 1.5
_SIZE_COST = 0.0004
_PAGE_WIDTH = 1_100.0
_NEAREST_LANE = 14.0
_FARTHEST_LANE = 2.0

CrossingPoint = tuple[BorderSide, float]
"""The side on which a line crosses a border, and the coordinate across the flow inside."""


@dataclass(slots=True, kw_only=True)
class BoxLayout:
    """The layout of a box.

    `ports` are the coordinates, across the flow, at which wires cross the border; `border_ends` say which end of the
    wire's segment lies there, 0 or -1. `bare`: the box itself is not painted. `aside`: its caption is next to it.
    """

    box: Box
    width: float
    height: float
    title: float = MARGIN
    bare: bool = False
    aside: bool = False
    inside: list[tuple[float, float, BoxLayout]] = field(default_factory=list)
    segments: dict[int, list[Point]] = field(default_factory=dict)
    labels: dict[int, Point] = field(default_factory=dict)
    ports: dict[int, float] = field(default_factory=dict)
    border_ends: dict[int, int] = field(default_factory=dict)

    def across(self, *, down: bool) -> float:
        """Return its size across the flow."""
        return self.width if down else self.height

    def along(self, *, down: bool) -> float:
        """Return its size along the flow."""
        return self.height if down else self.width


def stretch_box(layout: BoxLayout, *, width: float, height: float) -> BoxLayout:
    """Return a layout with another size. Lines that end at its far borders are extended."""
    segments = dict(layout.segments)
    for wire, end in layout.border_ends.items():
        line = list(segments[wire])
        x, y = line[end]
        line[end] = (width if x == layout.width else x, height if y == layout.height else y)
        segments[wire] = line
    return replace(layout, width=width, height=height, segments=segments)


def shape_cost(layout: BoxLayout) -> float:
    """Return how far a layout is from the shape of a page. Large ones cost more, those wider than a page most."""
    shape = (layout.width + 60.0) / (layout.height + 60.0) / _SHAPE_WANTED
    wide = max(layout.width / _PAGE_WIDTH - 1.0, 0.0)
    return abs(math.log(shape)) + _SIZE_COST * math.sqrt(layout.width * layout.height) + wide


def frame_content(
    box: Box, content: tuple[float, float], crossing_points: list[float], *, lead: float = 0.0
) -> tuple[BoxLayout, float, float]:
    """Return a layout around content of this size, and where the content starts.

    `crossing_points` are where lines pass the header. `lead` is room kept free before the content.
    """
    if box.parent is None and box.kind == "group" and not box.notes:
        return BoxLayout(box=box, width=content[0], height=content[1], bare=True), 0.0, 0.0
    width, height = header_size(box)
    top = height + (_BELOW_HEADER if height else PADDING)
    whole = max(content[0] + 2 * PADDING, width)
    x = max((whole - content[0]) / 2, PADDING)
    title, missing = place_title(width, whole, [x + point for point in crossing_points])
    if missing or lead:
        # `lead` is added to what the title needs. Otherwise a caller that asks for more room could see no effect.
        whole, x = whole + missing + lead, x + missing + lead
        title, _ = place_title(width, whole, [x + point for point in crossing_points])
    return BoxLayout(box=box, width=whole, height=top + content[1] + PADDING, title=title), x, top


def place_title(width: float, whole: float, crossing_points: list[float]) -> tuple[float, float]:
    """Return where a title of this width starts, given the lines that pass the header, and by how much the box widens.

    The box widens before its content, where the title then is.
    """
    block, start = width - MARGIN, MARGIN
    for point in sorted(crossing_points):
        if start + block <= point - _TITLE_CLEARANCE:
            return start, 0.0
        start = max(start, point + _TITLE_CLEARANCE)
    if not crossing_points or start + block <= whole:
        return start, 0.0
    return MARGIN, MARGIN + block + _TITLE_CLEARANCE - min(crossing_points)


def item_port_range(layout: BoxLayout, *, down: bool) -> tuple[float, float]:
    """Return the part of a side on which lines may end, measured from the corner."""
    across = layout.across(down=down)
    middle = across / 2
    match layout.box.kind:
        case "initial":
            return middle - DOT / 2, middle + DOT / 2
        case "history":
            return middle - HISTORY * 0.7, middle + HISTORY * 0.7
        case "final":
            middle = middle if down != layout.aside else RING
            return middle - RING * 0.7, middle + RING * 0.7
        case "choice":
            return (SLANT + 4.0, across - SLANT - 4.0) if down else (3.0, across - 3.0)
        case "fork":
            return 3.0, across - 3.0
        case _:
            return port_range(across)


def inset(layout: BoxLayout, offset: float, *, down: bool) -> float:
    """Return how far inside its rectangle the outline of a box is at this offset, if it is round or slanted."""
    match layout.box.kind:
        case "initial":
            return _round(DOT, offset - DOT)
        case "history":
            return _round(HISTORY, offset - HISTORY)
        case "final" if layout.aside and down:
            return layout.height / 2 - RING + _round(RING, offset - RING)
        case "final" if layout.aside:
            return _round(RING, offset - layout.height / 2)
        case "final" if down:
            return _round(RING, offset - layout.width / 2)
        case "final":
            return layout.width / 2 - RING + _round(RING, offset - RING)
        case "choice" if not down:
            return SLANT * abs(offset / (layout.height / 2) - 1.0)
        case _:
            return 0.0


def _round(radius: float, offset: float) -> float:
    return radius - math.sqrt(max(radius * radius - offset * offset, 0.0))


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of each wire, and the room for lanes before and after the content."""

    places: dict[int, float]
    before: float
    after: float


def make_lanes(crossing_points: dict[int, CrossingPoint], along: float) -> Lanes:
    """Return the lanes for these crossing points, next to content of this length along its flow."""
    first = sorted((u, wire) for wire, (side, u) in crossing_points.items() if side == "top")
    last = sorted(((u, wire) for wire, (side, u) in crossing_points.items() if side == "bottom"), reverse=True)
    before = _NEAREST_LANE + (len(first) - 1) * PORT_GAP + _FARTHEST_LANE if first else 0.0
    after = _NEAREST_LANE + (len(last) - 1) * PORT_GAP + _FARTHEST_LANE if last else 0.0
    places = {wire: before - _NEAREST_LANE - number * PORT_GAP for number, (_, wire) in enumerate(first)}
    places |= {wire: before + along + _NEAREST_LANE + number * PORT_GAP for number, (_, wire) in enumerate(last)}
    return Lanes(places, before, after)
