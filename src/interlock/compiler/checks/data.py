"""Checks of data: fields of the context, assigned values, names that expressions read, scripts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from interlock.compiler.checks.access import check_actors_write, check_permits, is_actors_field
from interlock.compiler.checks.report import CheckReport
from interlock.errors import SourceLocation
from interlock.model.charts.chart import Transition
from interlock.model.charts.sites import ExpressionSite, block_sites, declared_fields, expression_sites, known_fields
from interlock.model.document.actions import Action, Assign, Expression, Script, Send
from interlock.model.document.document import EventType
from interlock.model.document.field import UNSET, Field, field_at, field_problem, json_problem
from interlock.model.document.walk import value_expressions
from interlock.model.encoding.index_key import form_of_field
from interlock.model.held import HELD_FIELD
from interlock.model.limits import INDEXED_FIELDS_MAX


def check_data(report: CheckReport) -> None:
    """Check every field, action and expression of the chart."""
    declared, known = declared_fields(report.chart), known_fields(report.chart)
    _check_fields(report)
    for site in block_sites(report.chart):
        for action in site.actions():
            _check_action(report, action, declared, known)
    for state in report.chart.states:
        for invoke in state.invokes:
            _check_location(report, invoke.id_location, invoke.location, known)
    check_permits(report)
    for reading in expression_sites(report.chart):
        _check_reads(report, reading, known)
        if reading.transition is not None:
            _check_payload_reads(report, reading, reading.transition)


# Fields


def _check_fields(report: CheckReport) -> None:
    seen: dict[str, Field] = {}
    for state in report.chart.states:
        for field in state.context:
            first = seen.setdefault(field.name, field)
            if first is not field:
                other = f"the other is at {first.location.line}:{first.location.column}"
                message = f"the field `{field.name}` is declared twice; {other}"
                hint = "all states share one context: rename one of them"
                report.add("context.duplicate", message, field.location, hint)
            is_reserved = field.name == HELD_FIELD or (report.is_native and field.name.startswith("_"))
            if is_reserved and not is_actors_field(report, field):
                report.add_reserved("field", field.name, field.location)
            _check_first_value(report, field, root=state.index == 0)
            _check_field(report, field, "context.default")
            _check_index(report, field, root=state.index == 0)
    for event in report.chart.events or ():
        for field in event.payload or ():
            _check_field(report, field, "payload.default")
            _check_index(report, field, root=False)
    indexed = [each for each in report.chart.states[0].context if each.index]
    if len(indexed) > INDEXED_FIELDS_MAX:
        message = f"{len(indexed)} fields have an index; a chart may have {INDEXED_FIELDS_MAX}"
        hint = "keep the fields that entities are looked up by; every change of an indexed field writes two more rows"
        report.add("index.count", message, indexed[INDEXED_FIELDS_MAX].location, hint)


def _check_index(report: CheckReport, field: Field, *, root: bool) -> None:
    """Only fields of the root's context that are strings, numbers or booleans have an order to find them by."""
    if field.index and not root:
        message = f"the field `{field.name}` cannot have an index: only fields of the root's context can"
        report.add("field.index", message, field.location, "remove `index`, or copy the value into a field of the root")
    elif field.index and form_of_field(field) is None:
        message = f"the field `{field.name}` has the type `{field.type}`, which cannot have an index"
        hint = "use string, integer, number or boolean, or copy the value into a separate field"
        report.add("field.index", message, field.location, hint)
    inner = field.fields or ()
    for each in inner if field.items is None else (*inner, field.items):
        _check_index(report, each, root=False)


def _check_first_value(report: CheckReport, field: Field, *, root: bool) -> None:
    """Every field needs a first value; only fields of the root can be given at creation."""
    if field.required and not root:
        message = f"the field `{field.name}` cannot be required: only fields of the root are given at creation"
        report.add("context.required", message, field.location, "move it to the root, or add a default")
    elif field.default is UNSET and not (field.required or field.nullable or field.type == "any"):
        message = f'the field "{field.name}" has no initial value'
        report.add("context.no_value", message, field.location, "add `default`, `required` or `nullable`")


def _check_field(report: CheckReport, field: Field, code: str) -> None:
    for each in field.enum or ():
        problem = field_problem(each, _without_enum(field))
        if problem is not None:
            report.add("field.enum", f"a value of its `enum` is invalid: {problem}", field.location, "correct the list")
    if field.min is not None and field.max is not None and field.min > field.max:
        message = f"no value is valid for `{field.name}`: `min` {field.min} is greater than `max` {field.max}"
        report.add("field.bounds", message, field.location, "swap `min` and `max`")
    for each in _with_parts(field):
        if each.format is not None and each.type != "string":
            message = f"`{each.name}` has a `format`, which only a string can have, and is of type {each.type}"
            report.add("field.format", message, field.location, "write `type: string`, or remove `format`")
    if field.default is UNSET or any(True for _ in value_expressions(field.default)):
        return
    problem = json_problem(field.default) or field_problem(field.default, field)
    if problem is not None:
        report.add(code, f"the default is invalid: {problem}", field.location, "correct the default or the type")


