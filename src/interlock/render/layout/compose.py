"""Compose a picture from a box tree: inner boxes first, each level laid out separately.

Rule 1: a box whose border no line crosses is laid out in both directions, and the better shape is used. Any other box
        has the direction of the box around it, unless its shape is much better the other way.
Rule 2: the level inside a box decides where a line crosses its border. The level outside starts from there, so that
        both segments meet in one point.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from interlock.render.layout.box_layout import (
    BoxLayout,
    CrossingPoint,
    Lanes,
    frame_content,
    inset,
    item_port_range,
    make_lanes,
    shape_cost,
    stretch_box,
)
from interlock.render.layout.crossings import Segment, find_crossings
from interlock.render.layout.level import CORNER, LINE_GAP, LINE_HALF, PORT_GAP, Budget, Item, LevelLayout, Link
from interlock.render.layout.ports import side_room
from interlock.render.layout.regions import lay_out_regions
from interlock.render.layout.routing import route_level
from interlock.render.layout.self_loops import SelfLoop, make_self_loops
from interlock.render.shapes.boxes import Box, BoxTree
from interlock.render.shapes.geometry import Area, Frame, Path, Picture, Point
from interlock.render.shapes.text_metrics import LINE_HEIGHT, badge_room, box_size, label_lines

CANVAS = 16.0
"""Margin around the picture."""
_BESIDE = 6.0
"""Between a line and its label."""
_ALIGNED = 0.1
_TURN_COST, _LANE_COST = 0.3, 0.05
"""How much better the shape of a turned box must be: in any case, and for each line that bends."""
_ROOM_MAX = 180.0
"""The longest side of a box that grows only to keep lines straight."""


def compose_picture(tree: BoxTree, budget: Budget) -> Picture:
    """Return the picture of a tree. Raises WorkSpentError when its layout takes more work than allowed."""
    composer = Composer(tree, budget)
    root = composer.box_layout(tree.root.key, down=True)
    frames: list[Frame] = []
    segments: dict[tuple[str, int], list[Point]] = {}
    labels: dict[int, Point] = {}
    stack = [(CANVAS, CANVAS, root)]
    while stack:
        x, y, layout = stack.pop()
        area = Area(x=x, y=y, width=layout.width, height=layout.height)
        frames.append(Frame(box=layout.box, area=area, title=layout.title, bare=layout.bare, aside=layout.aside))
        for wire, points in layout.segments.items():
            segments[layout.box.key, wire] = [(x + px, y + py) for px, py in points]
        for wire, (px, py) in layout.labels.items():
            labels[wire] = (x + px, y + py)
        stack += [(x + dx, y + dy, inner) for dx, dy, inner in reversed(layout.inside)]
    return Picture(
        tree=tree,
        width=root.width + 2 * CANVAS,
        height=root.height + 2 * CANVAS,
        frames=tuple(frames),
        paths=tuple(composer.path(number, segments, labels) for number in range(len(tree.wires))),
    )


class Composer:
    """Lays out the boxes of one tree."""

    def __init__(self, tree: BoxTree, budget: Budget) -> None:
        self.tree = tree
        self.budget = budget
        self.crossings = find_crossings(tree)
        self.lines = [label_lines(wire.labels) for wire in tree.wires]
        self.sizes = [
            (max((line.width for line in lines), default=0.0), LINE_HEIGHT * len(lines)) for lines in self.lines
        ]
        self._cache: dict[tuple[str, bool], BoxLayout] = {}

    def path(self, number: int, segments: dict[tuple[str, int], list[Point]], labels: dict[int, Point]) -> Path:
        """Return the path of a wire, with its segments joined."""
        wire = self.tree.wires[number]
        levels = self.crossings.levels.get(number) or [self.tree.boxes[wire.source].parent or ""]
        points = join_points([point for level in levels for point in segments[level, number]])
        area = None
        if number in labels:
            (x, y), (width, height) = labels[number], self.sizes[number]
            area = Area(x=x, y=y, width=width, height=height)
        return Path(wire=wire, points=points, lines=self.lines[number], label=area)

    def box_layout(self, key: str, *, down: bool) -> BoxLayout:
        """Return the layout of a box in a direction; in the better one if no line crosses its border."""
        box = self.tree.boxes[key]
        if not box.children:
            # The caption of a final state is on the side where no line arrives.
            aside = box.kind == "final" and self.crossings.enters_at_the_end(key) == down
            width, height = box_size(box, across=down, aside=aside)
            if box.kind in ("state", "choice", "fork"):
                room = max(side_room(self.crossings.ends_on_a_side(key)), self._room_between(key, down=down))
                width, height = (max(width, room), height) if down else (width, max(height, room))
            return BoxLayout(box=box, width=width, height=height, aside=aside)
        closed = self.crossings.is_closed(self.tree, key)
        found = self._cache.get((key, closed or down))
        if found is None:
            found = self._closed(key) if closed else self._open(key, down=down)
            self._cache[key, closed or down] = found
        return found

    def _closed(self, key: str) -> BoxLayout:
        """Return the layout of a box that no line leaves, in the better direction."""
        return min(self.filled(key, down=True), self.filled(key, down=False), key=shape_cost)

    def _open(self, key: str, *, down: bool) -> BoxLayout:
        """Return the layout of a box that lines enter or leave. It is turned only if that is much better."""
        straight = self.filled(key, down=down)
        if self.tree.boxes[key].kind != "group":
            return straight
        turned = self.group(key, down=down, lead=0.0, turned=True)
        cost = _TURN_COST + _LANE_COST * len(turned.ports)
        return turned if shape_cost(turned) + cost < shape_cost(straight) else straight

    def _room_between(self, key: str, *, down: bool) -> float:
        """Return the length of a side with which lines between this box and another, and their labels, run straight."""
        level = self.tree.boxes[key].parent or ""
        others: dict[str, list[int]] = {}
        for segment in self.crossings.segments.get(level, ()):
            if key in (segment.source, segment.target) and None not in (segment.source, segment.target):
                other = segment.target if segment.source == key else segment.source
                others.setdefault(other or "", []).append(segment.wire)
        best = 0.0
        for wires in others.values():
            extents = [self._extent(level, wire, down=down) or (LINE_HALF, LINE_HALF, 0.0) for wire in wires]
            steps = [one[1] + LINE_GAP + other[0] for one, other in pairwise(extents)]
            rest = max(self.crossings.ends_on_a_side(key) - len(wires), 0) * PORT_GAP
            best = max(best, 2 * CORNER + fsum(steps) + rest) if steps else best
        return min(best, _ROOM_MAX)

    def filled(self, key: str, *, down: bool, lead: float = 0.0) -> BoxLayout:
        """Return the layout of a box with children, in this direction."""
        if self.tree.boxes[key].kind != "parallel":
            return self.group(key, down=down, lead=lead)
        return lay_out_regions(
            self.tree.boxes[key],
            self.crossings,
            lambda region, room: self._region(region, room, down=down),
            down=down,
            lead=lead,
        )

    def _region(self, key: str, lead: float, *, down: bool) -> BoxLayout:
        """Return the layout of a region, with room kept free before its content."""
        layout = self.box_layout(key, down=down)
        if not lead:
            return layout
        if not self.tree.boxes[key].children:
            return stretch_box(layout, width=layout.width + lead, height=layout.height)
        return self.filled(key, down=down, lead=lead)

    def group(self, key: str, *, down: bool, lead: float, turned: bool = False) -> BoxLayout:
        """Return the layout of a compound state, a region or the root: its children in layers.

        If `turned`, its flow runs across the flow around it. Lines then reach its border through lanes next to
        the content. `lead` is room kept free before the content.
        """
        box, flow_down = self.tree.boxes[key], down != turned
        children = [self._with_loops(child, down=flow_down) for child in box.children]
        segments = self.crossings.segments.get(key, [])
        items, links = self._level(key, segments, children, down=flow_down)
        level = route_level(items, links, self.budget)
        crossing_points = self._crossing_points(key, segments, level)
        lanes = make_lanes(crossing_points, level.along) if turned else Lanes({}, 0.0, 0.0)
        layout, left, top = _frame_level(box, level, crossing_points, lanes, down=down, flow_down=flow_down, lead=lead)
        if down:
            placement = _Placement(left + lanes.before, top, flow_down)
        else:
            placement = _Placement(left, top + lanes.before, flow_down)
        for place, child in zip(level.places, children, strict=False):
            self._add_child(layout, placement.point(place), child)
        for number, (segment, link) in enumerate(zip(segments, links, strict=True)):
            points = [placement.point(point) for point in level.lines[number]]
            insets = _end_insets(level, number, link, children, down=flow_down)
            points = _to_outlines(segment, points, insets, down=flow_down)
            lane = lanes.places.get(segment.wire)
            lane = None if lane is None else lane + (left if down else top)
            layout.segments[segment.wire] = self._to_border(layout, key, segment, points, lane, down=down)
            label = level.labels[number]
            if label is not None:
                layout.labels[segment.wire] = self._label_corner(segment.wire, placement.point(label), down=flow_down)
        return layout

    def _with_loops(self, key: str, *, down: bool) -> SelfLoop:
        """Return the layout of a child with its self-loops."""
        wires = [(each, self.sizes[each]) for each in self.crossings.loops.get(key, ())]
        return make_self_loops(self.box_layout(key, down=down), wires, down=down)

    def _add_child(self, layout: BoxLayout, corner: Point, child: SelfLoop) -> None:
        """Put a child and its self-loops into a layout."""
        x, y = corner
        layout.inside.append((x, y, child.layout))
        for wire, points, label in child.lines:
            layout.segments[wire] = [(x + dx, y + dy) for dx, dy in points]
            if self.lines[wire]:
                layout.labels[wire] = (x + label[0], y + label[1])

    def _level(
        self, key: str, segments: list[Segment], children: list[SelfLoop], *, down: bool
    ) -> tuple[list[Item], list[Link]]:
        """Return the items and links of a box's level."""
        layouts = [child.layout for child in children]
        numbers = {layout.box.key: number for number, layout in enumerate(layouts)}
        items = []
        for child in children:
            layout = child.layout
            across = layout.across(down=down)
            low, high = item_port_range(layout, down=down)
            role = "start" if layout.box.kind == "initial" else "box"
            items.append(
                Item(
                    across=across,
                    along=layout.along(down=down),
                    role=role,  # type: ignore[arg-type]  # one of two words of the type
                    beyond=max(child.beyond, badge_room(layout.box) if down and not layout.aside else 0.0),
                    low=low,
                    high=high,
                    is_round=layout.box.kind in ("initial", "final", "history"),
                )
            )
        links = []
        for link, segment in enumerate(segments):
            ends = []
            for end in (segment.source, segment.target):
                if end is None:
                    ends.append(len(items))
                    items.append(
                        Item(across=1.0, along=0.0, role=self.crossings.sides[key, segment.wire], low=0.5, high=0.5)
                    )
                    continue
                ends.append(numbers[end])
                if segment.wire in layouts[numbers[end]].ports:
                    items[numbers[end]].fixed_ports[link] = layouts[numbers[end]].ports[segment.wire]
            links.append(Link(source=ends[0], target=ends[1], label=self._extent(key, segment.wire, down=down)))
        return items, links

    def _extent(self, key: str, wire: int, *, down: bool) -> tuple[float, float, float] | None:
        """Return the room of a label around its line, if it belongs to this level."""
        if self.crossings.labelled[wire] != key or not self.lines[wire]:
            return None
        width, height = self.sizes[wire]
        if down:
            return LINE_HALF, _BESIDE + width + 6.0, height + 4.0
        return height + 4.0, LINE_HALF, width + 12.0

    def _label_corner(self, wire: int, place: Point, *, down: bool) -> Point:
        """Return the corner of a label: next to a line that runs down, above one that runs to the right."""
        width, height = self.sizes[wire]
        x, y = place
        return (x + _BESIDE, y - height / 2) if down else (x - width / 2, y - height - 3.0)

    def _crossing_points(self, key: str, segments: list[Segment], level: LevelLayout) -> dict[int, CrossingPoint]:
        """Return where lines cross the border of a box: by wire, the side and the coordinate across the flow inside."""
        return {
            segment.wire: (self.crossings.sides[key, segment.wire], line[0 if segment.source is None else -1][0])
            for segment, line in zip(segments, level.lines, strict=True)
            if None in (segment.source, segment.target)
        }

    def _to_border(
        self, layout: BoxLayout, key: str, segment: Segment, points: list[Point], lane: float | None, *, down: bool
    ) -> list[Point]:
        """Return a segment extended to the border of its box if it crosses it, through its lane if it has one."""
        for position, end in ((0, segment.source), (-1, segment.target)):
            if end is not None:
                continue
            x, y = points[position]
            across = (x if down else y) if lane is None else lane
            edge = 0.0 if self.crossings.sides[key, segment.wire] == "top" else layout.along(down=down)
            way = [(across, edge), (across, y)] if down else [(edge, across), (x, across)]
            layout.ports[segment.wire] = across
            layout.border_ends[segment.wire] = position
            points = [*way, *points] if position == 0 else [*points, *way[::-1]]
        return points


