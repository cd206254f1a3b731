"""A chart as Mermaid text (`stateDiagram-v2`), as README files and pull requests show it.

Three things that Mermaid draws badly or rejects are avoided:
- a composite state cannot contain lines: they are in a note next to it;
- an arrow between a state and a state inside it is not drawn: it is a line of the state it starts from;
- an arrow moves a state that is declared elsewhere: every arrow is in the innermost scope around both its ends.
Texts are escaped with numeric entities, which Mermaid decodes after parsing, so no label can break the diagram.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from interlock.model.charts.chart import Chart, State
from interlock.render.diagram.model import ANY_STATE, Diagram, Edge, make_diagram

_PLAIN = re.compile(r"[^\W_]|[ .,()\[\]=!?/|+'…→]|(?<=[^\W_])[_-](?=[^\W_])")
_INDENT = "    "
_LIT = "classDef active fill:#fde68a,stroke:#b45309,color:#111827,stroke-width:2px"


def mermaid(chart: Chart, *, active: frozenset[str] = frozenset()) -> str:
    """The chart as a Mermaid state diagram; states whose id is in `active` are highlighted.

    Raises UsageError when a state to be lit is not in the chart.
    """
    plan = make_diagram(chart, active)
    root = chart.states[0]
    lines = ["---", f"title: {_quoted(plan.title())}", "---", "stateDiagram-v2"]
    if plan.any_state:
        lines += [_INDENT + line for line in _any_state(plan)]
    if plan.framed:
        lines += [_INDENT + line for line in _state(plan, root)]
        lines += [_INDENT + line for line in _edges(plan, 0)]
    else:
        lines += [_INDENT + line for line in _inside(plan, root)]
    lit = [f"s{state.index}" for state in chart.states if plan.is_active(state)]
    if lit:
        lines += [_INDENT + _LIT, f"{_INDENT}class {','.join(lit)} active"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return the title for the front matter, which is YAML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """Return the text with every character that Mermaid or Markdown might interpret as an entity."""
    return "".join(each if _PLAIN.match(text, position) else f"#{ord(each)};" for position, each in enumerate(text))


def _label(lines: tuple[str, ...]) -> str:
    return "<br/>".join(map(_escaped, lines))


def _state(plan: Diagram, state: State) -> Iterator[str]:
    """Return a state with its content and its note."""
    lines = (*plan.lines[state.index], *_inner_edges(plan, state.index))
    if not state.children:
        yield f"s{state.index}: {_label((plan.name(state), *lines))}"
        if state.type == "final":
            yield f"s{state.index} --> [*]"
        return
    yield f'state "{_escaped(plan.name(state))}" as s{state.index} {{'
    for line in _regions(plan, state) if state.type == "parallel" else _inside(plan, state):
        yield _INDENT + line
    yield "}"
    if lines:
        yield f"note right of s{state.index}"
        for line in lines:
            yield _INDENT + _escaped(line)
        yield "end note"


def _inside(plan: Diagram, state: State) -> Iterator[str]:
    for child in plan.children(state):
        yield from _state(plan, child)
    yield from _edges(plan, state.index)


def _regions(plan: Diagram, state: State) -> Iterator[str]:
    """Return the regions of a parallel state. Its history states are in the first one."""
    children = list(plan.children(state))
    histories = [child for child in children if child.history is not None]
    for position, region in enumerate(child for child in children if child.history is None):
        if position:
            yield "--"
        yield from _state(plan, region)
        if not position:
            for history in histories:
                yield from _state(plan, history)


def _edges(plan: Diagram, scope: int) -> Iterator[str]:
    """Return the arrows of this scope."""
    for number, edge in enumerate(plan.edges):
        if plan.scope(edge) == scope and not _is_line(plan, edge):
            yield from _arrows(edge, number)


def _arrows(edge: Edge, number: int) -> Iterator[str]:
    source = "[*]" if edge.source is None else f"s{edge.source}"
    label = f": {_label(edge.lines)}" if edge.lines else ""
    if len(edge.targets) == 1:
        yield f"{source} --> s{edge.targets[0]}{label}"
        return
    yield f"state f{number} <<fork>>"
    yield f"{source} --> f{number}{label}"
    for target in edge.targets:
        yield f"f{number} --> s{target}"


def _is_line(plan: Diagram, edge: Edge) -> bool:
    """Return whether an edge is written as text: it connects a state and a state inside it."""
    return plan.nested(edge) and (edge.source != 0 or plan.framed)


def _inner_edges(plan: Diagram, index: int) -> Iterator[str]:
    """Return the edges of a state that cannot be drawn, as lines."""
    for edge in plan.edges:
        if edge.source == index and _is_line(plan, edge):
            targets = ", ".join(plan.name(plan.chart.states[each]) for each in edge.targets)
            for line in edge.lines:
                yield f"{line} → {targets}"


def _any_state(plan: Diagram) -> Iterator[str]:
    yield f"s0: {_label((ANY_STATE, *plan.lines[0]))}"
