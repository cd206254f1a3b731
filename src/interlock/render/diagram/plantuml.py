"""A chart as PlantUML text.

Regions are drawn as states with dashed borders, not by PlantUML's separator `--`: with that, an arrow from one region
to another is a syntax error. Texts are escaped with `<U+hhhh>`, so that neither quotes nor Creole markup in
a label can change the diagram.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.model.charts.chart import Chart, State
from interlock.render.diagram.model import ANY_STATE, Diagram, Edge, make_diagram

_PLAIN = frozenset(" .,()=!?/|+'…→[]:{}#&%$@;_-*")
_DOUBLED = ("//", "==", "..", "||", "''", "[[", "]]", "{{", "}}", "%%", "##", "::", "!!", "__", "--", "**")
_INDENT = "  "
_NEWLINE = r"\n"
_LIT = " #fde68a"
_REGION = " ##[dashed]gray"


def plantuml(chart: Chart, *, active: frozenset[str] = frozenset()) -> str:
    """The chart as a PlantUML state diagram; states whose id is in `active` are highlighted.

    Raises UsageError when a state to be lit is not in the chart.
    """
    plan = make_diagram(chart, active)
    root = chart.states[0]
    lines = ["@startuml", f"title {_escaped(plan.title())}", "hide empty description"]
    if plan.any_state:
        lines += [f'state "{ANY_STATE}" as s0', *(f"s0 : {_escaped(line)}" for line in plan.lines[0])]
    lines += [*_state(plan, root), *_edges(plan, 0)] if plan.framed else _inside(plan, root)
    return "\n".join([*lines, "@enduml"]) + "\n"


def _escaped(text: str) -> str:
    """Return the text with everything that could be markup as code points."""
    marked = set()
    for pair in _DOUBLED:
        position = text.find(pair)
        while position >= 0:
            marked.add(position)
            position = text.find(pair, position + 1)
    return "".join(
        each if (each.isalnum() or each in _PLAIN) and index not in marked else f"<U+{ord(each):04X}>"
        for index, each in enumerate(text)
    )


def _state(plan: Diagram, state: State) -> list[str]:
    """Return a state with its content."""
    if state.history is not None:
        star = "*" if state.history == "deep" else ""
        return [f'state "{plan.name(state)}" as s{state.index} <<history{star}>>']
    region = state.parent >= 0 and plan.chart.states[state.parent].type == "parallel"
    look = (_LIT if plan.is_active(state) else "") + (_REGION if region else "")
    head = f'state "{_escaped(plan.name(state))}" as s{state.index}{look}'
    described = [f"s{state.index} : {_escaped(line)}" for line in plan.lines[state.index]]
    if not state.children:
        end = [f"s{state.index} --> [*]"] if state.type == "final" else []
        return [head, *described, *end]
    return [f"{head} {{", *(_INDENT + line for line in _inside(plan, state)), "}", *described]


def _inside(plan: Diagram, state: State) -> list[str]:
    """Return the states inside a state and the arrows of its scope. A parallel state has no arrows."""
    lines = [line for child in plan.children(state) for line in _state(plan, child)]
    return lines if state.type == "parallel" else lines + _edges(plan, state.index)


def _edges(plan: Diagram, scope: int) -> list[str]:
    return [
        line for number, edge in enumerate(plan.edges) if plan.scope(edge) == scope for line in _arrows(edge, number)
    ]


def _arrows(edge: Edge, number: int) -> Iterator[str]:
    source = "[*]" if edge.source is None else f"s{edge.source}"
    label = " : " + _NEWLINE.join(map(_escaped, edge.lines)) if edge.lines else ""
    arrow = "-[dashed]->" if edge.dashed else "-->"
    if len(edge.targets) == 1:
        yield f"{source} {arrow} s{edge.targets[0]}{label}"
        return
    yield f"state f{number} <<fork>>"
    yield f"{source} {arrow} f{number}{label}"
    for target in edge.targets:
        yield f"f{number} {arrow} s{target}"
