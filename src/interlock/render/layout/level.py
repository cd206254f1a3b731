"""One level of a picture: the items inside one box and the links between them, in coordinates without direction.

`u` is the coordinate across the flow, `v` the one along it: if the flow runs down, u is x and v is y; if it runs to the
right, u is y and v is x.

Rule 1: an item is anything that takes room in the level. A port is an item without size, at the border of the box.
Rule 2: lengths are summed with `fsum`: `sum` rounds differently since Python 3.12, and pictures must be the same.
Rule 3: work is counted in a `Budget`, not timed. When it is used up, the chart is drawn as an outline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ITEM_GAP = 26.0
"""Between two items of a layer."""
LINE_HALF = 4.5
"""Room of a line on either side of it."""
LINE_GAP = 7.0
"""Between the room of a line or a label and the next thing."""
TRACK = 11.0
"""Between two parallel lines that run across the flow."""
BEND_MARGIN = 14.0
"""Between a layer and the first or last track next to it: room for an arrowhead and a round corner."""
STRAIGHT_MARGIN = 11.0
"""Between two layers when no line between them bends."""
CORNER = 12.0
"""Between a line and the corner of a box."""
PORT_GAP = 16.0
"""Between the ends of two lines on one side of a box.

Parallel lines have the same distance, so they run straight.
"""

WORK_MAX = 3_000_000
"""Elementary operations of one layout: a few seconds. A chart of 100 states needs about a tenth."""


class WorkSpentError(Exception):
    """The layout used up its budget. The chart is then drawn as an outline."""


class Budget:
    """Counts the work of one layout."""

    def __init__(self, work: int = WORK_MAX) -> None:
        self.left = work

    def spend(self, work: int) -> None:
        """Count this much work. Raises WorkSpentError beyond the limit."""
        self.left -= work
        if self.left < 0:
            raise WorkSpentError


Role = Literal["box", "start", "top", "bottom"]
"""What an item is: a box, the initial dot of a level, or a port at the border where the flow enters or leaves."""


@dataclass(slots=True, kw_only=True)
class Item:
    """Something that takes room: `across` by `along`, and `beyond` more across, for self-loops.

    Lines end between `low` and `high`, or at `fixed_ports`, by link, where the level inside has decided that.
    """

    across: float
    along: float
    role: Role = "box"
    beyond: float = 0.0
    low: float = 0.0
    high: float = 0.0
    is_round: bool = False
    fixed_ports: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Link:
    """A line between two different items. `label` is its extent before the line, after it, and along it."""

    source: int
    target: int
    label: tuple[float, float, float] | None = None


@dataclass(slots=True, kw_only=True)
class LevelLayout:
    """A level with coordinates: the corners of items (both coordinates least), the points of lines, the labels."""

    across: float
    along: float
    places: list[tuple[float, float]]
    lines: list[list[tuple[float, float]]]
    labels: list[tuple[float, float] | None]
    reversed: list[bool]
