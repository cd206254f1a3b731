"""A finished layout: boxes and lines with absolute coordinates, ready to be painted or checked.

Rule 1: a picture has geometry and what it belongs to, but no colours, classes or markup.
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
        """The right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The bottom edge."""
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A box with its area. `title` is where its title starts, measured from the left edge.

    `bare`: the box itself is not painted. `aside`: the caption of a final state is next to its ring.
    """

    box: Box
    area: Area
    title: float
    bare: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A wire with its points, and the lines of its label with their area."""

    wire: Wire
    points: tuple[Point, ...]
    lines: tuple[Line, ...] = ()
    label: Area | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All frames and paths, outer frames first. `fallback_reason` says why it is only an outline, or is empty."""

    tree: BoxTree
    width: float
    height: float
    frames: tuple[Frame, ...]
    paths: tuple[Path, ...]
    fallback_reason: str = ""
