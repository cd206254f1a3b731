"""Layers of items and links: which links run against the flow, the layer of each item, and the layers that links pass.

Rule 1: results depend on the structure alone, not on sizes, so they can be computed first.
Rule 2: items are on even layers, labels on odd ones, so a label cannot meet an item.
Rule 3: no recursion, because a chart may be one chain of the maximum number of states.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.render.layout.level import LINE_HALF, Budget, Item, Link

_TIGHTENING_ROUNDS = 8


def against(roles: list[str], links: list[tuple[int, int]]) -> list[bool]:
    """Return which links run against the flow: links that would close a cycle, and links that ports reverse.

    The walk starts at the dot, then where lines enter, then in document order.
    """
    turned = [roles[target] == "top" or roles[source] == "bottom" for source, target in links]
    leaving: list[list[int]] = [[] for _ in roles]
    for number, (source, _) in enumerate(links):
        if not turned[number]:
            leaving[source].append(number)
    first = {"start": 0, "top": 1}
    state = [0] * len(roles)
    for root in sorted(range(len(roles)), key=lambda each: (first.get(roles[each], 2), each)):
        if state[root]:
            continue
        state[root] = 1
        stack = [(root, iter(leaving[root]))]
        while stack:
            item, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[item] = 2
                stack.pop()
                continue
            target = links[following][1]
            if state[target] == 1:
                turned[following] = True
            elif not state[target]:
                state[target] = 1
                stack.append((target, iter(leaving[target])))
    return turned


def layers_of(items: list[Item], arcs: list[tuple[int, int]]) -> list[int]:
    """Return the layer of each item. Every arc leads to a higher layer; ports have the first and last layer."""
    count = len(items)
    inner = [item.role not in ("top", "bottom") for item in items]
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in arcs:
        if inner[source] and inner[target]:
            after[source].append(target)
            before[target].append(source)
    base = 1 if any(item.role == "top" for item in items) else 0
    layer = [base] * count
    waiting = [len(each) for each in before]
    ready = [each for each in range(count) if inner[each] and not waiting[each]]
    for item in ready:
        for target in after[item]:
            layer[target] = max(layer[target], layer[item] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    last = max((layer[each] for each in ready), default=base)
    for _ in range(_TIGHTENING_ROUNDS):
        if not _tighten(ready, layer, before, after, (base, last)):
            break
    for each in range(count):
        if items[each].role == "top":
            layer[each] = 0
        elif items[each].role == "bottom":
            layer[each] = last + 1
    return layer


def _tighten(
    order: list[int], layer: list[int], before: list[list[int]], after: list[list[int]], ends: tuple[int, int]
) -> bool:
    """Move each item toward the side with more of its links, as far as possible. Return whether any moved."""
    moved = False
    for each in order:
        low = max((layer[other] + 1 for other in before[each]), default=ends[0])
        high = min((layer[other] - 1 for other in after[each]), default=ends[1])
        pull = len(after[each]) - len(before[each])
        wanted = high if pull > 0 else low if pull < 0 else layer[each]
        if wanted != layer[each]:
            layer[each] = wanted
            moved = True
    return moved


@dataclass(slots=True, kw_only=True)
class LayeredItems:
    """Vertices on doubled layers. The first ones are the items; the others are where a link passes a layer.

    `chains` leads each link from its lower layer to its higher one; `extents` is the room of a vertex before and behind
    its anchor (of an item its middle, of a link its line); `along` its size in the flow.
    """

    layer: list[int]
    chains: list[list[int]]
    turned: list[bool]
    extents: list[tuple[float, float]]
    along: list[float]
    labels: list[int | None]
    rows: list[list[int]]


def make_layers(items: list[Item], links: list[Link], budget: Budget) -> LayeredItems:
    """Return items and links on layers. A link has a vertex on each layer it passes, its label on the first odd one."""
    turned = against([item.role for item in items], [(link.source, link.target) for link in links])
    arcs = [
        (link.target, link.source) if back else (link.source, link.target)
        for link, back in zip(links, turned, strict=True)
    ]
    layer = [2 * each for each in layers_of(items, arcs)]
    made = LayeredItems(
        layer=layer,
        chains=[],
        turned=turned,
        extents=[(item.across / 2, item.across / 2 + item.beyond) for item in items],
        along=[item.along for item in items],
        labels=[],
        rows=[],
    )
    for link, back, (upper, lower) in zip(links, turned, arcs, strict=True):
        between = range(layer[upper] + 1, layer[lower])
        budget.spend(8 * len(between))
        labelled = None if link.label is None else between[-1] if back else between[0]
        chain, label = [upper], None
        for each in between:
            chain.append(len(layer))
            if each == labelled and link.label is not None:
                label = len(layer)
                made.extents.append(link.label[:2])
                made.along.append(link.label[2])
            else:
                made.extents.append((LINE_HALF, LINE_HALF))
                made.along.append(0.0)
            layer.append(each)
        made.chains.append([*chain, lower])
        made.labels.append(label)
    made.rows = [[] for _ in range(max(layer, default=0) + 1)]
    for vertex, each in enumerate(layer):
        made.rows[each].append(vertex)
    return made
