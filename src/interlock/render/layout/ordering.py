"""The order of vertices on each layer, chosen so that few lines cross.

Rule 1: barycentre sweeps go down and up, and the best order is kept. Then neighbours are swapped while that helps.
Rule 2: the position of a line is where it ends on a box, not the middle of the box. Fixed ports keep their order.
Rule 3: ties keep the previous order, so that the same level always gives the same result.
"""

from __future__ import annotations

from itertools import pairwise
from math import fsum

from interlock.render.layout.layering import LayeredItems
from interlock.render.layout.level import Budget, Item

_SWEEPS = 16
_EXCHANGE_ROUNDS = 8


class _Levels:
    """The links between each layer and the next: (upper vertex, lower vertex, where on each they end)."""

    def __init__(self, made: LayeredItems, items: list[Item], budget: Budget) -> None:
        self.budget = budget
        self.rows = [list(row) for row in made.rows]
        self.position = [0.0] * len(made.layer)
        self.down: list[list[tuple[int, float, float]]] = [[] for _ in made.layer]
        self.up: list[list[tuple[int, float, float]]] = [[] for _ in made.layer]
        for number, chain in enumerate(made.chains):
            for upper, lower in pairwise(chain):
                ends = (_end(items, upper, number), _end(items, lower, number))
                self.down[upper].append((lower, *ends))
                self.up[lower].append((upper, ends[1], ends[0]))
        self.number()

    def number(self) -> None:
        for row in self.rows:
            for place, vertex in enumerate(row):
                self.position[vertex] = float(place)

    def crossings(self, upper: int) -> int:
        """Return the number of crossings between a layer and the next, counted with a tree of partial sums."""
        ends = [
            (self.position[vertex] + here, self.position[other] + there)
            for vertex in self.rows[upper]
            for other, here, there in self.down[vertex]
        ]
        self.budget.spend(4 * len(ends))
        ends.sort()
        ranks = {place: rank for rank, place in enumerate(sorted({lower for _, lower in ends}), 1)}
        sums = [0] * (len(ranks) + 1)
        total = 0
        for seen, (_, lower) in enumerate(ends):
            rank = ranks[lower]
            total += seen
            each = rank
            while each:
                total -= sums[each]
                each &= each - 1
            each = rank
            while each < len(sums):
                sums[each] += 1
                each += each & -each
        return total

    def all_crossings(self) -> int:
        return sum(self.crossings(each) for each in range(len(self.rows) - 1))


def _end(items: list[Item], vertex: int, link: int) -> float:
    """Return where a link ends on a vertex, as a fraction: the middle, unless its port is fixed."""
    if vertex >= len(items) or link not in items[vertex].fixed_ports:
        return 0.0
    return 0.9 * (items[vertex].fixed_ports[link] / items[vertex].across - 0.5)


def order_layers(made: LayeredItems, items: list[Item], budget: Budget) -> tuple[list[list[int]], int]:
    """Return the vertices of each layer in order, and the number of crossings."""
    levels = _Levels(made, items, budget)
    best, least = [list(row) for row in levels.rows], levels.all_crossings()
    for sweep in range(_SWEEPS):
        if not least:
            break
        _sweep(levels, downwards=sweep % 2 == 0)
        count = levels.all_crossings()
        if count < least:
            best, least = [list(row) for row in levels.rows], count
    levels.rows = best
    levels.number()
    if least:
        _exchange(levels)
    return levels.rows, levels.all_crossings()


def _sweep(levels: _Levels, *, downwards: bool) -> None:
    """Sort every layer by where its links on the layer before end."""
    depth = len(levels.rows)
    for each in range(1, depth) if downwards else range(depth - 2, -1, -1):
        row = levels.rows[each]
        linked = levels.up if downwards else levels.down
        levels.budget.spend(4 * len(row))
        wanted = {}
        for vertex in row:
            ends = [levels.position[other] + there - here for other, here, there in linked[vertex]]
            wanted[vertex] = fsum(ends) / len(ends) if ends else levels.position[vertex]
        row.sort(key=lambda vertex: (wanted[vertex], levels.position[vertex]))
        for place, vertex in enumerate(row):
            levels.position[vertex] = float(place)


def _exchange(levels: _Levels) -> None:
    """Swap neighbours while that reduces the crossings."""
    for _ in range(_EXCHANGE_ROUNDS):
        improved = False
        for row in levels.rows:
            for place in range(len(row) - 1):
                left, right = row[place], row[place + 1]
                if _pair(levels, left, right) > _pair(levels, right, left):
                    row[place], row[place + 1] = right, left
                    levels.position[left], levels.position[right] = float(place + 1), float(place)
                    improved = True
        if not improved:
            break


def _pair(levels: _Levels, left: int, right: int) -> int:
    """Return the crossings between the links of two neighbours, if one is left of the other."""
    total = 0
    for linked in (levels.up, levels.down):
        ends = [(levels.position[other] + there) for other, _, there in linked[left]]
        others = [(levels.position[other] + there) for other, _, there in linked[right]]
        levels.budget.spend(1 + len(ends) * len(others))
        total += sum(1 for mine in ends for theirs in others if mine > theirs)
    return total
