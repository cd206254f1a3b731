"""How good a picture is, in one number: the lower the better. For comparing layouts, not for choosing one.

40 for a crossing, 4 for a bend, 12 for a jog (a segment shorter than 14 px between two bends), 0.01 for a pixel of
line, 60 times how far the shape is from 1.4 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from interlock.render.layout.invariants import segments
from interlock.render.shapes.geometry import Area, Picture

JOG_MAX = 14.0
_SHAPE_WANTED = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What counts in a picture."""

    crossings: int
    bends: int
    jogs: int
    length: float
    width: float
    height: float

    @property
    def total(self) -> float:
        """All of it in one number."""
        shape = abs(math.log(self.width / self.height / _SHAPE_WANTED))
        return 40 * self.crossings + 4 * self.bends + 12 * self.jogs + 0.01 * self.length + 60 * shape


def scored(picture: Picture) -> Score:
    """The score of a picture."""
    found = [(number, segment) for number, path in enumerate(picture.paths) for segment in segments(path)]
    crossings = sum(
        _cross(segment, other)
        for place, (number, segment) in enumerate(found)
        for owner, other in found[place + 1 :]
        if number != owner
    )
    inner = [segment for path in picture.paths for segment in list(segments(path))[1:-1]]
    return Score(
        crossings=crossings,
        bends=sum(len(path.points) - 2 for path in picture.paths),
        jogs=sum(1 for segment in inner if segment.width + segment.height < JOG_MAX),
        length=sum(segment.width + segment.height for _, segment in found),
        width=picture.width,
        height=picture.height,
    )


def _cross(one: Area, other: Area) -> bool:
    """Whether a horizontal and a vertical segment cross, not only touch."""
    flat, upright = (one, other) if one.width > one.height else (other, one)
    return flat.x < upright.x < flat.right and upright.y < flat.y < upright.bottom
