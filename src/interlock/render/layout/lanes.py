"""Lanes beside the content of a box whose flow runs across the one around it.

A line that enters such a box does so where the flow around it wants it, runs in a lane past the content, and turns into
the flow inside. Lines that turn in earlier have the lanes nearer to the content, so that none cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.render.layout.crossings import BorderSide
from interlock.render.layout.level import PORT_GAP

Door = tuple[BorderSide, float]
"""On which side a line crosses a border, and where across the flow inside."""

_NEAREST = 14.0
_FARTHEST = 2.0


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of each wire, from where the room before the content begins; that room, and the one after."""

    places: dict[int, float]
    before: float
    after: float


def lanes_beside(doors: dict[int, Door], along: float) -> Lanes:
    """Lanes for these doors, beside content of this length along its own flow."""
    first = sorted((u, wire) for wire, (side, u) in doors.items() if side == "top")
    last = sorted(((u, wire) for wire, (side, u) in doors.items() if side == "bottom"), reverse=True)
    before = _NEAREST + (len(first) - 1) * PORT_GAP + _FARTHEST if first else 0.0
    after = _NEAREST + (len(last) - 1) * PORT_GAP + _FARTHEST if last else 0.0
    places = {wire: before - _NEAREST - number * PORT_GAP for number, (_, wire) in enumerate(first)}
    places |= {wire: before + along + _NEAREST + number * PORT_GAP for number, (_, wire) in enumerate(last)}
    return Lanes(places, before, after)
