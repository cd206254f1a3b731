"""The regions of a parallel state: side by side if the flow runs down, one below the other if it runs to the right.

Rule 1: regions touch each other and the border, and are as long as the longest of them. The header is above all.
Rule 2: a line from outside runs straight to the region's own port. A line between two regions leaves and enters at the
        end of the flow, and runs in a channel there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

from interlock.render.layout.box_layout import BoxLayout, place_title, stretch_box
from interlock.render.layout.crossings import Crossings, Segment
from interlock.render.layout.level import BEND_MARGIN, PORT_GAP, TRACK
from interlock.render.layout.ports import free_spot, port_range
from interlock.render.shapes.boxes import Box
from interlock.render.shapes.text_metrics import header_size

_CHANNEL_MARGIN = 8.0
_CLEARANCE = 8.0
_TITLE_ROUNDS = 6


def lay_out_regions(
    box: Box, crossings: Crossings, region: Callable[[str, float], BoxLayout], *, down: bool, lead: float
) -> BoxLayout:
    """Return the layout of a parallel state. `region` lays out a region, with room kept free before its content."""
    layouts = [region(child, 0.0) for child in box.children]
    segments = crossings.segments.get(box.key, [])
    width, height = header_size(box)

    def title_spot() -> tuple[float, float]:
        spots = _Spots(box, layouts, segments, down=down, before=0.0 if down else height)
        crossing_points = (
            [spots.port(segment) for segment in segments if _crosses_header(box, crossings, segment)] if down else []
        )
        return place_title(width, max(fsum(layout.width for layout in layouts), width), crossing_points)

    (title, missing), room = title_spot(), 0.0
    for _ in range(_TITLE_ROUNDS):
        if not missing:
            break
        # Twice as much: a line that ends in the middle of a region's border moves only half as far.
        room += 2 * missing
        layouts[0] = region(box.children[0], room)
        title, missing = title_spot()
    if lead:
        # In addition to the room for the title: otherwise the lines of the state around might not move.
        layouts[0] = region(box.children[0], room + lead)
        title, _ = title_spot()
    return _joined(box, crossings, layouts, segments, (title, width, height), down=down)


def _crosses_header(box: Box, crossings: Crossings, segment: Segment) -> bool:
    return None in (segment.source, segment.target) and crossings.sides[box.key, segment.wire] == "top"


class _Spots:
    """Where the segments of a parallel state's level meet its regions, across the flow."""

    def __init__(
        self, box: Box, layouts: list[BoxLayout], segments: list[Segment], *, down: bool, before: float
    ) -> None:
        self._found: dict[tuple[int, str], float] = {}
        starts, here = {}, before
        for child, layout in zip(box.children, layouts, strict=True):
            starts[child] = (here, layout)
            here += layout.across(down=down)
        for child in box.children:
            start, layout = starts[child]
            taken = list(layout.ports.values())
            low, high = port_range(layout.across(down=down))
            for segment in segments:
                if child not in (segment.source, segment.target):
                    continue
                spot = layout.ports.get(segment.wire)
                if spot is None:
                    spot = free_spot((low + high) / 2, taken, PORT_GAP, low, high)
                    taken.append(spot)
                self._found[segment.wire, child] = start + spot

    def at(self, segment: Segment, child: str) -> float:
        return self._found[segment.wire, child]

    def port(self, segment: Segment) -> float:
        """Return where a segment reaches the border of the state: straight on from its region."""
        child = segment.target if segment.source is None else segment.source
        assert child is not None
        return self._found[segment.wire, child]


def _joined(
    box: Box,
    crossings: Crossings,
    layouts: list[BoxLayout],
    segments: list[Segment],
    header: tuple[float, float, float],
    *,
    down: bool,
) -> BoxLayout:
    """Return the layout of the state around its regions."""
    title, width, height = header
    if down:
        # The last region gets the room that only the header needs.
        extra = max(width - fsum(each.width for each in layouts), 0.0)
        tallest = max(each.height for each in layouts)
        widths = [each.width for each in layouts[:-1]] + [layouts[-1].width + extra]
        layouts = [stretch_box(each, width=wide, height=tallest) for each, wide in zip(layouts, widths, strict=True)]
    else:
        widest = max(width, *(each.width for each in layouts))
        layouts = [stretch_box(each, width=widest, height=each.height) for each in layouts]
    spots = _Spots(box, layouts, segments, down=down, before=0.0 if down else height)
    start = height if down else 0.0
    end = start + layouts[0].along(down=down)
    rows = _rows([segment for segment in segments if None not in (segment.source, segment.target)], spots)
    count = max((row + 1 for row in rows.values()), default=0)
    channel = BEND_MARGIN + (count - 1) * TRACK + _CHANNEL_MARGIN if count else 0.0
    across = fsum(each.across(down=down) for each in layouts)
    size = (across, end + channel) if down else (end + channel, height + across)
    layout = BoxLayout(box=box, width=size[0], height=size[1], title=title)
    here = 0.0 if down else height
    for each in layouts:
        layout.inside.append((here, height, each) if down else (0.0, here, each))
        here += each.across(down=down)
    for segment in segments:
        if segment.source is None or segment.target is None:
            u = layout.ports[segment.wire] = spots.port(segment)
            layout.border_ends[segment.wire] = 0 if segment.source is None else -1
            top = crossings.sides[box.key, segment.wire] == "top"
            line = [(u, start), (u, 0.0)] if top else [(u, end), (u, end + channel)]
            line = line if segment.target is None else line[::-1]
        else:
            track = end + BEND_MARGIN + rows[segment.wire] * TRACK
            one, other = spots.at(segment, segment.source), spots.at(segment, segment.target)
            line = [(one, end), (one, track), (other, track), (other, end)]
        layout.segments[segment.wire] = line if down else [(v, u) for u, v in line]
    return layout


def _rows(segments: list[Segment], spots: _Spots) -> dict[int, int]:
    """Return the row of every segment between regions: short ones nearest, overlapping ones in different rows."""
    spans = []
    for segment in segments:
        assert segment.source is not None
        assert segment.target is not None
        one, other = spots.at(segment, segment.source), spots.at(segment, segment.target)
        spans.append((abs(one - other), segment.wire, min(one, other), max(one, other)))
    rows: dict[int, int] = {}
    done: list[tuple[int, float, float]] = []
    for _, wire, low, high in sorted(spans):
        met = [row for row, start, end in done if low - _CLEARANCE < end and start - _CLEARANCE < high]
        rows[wire] = max(met, default=-1) + 1
        done.append((rows[wire], low, high))
    return rows
