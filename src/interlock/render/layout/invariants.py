"""The invariants of a picture. If one is broken, the chart is drawn as an outline instead.

1. Boxes that are not one inside the other do not overlap, and what is inside a box stays inside.
2. A label does not overlap a box, a title, another label or another line.
3. Every segment of a line is horizontal or vertical.
4. A line crosses only boxes that contain one of its ends, and no title.
5. Every end of a line lies on the outline of its box.
6. A label is near its own line, and nearer to it than to any other.
7. Every line has a length, and a label if it has text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from interlock.render.shapes.geometry import Area, Frame, Path, Picture, Point
from interlock.render.shapes.text_metrics import (
    DOT,
    HEADER,
    HISTORY,
    LINE_HEIGHT,
    RING,
    SLANT,
    note_text,
    title_width,
    width,
)

END_TOLERANCE = 0.6
LABEL_DISTANCE_MAX = 12.0
_HAIR = 0.2
_CELL = 160.0


def broken_rules(picture: Picture) -> Iterator[str]:
    """Yield a description of every broken invariant."""
    sight = _IndexedPicture(picture)
    yield from _boxes_apart(sight)
    for number, path in enumerate(picture.paths):
        if len(path.points) < 2:
            yield f"line {number} from {path.wire.source} to {path.wire.target} has no length"
            continue
        yield from _line_rules(sight, number, path)
        if path.label is not None:
            yield from _label_rules(sight, number, path.label)


class _Index:
    """Areas by the squares of a grid, so that only neighbours are compared."""

    def __init__(self) -> None:
        self.areas: list[Area] = []
        self._cells: dict[tuple[int, int], list[int]] = {}

    def add(self, area: Area) -> None:
        for cell in _cells(area):
            self._cells.setdefault(cell, []).append(len(self.areas))
        self.areas.append(area)

    def near(self, area: Area, margin: float = 0.0) -> list[int]:
        """Return the numbers of the areas nearer than the margin, in order."""
        grown = Area(
            x=area.x - margin, y=area.y - margin, width=area.width + 2 * margin, height=area.height + 2 * margin
        )
        found = {number for cell in _cells(grown) for number in self._cells.get(cell, ())}
        return sorted(number for number in found if overlap(self.areas[number], grown))


def _cells(area: Area) -> Iterator[tuple[int, int]]:
    for column in range(math.floor(area.x / _CELL), math.floor(area.right / _CELL) + 1):
        for row in range(math.floor(area.y / _CELL), math.floor(area.bottom / _CELL) + 1):
            yield column, row


class _IndexedPicture:
    """A picture with its frames, titles, labels and line segments by position."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.frames = [frame for frame in picture.frames if not frame.bare]
        self.by_key = {frame.box.key: frame for frame in picture.frames}
        self.boxes, self.titles, self.labels, self.segments = _Index(), _Index(), _Index(), _Index()
        self.owners: list[int] = []
        self.labelled: list[int] = []
        for frame in self.frames:
            self.boxes.add(frame.area)
            if frame.box.children and frame.box.kind != "niche":
                for area in title_areas(frame):
                    self.titles.add(area)
        for number, path in enumerate(picture.paths):
            if path.label is not None:
                self.labels.add(path.label)
                self.labelled.append(number)
            for segment in segments(path):
                self.segments.add(segment)
                self.owners.append(number)

    def around(self, key: str) -> list[str]:
        return [key, *self.picture.tree.above(key)]


def title_areas(frame: Frame) -> Iterator[Area]:
    """Return the areas of the title with its badge and of the notes of a box with children."""
    x = frame.area.x + frame.title
    y = frame.area.y
    yield Area(x=x, y=y + 6.0, width=title_width(frame.box), height=HEADER - 12.0)
    for number, note in enumerate(frame.box.notes):
        top = y + HEADER + 4.0 + number * LINE_HEIGHT
        yield Area(x=x, y=top, width=width(note_text(note)), height=LINE_HEIGHT)


def segments(path: Path) -> Iterator[Area]:
    """Return the straight segments of a line, as areas without width."""
    for (x, y), (other_x, other_y) in pairwise(path.points):
        yield Area(x=min(x, other_x), y=min(y, other_y), width=abs(x - other_x), height=abs(y - other_y))


def overlap(one: Area, other: Area, hair: float = _HAIR) -> bool:
    """Return whether two areas overlap noticeably. An area without width counts."""
    across = min(one.right, other.right) - max(one.x, other.x)
    down = min(one.bottom, other.bottom) - max(one.y, other.y)
    thin = -hair if min(one.width, other.width) < hair else hair
    flat = -hair if min(one.height, other.height) < hair else hair
    return across > thin and down > flat


