"""Where lines end on the side of a box.

Rule 1: ends have the order of the vertices they come from, and keep their gaps. Fixed ports stay.
Rule 2: an end is where its line is straight, as far as the other ends and the corners allow.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.render.layout.layering import LayeredItems
from interlock.render.layout.level import CORNER, PORT_GAP, Item

Span = tuple[float, float]
"""The limits of an end, from the middle of its item."""

_EXACT = 0.01


@dataclass(slots=True)
class Side:
    """One side of an item: the links that end there, as (link, end, vertex it comes from)."""

    item: int
    links: list[tuple[int, int, int]]


def sides_of(made: LayeredItems, items: list[Item]) -> list[Side]:
    """Return every side of an item on which links end."""
    found: dict[tuple[int, int], Side] = {}
    for number, chain in enumerate(made.chains):
        for end, (item, vertex) in enumerate(((chain[0], chain[1]), (chain[-1], chain[-2]))):
            assert item < len(items)
            found.setdefault((item, end), Side(item, [])).links.append((number, end, vertex))
    return list(found.values())


def span(side: Side, items: list[Item], spans: list[list[Span]], keys: list[float]) -> None:
    """Return the limits of each end on one side that keep the order and the gaps."""
    item = items[side.item]
    middle = item.across / 2
    low, high = item.low - middle, item.high - middle
    gap = min(PORT_GAP, (high - low) / max(len(side.links) - 1, 1))
    for place, (_, (number, end, _)) in enumerate(sorted(zip(keys, side.links, strict=True))):
        pin = item.fixed_ports.get(number)
        if pin is None:
            spans[number][end] = (low + place * gap, high - (len(side.links) - 1 - place) * gap)
        else:
            spans[number][end] = (pin - middle, pin - middle)


def spread(
    side: Side, items: list[Item], ends: list[list[float]], keys: list[float], *, wanted: list[float] | None
) -> None:
    """Place the ends on one side of an item: fixed ones as they are, the others near their wanted places."""
    item = items[side.item]
    middle = item.across / 2
    low, high = item.low - middle, item.high - middle
    pinned = sorted(item.fixed_ports[number] - middle for number, _, _ in side.links if number in item.fixed_ports)
    free = sorted(
        (key, number, end, index)
        for index, ((number, end, _), key) in enumerate(zip(side.links, keys, strict=True))
        if number not in item.fixed_ports
    )
    for number, end, _ in side.links:
        if number in item.fixed_ports:
            ends[number][end] = item.fixed_ports[number] - middle
    if not free:
        return
    gap = min(PORT_GAP, (high - low) / max(len(free) + len(pinned) - 1, 1))
    centre = (low + high) / 2
    wanted = [
        centre + (place - (len(free) - 1) / 2) * gap if wanted is None else wanted[index]
        for place, (_, _, _, index) in enumerate(free)
    ]
    places = pooled([min(max(each, low), high) for each in wanted], gap)
    places = _within(places, gap, low, high)
    for (_, number, end, _), place in zip(free, _beside(places, pinned, gap, low, high), strict=True):
        ends[number][end] = place


def pooled(wanted: list[float], gap: float) -> list[float]:
    """Return the places nearest to the wanted ones, in order and at least a gap apart: pool adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for number, place in enumerate(wanted):
        mean, count = place - number * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    return [mean + number * gap for number, mean in enumerate(means)]


def _within(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Return the places moved between two limits, with their gaps."""
    pushed = [min(place, high - (len(places) - 1 - number) * gap) for number, place in enumerate(places)]
    return [max(place, low + number * gap) for number, place in enumerate(pushed)]


def _beside(places: list[float], pinned: list[float], gap: float, low: float, high: float) -> list[float]:
    """Return the places, each moved to the nearest free spot."""
    if not pinned:
        return places
    taken = list(pinned)
    for place in places:
        taken.append(free_spot(place, taken, gap, low, high))
    return sorted(taken[len(pinned) :])


def free_spot(place: float, taken: list[float], gap: float, low: float, high: float) -> float:
    """Return the spot nearest to a place that is a gap away from all others; the place itself if none is free."""
    spots = [place, *(each + side * gap for each in taken for side in (-1.0, 1.0)), low, high]
    legal = [spot for spot in spots if low - _EXACT <= spot <= high + _EXACT]
    free = [spot for spot in legal if all(abs(spot - each) >= gap - _EXACT for each in taken)]
    return min(free or [place], key=lambda spot: (abs(spot - place), spot))


def side_room(count: int) -> float:
    """Return the length that a side needs for this many lines."""
    return 2 * CORNER + PORT_GAP * (count - 1) if count > 1 else 0.0


def port_range(across: float) -> tuple[float, float]:
    """Return the part of a side on which lines may end: away from the corners; the middle of a short side."""
    return (CORNER, across - CORNER) if across >= 2 * CORNER else (across / 2, across / 2)
