"""From a drawing tree to a picture: boxes from the inside out, each level laid out by itself.

Rule 1: a box whose border nothing crosses is laid out downwards and to the right, and the better shape wins; any other
follows the box around it, unless its shape is much better across.
Rule 2: where a line crosses a border is fixed by the level inside; the level outside takes it from there, so both
halves meet in one point.
"""

from __future__ import annotations

from itertools import pairwise
from math import fsum

from interlock.render.layout.box_layout import BoxLayout, framed, inset, item_range, shape_cost, stretched
from interlock.render.layout.crossings import Segment, find_crossings
from interlock.render.layout.lanes import Door, Lanes, lanes_beside
from interlock.render.layout.level import CORNER, LINE_GAP, LINE_HALF, PORT_GAP, Budget, Item, LevelLayout, Link
from interlock.render.layout.ports import side_room
from interlock.render.layout.regions import regions
from interlock.render.layout.routing import route_level
from interlock.render.layout.self_loops import SelfLoop, make_self_loops
from interlock.render.shapes.boxes import BoxTree
from interlock.render.shapes.geometry import Area, Frame, Path, Picture, Point
from interlock.render.shapes.text_metrics import LINE_HEIGHT, badge_room, box_size, label_lines

CANVAS = 16.0
"""Around the whole picture."""
_BESIDE = 6.0
"""Between a line and its label."""
_ALIGNED = 0.1
_TURN_COST, _LANE_COST = 0.3, 0.05
"""How much better the shape of a box must be to turn it against the flow around it, and for each line to bend."""
_ROOM_MAX = 180.0
"""How long a side of a box becomes only for the sake of straight lines."""


def compose_picture(tree: BoxTree, budget: Budget) -> Picture:
    """The whole tree with absolute places. Raises WorkSpentError when that takes more work than allowed."""
    composer = Composer(tree, budget)
    root = composer.plate(tree.root.key, down=True)
    frames: list[Frame] = []
    pieces: dict[tuple[str, int], list[Point]] = {}
    labels: dict[int, Point] = {}
    stack = [(CANVAS, CANVAS, root)]
    while stack:
        x, y, plate = stack.pop()
        area = Area(x=x, y=y, width=plate.width, height=plate.height)
        frames.append(Frame(box=plate.box, area=area, title=plate.title, bare=plate.bare, aside=plate.aside))
        for wire, points in plate.pieces.items():
            pieces[plate.box.key, wire] = [(x + px, y + py) for px, py in points]
        for wire, (px, py) in plate.labels.items():
            labels[wire] = (x + px, y + py)
        stack += [(x + dx, y + dy, inner) for dx, dy, inner in reversed(plate.inside)]
    return Picture(
        tree=tree,
        width=root.width + 2 * CANVAS,
        height=root.height + 2 * CANVAS,
        frames=tuple(frames),
        paths=tuple(composer.path(number, pieces, labels) for number in range(len(tree.wires))),
    )