@dataclass(frozen=True, slots=True)
class _Placement:
    """Where the content of a level starts in its box, and the direction of its flow."""

    x: float
    y: float
    down: bool

    def point(self, place: tuple[float, float]) -> Point:
        """Return the point of a place in the level, given across and along its flow."""
        across, along = place
        return (self.x + across, self.y + along) if self.down else (self.x + along, self.y + across)


def _frame_level(
    box: Box,
    level: LevelLayout,
    crossing_points: dict[int, CrossingPoint],
    lanes: Lanes,
    *,
    down: bool,
    flow_down: bool,
    lead: float,
) -> tuple[BoxLayout, float, float]:
    """Return the box around a level with its lanes, and where its content starts."""
    width, height = (level.across, level.along) if flow_down else (level.along, level.across)
    room = lanes.before + lanes.after
    content = (width + room, height) if down else (width, height + room)
    passing = [lanes.places.get(wire, across) for wire, (side, across) in crossing_points.items() if side == "top"]
    return frame_content(box, content, passing if down else [], lead=lead)


def _end_insets(level: LevelLayout, number: int, link: Link, children: list[SelfLoop], *, down: bool) -> list[float]:
    """Return how far inside the rectangle of its item each end of a line meets the outline."""
    insets = []
    for position, end in ((0, link.source), (-1, link.target)):
        if end < len(children):
            offset = level.lines[number][position][0] - level.places[end][0]
            insets.append(inset(children[end].layout, offset, down=down))
        else:
            insets.append(0.0)
    return insets


def _to_outlines(segment: Segment, points: list[Point], gaps: list[float], *, down: bool) -> list[Point]:
    """Return a segment extended from the rectangles of its items to the outlines inside them."""
    for position, end, gap in ((0, segment.source, gaps[0]), (-1, segment.target, gaps[1])):
        if end is not None:
            x, y = points[position]
            other = points[1 if position == 0 else -2]
            onward = gap if (other[1] < y if down else other[0] < x) else -gap
            points[position] = (x, y + onward) if down else (x + onward, y)
    return points


def join_points(points: list[Point]) -> tuple[Point, ...]:
    """Return the corners of a line. Points on a straight line are dropped, and nearly equal coordinates made equal."""
    line = [points[0]]
    for next_x, next_y in points[1:]:
        last_x, last_y = line[-1]
        x = last_x if abs(next_x - last_x) < _ALIGNED else next_x
        y = last_y if abs(next_y - last_y) < _ALIGNED else next_y
        if (x, y) == (last_x, last_y):
            continue
        if len(line) > 1 and (line[-2][0] == last_x == x or line[-2][1] == last_y == y):
            line[-1] = (x, y)
        else:
            line.append((x, y))
    return tuple(line)