def _with_parts(field: Field) -> Iterator[Field]:
    """A field, and those of its items and of its object, at any depth."""
    yield field
    for each in (*(() if field.items is None else (field.items,)), *(field.fields or ())):
        yield from _with_parts(each)


def _without_enum(field: Field) -> Field:
    return Field(name=field.name, type=field.type, nullable=True, items=field.items, fields=field.fields)


# Actions


def _check_action(report: CheckReport, action: Action, declared: dict[str, Field], known: set[str]) -> None:
    match action:
        case Assign():
            for path, value in action.values:
                check_actors_write(report, path, action)
                if _check_location(report, path, action.location, known):
                    _check_value(report, declared, path, value, action.location)
        case Send():
            _check_location(report, action.id_location, action.location, known)
        case Script():
            if report.names.language.script(action.text) is None:
                hint = "move the work into registered functions or assign actions"
                report.add("script.untrusted", "scripts are not allowed: they run code", action.location, hint)
        case _:
            pass


def _check_location(report: CheckReport, path: str | None, location: SourceLocation, known: set[str]) -> bool:
    """Whether a path starts with a field of the context; reports it if not."""
    if path is None:
        return False
    name = path.split(".", 1)[0]
    if name in known:
        return True
    hint = report.suggestion(name, known) or "declare it under `context`"
    report.add("assign.unknown_field", f"the context has no field `{name}`", location, hint)
    return False


def _check_value(
    report: CheckReport, declared: dict[str, Field], path: str, value: object, location: SourceLocation
) -> None:
    """A literal must be valid for its field."""
    field = field_at(declared, path)
    if field is None or any(True for _ in value_expressions(value)):
        return
    problem = field_problem(value, field, path)
    if problem is not None:
        report.add(
            "assign.refused", f"the value is invalid: {problem}", location, "correct the value or the field's type"
        )


# Expressions


def _check_reads(report: CheckReport, reading: ExpressionSite, known: set[str]) -> None:
    parsed = report.names.parsed.get(reading.expression.text)
    for name, offset in () if parsed is None else parsed.reads:
        if name not in known:
            location = reading.expression.location.shift(offset, offset + len(name))
            hint = report.suggestion(name, known) or "declare it under `context`"
            message = f"the context has no field `{name}`"
            report.add("expression.unknown_field", message, location, hint, within=reading.state)


def _check_payload_reads(report: CheckReport, reading: ExpressionSite, transition: Transition) -> None:
    """A path that is read from `event.data` must be in the payload of an event that the transition takes."""
    parsed = report.names.parsed.get(reading.expression.text)
    events = matching_payloads(report, transition)
    if parsed is None or not events or any(each.payload is None for each in events):
        return
    for path in _data_paths(parsed.tree):
        payloads = [each.payload or () for each in events]
        # A field inside a missing field is not reported again.
        if not any(_has_path(each, path) for each in payloads) and any(_has_path(each, path[:-1]) for each in payloads):
            names = ", ".join(f'"{each.name}"' for each in events)
            known = {field.name for each in events for field in each.payload or ()}
            hint = report.suggestion(path[-1], known) or f"its fields are {', '.join(sorted(known)) or 'none'}"
            message = f"the payload of {names} has no field `{'.'.join(path)}`"
            report.add("payload.type", message, _within(reading.expression, path), hint)


def _within(expression: Expression, path: list[str]) -> SourceLocation:
    offset = expression.text.find(path[-1])
    return expression.location.shift(offset, offset + len(path[-1])) if offset >= 0 else expression.location


def matching_payloads(report: CheckReport, transition: Transition) -> list[EventType]:
    """The declared events that a transition takes; empty if it may take others, too."""
    found: list[EventType] = []
    for descriptor in transition.descriptors:
        if not descriptor.tokens or descriptor.tokens[0] in ("done", "error", "after"):
            return []
        found += report.events.matching(descriptor)
    return [each for each in found if each.direction != "out"]


def _data_paths(tree: ast.expr) -> Iterator[list[str]]:
    """Every `event.data.a.b` in an expression, as its path below `data`."""
    for node in ast.walk(tree):
        path = _path(node)
        if path[:2] == ["event", "data"] and len(path) > 2:
            yield path[2:]


def _path(node: ast.AST) -> list[str]:
    """The names of `a.b['c']`. A part that is not a literal name starts a new path."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [*_path(node.value), node.attr]
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return [*_path(node.value), name]
        case _:
            return []


def _has_path(payload: tuple[Field, ...], path: list[str]) -> bool:
    """Whether the fields contain the path, or allow any."""
    known: tuple[Field, ...] | None = payload
    for name in path:
        if known is None:
            return True
        field = next((each for each in known if each.name == name), None)
        if field is None:
            return False
        known = field.fields
    return True
