"""Errors and lints about events: reserved names, the `events` block, who may send what, what is raised and sent."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from interlock.compiler.checks.graph import DescriptorIndex
from interlock.compiler.checks.report import Review
from interlock.compiler.checks.sites import sites
from interlock.compiler.descriptors import exact
from interlock.errors import Place
from interlock.expression.parser import Parsed
from interlock.model.chart import Transition
from interlock.model.document.actions import Emit, Expression, Raise, Send, value_expressions
from interlock.model.document.document import EventType
from interlock.model.document.field import Field, fields_refusal
from interlock.model.event import RESERVED_HINT, RESERVED_WORDS, is_reserved
from interlock.model.limits import NAME_BYTES_MAX

_ITSELF = (None, "self", "internal")
"""Targets by which a `send` stays inside its entity."""

_MOVING = frozenset({"entity.version", "event.time_ms"})
"""What the driver stamps anew each time that an event comes."""


def check_events(review: Review) -> None:
    """The declared events, then everything that names one."""
    declared = {each.name: each for each in review.chart.events or ()}
    for event in review.chart.events or ():
        _check_declaration(review, event, declared)
    for name, data, place in _caused(review):
        _check_caused(review, declared, name, data, place)
    _check_sent(review)
    for transition in review.chart.transitions:
        _check_descriptors(review, declared, transition)
        _check_roles(review, transition)
    for state in review.chart.states:
        if state.expect is not None and state.expect.then != "alert":
            _check_caused(review, declared, state.expect.then, None, state.place)
            message = f'nobody sends "{state.expect.then}" yet: `then` of `expect` is kept for a later release'
            review.lint("expect.unsent", message, state.index, hint="write `after` with what shall happen then")
    if review.chart.events is not None:
        _lint_unused(review)
        _lint_roles(review)


def _check_declaration(review: Review, event: EventType, declared: dict[str, EventType]) -> None:
    if is_reserved(event.name):
        _reserved(review, event.name, event.place)
    if len(event.name.encode()) > NAME_BYTES_MAX:
        message = f'the event name "{event.name[:40]}..." has more than {NAME_BYTES_MAX} bytes'
        review.error("event.name_length", message, event.place, "use a shorter name")
    if declared[event.name] is not event:
        review.error("event.duplicate", f'the event "{event.name}" is declared twice', event.place, "join the two")
    for expression in value_expressions(event.dedupe):
        parsed = review.names.parsed.get(expression.text)
        moving = None if parsed is None else _moving(parsed)
        if moving is not None:
            message = f'`dedupe` of "{event.name}" reads `{moving}`, which has changed when the event comes again'
            hint = "read what the sender repeats, such as event.data.id or event.id"
            review.error("event.dedupe", message, expression.place, hint)


def _moving(parsed: Parsed) -> str | None:
    """What an expression reads that an event which is repeated finds otherwise; None when it reads no such thing."""
    if "context" in parsed.roots:
        return "context"
    if parsed.inside:
        return "In()"
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in _MOVING:
                return name
    return None


def _reserved(review: Review, name: str, place: Place) -> None:
    message = f'the event "{name}" has a name of the kernel\'s'
    review.rule("name.reserved", message, place, RESERVED_HINT)


# What the chart itself causes


def _caused(review: Review) -> Iterator[tuple[str, object, Place]]:
    """Every event that the chart raises or sends to itself under a written name."""
    for site in sites(review.chart):
        for action in site.actions():
            match action:
                case Raise(event=str() as name):
                    yield name, action.data, action.place
                case Send(event=str() as name) if action.to in _ITSELF:
                    yield name, action.data, action.place
                case _:
                    pass


def _check_sent(review: Review) -> None:
    """A reserved name in a `send` to another entity: the kernel refuses to send it, in every dialect."""
    for site in sites(review.chart):
        for action in site.actions():
            match action:
                case Send(event=str() as name) if action.to not in _ITSELF and is_reserved(name):
                    _reserved(review, name, action.place)
                case _:
                    pass


def _check_caused(review: Review, declared: dict[str, EventType], name: str, data: object, place: Place) -> None:
    if is_reserved(name):
        if review.own:
            _reserved(review, name, place)
        return
    if review.chart.events is None:
        return
    event = declared.get(name)
    if event is None:
        hint = (
            review.suggestion(name, declared) or f"declare it under `events`, such as {name}: {{direction: internal}}"
        )
        review.rule("event.undeclared", f'the event "{name}" is not declared', place, hint)
    elif event.direction == "out":
        message = f'the event "{name}" is declared `out`: this entity cannot receive it'
        review.rule("event.direction", message, place, "publish it with `emit`, or declare it `internal`")
    elif event.payload is not None:
        _check_data(review, event.name, event.payload, data, place)


def _check_data(review: Review, name: str, payload: tuple[Field, ...], data: object, place: Place) -> None:
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
        review.rule("payload.type", f'the payload of "{name}" is refused: {problem}', place, "correct `data`")


# What transitions take


def _check_descriptors(review: Review, declared: dict[str, EventType], transition: Transition) -> None:
    if review.chart.events is None or review.is_generated(transition.source):
        return
    for descriptor in transition.descriptors:
        if not descriptor.tokens or descriptor.tokens[0] in RESERVED_WORDS:
            continue
        found = review.events.taken(descriptor)
        if not found:
            hint = (
                review.suggestion(descriptor.text, declared)
                or "declare it under `events`; what is not declared is rejected"
            )
            message = f'the event "{descriptor.text}" is not declared, so it never arrives'
            review.lint("event.undeclared", message, transition.source, transition.place, hint)
        elif all(each.direction == "out" for each in found):
            message = f'the event "{descriptor.text}" is declared `out`: it never arrives'
            review.rule("event.direction", message, transition.place, "declare it `in` or `internal`")


def _check_roles(review: Review, transition: Transition) -> None:
    """The roles of a transition narrow those of its events; what happens by itself acts as `system`."""
    if transition.roles is None:
        return
    if is_by_itself(transition):
        if "system" not in transition.roles:
            message = "this happens by itself, as role `system`, which its roles leave out: it is never taken"
            review.rule("roles.system", message, transition.place, "add `system` to its roles, or take the roles out")
        return
    events = [each for descriptor in transition.descriptors for each in review.events.taken(descriptor)]
    if not events or any(each.roles is None for each in events):
        return
    senders = {role for each in events for role in each.roles or ()}
    for role in transition.roles:
        if role not in senders and role != "system":
            message = f'the role "{role}" may not send this event: a transition narrows roles and never widens them'
            hint = review.suggestion(role, senders) or "add it to the roles of the event, or take it out here"
            review.rule("roles.widened", message, transition.place, hint)


def is_by_itself(transition: Transition) -> bool:
    """Whether only the kernel makes a transition be taken: no event, or its own events."""
    return all(each.tokens[:1] and each.tokens[0] in RESERVED_WORDS for each in transition.descriptors)


# Lints of the `events` block


def _lint_unused(review: Review) -> None:
    emitted, computed = set(), False
    for site in sites(review.chart):
        for action in site.actions():
            if isinstance(action, Emit):
                emitted.add(str(action.type))
                computed |= isinstance(action.type, Expression)
    # `"*": {}` takes every event and uses none.
    users = DescriptorIndex(
        each for each in review.chart.transitions if each.targets or each.block or each.label != "*"
    )
    for event in review.chart.events or ():
        if event.direction == "out":
            if event.name not in emitted and not computed:
                message = f'nothing emits "{event.name}", which is declared `out`'
                review.lint("event.unused", message, 0, event.place, "emit it, or take it out")
        elif not any(True for _ in users.taking(exact(event.name))):
            message = f'no transition takes the event "{event.name}"'
            review.lint("event.unused", message, 0, event.place, "add a transition for it, or take it out")


def _lint_roles(review: Review) -> None:
    arriving = [each for each in review.chart.events or () if each.direction == "in"]
    without = [each for each in arriving if not each.roles]
    if arriving and len(without) == len(arriving):
        message = "no event says who may send it: only a local driver may run this chart"
        review.lint("event.no_roles", message, 0, without[0].place, "give the events `roles`")
        return
    for event in without:
        message = f'the event "{event.name}" has no roles, so nobody may send it'
        hint = "give it `roles`, or `direction: internal` when only the chart itself sends it"
        review.lint("event.no_roles", message, 0, event.place, hint)
