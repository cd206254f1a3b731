"""The regions of a parallel state: side by side where the flow runs down, one below the other where it runs right.

Rule 1: regions touch each other and the border, and are as long as the longest of them; the header lies across all.
Rule 2: a line from outside goes straight through to the region's own port. A line between two regions leaves and enters
at the end of the flow, and runs in a channel there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

from interlock.render.layout.box_layout import BoxLayout, stretched, title_place
from interlock.render.layout.crossings import Crossings, Segment
from interlock.render.layout.level import BEND_MARGIN, PORT_GAP, TRACK
from interlock.render.layout.ports import free_spot, port_range
from interlock.render.shapes.boxes import Box
from interlock.render.shapes.text_metrics import header_size

_CHANNEL_MARGIN = 8.0
_CLEARANCE = 8.0
_TITLE_ROUNDS = 6


def regions(
    box: Box, ways: Crossings, region: Callable[[str, float], BoxLayout], *, down: bool, lead: float
) -> BoxLayout:
    """A parallel state laid out. `region` lays out one of its regions, with room kept free before its content."""
    plates = [region(child, 0.0) for child in box.children]
    pieces = ways.pieces.get(box.key, [])
    width, height = header_size(box)

    def titled() -> tuple[float, float]:
        spots = _Spots(box, plates, pieces, down=down, before=0.0 if down else height)
        doors = [spots.port(piece) for piece in pieces if _is_door(box, ways, piece)] if down else []
        return title_place(width, max(fsum(plate.width for plate in plates), width), doors)

    (title, missing), room = titled(), 0.0
    for _ in range(_TITLE_ROUNDS):
        if not missing:
            break
        # Twice as much: a line that ends at a region's border does so in its middle, and moves half as far.
        room += 2 * missing
        plates[0] = region(box.children[0], room)
        title, missing = titled()
    if lead:
        # Beyond what the own title needs: else the two would overlap, and the lines of the state around not move.
        plates[0] = region(box.children[0], room + lead)
        title, _ = titled()
    return _joined(box, ways, plates, pieces, (title, width, height), down=down)


def _is_door(box: Box, ways: Crossings, piece: Segment) -> bool:
    return None in (piece.source, piece.target) and ways.sides[box.key, piece.wire] == "top"


class _Spots:
    """Where, across the flow, the pieces of a parallel state's level meet its regions."""

    def __init__(self, box: Box, plates: list[BoxLayout], pieces: list[Segment], *, down: bool, before: float) -> None:
        self._found: dict[tuple[int, str], float] = {}
        starts, here = {}, before
        for child, plate in zip(box.children, plates, strict=True):
            starts[child] = (here, plate)
            here += plate.across(down=down)
        for child in box.children:
            start, plate = starts[child]
            taken = list(plate.ports.values())
            low, high = port_range(plate.across(down=down))
            for piece in pieces:
                if child not in (piece.source, piece.target):
                    continue
                spot = plate.ports.get(piece.wire)
                if spot is None:
                    spot = free_spot((low + high) / 2, taken, PORT_GAP, low, high)
                    taken.append(spot)
                self._found[piece.wire, child] = start + spot

    def at(self, piece: Segment, child: str) -> float:
        return self._found[piece.wire, child]

    def port(self, piece: Segment) -> float:
        """Where a piece that reaches the state's own border does so: straight on from its region."""
        child = piece.target if piece.source is None else piece.source
        assert child is not None
        return self._found[piece.wire, child]


def _joined(
    box: Box,
    ways: Crossings,
    plates: list[BoxLayout],
    pieces: list[Segment],
    header: tuple[float, float, float],
    *,
    down: bool,
) -> BoxLayout:
    """The plate of the state around its regions."""
    title, width, height = header
    if down:
        # What the header needs beyond the regions is given to the last one.
        extra = max(width - fsum(each.width for each in plates), 0.0)
        tallest = max(each.height for each in plates)
        widths = [each.width for each in plates[:-1]] + [plates[-1].width + extra]
        plates = [stretched(each, width=wide, height=tallest) for each, wide in zip(plates, widths, strict=True)]
    else:
        widest = max(width, *(each.width for each in plates))
        plates = [stretched(each, width=widest, height=each.height) for each in plates]
    spots = _Spots(box, plates, pieces, down=down, before=0.0 if down else height)
    start = height if down else 0.0
    end = start + plates[0].along(down=down)
    rows = _rows([piece for piece in pieces if None not in (piece.source, piece.target)], spots)
    count = max((row + 1 for row in rows.values()), default=0)
    channel = BEND_MARGIN + (count - 1) * TRACK + _CHANNEL_MARGIN if count else 0.0
    across = fsum(each.across(down=down) for each in plates)
    size = (across, end + channel) if down else (end + channel, height + across)
    plate = BoxLayout(box=box, width=size[0], height=size[1], title=title)
    here = 0.0 if down else height
    for each in plates:
        plate.inside.append((here, height, each) if down else (0.0, here, each))
        here += each.across(down=down)
    for piece in pieces:
        if piece.source is None or piece.target is None:
            u = plate.ports[piece.wire] = spots.port(piece)
            plate.rims[piece.wire] = 0 if piece.source is None else -1
            top = ways.sides[box.key, piece.wire] == "top"
            line = [(u, start), (u, 0.0)] if top else [(u, end), (u, end + channel)]
            line = line if piece.target is None else line[::-1]
        else:
            track = end + BEND_MARGIN + rows[piece.wire] * TRACK
            one, other = spots.at(piece, piece.source), spots.at(piece, piece.target)
            line = [(one, end), (one, track), (other, track), (other, end)]
        plate.pieces[piece.wire] = line if down else [(v, u) for u, v in line]
    return plate


def _rows(pieces: list[Segment], spots: _Spots) -> dict[int, int]:
    """The row of every piece between regions: short ones nearest, those that meet apart."""
    spans = []
    for piece in pieces:
        assert piece.source is not None
        assert piece.target is not None
        one, other = spots.at(piece, piece.source), spots.at(piece, piece.target)
        spans.append((abs(one - other), piece.wire, min(one, other), max(one, other)))
    rows: dict[int, int] = {}
    done: list[tuple[int, float, float]] = []
    for _, wire, low, high in sorted(spans):
        met = [row for row, start, end in done if low - _CLEARANCE < end and start - _CLEARANCE < high]
        rows[wire] = max(met, default=-1) + 1
        done.append((rows[wire], low, high))
    return rows