def _inside(inner: Area, outer: Area) -> bool:
    return (
        inner.x >= outer.x - _HAIR
        and inner.y >= outer.y - _HAIR
        and inner.right <= outer.right + _HAIR
        and inner.bottom <= outer.bottom + _HAIR
    )


def _boxes_apart(sight: _IndexedPicture) -> Iterator[str]:
    for number, frame in enumerate(sight.frames):
        parent = sight.by_key.get(frame.box.parent or "")
        if parent is not None and not _inside(frame.area, parent.area):
            yield f"{frame.box.key} sticks out of {parent.box.key}"
        around = sight.around(frame.box.key)
        for other in sight.boxes.near(frame.area):
            key = sight.frames[other].box.key
            if other > number and key not in around and frame.box.key not in sight.around(key):
                yield f"{frame.box.key} overlaps {key}"


def _line_rules(sight: _IndexedPicture, number: int, path: Path) -> Iterator[str]:
    name = f"line {number} from {path.wire.source} to {path.wire.target}"
    if path.lines and path.label is None:
        yield f"{name} has lost its label"
    legal = {*sight.around(path.wire.source), *sight.around(path.wire.target)}
    ends = (path.wire.source, path.wire.target)
    for (x, y), (other_x, other_y) in pairwise(path.points):
        if abs(x - other_x) > _HAIR and abs(y - other_y) > _HAIR:
            yield f"{name} is slanted"
    for segment in segments(path):
        for other in sight.boxes.near(segment):
            key = sight.frames[other].box.key
            if key not in legal or (
                key in ends and not sight.frames[other].box.children and _through(segment, sight.frames[other].area)
            ):
                yield f"{name} passes through {key}"
        if sight.titles.near(segment):
            yield f"{name} passes through a title"
    for end, point in ((path.wire.source, path.points[0]), (path.wire.target, path.points[-1])):
        if outline_distance(sight.by_key[end], point) > END_TOLERANCE:
            yield f"{name} does not end at {end}"


def _through(segment: Area, area: Area) -> bool:
    """Return whether a line continues inside the box it ends at, beyond a round or slanted outline."""
    across = min(segment.right, area.right) - max(segment.x, area.x)
    down = min(segment.bottom, area.bottom) - max(segment.y, area.y)
    return max(across, down) > max(area.width, area.height) / 2


def outline_distance(frame: Frame, point: Point) -> float:
    """Return the distance of a point from the outline of a box."""
    area = frame.area
    x, y = point[0] - area.x, point[1] - area.y
    match frame.box.kind:
        case "initial":
            return abs(math.hypot(x - DOT, y - DOT) - DOT)
        case "history":
            return abs(math.hypot(x - HISTORY, y - HISTORY) - HISTORY)
        case "final" if frame.aside:
            return abs(math.hypot(x - RING, y - area.height / 2) - RING)
        case "final":
            return abs(math.hypot(x - area.width / 2, y - RING) - RING)
        case "choice":
            lean = SLANT * abs(y / (area.height / 2) - 1.0)
            return min(abs(x - lean), abs(area.width - lean - x), _side(x, y, area))
        case _:
            return _side(x, y, area)


def _side(x: float, y: float, area: Area) -> float:
    """Return the distance of a point from the border of a rectangle, relative to its corner."""
    out = max(-x, x - area.width, -y, y - area.height, 0.0)
    return max(out, min(abs(x), abs(x - area.width), abs(y), abs(y - area.height)))


def _label_rules(sight: _IndexedPicture, number: int, label: Area) -> Iterator[str]:
    name = f"label of line {number}"
    for other in sight.boxes.near(label):
        frame = sight.frames[other]
        if not frame.box.children or not _inside(label, frame.area):
            yield f"{name} overlaps {frame.box.key}"
    if sight.titles.near(label):
        yield f"{name} overlaps a title"
    for other in sight.labels.near(label):
        if sight.labelled[other] != number:
            yield f"{name} overlaps the label of line {sight.labelled[other]}"
    own = min(_apart(label, segment) for segment in segments(sight.picture.paths[number]))
    if own > LABEL_DISTANCE_MAX:
        yield f"{name} is {own:.1f} away from it"
    for other in sight.segments.near(label, margin=min(own, LABEL_DISTANCE_MAX)):
        if sight.owners[other] != number and _apart(label, sight.segments.areas[other]) <= own:
            yield f"{name} is nearer to line {sight.owners[other]}"


def _apart(one: Area, other: Area) -> float:
    across = max(one.x - other.right, other.x - one.right, 0.0)
    down = max(one.y - other.bottom, other.y - one.bottom, 0.0)
    return math.hypot(across, down)
