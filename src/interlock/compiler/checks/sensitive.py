"""Checks of sensitive data: masked fields, and hidden states that are shown under a neutral name.

A name that is computed from a masked field reveals its value wherever the name is shown. A principal who can enter a
hidden state without a role, or leave it with fewer rights than entering needs, can detect that it exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.compiler.checks.events import is_automatic
from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import CheckReport, describe_trigger
from interlock.compiler.checks.states import exits_of
from interlock.model.chart import Chart, State, Transition
from interlock.model.chart_sites import block_sites, computable_names, known_fields
from interlock.model.document.actions import Value
from interlock.model.document.walk import value_expressions

DEFAULT_NEUTRAL_NAME = "processing"
"""The name that a hidden state is shown with if its author gives none."""


def check_sensitive(report: CheckReport, graph: Graph) -> None:
    """Check every `sensitive` of the chart."""
    known = known_fields(report.chart)
    hidden = []
    for state in graph.states:
        sensitive = state.sensitive
        if sensitive is None:
            continue
        for path in sensitive.fields:
            name = path.split(".", 1)[0]
            if name not in known:
                hint = report.suggestion(name, known) or "declare it under `context`"
                message = f"sensitive: the context has no field `{name}`"
                report.add("sensitive.unknown_field", message, state.location, hint)
        if sensitive.hidden:
            hidden.append(state)
            _check_neutral(report, state, sensitive.neutral or DEFAULT_NEUTRAL_NAME)
    _check_names(report)
    reported: set[int] = set()
    entering = _entering_transitions(graph, frozenset(each.index for each in hidden))
    for state in hidden:
        _check_access(report, graph, state, entering[state.index], reported)


def _check_names(report: CheckReport) -> None:
    """Report masked fields in computed names of events, timers, targets, sources and messages."""
    marked = (state.sensitive for state in report.chart.states if state.sensitive is not None)
    masked = {path.split(".", 1)[0] for each in marked for path in each.fields}
    if not masked:
        return
    for state, value in _computed_names(report.chart):
        for expression in value_expressions(value):
            parsed = report.names.parsed.get(expression.text)
            read = sorted({name for name, _ in parsed.reads} & masked) if parsed is not None else []
            if read:
                message = f"the sensitive field `{read[0]}` is part of a computed name, and names are stored unmasked"
                hint = "compute the name from another field, such as an id"
                report.add("sensitive.name", message, expression.location, hint, within=state)


def _computed_names(chart: Chart) -> Iterator[tuple[int, Value]]:
    for site in block_sites(chart):
        for action in site.actions():
            yield from ((site.state, each) for each in computable_names(action))
    for state in chart.states:
        for invoke in state.invokes:
            yield from ((state.index, each) for each in (invoke.src, invoke.type, invoke.key))


def _check_neutral(report: CheckReport, state: State, neutral: str) -> None:
    if any(neutral in (each.id, each.key) for each in report.chart.states[1:]):
        message = f'sensitive: {report.name(state)} would be shown as "{neutral}", which is another state of the chart'
        report.add("sensitive.neutral", message, state.location, "choose another name with `as`")


def _entering_transitions(graph: Graph, hidden: frozenset[int]) -> dict[int, list[Transition]]:
    """Per hidden state, the transitions from outside that enter it."""
    found: dict[int, list[Transition]] = {each: [] for each in hidden}
    for transition in graph.transitions if hidden else ():
        for each in graph.entered(transition, memory=True) & hidden:
            if not graph.is_within(transition.source, each):
                found[each].append(transition)
    return found


def _check_access(report: CheckReport, graph: Graph, state: State, into: list[Transition], reported: set[int]) -> None:
    """Compare the roles that may enter with the roles that may leave. Each transition is reported once."""
    entering: set[str] = set()
    for transition in into:
        entering |= _required_roles(report, state, transition, "into", reported)
    for transition in exits_of(graph, state.index):
        more = sorted(_required_roles(report, state, transition, "out of", reported) - entering - {"system"})
        if more and entering and transition.index not in reported:
            reported.add(transition.index)
            message = f"{', '.join(more)} may leave the hidden state {report.name(state)} but not enter it"
            hint = "require at least the same rights for leaving as for entering"
            report.add("sensitive.roles", message, transition.location, hint, within=state.index)


def _required_roles(
    report: CheckReport, state: State, transition: Transition, way: str, reported: set[int]
) -> set[str]:
    """The roles that may take a transition; reports a transition without roles."""
    roles = _roles(report, transition)
    if roles is not None:
        return roles
    if transition.index not in reported:
        reported.add(transition.index)
        hint = "add `system` to its `roles`" if is_automatic(transition) else "add `roles` to it or to its event"
        where = f"{way} the hidden state {report.name(state)} by {describe_trigger(transition)}"
        message = f"the transition {where} has no roles"
        report.add("sensitive.no_roles", message, transition.location, hint, within=state.index)
    return set()


def _roles(report: CheckReport, transition: Transition) -> set[str] | None:
    """The roles that may take a transition: its own, else those of its events; None if anyone may."""
    if is_automatic(transition):
        return set(transition.roles) if transition.roles is not None and "system" in transition.roles else None
    if transition.roles is not None:
        return set(transition.roles)
    found: set[str] = set()
    for descriptor in transition.descriptors:
        events = report.events.matching(descriptor)
        if not events or any(not each.roles and each.direction == "in" for each in events):
            return None
        for each in events:
            found |= {"system"} if each.direction == "internal" else set(each.roles or ())
    return found
