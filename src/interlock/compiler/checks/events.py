"""Checks of events: reserved names, declarations, roles, and the events that the chart raises and sends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from interlock.compiler.checks.graph import DescriptorIndex, Graph
from interlock.compiler.checks.report import RULE, CheckReport
from interlock.compiler.resolve import exact_descriptor
from interlock.errors import SourceLocation
from interlock.expression.parser import Parsed
from interlock.model.charts.chart import State, Transition
from interlock.model.charts.sites import block_sites
from interlock.model.document.actions import Emit, Expression, Raise, Send
from interlock.model.document.document import EventType, Expect
from interlock.model.document.field import Field, fields_problem
from interlock.model.document.walk import value_expressions
from interlock.model.event import RESERVED_WORDS, is_reserved
from interlock.model.limits import NAME_BYTES_MAX

_SELF_TARGETS = (None, "self", "internal")
"""Targets of a `send` to the entity itself."""

_UNSTABLE = frozenset({"entity.version", "event.time_ms"})
"""Values that differ when the same event is sent again."""


def check_events(report: CheckReport, graph: Graph) -> None:
    """Check the declared events and everything that names an event."""
    declared = {each.name: each for each in report.chart.events or ()}
    for event in report.chart.events or ():
        _check_declaration(report, event, declared)
    for name, data, location in _own_events(report):
        _check_own_event(report, declared, name, data, location)
    _check_sends(report)
    for transition in report.chart.transitions:
        _check_descriptors(report, declared, transition)
        _check_roles(report, transition)
    for state in report.chart.states:
        if state.expect is not None and state.expect.then != "alert":
            _check_own_event(report, declared, state.expect.then, None, state.location)
            _lint_expected(report, graph, state, state.expect)
    if report.chart.events is not None:
        _lint_unused(report)
        _lint_roles(report)


def _lint_expected(report: CheckReport, graph: Graph, state: State, expect: Expect) -> None:
    """The event of an overdue state is sent, and a transition that can be taken then takes it."""
    event = expect.then
    if expect.within == "forever" or graph.ends_entity(state.index):
        why = "`within` is `forever`" if expect.within == "forever" else "the entity has ended here"
        message = f'the event "{event}" is never sent: {why}'
        report.add("expect.unsent", message, state.index, "remove `then`, or write `within` with a duration")
        return
    together = (each for each in graph.transitions if graph.can_be_active_together(each.source, state.index))
    if not any(True for _ in DescriptorIndex(together).matching(exact_descriptor(event))):
        message = f'no transition takes the event "{event}" while the entity is in {report.name(state)}'
        report.add("expect.unhandled", message, state.index, "add a transition for it to this state")


def _check_declaration(report: CheckReport, event: EventType, declared: dict[str, EventType]) -> None:
    if is_reserved(event.name):
        report.add_reserved("event", event.name, event.location)
    if len(event.name.encode()) > NAME_BYTES_MAX:
        message = f'the event name "{event.name[:40]}..." has more than {NAME_BYTES_MAX} bytes'
        report.add("event.name_length", message, event.location, "use a shorter name")
    if declared[event.name] is not event:
        report.add(
            "event.duplicate",
            f'the event "{event.name}" is declared twice',
            event.location,
            "merge the two declarations",
        )
    for expression in value_expressions(event.dedupe):
        parsed = report.names.parsed.get(expression.text)
        moving = None if parsed is None else _unstable_name(parsed)
        if moving is not None:
            message = f'`dedupe` of "{event.name}" reads `{moving}`, which is different when the event is sent again'
            hint = "read a value that the sender repeats, such as event.data.id or event.id"
            report.add("event.dedupe", message, expression.location, hint)


def _unstable_name(parsed: Parsed) -> str | None:
    """The first value that an expression reads and that differs when the event is sent again, if any."""
    if "context" in parsed.roots:
        return "context"
    if parsed.inside:
        return "In()"
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in _UNSTABLE:
                return name
    return None


# Events that the chart raises and sends


def _own_events(report: CheckReport) -> Iterator[tuple[str, object, SourceLocation]]:
    """Every event that the chart raises or sends to itself, if its name is literal."""
    for site in block_sites(report.chart):
        for action in site.actions():
            match action:
                case Raise(event=str() as name):
                    yield name, action.data, action.location
                case Send(event=str() as name) if action.to in _SELF_TARGETS:
                    yield name, action.data, action.location
                case _:
                    pass


def _check_sends(report: CheckReport) -> None:
    """Reserved names in a `send` to another entity: the kernel refuses them in every dialect."""
    for site in block_sites(report.chart):
        for action in site.actions():
            match action:
                case Send(event=str() as name) if action.to not in _SELF_TARGETS and is_reserved(name):
                    report.add_reserved("event", name, action.location)
                case _:
                    pass


def _check_own_event(
    report: CheckReport, declared: dict[str, EventType], name: str, data: object, location: SourceLocation
) -> None:
    if is_reserved(name):
        if report.is_native:
            report.add_reserved("event", name, location)
        return
    if report.chart.events is None:
        return
    event = declared.get(name)
    if event is None:
        hint = (
            report.suggestion(name, declared) or f"declare it under `events`, such as {name}: {{direction: internal}}"
        )
        report.add("event.undeclared", f'the event "{name}" is not declared', location, hint, severity=RULE)
    elif event.direction == "out":
        message = f'the event "{name}" is declared `out`: this entity cannot receive it'
        report.add("event.direction", message, location, "publish it with `emit`, or declare it `internal`")
    elif event.payload is not None:
        _check_data(report, event.name, event.payload, data, location)


def _check_data(
    report: CheckReport, name: str, payload: tuple[Field, ...], data: object, location: SourceLocation
) -> None:
    """Literal data must be valid for the event's payload; expressions are not checked."""
    if isinstance(data, Expression):
        return
    given = {} if data is None else data
    problem: str | None = "expected an object"
    if isinstance(given, dict):
        known = {each.name: each for each in payload}
        literal = {key: value for key, value in given.items() if not any(True for _ in value_expressions(value))}
        computed = [each for each in payload if each.name in given and each.name not in literal]
        unknown = next((key for key in given if key not in known), None)
        # A computed field counts as present; its value is not known here.
        rest = tuple(each for each in payload if each not in computed)
        problem = f"unknown field `{unknown}`" if unknown else fields_problem(literal, rest)
    if problem is not None:
        report.add("payload.type", f'the payload of "{name}" is invalid: {problem}', location, "correct `data`")


