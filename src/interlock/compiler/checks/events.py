"""Errors and lints about events: reserved names, the `events` block, who may send what, what is raised and sent."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from interlock.compiler.checks.graph import DescriptorIndex
from interlock.compiler.checks.report import RULE, CheckReport
from interlock.compiler.checks.sites import block_sites
from interlock.compiler.resolve import exact_descriptor
from interlock.errors import Place
from interlock.expression.parser import Parsed
from interlock.model.chart import Transition
from interlock.model.document.actions import Emit, Expression, Raise, Send
from interlock.model.document.document import EventType
from interlock.model.document.field import Field, fields_refusal
from interlock.model.document.walk import value_expressions
from interlock.model.event import RESERVED_WORDS, is_reserved
from interlock.model.limits import NAME_BYTES_MAX

_SELF_TARGETS = (None, "self", "internal")
"""Targets by which a `send` stays inside its entity."""

_UNSTABLE = frozenset({"entity.version", "event.time_ms"})
"""What the driver stamps anew each time that an event comes."""


def check_events(report: CheckReport) -> None:
    """The declared events, then everything that names one."""
    declared = {each.name: each for each in report.chart.events or ()}
    for event in report.chart.events or ():
        _check_declaration(report, event, declared)
    for name, data, place in _own_events(report):
        _check_own_event(report, declared, name, data, place)
    _check_sends(report)
    for transition in report.chart.transitions:
        _check_descriptors(report, declared, transition)
        _check_roles(report, transition)
    for state in report.chart.states:
        if state.expect is not None and state.expect.then != "alert":
            _check_own_event(report, declared, state.expect.then, None, state.place)
            message = f'nobody sends "{state.expect.then}" yet: `then` of `expect` is kept for a later release'
            report.add("expect.unsent", message, state.index, "write `after` with what shall happen then")
    if report.chart.events is not None:
        _lint_unused(report)
        _lint_roles(report)


def _check_declaration(report: CheckReport, event: EventType, declared: dict[str, EventType]) -> None:
    if is_reserved(event.name):
        report.add_reserved("event", event.name, event.place)
    if len(event.name.encode()) > NAME_BYTES_MAX:
        message = f'the event name "{event.name[:40]}..." has more than {NAME_BYTES_MAX} bytes'
        report.add("event.name_length", message, event.place, "use a shorter name")
    if declared[event.name] is not event:
        report.add("event.duplicate", f'the event "{event.name}" is declared twice', event.place, "join the two")
    for expression in value_expressions(event.dedupe):
        parsed = report.names.parsed.get(expression.text)
        moving = None if parsed is None else _unstable_name(parsed)
        if moving is not None:
            message = f'`dedupe` of "{event.name}" reads `{moving}`, which has changed when the event comes again'
            hint = "read what the sender repeats, such as event.data.id or event.id"
            report.add("event.dedupe", message, expression.place, hint)


def _unstable_name(parsed: Parsed) -> str | None:
    """What an expression reads that an event which is repeated finds otherwise; None when it reads no such thing."""
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


# What the chart itself causes


def _own_events(report: CheckReport) -> Iterator[tuple[str, object, Place]]:
    """Every event that the chart raises or sends to itself under a written name."""
    for site in block_sites(report.chart):
        for action in site.actions():
            match action:
                case Raise(event=str() as name):
                    yield name, action.data, action.place
                case Send(event=str() as name) if action.to in _SELF_TARGETS:
                    yield name, action.data, action.place
                case _:
                    pass


def _check_sends(report: CheckReport) -> None:
    """A reserved name in a `send` to another entity: the kernel refuses to send it, in every dialect."""
    for site in block_sites(report.chart):
        for action in site.actions():
            match action:
                case Send(event=str() as name) if action.to not in _SELF_TARGETS and is_reserved(name):
                    report.add_reserved("event", name, action.place)
                case _:
                    pass


def _check_own_event(
    report: CheckReport, declared: dict[str, EventType], name: str, data: object, place: Place
) -> None:
    if is_reserved(name):
        if report.is_native:
            report.add_reserved("event", name, place)
        return
    if report.chart.events is None:
        return
    event = declared.get(name)
    if event is None:
        hint = (
            report.suggestion(name, declared) or f"declare it under `events`, such as {name}: {{direction: internal}}"
        )
        report.add("event.undeclared", f'the event "{name}" is not declared', place, hint, severity=RULE)
    elif event.direction == "out":
        message = f'the event "{name}" is declared `out`: this entity cannot receive it'
        report.add("event.direction", message, place, "publish it with `emit`, or declare it `internal`")
    elif event.payload is not None:
        _check_data(report, event.name, event.payload, data, place)


def _check_data(report: CheckReport, name: str, payload: tuple[Field, ...], data: object, place: Place) -> None:
    """Written data must be what the event's payload takes, as far as it is no expression."""
    if isinstance(data, Expression):
        return
    given = {} if data is None else data
    problem: str | None = "it must be an object"
    if isinstance(given, dict):
        known = {each.name: each for each in payload}
        literal = {key: value for key, value in given.items() if not any(True for _ in value_expressions(value))}
        computed = [each for each in payload if each.name in given and each.name not in literal]
        unknown = next((key for key in given if key not in known), None)
        # What is computed is there, whatever its value; the rest is judged as written.
        rest = tuple(each for each in payload if each not in computed)
        problem = f"`{unknown}` is no field of it" if unknown else fields_refusal(literal, rest)
    if problem is not None:
        report.add("payload.type", f'the payload of "{name}" is refused: {problem}', place, "correct `data`")