class Composer:
    """Lays out the boxes of one tree."""

    def __init__(self, tree: BoxTree, budget: Budget) -> None:
        self.tree = tree
        self.budget = budget
        self.ways = find_crossings(tree)
        self.lines = [label_lines(wire.labels) for wire in tree.wires]
        self.sizes = [
            (max((line.width for line in lines), default=0.0), LINE_HEIGHT * len(lines)) for lines in self.lines
        ]
        self._kept: dict[tuple[str, bool], BoxLayout] = {}

    def path(self, number: int, pieces: dict[tuple[str, int], list[Point]], labels: dict[int, Point]) -> Path:
        """A wire with its pieces joined."""
        wire = self.tree.wires[number]
        levels = self.ways.levels.get(number) or [self.tree.boxes[wire.source].parent or ""]
        points = joined([point for level in levels for point in pieces[level, number]])
        area = None
        if number in labels:
            (x, y), (width, height) = labels[number], self.sizes[number]
            area = Area(x=x, y=y, width=width, height=height)
        return Path(wire=wire, points=points, lines=self.lines[number], label=area)

    def plate(self, key: str, *, down: bool) -> BoxLayout:
        """A box laid out: in the direction given, unless nothing crosses its border and the other looks better."""
        box = self.tree.boxes[key]
        if not box.children:
            # The caption of a final state stands where no line comes from.
            aside = box.kind == "final" and self.ways.enters_at_the_end(key) == down
            width, height = box_size(box, across=down, aside=aside)
            if box.kind in ("state", "choice", "fork"):
                room = max(side_room(self.ways.ends_on_a_side(key)), self._room_between(key, down=down))
                width, height = (max(width, room), height) if down else (width, max(height, room))
            return BoxLayout(box=box, width=width, height=height, aside=aside)
        closed = self.ways.is_closed(self.tree, key)
        kept = self._kept.get((key, closed or down))
        if kept is None:
            kept = self._closed(key) if closed else self._open(key, down=down)
            self._kept[key, closed or down] = kept
        return kept

    def _closed(self, key: str) -> BoxLayout:
        """A box that no line leaves, in the better of both directions."""
        return min(self.filled(key, down=True), self.filled(key, down=False), key=shape_cost)

    def _open(self, key: str, *, down: bool) -> BoxLayout:
        """A box that lines enter or leave, in the direction around it; turned when that is much better."""
        straight = self.filled(key, down=down)
        if self.tree.boxes[key].kind != "group":
            return straight
        turned = self.group(key, down=down, lead=0.0, turned=True)
        cost = _TURN_COST + _LANE_COST * len(turned.ports)
        return turned if shape_cost(turned) + cost < shape_cost(straight) else straight

    def _room_between(self, key: str, *, down: bool) -> float:
        """How long a side of a box is best, so that lines to and fro between it and another run straight.

        A label stands between two such lines.
        """
        level = self.tree.boxes[key].parent or ""
        others: dict[str, list[int]] = {}
        for piece in self.ways.pieces.get(level, ()):
            if key in (piece.source, piece.target) and None not in (piece.source, piece.target):
                other = piece.target if piece.source == key else piece.source
                others.setdefault(other or "", []).append(piece.wire)
        best = 0.0
        for wires in others.values():
            extents = [self._extent(level, wire, down=down) or (LINE_HALF, LINE_HALF, 0.0) for wire in wires]
            steps = [one[1] + LINE_GAP + other[0] for one, other in pairwise(extents)]
            rest = max(self.ways.ends_on_a_side(key) - len(wires), 0) * PORT_GAP
            best = max(best, 2 * CORNER + fsum(steps) + rest) if steps else best
        return min(best, _ROOM_MAX)

    def filled(self, key: str, *, down: bool, lead: float = 0.0) -> BoxLayout:
        """A box with its children, in this direction."""
        if self.tree.boxes[key].kind != "parallel":
            return self.group(key, down=down, lead=lead)
        return regions(
            self.tree.boxes[key],
            self.ways,
            lambda region, room: self._region(region, room, down=down),
            down=down,
            lead=lead,
        )

    def _region(self, key: str, lead: float, *, down: bool) -> BoxLayout:
        """A region, with room kept free before its content."""
        plate = self.plate(key, down=down)
        if not lead:
            return plate
        if not self.tree.boxes[key].children:
            return stretched(plate, width=plate.width + lead, height=plate.height)
        return self.filled(key, down=down, lead=lead)

    def group(self, key: str, *, down: bool, lead: float, turned: bool = False) -> BoxLayout:
        """A compound state, a region or the root: its children in layers.

        Turned, its flow runs across the one around it; lines then reach its border through lanes beside the content.
        """
        box = self.tree.boxes[key]
        flow = down != turned
        beside = [self._looped(child, down=flow) for child in box.children]
        plates = [looped.plate for looped in beside]
        pieces = self.ways.pieces.get(key, [])
        items, links = self._level(key, pieces, plates, beside, down=flow)
        level = route_level(items, links, self.budget)
        doors = self._doors(key, pieces, level)
        lanes = lanes_beside(doors, level.along) if turned else Lanes({}, 0.0, 0.0)
        width, height = (level.across, level.along) if flow else (level.along, level.across)
        extra = lanes.before + lanes.after
        content = (width + extra, height) if down else (width, height + extra)
        passing = [lanes.places.get(wire, u) for wire, (side, u) in doors.items() if side == "top"]
        plate, left, top = framed(box, content, passing if down else [], lead=lead)
        x, y = (left + lanes.before, top) if down else (left, top + lanes.before)
        origin = left if down else top

        def at(u: float, v: float) -> Point:
            return (x + u, y + v) if flow else (x + v, y + u)

        for place, inner, looped in zip(level.places, plates, beside, strict=False):
            corner = at(*place)
            plate.inside.append((*corner, inner))
            for wire, points, label in looped.lines:
                plate.pieces[wire] = [(corner[0] + dx, corner[1] + dy) for dx, dy in points]
                if self.lines[wire]:
                    plate.labels[wire] = (corner[0] + label[0], corner[1] + label[1])
        for number, (piece, link) in enumerate(zip(pieces, links, strict=True)):
            points = [at(*point) for point in level.lines[number]]
            ends = [
                inset(plates[end], level.lines[number][position][0] - level.places[end][0], down=flow)
                if end < len(plates)
                else 0.0
                for position, end in ((0, link.source), (-1, link.target))
            ]
            points = _to_outlines(piece, points, ends, down=flow)
            lane = origin + lanes.places[piece.wire] if piece.wire in lanes.places else None
            plate.pieces[piece.wire] = self._to_border(plate, key, piece, points, lane, down=down)
            spot = level.labels[number]
            if spot is not None:
                plate.labels[piece.wire] = self._beside(piece.wire, at(*spot), down=flow)
        return plate

    def _looped(self, key: str, *, down: bool) -> SelfLoop:
        """A child with its loops."""
        wires = [(each, self.sizes[each]) for each in self.ways.loops.get(key, ())]
        return make_self_loops(self.plate(key, down=down), wires, down=down)

    def _level(
        self, key: str, pieces: list[Segment], plates: list[BoxLayout], beside: list[SelfLoop], *, down: bool
    ) -> tuple[list[Item], list[Link]]:
        """The items and links of a box's level."""
        numbers = {plate.box.key: number for number, plate in enumerate(plates)}
        items = []
        for plate, looped in zip(plates, beside, strict=True):
            across = plate.across(down=down)
            low, high = item_range(plate, down=down)
            role = "start" if plate.box.kind == "initial" else "box"
            items.append(
                Item(
                    across=across,
                    along=plate.along(down=down),
                    role=role,  # type: ignore[arg-type]  # one of two words of the type
                    beyond=max(looped.beyond, badge_room(plate.box) if down and not plate.aside else 0.0),
                    low=low,
                    high=high,
                    is_round=plate.box.kind in ("initial", "final", "history"),
                )
            )
        links = []
        for link, piece in enumerate(pieces):
            ends = []
            for end in (piece.source, piece.target):
                if end is None:
                    ends.append(len(items))
                    items.append(Item(across=1.0, along=0.0, role=self.ways.sides[key, piece.wire], low=0.5, high=0.5))
                    continue
                ends.append(numbers[end])
                if piece.wire in plates[numbers[end]].ports:
                    items[numbers[end]].pins[link] = plates[numbers[end]].ports[piece.wire]
            links.append(Link(source=ends[0], target=ends[1], label=self._extent(key, piece.wire, down=down)))
        return items, links

    def _extent(self, key: str, wire: int, *, down: bool) -> tuple[float, float, float] | None:
        """The room of a label around its line, if it stands on this level."""
        if self.ways.labelled[wire] != key or not self.lines[wire]:
            return None
        width, height = self.sizes[wire]
        if down:
            return LINE_HALF, _BESIDE + width + 6.0, height + 4.0
        return height + 4.0, LINE_HALF, width + 12.0

    def _beside(self, wire: int, place: Point, *, down: bool) -> Point:
        """The corner of a label: beside a line that runs down, above one that runs to the right."""
        width, height = self.sizes[wire]
        x, y = place
        return (x + _BESIDE, y - height / 2) if down else (x - width / 2, y - height - 3.0)

    def _doors(self, key: str, pieces: list[Segment], level: LevelLayout) -> dict[int, Door]:
        """Where lines cross the border of a box: by wire the side, and where across the flow inside."""
        return {
            piece.wire: (self.ways.sides[key, piece.wire], line[0 if piece.source is None else -1][0])
            for piece, line in zip(pieces, level.lines, strict=True)
            if None in (piece.source, piece.target)
        }

    def _to_border(
        self, plate: BoxLayout, key: str, piece: Segment, points: list[Point], lane: float | None, *, down: bool
    ) -> list[Point]:
        """A piece led on to the border of its box where it crosses it, through its lane if it has one."""
        for position, end in ((0, piece.source), (-1, piece.target)):
            if end is not None:
                continue
            x, y = points[position]
            across = (x if down else y) if lane is None else lane
            edge = 0.0 if self.ways.sides[key, piece.wire] == "top" else plate.along(down=down)
            way = [(across, edge), (across, y)] if down else [(edge, across), (x, across)]
            plate.ports[piece.wire] = across
            plate.rims[piece.wire] = position
            points = [*way, *points] if position == 0 else [*points, *way[::-1]]
        return points


def _to_outlines(piece: Segment, points: list[Point], gaps: list[float], *, down: bool) -> list[Point]:
    """A piece led on, past the rectangles of its items, to the outlines inside them."""
    for position, end, gap in ((0, piece.source, gaps[0]), (-1, piece.target, gaps[1])):
        if end is not None:
            x, y = points[position]
            other = points[1 if position == 0 else -2]
            onward = gap if (other[1] < y if down else other[0] < x) else -gap
            points[position] = (x, y + onward) if down else (x + onward, y)
    return points


def joined(points: list[Point]) -> tuple[Point, ...]:
    """The points without those that lie on a straight line; what differs by a hair is made equal."""
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
