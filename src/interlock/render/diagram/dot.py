"""A chart as Graphviz text: compound states are clusters, arrows to or from one are clipped at its border.

Graphviz has no arrows between clusters. Each compound state with arrows has an anchor, a point without size, and the
arrow names the cluster at which it is clipped. An arrow between a state and a state inside it is not clipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.model.charts.chart import Chart, State
from interlock.render.diagram.model import ANY_STATE, Diagram, Edge, make_diagram

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != ord("\n")}
"""Control characters are escaped: Graphviz would copy them into the SVG, which would be invalid XML."""
_INDENT = "  "
_HEAD = (
    'graph [compound=true, fontname="Helvetica", fontsize=12, labeljust=l, labelloc=t, nodesep=0.4, ranksep=0.5];',
    'node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica", fontsize=12, margin="0.15,0.08"];',
    'edge [fontname="Helvetica", fontsize=10];',
)
_LIT = 'fillcolor="#fde68a", color="#b45309"'
_LIT_CLUSTER = 'fillcolor="#fef3c7"; color="#b45309"'


def dot(chart: Chart, *, active: frozenset[str] = frozenset()) -> str:
    """The chart as a Graphviz digraph; states whose id is in `active` are highlighted.

    Raises UsageError when a state to be lit is not in the chart.
    """
    plan = make_diagram(chart, active)
    root = chart.states[0]
    body = [*_HEAD, f"label={_quoted(plan.title())};"]
    if plan.any_state:
        body.append(f's0 [label={_box_label(ANY_STATE, plan.lines[0])}, style="rounded,dashed"];')
    body += _state(plan, root) if plan.framed else _inside(plan, root)
    for number, edge in enumerate(plan.edges):
        body += _edge(plan, edge, number)
    return "\n".join([f"digraph {_quoted(chart.kind)} {{", *(_INDENT + line for line in body), "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + _escaped(text) + '"'


def _escaped(text: str) -> str:
    return text.translate(_CONTROLS).replace("\\", "\\\\").replace('"', '\\"')


def _box_label(name: str, lines: tuple[str, ...]) -> str:
    """Return a centred name above left-aligned lines."""
    if not lines:
        return _quoted(name)
    return f'"{_escaped(name)}\\n{_left(lines)[1:]}'


def _left(lines: tuple[str, ...]) -> str:
    """Return left-aligned lines, which Graphviz ends with a backslash and an l."""
    return '"' + "".join(_escaped(line) + r"\l" for line in lines) + '"'


def _state(plan: Diagram, state: State) -> list[str]:
    if state.children:
        return _cluster(plan, state)
    label = _box_label(plan.name(state), plan.lines[state.index])
    extra = f", {_LIT}" if plan.is_active(state) else ""
    if state.history is not None:
        return [f"s{state.index} [label={label}, shape=circle, margin=0, width=0.35{extra}];"]
    ring = ", peripheries=2" if state.type == "final" else ""
    return [f"s{state.index} [label={label}{ring}{extra}];"]


def _cluster(plan: Diagram, state: State) -> list[str]:
    region = state.parent >= 0 and plan.chart.states[state.parent].type == "parallel"
    look = "rounded,dashed" if region else "rounded"
    style = f'style="{look},filled"; {_LIT_CLUSTER}' if plan.is_active(state) else f'style="{look}"; color="#374151"'
    label = _left((plan.name(state), *plan.lines[state.index]))
    return [
        f"subgraph cluster_s{state.index} {{",
        f"{_INDENT}label={label}; {style};",
        *(_INDENT + line for line in _anchor(plan, state)),
        *(_INDENT + line for line in _inside(plan, state)),
        "}",
    ]


def _anchor(plan: Diagram, state: State) -> Iterator[str]:
    """Return the anchor of the arrows of a compound state. It is visible only if an arrow inside ends there."""
    touching = [edge for edge in plan.edges if edge.source == state.index or state.index in edge.targets]
    if touching:
        shown = any(plan.nested(edge) or edge.source in edge.targets for edge in touching)
        look = "shape=point, width=0.06" if shown else "shape=point, style=invis, width=0"
        yield f's{state.index} [label="", {look}];'


def _inside(plan: Diagram, state: State) -> list[str]:
    lines = []
    if any(edge.source is None and edge.parent == state.index for edge in plan.edges):
        lines.append(f'i{state.index} [label="", shape=circle, style=filled, fillcolor=black, width=0.14, margin=0];')
    for child in plan.children(state):
        lines += _state(plan, child)
    return lines


def _edge(plan: Diagram, edge: Edge, number: int) -> list[str]:
    label = f"label={_left(edge.lines)}" if edge.lines else ""
    dashed = "style=dashed" if edge.dashed else ""
    if len(edge.targets) == 1:
        return [_arrow(plan, edge.source, edge.targets[0], start=_start(edge), looks=[label, dashed])]
    fork = f"f{number}"
    lines = [f'{fork} [label="", shape=box, style=filled, fillcolor=black, width=0.6, height=0.05, margin=0];']
    cut = f"ltail=cluster_s{edge.source}" if _is_cluster(plan, edge.source) else ""
    lines.append(f"{_start(edge)} -> {fork}{_looks([label, dashed, 'arrowhead=none', cut])};")
    return lines + [_arrow(plan, None, target, start=fork, looks=[dashed]) for target in edge.targets]


def _start(edge: Edge) -> str:
    return f"i{edge.parent}" if edge.source is None else f"s{edge.source}"


def _arrow(plan: Diagram, source: int | None, target: int, *, start: str, looks: list[str]) -> str:
    """Return one arrow, clipped at the border of a cluster unless the other end is inside it."""
    tail = _is_cluster(plan, source) and source != target and not plan.chart.contains(source or 0, target)
    head = (
        _is_cluster(plan, target) and source != target and (source is None or not plan.chart.contains(target, source))
    )
    cuts = [f"ltail=cluster_s{source}" if tail else "", f"lhead=cluster_s{target}" if head else ""]
    return f"{start} -> s{target}{_looks([*looks, *cuts])};"


def _is_cluster(plan: Diagram, index: int | None) -> bool:
    return index is not None and bool(plan.chart.states[index].children) and (index > 0 or plan.framed)


def _looks(looks: list[str]) -> str:
    joined = ", ".join(filter(None, looks))
    return f" [{joined}]" if joined else ""
