"""Lines from a box to itself: small loops on a side that no other line uses, each with its label.

If the flow runs down, loops are at the right of the box; if it runs to the right, they are below it. The box grows if
necessary, and its level keeps the room for the loops free.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from interlock.render.layout.box_layout import BoxLayout, stretch_box
from interlock.render.shapes.geometry import Point

_DEPTH = 18.0
_PITCH = 24.0
_OPENING = 14.0
_MARGIN = 8.0


@dataclass(slots=True)
class SelfLoop:
    """A layout with its self-loops: the room they need and, for each wire, the points and the corner of its label."""

    layout: BoxLayout
    beyond: float
    lines: list[tuple[int, list[Point], Point]]


def make_self_loops(layout: BoxLayout, wires: list[tuple[int, tuple[float, float]]], *, down: bool) -> SelfLoop:
    """Return the layout of a box with these loops, each given with the size of its label."""
    if not wires:
        return SelfLoop(layout, 0.0, [])
    pitches = [max(_PITCH, (height if down else width) + _MARGIN) for _, (width, height) in wires]
    needed = fsum(pitches) + 2 * _MARGIN
    if down and layout.height < needed:
        layout = stretch_box(layout, width=layout.width, height=needed)
    elif not down and layout.width < needed:
        layout = stretch_box(layout, width=needed, height=layout.height)
    here = (layout.along(down=down) - fsum(pitches)) / 2
    side = layout.across(down=down)
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
    return SelfLoop(layout, _DEPTH + room + 9.0, lines)
