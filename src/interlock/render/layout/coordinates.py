"""Coordinates across the flow: lines are made straight first, then short.

Rule 1: a block must stay straight: an item, or the part of a link that passes layers until it crosses another link.
        Blocks keep their order and their distances on every layer. Links inside blocks do not cross, so the relation
        "left of" has no cycles.
Rule 2: first, each block moves toward the mean of the blocks it is linked to. Pushing all to the right, pushing all to
        the left and taking the middle keeps every distance, because the distances are linear.
Rule 3: then a block, or several that straight lines join, moves to where another line becomes straight, if all bends
        together become shorter.
Rule 4: last, the only line of a round item moves to its middle, if there is room and its other end bends anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from interlock.render.layout.layering import LayeredItems
from interlock.render.layout.level import ITEM_GAP, LINE_GAP, PORT_GAP, Budget, Item
from interlock.render.layout.ports import Side, Span, sides_of, span, spread

_DRIFT_ROUNDS = 24
_SETTLE_ROUNDS = 12
_PUSH_ROUNDS = 4
_PUSH_MAX = 40.0
"""How far other blocks are pushed to straighten a line."""
_EXACT = 0.01
_BEND_MIN = 16.0
"""Between two bends: room for two round corners."""
_BEND_COST = 30.0
"""The cost of a bend, in pixels across: of two lines of the same length, the one with fewer bends is better."""


@dataclass(slots=True)
class Joint:
    """Two blocks that a line joins. It is straight if the second is between `low` and `high` after the first."""

    first: int
    second: int
    low: float
    high: float
    weight: float


@dataclass(slots=True)
class PlacedItems:
    """The anchor of every vertex, and the ends of each link on its upper and lower item, from the item's middle."""

    places: list[float]
    ends: list[list[float]]


