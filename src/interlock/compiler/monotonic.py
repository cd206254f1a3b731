"""Proof that a chart never goes back: `monotonic`, on the graph of its transitions.

Rule 1: guards are ignored: a path that some guard would stop still counts, because the proof must hold for every guard.
Rule 2: "never again" means never: a state that is left and entered anew counts like one that was never left.
"""

from __future__ import annotations

from interlock.compiler.graph import Graph
from interlock.compiler.review import Review, trigger
from interlock.errors import Place
from interlock.model.chart import Transition
from interlock.model.tree import Unresolved

ORDER_MAX = 100
"""States in one order: each is followed through the whole chart, and people order a handful."""


def check_monotonic(review: Review, graph: Graph, reachable: frozenset[int]) -> None:
    """Every order that the chart promises to keep, proved or refuted with a path."""
    for index, written in enumerate(review.tree.states):
        if written.monotonic is None:
            continue
        if written.monotonic is True:
            order = list(graph.regions(graph.states[index]))
        else:
            order = _named(review, index, written.monotonic, written.place)
        if len(order) > ORDER_MAX:
            message = f"monotonic orders {len(order)} states; at most {ORDER_MAX} can be proved"
            review.error("monotonic.order", message, written.place, "name the states that matter")
        elif _is_order(review, graph, order, written.place):
            _prove(review, graph, [each for each in order if each in reachable], written.place)


def _named(review: Review, index: int, names: tuple[str, ...], place: Place) -> list[int]:
    found: list[int] = []
    for name in names:
        state = review.tree.inner(index, name)
        if isinstance(state, Unresolved):
            state = review.tree.by_id.get(name, state)
        if isinstance(state, Unresolved):
            review.error("target.unknown", f"monotonic: {state.message}", place, state.hint)
        elif state in found:
            review.error("monotonic.order", f'monotonic names "{name}" twice', place, "name each state once")
        else:
            found.append(state)
    return found


def _is_order(review: Review, graph: Graph, order: list[int], place: Place) -> bool:
    """Whether the states exclude each other, so that one can come before the other."""
    for position, second in enumerate(order):
        for first in order[:position]:
            if graph.together(first, second):
                message = f"{review.name(first)} and {review.name(second)} can be active together"
                review.error("monotonic.order", message, place, "name states of which only one is active at a time")
                return False
    return True


def _prove(review: Review, graph: Graph, order: list[int], place: Place) -> None:
    """Tells the first way back, if there is one."""
    for position, late in enumerate(order):
        path = _way_back(graph, late, order[:position])
        if path is not None:
            steps = " ".join(f"-[{trigger(each)}]-> {review.name(_shown(graph, each, end))}" for each, end in path)
            earlier = next(each for each in order[:position] if graph.is_within(path[-1][1], each))
            message = (
                f"after {review.name(late)}, {review.name(earlier)} can be entered again: {review.name(late)} {steps}"
            )
            hint = "take the transition out, lead it elsewhere, or take the state out of `monotonic`"
            review.error("monotonic.violated", message, place, hint)
            return


def _shown(graph: Graph, transition: Transition, end: int) -> int:
    """What a path shows for a transition: the target that led to where the path goes on."""
    return next((each for each in transition.targets if graph.is_within(end, each)), end)


def _way_back(graph: Graph, late: int, earlier: list[int]) -> list[tuple[Transition, int]] | None:
    """The shortest path from a state to one of those that should lie behind it, as (transition, state entered)."""
    if not earlier:
        return None
    start = {
        state.index for state in graph.states if graph.is_atomic(state.index) and graph.together(state.index, late)
    }
    origin: dict[int, tuple[int, Transition]] = {}
    for atom, transition, entered in graph.spread(start, memory=True):
        for each in sorted(entered):
            if each not in origin and each not in start and graph.is_atomic(each):
                origin[each] = (atom, transition)
                if any(graph.is_within(each, state) for state in earlier):
                    return _path(origin, each)
    return None


def _path(origin: dict[int, tuple[int, Transition]], end: int) -> list[tuple[Transition, int]]:
    found: list[tuple[Transition, int]] = []
    while end in origin:
        atom, transition = origin[end]
        found.append((transition, end))
        end = atom
    return found[::-1]
