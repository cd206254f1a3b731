"""One level of a drawing, in coordinates that know no direction: the items inside one box and the links between them.

`u` runs across the flow, `v` along it: drawn downwards u is x and v is y, drawn to the right they change places.
Rule 1: an item is whatever takes room in the level; a port is an item without size, at the border of the box.
Rule 2: sums of lengths are made by `fsum`: `sum` rounds in another way from Python 3.12 on, and drawings are the same
everywhere.
Rule 3: work is counted in a `Budget`, never timed; when it is spent the drawing is an outline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ITEM_GAP = 26.0
"""Between two items of a layer."""
LINE_HALF = 4.5
"""What a line takes on either side of it."""
LINE_GAP = 7.0
"""Between the room of a line or a label and what is beside it."""
TRACK = 11.0
"""Between two parallel pieces of lines that run across."""
BEND_MARGIN = 14.0
"""Between a layer and the first or last track beside it: room for an arrowhead and a round corner."""
STRAIGHT_MARGIN = 11.0
"""Between two layers when no line between them bends."""
CORNER = 12.0
"""How far lines keep from the corners of a box."""
PORT_GAP = 16.0
"""Between the ends of two lines on one side of a box, as between two lines beside each other: they run on straight."""

WORK_MAX = 3_000_000
"""Elementary moves in one drawing: some seconds of computing. A chart of 100 states needs about a tenth."""


class WorkSpentError(Exception):
    """The layout took more work than it may. Caught in this room: the drawing is then an outline."""


class Budget:
    """Counts the work of one drawing."""

    def __init__(self, work: int = WORK_MAX) -> None:
        self.left = work

    def spend(self, work: int) -> None:
        """Count this much work. Raises WorkSpentError when there was too much of it."""
        self.left -= work
        if self.left < 0:
            raise WorkSpentError


Role = Literal["box", "start", "top", "bottom"]
"""What an item is: a box, the dot a level begins at, a port at the border where the flow enters or leaves."""


@dataclass(slots=True, kw_only=True)
class Item:
    """Something that takes room: `across` by `along`, and `beyond` more across, for loops.

    Lines end between `low` and `high`; where the level inside has fixed that, at `pins`, by link.
    """

    across: float
    along: float
    role: Role = "box"
    beyond: float = 0.0
    low: float = 0.0
    high: float = 0.0
    is_round: bool = False
    pins: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Link:
    """A line of this level between two different items. `label`: its extent before the line, behind it, and along."""

    source: int
    target: int
    label: tuple[float, float, float] | None = None


@dataclass(slots=True, kw_only=True)
class LevelLayout:
    """A level with places: of items (the corner where both coordinates are least), of lines, of labels."""

    across: float
    along: float
    places: list[tuple[float, float]]
    lines: list[list[tuple[float, float]]]
    labels: list[tuple[float, float] | None]
    reversed: list[bool]