# What transitions take


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
                or "declare it under `events`; what is not declared is rejected"
            )
            message = f'the event "{descriptor.text}" is not declared, so it never arrives'
            report.add("event.undeclared", message, transition.place, hint, within=transition.source)
        elif all(each.direction == "out" for each in found):
            message = f'the event "{descriptor.text}" is declared `out`: it never arrives'
            report.add("event.direction", message, transition.place, "declare it `in` or `internal`")


def _check_roles(report: CheckReport, transition: Transition) -> None:
    """The roles of a transition narrow those of its events; what happens by itself acts as `system`."""
    if transition.roles is None:
        return
    if is_automatic(transition):
        if "system" not in transition.roles:
            message = "this happens by itself, as role `system`, which its roles leave out: it is never taken"
            report.add("roles.system", message, transition.place, "add `system` to its roles, or take the roles out")
        return
    events = [each for descriptor in transition.descriptors for each in report.events.matching(descriptor)]
    if not events or any(each.roles is None for each in events):
        return
    senders = {role for each in events for role in each.roles or ()}
    for role in transition.roles:
        if role not in senders and role != "system":
            message = f'the role "{role}" may not send this event: a transition narrows roles and never widens them'
            hint = report.suggestion(role, senders) or "add it to the roles of the event, or take it out here"
            report.add("roles.widened", message, transition.place, hint)


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
    # `"*": {}` takes every event and uses none.
    users = DescriptorIndex(
        each for each in report.chart.transitions if each.targets or each.block or each.label != "*"
    )
    for event in report.chart.events or ():
        if event.direction == "out":
            if event.name not in emitted and not computed:
                message = f'nothing emits "{event.name}", which is declared `out`'
                report.add("event.unused", message, event.place, "emit it, or take it out", within=0)
        elif not any(True for _ in users.matching(exact_descriptor(event.name))):
            message = f'no transition takes the event "{event.name}"'
            report.add("event.unused", message, event.place, "add a transition for it, or take it out", within=0)


def _lint_roles(report: CheckReport) -> None:
    arriving = [each for each in report.chart.events or () if each.direction == "in"]
    without = [each for each in arriving if not each.roles]
    if arriving and len(without) == len(arriving):
        message = "no event says who may send it: only a local driver may run this chart"
        report.add("event.no_roles", message, without[0].place, "give the events `roles`", within=0)
        return
    for event in without:
        message = f'the event "{event.name}" has no roles, so nobody may send it'
        hint = "give it `roles`, or `direction: internal` when only the chart itself sends it"
        report.add("event.no_roles", message, event.place, hint, within=0)
