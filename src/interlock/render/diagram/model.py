"""A diagram for text formats: its states, the edges between them, and the lines inside them.

Rule 1: everything is in document order, so that the same chart always gives the same text.
Rule 2: an edge is a transition with targets, an initial, or the default of a history. A transition without target is a
        line inside its state. Edges with the same ends are one edge with a line for each.
Rule 3: the root is drawn as a state only if it is parallel. Otherwise its transitions start at a state `any state`.
Rule 4: ids in the diagram are `s<number>`, which are safe in every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart, State
from interlock.model.diagnostics import suggestion
from interlock.model.document.actions import Block
from interlock.model.document.wording import block_text, value_text
from interlock.render.labels import blocks_lines, clipped, invoke_line, transition_text
from interlock.render.saga_bookkeeping import hide_bookkeeping

LABEL_LINES_MAX = 6
"""Lines on one edge: more would hide the states next to it. The others are counted."""

ANY_STATE = "any state"
"""The caption of the state drawn for the root, whose transitions are tried in every state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An arrow from one state to one or more others. If `source` is None, it starts at the initial dot of `parent`."""

    parent: int
    source: int | None
    targets: tuple[int, ...]
    lines: tuple[str, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """A chart prepared for a text format: edges in document order, and the lines of each state by number."""

    chart: Chart
    active: frozenset[str]
    edges: tuple[Edge, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def framed(self) -> bool:
        """Whether the root is drawn, as a frame around its regions."""
        return self.chart.states[0].type == "parallel"

    @property
    def any_state(self) -> bool:
        """Whether a state `any state` is drawn: the root has actions or transitions, and no frame."""
        used = any(edge.source == 0 for edge in self.edges)
        return not self.framed and (used or bool(self.lines[0]))

    def title(self) -> str:
        """The chart's kind, with the label of its revision."""
        return clipped(f"{self.chart.kind} {self.chart.label or ''}")

    def name(self, state: State) -> str:
        """Return the name of a state in the diagram; the kind for the root."""
        if state.history is not None:
            return "H*" if state.history == "deep" else "H"
        return clipped(state.key if state.parent >= 0 else self.chart.kind)

    def is_active(self, state: State) -> bool:
        """Return whether the state is highlighted."""
        return state.id in self.active and state.parent >= 0

    def children(self, state: State) -> Iterator[State]:
        """Return the children of a state."""
        return (self.chart.states[each] for each in state.children)

    def nested(self, edge: Edge) -> bool:
        """Return whether one end of an edge is inside the other: most layout programs cannot draw that."""
        source = edge.source
        return source is not None and any(
            self.chart.contains(source, each) or self.chart.contains(each, source) for each in edge.targets
        )

    def scope(self, edge: Edge) -> int:
        """Return the innermost state around both ends that is not parallel. An edge written there moves no state."""
        if edge.source is None:
            return edge.parent
        ends = (edge.source, *edge.targets)
        common = self.chart.common_ancestor(*ends)
        around = self.chart.path(common)[common in ends :]
        return next((each for each in around if self.chart.states[each].type != "parallel"), 0)


def check_states(chart: Chart, names: Iterable[str]) -> None:
    """Raise UsageError unless all these states are in the chart."""
    known = {state.id for state in chart.states}
    for name in sorted(set(names) - known):
        message = f'unknown state "{name}" in chart {chart.kind}'
        raise UsageError(message, code="state.unknown", hint=suggestion(name, known))


def make_diagram(chart: Chart, active: frozenset[str] = frozenset()) -> Diagram:
    """Return the diagram of a chart. Raises UsageError for an active state that is not in the chart."""
    check_states(chart, active)
    chart = hide_bookkeeping(chart)
    edges = _merged(edge for state in chart.states for edge in _edges(chart, state))
    return Diagram(
        chart=chart,
        active=active,
        edges=tuple(edges),
        lines=tuple(tuple(_lines(chart, state)) for state in chart.states),
    )


def _edges(chart: Chart, state: State) -> Iterator[Edge]:
    """Yield the arrows that start at a state or at its initial dot."""
    if state.type == "compound":
        for target in state.initial:
            yield Edge(parent=state.index, source=None, targets=(target,), lines=_content(state.initial_block))
    if state.history is not None and state.default:
        yield Edge(
            parent=state.parent,
            source=state.index,
            targets=state.default,
            lines=_content(state.default_block),
            dashed=True,
        )
    for index in state.transitions:
        transition = chart.transitions[index]
        if transition.targets:
            lines = (transition_text(transition),)
            yield Edge(parent=state.parent, source=state.index, targets=transition.targets, lines=lines)


def _content(block: Block) -> tuple[str, ...]:
    return (clipped(f"/ {block_text(block)}"),) if block else ()


def _merged(edges: Iterator[Edge]) -> list[Edge]:
    """Return the edges, with those of the same ends and style merged at the position of the first."""
    merged: dict[tuple[object, ...], Edge] = {}
    for edge in edges:
        key = (edge.parent, edge.source, edge.targets, edge.dashed)
        first = merged.get(key)
        lines = edge.lines if first is None else first.lines + edge.lines
        merged[key] = Edge(
            parent=edge.parent, source=edge.source, targets=edge.targets, lines=lines, dashed=edge.dashed
        )
    return [_shortened(edge) for edge in merged.values()]


def _shortened(edge: Edge) -> Edge:
    if len(edge.lines) <= LABEL_LINES_MAX:
        return edge
    lines = (*edge.lines[: LABEL_LINES_MAX - 1], f"+{len(edge.lines) - LABEL_LINES_MAX + 1}")
    return Edge(parent=edge.parent, source=edge.source, targets=edge.targets, lines=lines, dashed=edge.dashed)


def _lines(chart: Chart, state: State) -> Iterator[str]:
    """Yield the lines inside a state, below its name."""
    yield from blocks_lines("entry", state.entry)
    yield from blocks_lines("exit", state.exit)
    yield from map(invoke_line, state.invokes)
    for index in state.transitions:
        transition = chart.transitions[index]
        if not transition.targets:
            yield transition_text(transition)
    if state.output is not None:
        yield clipped(f"output {value_text(state.output)}")
