"""Lines from a box to itself: small loops at the side that no other line uses, stacked, each with its label beyond.

Rule 1: drawn downwards loops are at the right of the box, drawn to the right they are below it; the box grows when it
must, and its level keeps the room beyond it free.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from interlock.render.layout.box_layout import BoxLayout, stretched
from interlock.render.shapes.geometry import Point

_DEPTH = 18.0
_PITCH = 24.0
_OPENING = 14.0
_MARGIN = 8.0


@dataclass(slots=True)
class SelfLoop:
    """A plate, perhaps grown, with its loops: the room they need; of each wire the points and its label's corner."""

    plate: BoxLayout
    beyond: float
    lines: list[tuple[int, list[Point], Point]]


def make_self_loops(plate: BoxLayout, wires: list[tuple[int, tuple[float, float]]], *, down: bool) -> SelfLoop:
    """The loops of one box, each given with the size of its label."""
    if not wires:
        return SelfLoop(plate, 0.0, [])
    pitches = [max(_PITCH, (height if down else width) + _MARGIN) for _, (width, height) in wires]
    needed = fsum(pitches) + 2 * _MARGIN
    if down and plate.height < needed:
        plate = stretched(plate, width=plate.width, height=needed)
    elif not down and plate.width < needed:
        plate = stretched(plate, width=needed, height=plate.height)
    here = (plate.along(down=down) - fsum(pitches)) / 2
    side = plate.across(down=down)
    lines: list[tuple[int, list[Point], Point]] = []
    for (wire, (width, height)), pitch in zip(wires, pitches, strict=True):
        middle = here + pitch / 2
        start, end, far = middle - _OPENING / 2, middle + _OPENING / 2, side + _DEPTH
        turns = [(side, start), (far, start), (far, end), (side, end)]
        points = turns if down else [(v, u) for u, v in turns]
        label = (far + 5.0, middle - height / 2) if down else (middle - width / 2, far + 2.0)
        lines.append((wire, points, label))
        here += pitch
    room = max(width if down else height for _, (width, height) in wires)
    return SelfLoop(plate, _DEPTH + room + 9.0, lines)
