"""A finished layout: boxes and lines with absolute places, ready to be painted or judged.

Rule 1: a picture holds geometry and what it belongs to; no colour, no class, no markup.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.render.shapes.boxes import Box, BoxTree, Wire
from interlock.render.shapes.text_metrics import Line

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where it ends across."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where it ends down."""
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A box with its place; the title begins at `title`, measured from the frame's own left.

    `bare`: nothing of the box itself is painted. `aside`: a final state's caption stands beside its ring.
    """

    box: Box
    area: Area
    title: float
    bare: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A wire with its points, and its label's lines with their area."""

    wire: Wire
    points: tuple[Point, ...]
    lines: tuple[Line, ...] = ()
    label: Area | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is painted, outer frames before what they hold. `trouble` says why it is only an outline."""

    tree: BoxTree
    width: float
    height: float
    frames: tuple[Frame, ...]
    paths: tuple[Path, ...]
    trouble: str = ""
