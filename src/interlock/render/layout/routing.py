"""Route lines: the tracks between layers, the coordinates along the flow, the points of each line.

Rule 1: between two layers a line is straight, or bends twice at its track. Tracks are ordered so that few lines cross
        and no two lines overlap.
Rule 2: items and labels are centred on their layer. A line runs straight on to the border of its item.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.render.layout.coordinates import PlacedItems, place_items
from interlock.render.layout.layering import LayeredItems, make_layers
from interlock.render.layout.level import BEND_MARGIN, STRAIGHT_MARGIN, TRACK, Budget, Item, LevelLayout, Link
from interlock.render.layout.ordering import order_layers

_CLEARANCE = 8.0
_NEAR = 5.0
_OVERLAP_COST = 50
_STRAIGHT = 0.05


@dataclass(slots=True)
class Bend:
    """The part of a link between two layers that bends: from `above` to `below`, on `row`."""

    link: int
    above: float
    below: float
    row: int = 0

    @property
    def low(self) -> float:
        """The start, across the flow."""
        return min(self.above, self.below)

    @property
    def high(self) -> float:
        """The end, across the flow."""
        return max(self.above, self.below)


def route_level(items: list[Item], links: list[Link], budget: Budget) -> LevelLayout:
    """Return the layout of a level. Its smallest coordinates are 0."""
    made = make_layers(items, links, budget)
    rows, _ = order_layers(made, items, budget)
    spots = place_items(made, items, rows, budget)
    gaps = _gaps(made, spots, len(rows), budget)
    starts, ends, tracks = _along(made, rows, gaps)
    least = min(
        (spots.places[each] - made.extents[each][0] for each in range(len(made.layer))),
        default=0.0,
    )
    most = max((spots.places[each] + made.extents[each][1] for each in range(len(made.layer))), default=0.0)
    middle = [(start + end) / 2 for start, end in zip(starts, ends, strict=True)]
    places = [
        (spots.places[each] - item.across / 2 - least, middle[made.layer[each]] - item.along / 2)
        for each, item in enumerate(items)
    ]
    lines = _lines(made, items, spots, middle, tracks)
    return LevelLayout(
        across=most - least,
        along=ends[-1] if ends else 0.0,
        places=places,
        lines=[[(u - least, v) for u, v in line] for line in lines],
        labels=[
            None if label is None else (spots.places[label] - least, middle[made.layer[label]]) for label in made.labels
        ],
        reversed=made.turned,
    )


def _passes(made: LayeredItems, spots: PlacedItems, number: int) -> list[tuple[int, float, float]]:
    """Return the coordinates of a link above and below each gap between layers, downwards."""
    chain = made.chains[number]
    upper, lower = spots.ends[number]
    places = [spots.places[vertex] for vertex in chain]
    places[0] += upper
    places[-1] += lower
    return [(made.layer[vertex], here, there) for vertex, here, there in zip(chain, places, places[1:], strict=False)]


def _gaps(made: LayeredItems, spots: PlacedItems, layers: int, budget: Budget) -> list[list[Bend]]:
    """Return the bends after each layer, with their rows."""
    gaps: list[list[Bend]] = [[] for _ in range(layers)]
    for number in range(len(made.chains)):
        for layer, here, there in _passes(made, spots, number):
            if abs(here - there) >= _STRAIGHT:
                gaps[layer].append(Bend(number, here, there))
    for bends in gaps:
        _stack(bends, budget)
    return gaps


def _stack(bends: list[Bend], budget: Budget) -> None:
    """Give the bends of one gap their rows: short ones first, each where it costs least."""
    order: list[Bend] = []
    for bend in sorted(bends, key=lambda each: (each.high - each.low, each.link)):
        budget.spend(4 * (len(order) + 1))
        # Placed last it is below all others; moving up past each of them changes the cost pair by pair.
        cost = best = sum(_cost(other, bend) for other in order)
        at = len(order)
        for place in range(len(order) - 1, -1, -1):
            cost += _cost(bend, order[place]) - _cost(order[place], bend)
            if cost < best:
                best, at = cost, place
        order.insert(at, bend)
    for number, bend in enumerate(order):
        budget.spend(number)
        bend.row = max((other.row + 1 for other in order[:number] if _meets(other, bend)), default=0)


def _cost(upper: Bend, lower: Bend) -> int:
    """Return the cost of one bend above another: 1 for each crossing, much more if they overlap."""
    cost = int(lower.low < upper.below < lower.high) + int(upper.low < lower.above < upper.high)
    return cost + (_OVERLAP_COST if abs(upper.below - lower.above) < _NEAR else 0)


def _meets(one: Bend, other: Bend) -> bool:
    """Return whether two bends need different rows."""
    return one.low - _CLEARANCE < other.high and other.low - _CLEARANCE < one.high


def _along(
    made: LayeredItems, rows: list[list[int]], gaps: list[list[Bend]]
) -> tuple[list[float], list[float], dict[tuple[int, int], float]]:
    """Return the start and end of each layer along the flow, and the track of each bend by layer and link."""
    starts, ends = [], []
    tracks: dict[tuple[int, int], float] = {}
    here = 0.0
    for layer, row in enumerate(rows):
        starts.append(here)
        here += max((made.along[vertex] for vertex in row), default=0.0)
        ends.append(here)
        bends = gaps[layer]
        if layer == len(rows) - 1:
            break
        for bend in bends:
            tracks[layer, bend.link] = here + BEND_MARGIN + bend.row * TRACK
        count = max((bend.row + 1 for bend in bends), default=0)
        here += 2 * BEND_MARGIN + (count - 1) * TRACK if count else STRAIGHT_MARGIN
    return starts, ends, tracks


def _lines(
    made: LayeredItems, items: list[Item], spots: PlacedItems, middle: list[float], tracks: dict[tuple[int, int], float]
) -> list[list[tuple[float, float]]]:
    """Return the points of every link, from its source to its target."""
    lines = []
    for number, chain in enumerate(made.chains):
        passes = _passes(made, spots, number)
        upper, lower = chain[0], chain[-1]
        line = [(passes[0][1], middle[made.layer[upper]] + items[upper].along / 2)]
        for layer, here, there in passes:
            if (layer, number) in tracks:
                track = tracks[layer, number]
                line += [(here, track), (there, track)]
        line.append((passes[-1][2], middle[made.layer[lower]] - items[lower].along / 2))
        lines.append(line[::-1] if made.turned[number] else line)
    return lines