class Blocks:
    """The blocks of a level, their distances and their joints."""

    def __init__(self, made: LayeredItems, items: list[Item], rows: list[list[int]], budget: Budget) -> None:
        self.made, self.items, self.rows, self.budget = made, items, rows, budget
        self.block = list(range(len(made.layer)))
        self._join_passages()
        names = {name: number for number, name in enumerate(dict.fromkeys(self.block))}
        self.block = [names[each] for each in self.block]
        self.count = len(names)
        self.right: list[dict[int, float]] = [{} for _ in range(self.count)]
        self.left: list[dict[int, float]] = [{} for _ in range(self.count)]
        for row in rows:
            for one, other in pairwise(row):
                self._keep_apart(one, other)
        self.order = self._topological()
        self.x = [0.0] * self.count
        self._push_right()

    def _join_passages(self) -> None:
        """Join the vertices of each link, except where two links cross: there the shorter chain bends."""
        position = {vertex: place for row in self.rows for place, vertex in enumerate(row)}
        first_dummy = len(self.items)
        by_gap: dict[int, list[tuple[int, int, int]]] = {}
        for number, chain in enumerate(self.made.chains):
            for upper, lower in pairwise(chain[1:-1]):
                by_gap.setdefault(self.made.layer[upper], []).append((number, upper, lower))
        for segments in by_gap.values():
            self.budget.spend(len(segments) * len(segments))
            ranked = sorted(segments, key=lambda segment: (-len(self.made.chains[segment[0]]), segment[0]))
            kept: list[tuple[int, int]] = []
            for _, upper, lower in ranked:
                here = (position[upper], position[lower])
                if all((here[0] < other[0]) == (here[1] < other[1]) for other in kept):
                    kept.append(here)
                    assert upper >= first_dummy
                    self.block[lower] = upper
        for vertex in range(first_dummy, len(self.block)):
            # The vertices of a chain are numbered downwards, so the one above was handled before.
            self.block[vertex] = self.block[self.block[vertex]]

    def _keep_apart(self, one: int, other: int) -> None:
        boxes = one < len(self.items) and other < len(self.items)
        gap = ITEM_GAP if boxes else LINE_GAP
        if boxes and "box" not in (self.items[one].role, self.items[other].role):
            gap = PORT_GAP - 1.0
        distance = self.made.extents[one][1] + gap + self.made.extents[other][0]
        left, right = self.block[one], self.block[other]
        distance = max(distance, self.right[left].get(right, 0.0))
        self.right[left][right] = self.left[right][left] = distance

    def _topological(self) -> list[int]:
        waiting = [len(each) for each in self.left]
        ready = [each for each in range(self.count) if not waiting[each]]
        for each in ready:
            for other in self.right[each]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        assert len(ready) == self.count
        return ready

    def _push_right(self) -> None:
        for each in self.order:
            for other, distance in self.right[each].items():
                self.x[other] = max(self.x[other], self.x[each] + distance)

    def _push_left(self) -> None:
        for each in reversed(self.order):
            for other, distance in self.left[each].items():
                self.x[other] = min(self.x[other], self.x[each] - distance)

    def joints(self, ends: list[list[Span]]) -> list[Joint]:
        """Return the joints of blocks: of links to their items, and between the parts of a divided link."""
        found = []
        for number, chain in enumerate(self.made.chains):
            upper, lower = ends[number]
            found.append(Joint(self.block[chain[0]], self.block[chain[1]], *upper, 2.0))
            found.append(Joint(self.block[chain[-1]], self.block[chain[-2]], *lower, 2.0))
            for one, other in pairwise(chain[1:-1]):
                if self.block[one] != self.block[other]:
                    found.append(Joint(self.block[one], self.block[other], 0.0, 0.0, 4.0))
        return found

    def drift(self, joints: list[Joint]) -> None:
        """Move every block toward the weighted mean of the blocks it is joined to."""
        for _ in range(_DRIFT_ROUNDS):
            self.budget.spend(2 * len(joints) + 4 * self.count)
            total, weight = [0.0] * self.count, [0.0] * self.count
            for joint in joints:
                total[joint.first] += joint.weight * (self.x[joint.second] - joint.low)
                total[joint.second] += joint.weight * (self.x[joint.first] + joint.high)
                weight[joint.first] += joint.weight
                weight[joint.second] += joint.weight
            wanted = [
                0.25 * here + 0.75 * sums / heavy if heavy else here
                for here, sums, heavy in zip(self.x, total, weight, strict=True)
            ]
            self.x = list(wanted)
            self._push_right()
            pushed, self.x = self.x, list(wanted)
            self._push_left()
            self.x = [(one + other) / 2 for one, other in zip(pushed, self.x, strict=True)]

    def settle(self, joints: list[Joint]) -> None:
        """Move blocks, and groups that straight lines join, to where all bends together are shortest."""
        touching = self._touching(joints)
        for _ in range(_SETTLE_ROUNDS):
            moved = False
            seen: set[int] = set()
            for each in range(self.count):
                if not touching[each]:
                    continue
                moved |= self._settle([each], touching)
                if each not in seen:
                    group = self._straight_group(each, touching)
                    seen.update(group)
                    if len(group) > 1:
                        moved |= self._settle(group, touching)
            if not moved:
                break

    def straighten(self, joints: list[Joint]) -> None:
        """Straighten lines that are nearly straight, pushing others if all bends together then cost less."""
        touching = self._touching(joints)
        for _ in range(_PUSH_ROUNDS):
            moved = False
            for joint in joints:
                away = self.x[joint.second] - self.x[joint.first]
                miss = joint.low - away if away < joint.low else min(joint.high - away, 0.0)
                if _EXACT < abs(miss) < _PUSH_MAX:
                    for start, shift in ((joint.second, miss), (joint.first, -miss)):
                        alone = self._push([start], shift, touching)
                        moved |= alone or self._push(self._straight_group(start, touching), shift, touching)
            if not moved:
                break

    def _push(self, group: list[int], shift: float, touching: list[list[Joint]]) -> bool:
        """Move a group and the blocks in its way, if that is better. Return whether it moved."""
        moves, sign = dict.fromkeys(group, shift), 1.0 if shift > 0 else -1.0
        self.budget.spend(self.count)
        for each in self.order if shift > 0 else reversed(self.order):
            if each in moves:
                for other, distance in (self.right if shift > 0 else self.left)[each].items():
                    room = sign * (self.x[other] + moves.get(other, 0.0) - self.x[each] - moves[each])
                    if distance - room > _EXACT:
                        moves[other] = moves.get(other, 0.0) + sign * (distance - room)
        concerned = {id(joint): joint for each in moves for joint in touching[each]}
        before = fsum(self._bend(joint, moves, 0.0) for joint in concerned.values())
        after = fsum(self._bend(joint, moves, 1.0) for joint in concerned.values())
        if after > before - _EXACT:
            return False
        for each, by in moves.items():
            self.x[each] += by
        return True

    def _bend(self, joint: Joint, moves: dict[int, float], part: float) -> float:
        """Return the cost of the bend of one line, before or after a move."""
        away = self.x[joint.second] - self.x[joint.first]
        away += part * (moves.get(joint.second, 0.0) - moves.get(joint.first, 0.0))
        distance = joint.low - away if away < joint.low else away - joint.high
        return joint.weight * distance + _BEND_COST if distance > _EXACT else 0.0

    def _touching(self, joints: list[Joint]) -> list[list[Joint]]:
        touching: list[list[Joint]] = [[] for _ in range(self.count)]
        for joint in joints:
            touching[joint.first].append(joint)
            touching[joint.second].append(joint)
        return touching

    def _straight_group(self, start: int, touching: list[list[Joint]]) -> list[int]:
        group = [start]
        seen = {start}
        for each in group:
            self.budget.spend(len(touching[each]))
            for joint in touching[each]:
                if joint.low - _EXACT < self.x[joint.second] - self.x[joint.first] < joint.high + _EXACT:
                    for other in (joint.first, joint.second):
                        if other not in seen:
                            seen.add(other)
                            group.append(other)
        return group

    def _settle(self, group: list[int], touching: list[list[Joint]]) -> bool:
        """Move a group to the best place it can reach without pushing others. Return whether it moved."""
        inside = set(group)
        pulls: list[tuple[float, float, float]] = []
        for each in group:
            for joint in touching[each]:
                if (joint.first in inside) != (joint.second in inside):
                    away = self.x[joint.second] - self.x[joint.first]
                    least, most = away - joint.high, away - joint.low
                    pulls.append(
                        (least, most, joint.weight) if joint.first in inside else (-most, -least, joint.weight)
                    )
        self.budget.spend(len(group) + len(pulls) * len(pulls) // 4)
        if all(least < _EXACT and most > -_EXACT for least, most, _ in pulls):
            return False
        low, high = self._room(group, inside)
        shift = _best_shift(pulls, min(low, 0.0), max(high, 0.0))
        if abs(shift) < _EXACT:
            return False
        for each in group:
            self.x[each] += shift
        return True

    def shift(self, vertex: int, by: float) -> bool:
        """Move the block of a vertex if nothing is in the way. Return whether it moved."""
        block = self.block[vertex]
        low, high = self._room([block], {block})
        if not low <= by <= high:
            return False
        self.x[block] += by
        return True

    def bends(self, number: int, end: int, ends: list[list[float]], off: float) -> bool:
        """Return whether a link has only one bend, at its other end, and keeps it if it moves."""
        chain = self.made.chains[number]
        line = self.block[chain[1]]
        if any(self.block[each] != line for each in chain[1:-1]):
            return False
        away = self.x[line] - self.x[self.block[chain[0 if end else -1]]] - ends[number][1 - end]
        sign = 1.0 if away > 0 else -1.0
        return min(sign * away, sign * (away - off)) >= _BEND_MIN

    def _room(self, group: list[int], inside: set[int]) -> tuple[float, float]:
        """Return how far a group can move to either side before it meets another block."""
        low, high = float("-inf"), float("inf")
        for each in group:
            for other, distance in self.left[each].items():
                if other not in inside:
                    low = max(low, self.x[other] + distance - self.x[each])
            for other, distance in self.right[each].items():
                if other not in inside:
                    high = min(high, self.x[other] - distance - self.x[each])
        return low, high


def _best_shift(pulls: list[tuple[float, float, float]], low: float, high: float) -> float:
    """Return the shift within limits that costs least; 0 if none is better."""
    best, least = 0.0, _strain(pulls, 0.0)
    shifts = {min(max(shift, low), high) for pull in pulls for shift in pull[:2]}
    for shift in sorted(shifts, key=lambda each: (abs(each), each)):
        cost = _strain(pulls, shift)
        if cost < least - _EXACT:
            best, least = shift, cost
    return best


def _strain(pulls: list[tuple[float, float, float]], shift: float) -> float:
    """Return the cost of the lines of a group after a shift: their length across, and each bend."""
    total = 0.0
    for low, high, weight in pulls:
        distance = low - shift if shift < low else shift - high
        if distance > _EXACT:
            total += weight * distance + _BEND_COST
    return total


def place_items(made: LayeredItems, items: list[Item], rows: list[list[int]], budget: Budget) -> PlacedItems:
    """Return the coordinate of every vertex across the flow, and the ends of links on their items."""
    blocks = Blocks(made, items, rows, budget)
    position = [0.0] * len(made.layer)
    for row in rows:
        for place, vertex in enumerate(row):
            position[vertex] = float(place)
    ends = [[0.0, 0.0] for _ in made.chains]
    spans = [[(0.0, 0.0), (0.0, 0.0)] for _ in made.chains]
    sides = sides_of(made, items)
    for side in sides:
        budget.spend(len(side.links) * (1 + len(items[side.item].fixed_ports)) ** 2)
        order = [position[vertex] for _, _, vertex in side.links]
        spread(side, items, ends, order, wanted=None)
        span(side, items, spans, order)
    joints = blocks.joints(_exact(ends))
    blocks.drift(joints)
    blocks.settle(joints)
    for _ in range(2):
        # First as if lines could end anywhere on their side, then where they really end.
        blocks.settle(joints := blocks.joints(spans))
        blocks.straighten(joints)
        for side in sides:
            middle = blocks.x[blocks.block[side.item]]
            wanted = [blocks.x[blocks.block[vertex]] - middle for _, _, vertex in side.links]
            spread(side, items, ends, wanted, wanted=wanted)
        blocks.settle(blocks.joints(_exact(ends)))
    for item, number, end in _lonely(sides, items):
        middle = (items[item].low + items[item].high - items[item].across) / 2
        off = ends[number][end] - middle
        if blocks.bends(number, end, ends, off) and blocks.shift(made.chains[number][1], -off):
            ends[number][end] = middle
    places = [blocks.x[each] for each in blocks.block]
    return PlacedItems(places, ends)


def _lonely(sides: list[Side], items: list[Item]) -> Iterator[tuple[int, int, int]]:
    """Return the round items with only one line, that line, and which end of it."""
    links: dict[int, list[tuple[int, int, int]]] = {}
    for side in sides:
        links.setdefault(side.item, []).extend(side.links)
    for item, found in links.items():
        if items[item].is_round and len(found) == 1:
            yield item, found[0][0], found[0][1]


def _exact(ends: list[list[float]]) -> list[list[Span]]:
    return [[(upper, upper), (lower, lower)] for upper, lower in ends]
