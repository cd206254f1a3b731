"""Proof that a chart never goes back: `monotonic`, on the graph of its transitions.

Rule 1: guards are ignored: a path that some guard would stop still counts, because the proof must hold for every guard.
Rule 2: a state that is left and entered again counts like one that was never left.
Rule 3: the edges of each atomic state are found once per chart, and each order takes one backward walk over them. A
        chart with too many edges is refused, because an order that is not proved is not guaranteed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import CheckReport, describe_trigger
from interlock.errors import SourceLocation
from interlock.model.charts.chart import Transition
from interlock.model.document.targets import Unresolved

ORDER_MAX = 100
"""States in one order: people order a few."""

EDGES_MAX = 4_000_000
"""Edges between atomic states and transitions that are followed for all orders of a chart: about two seconds. A
chart of 19 regions with 100 states and 10 transitions each has 60,000, and follows them once for each of its 19
orders.
"""


class _TooManyEdges(Exception):
    """The chart has more edges than can be followed."""


def check_monotonic(report: CheckReport, graph: Graph, reachable: frozenset[int]) -> None:
    """Prove every `monotonic` order of the chart, or report a path that violates it."""
    ways = _Edges(graph)
    for index, written in enumerate(report.tree.states):
        if written.monotonic is None:
            continue
        if written.monotonic is True:
            order = list(graph.regions(graph.states[index]))
        else:
            order = _resolve_order(report, index, written.monotonic, written.location)
        if len(order) > ORDER_MAX:
            message = f"`monotonic` orders {len(order)} states; the limit is {ORDER_MAX}"
            report.add("monotonic.order", message, written.location, "list only the states that matter")
        elif _is_order(report, graph, order, written.location):
            try:
                _prove(report, ways, [each for each in order if each in reachable], written.location)
            except _TooManyEdges:
                message = "`monotonic` cannot be proved: the chart has too many transitions"
                hint = "order fewer states, or split the chart"
                report.add("monotonic.unproved", message, written.location, hint)
                return


def _resolve_order(report: CheckReport, index: int, names: tuple[str, ...], location: SourceLocation) -> list[int]:
    found: list[int] = []
    for name in names:
        state = report.tree.resolve_child(index, name)
        if isinstance(state, Unresolved):
            state = report.tree.by_id.get(name, state)
        if isinstance(state, Unresolved):
            report.add("target.unknown", f"monotonic: {state.message}", location, state.hint)
        elif state in found:
            report.add("monotonic.order", f'`monotonic` lists "{name}" twice', location, "list each state once")
        else:
            found.append(state)
    return found


def _is_order(report: CheckReport, graph: Graph, order: list[int], location: SourceLocation) -> bool:
    """Whether no two of the states can be active together."""
    for position, second in enumerate(order):
        for first in order[:position]:
            if graph.can_be_active_together(first, second):
                message = f"{report.name(first)} and {report.name(second)} can be active together"
                report.add("monotonic.order", message, location, "list states of which only one is active at a time")
                return False
    return True


def _prove(report: CheckReport, ways: _Edges, order: list[int], location: SourceLocation) -> None:
    """Report the first path back, if there is one."""
    graph, earliest = ways.graph, ways.earliest(order)
    for position, late in enumerate(order):
        active = ways.together(late)
        ways.count(len(active) // 8)
        if any(earliest.get(atom, position) < position for atom in active):
            if graph.is_exhausted:
                raise _TooManyEdges  # the path may use a transition that is shadowed
            path = _shortest_path(graph, set(active), order[:position])
            steps = " ".join(
                f"-[{describe_trigger(each)}]-> {report.name(_target_towards(graph, each, end))}" for each, end in path
            )
            earlier = next(each for each in order[:position] if graph.is_within(path[-1][1], each))
            message = (
                f"after {report.name(late)}, {report.name(earlier)} can be entered again: {report.name(late)} {steps}"
            )
            hint = "remove the transition, change its target, or remove the state from `monotonic`"
            report.add("monotonic.violated", message, location, hint)
            return


def _target_towards(graph: Graph, transition: Transition, end: int) -> int:
    """The state that a path shows for a transition: the target that contains the end of this part of the path."""
    return next((each for each in transition.targets if graph.is_within(end, each)), end)


class _Edges:
    """The edges of the graph: from atomic states to the transitions taken in them, and on to the states they enter."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edges = 0
        self._taken_in: dict[int, list[int]] = {}
        self._entering: dict[int, list[int]] = {}
        self._built = False
        self._atoms = graph.atomic_states(0)

    def together(self, late: int) -> list[int]:
        """The atomic states that can be active together with a state: inside it, and in parallel regions."""
        graph = self.graph
        found = self._within(late, graph.states[late].last)
        for outer in graph.path(late)[1:]:
            if graph.states[outer].type == "parallel":
                inner = graph.states[graph.child_towards(outer, late)]
                found += self._within(outer, inner.index - 1) + self._within(inner.last + 1, graph.states[outer].last)
        return found

    def _within(self, first: int, last: int) -> list[int]:
        """The atomic states with indexes from `first` to `last`."""
        return self._atoms[bisect_left(self._atoms, first) : bisect_right(self._atoms, last)]

    def count(self, edges: int) -> None:
        """Count followed edges. Raises _TooManyEdges."""
        self.edges += edges
        if self.edges > EDGES_MAX:
            raise _TooManyEdges

    def build(self) -> None:
        """Find the atomic states in which each transition is taken, and the transitions that enter each state."""
        graph, self._built = self.graph, True
        for transition in graph.transitions:
            if transition.targets:
                atoms = graph.atomic_states(transition.source)
                self.count(len(atoms))
                taken_in = [
                    each for each in atoms if not graph.ends_entity(each) and not graph.is_shadowed(transition, each)
                ]
                entered = [each for each in graph.entered(transition, memory=True) if graph.is_atomic(each)]
                self.count(len(entered))
                self._taken_in[transition.index] = taken_in
                for each in entered:
                    self._entering.setdefault(each, []).append(transition.index)

    def earliest(self, order: list[int]) -> dict[int, int]:
        """Per atomic state, the position of the earliest state of the order that it can lead to, if any."""
        if not self._built:
            self.build()
        found: dict[int, int] = {}
        followed: set[int] = set()
        seen: set[int] = set()
        for position, state in enumerate(order):
            # A state that leads to an earlier state has its answer already, and so do all states that lead to it.
            queue = [each for each in self.graph.atomic_states(state) if each not in followed]
            followed.update(queue)
            for atom in queue:  # grows while it is iterated, by each atomic state at most once
                entering = [each for each in self._entering.get(atom, ()) if each not in seen]
                seen.update(entering)
                self.count(len(self._entering.get(atom, ())))
                for number in entering:
                    for origin in self._taken_in[number]:
                        found.setdefault(origin, position)
                    fresh = [each for each in self._taken_in[number] if each not in followed]
                    self.count(len(self._taken_in[number]))
                    followed.update(fresh)
                    queue += fresh
        return found


def _shortest_path(graph: Graph, start: set[int], earlier: list[int]) -> list[tuple[Transition, int]]:
    """The shortest path from active states to a state earlier in the order, as (transition, state entered).

    There must be such a path: the walk ends with it.
    """
    origin: dict[int, tuple[int, Transition]] = {}
    walk = graph.walk_reachable(start, memory=True)
    while True:
        atom, transition, entered = next(walk)
        for each in sorted(entered):
            if each not in origin and each not in start and graph.is_atomic(each):
                origin[each] = (atom, transition)
                if any(graph.is_within(each, state) for state in earlier):
                    return _path(origin, each)


def _path(origin: dict[int, tuple[int, Transition]], end: int) -> list[tuple[Transition, int]]:
    found: list[tuple[Transition, int]] = []
    while end in origin:
        atom, transition = origin[end]
        found.append((transition, end))
        end = atom
    return found[::-1]