# Events that transitions take


def _check_descriptors(report: CheckReport, declared: dict[str, EventType], transition: Transition) -> None:
    if report.chart.events is None or report.is_from_saga(transition.source):
        return
    for descriptor in transition.descriptors:
        if not descriptor.tokens or descriptor.tokens[0] in RESERVED_WORDS:
            continue
        found = report.events.matching(descriptor)
        if not found:
            hint = (
                report.suggestion(descriptor.text, declared)
                or "declare it under `events`; undeclared events are rejected"
            )
            message = f'the event "{descriptor.text}" is not declared, so it is never received'
            report.add("event.undeclared", message, transition.location, hint, within=transition.source)
        elif all(each.direction == "out" for each in found):
            message = f'the event "{descriptor.text}" is declared `out`, so it is never received'
            report.add("event.direction", message, transition.location, "declare it `in` or `internal`")


def _check_roles(report: CheckReport, transition: Transition) -> None:
    """The roles of a transition narrow those of its events. Automatic transitions act as `system`."""
    if transition.roles is None:
        return
    if is_automatic(transition):
        if "system" not in transition.roles:
            message = (
                "this transition is automatic and acts as `system`, which is missing in its roles: it is never taken"
            )
            report.add("roles.system", message, transition.location, "add `system` to its roles, or remove the roles")
        return
    events = [each for descriptor in transition.descriptors for each in report.events.matching(descriptor)]
    if not events or any(each.roles is None for each in events):
        return
    senders = {role for each in events for role in each.roles or ()}
    for role in transition.roles:
        if role not in senders and role != "system":
            message = f'the role "{role}" may not send this event: a transition can only narrow the roles of its event'
            hint = report.suggestion(role, senders) or "add it to the roles of the event, or remove it here"
            report.add("roles.widened", message, transition.location, hint)


def is_automatic(transition: Transition) -> bool:
    """Whether only the kernel makes a transition be taken: no event, or its own events."""
    return all(each.tokens[:1] and each.tokens[0] in RESERVED_WORDS for each in transition.descriptors)


# Lints of the `events` block


def _lint_unused(report: CheckReport) -> None:
    emitted, computed = set(), False
    for site in block_sites(report.chart):
        for action in site.actions():
            if isinstance(action, Emit):
                emitted.add(str(action.type))
                computed |= isinstance(action.type, Expression)
    # `"*": {}` takes every event but uses none.
    users = DescriptorIndex(
        each for each in report.chart.transitions if each.targets or each.block or each.label != "*"
    )
    for event in report.chart.events or ():
        if event.direction == "out":
            if event.name not in emitted and not computed:
                message = f'the event "{event.name}" is declared `out`, but no action emits it'
                report.add("event.unused", message, event.location, "emit it, or remove the declaration", within=0)
        elif not any(True for _ in users.matching(exact_descriptor(event.name))):
            message = f'no transition takes the event "{event.name}"'
            report.add(
                "event.unused", message, event.location, "add a transition for it, or remove the declaration", within=0
            )


def _lint_roles(report: CheckReport) -> None:
    arriving = [each for each in report.chart.events or () if each.direction == "in"]
    without = [each for each in arriving if not each.roles]
    if arriving and len(without) == len(arriving):
        message = "no event has roles: only a local driver may run this chart"
        report.add("event.no_roles", message, without[0].location, "add `roles` to the events", within=0)
        return
    for event in without:
        message = f'the event "{event.name}" has no roles, so no principal may send it'
        hint = "add `roles`, or write `direction: internal` if only the chart sends it"
        report.add("event.no_roles", message, event.location, hint, within=0)
