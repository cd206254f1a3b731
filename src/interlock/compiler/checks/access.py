"""Checks of authorization: the permits of events, who may create and read entities, and the approvals of events."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.compiler.checks.report import ERROR, CheckReport
from interlock.expression.builtins import NAMES
from interlock.expression.parser import ExpressionError, parse
from interlock.model.approvals import ACTORS_FIELD
from interlock.model.charts.sites import expression_sites
from interlock.model.document.actions import Assign, Expression
from interlock.model.document.document import Access, Approvals, EventType
from interlock.model.document.field import Field
from interlock.model.limits import APPROVERS_MAX

_PRINCIPAL = frozenset({"principal"})
_EVENT_NAMES = NAMES | _PRINCIPAL
_CREATE_NAMES = frozenset({"entity", "event"}) | _PRINCIPAL
_READ_NAMES = frozenset({"context", "entity"}) | _PRINCIPAL


def check_permits(report: CheckReport) -> None:
    """Check every permit. They are parsed apart from the other expressions, because only they may read `principal`.

    A permit cannot use `In()`: it decides about the event, and the chart about the state.
    """
    for permit, names in _permits(report):
        try:
            parsed = parse(permit.text, names=names)
        except ExpressionError as error:
            location = permit.location.shift(error.offset, error.end)
            report.add(error.code, error.message, location, error.hint, severity=ERROR)
            continue
        report.names.parsed[permit.text] = parsed
        for name, offset in parsed.inside:
            location = permit.location.shift(offset, offset + len(name))
            hint = "leave the event out of the states that do not accept it, or write a guard"
            report.add("permit.state", "a permit cannot read the state: In() is false there", location, hint)


def _permits(report: CheckReport) -> Iterator[tuple[Expression, frozenset[str]]]:
    chart = report.chart
    found = [(each.permit, _EVENT_NAMES) for each in _events(report)]
    found += [
        (each.permit, names) for each, names in ((chart.create, _CREATE_NAMES), (chart.read, _READ_NAMES)) if each
    ]
    yield from ((permit, names) for permit, names in found if permit is not None)


def is_actors_field(report: CheckReport, field: Field) -> bool:
    """Whether a field is the record of senders that the compiler added, the last one of the root."""
    found = report.chart.states[0].context[-1:]
    return found == (field,) and field.name in report.chart.hidden_fields


def check_actors_write(report: CheckReport, path: str, action: Assign) -> None:
    """Only the compiler writes the record of senders."""
    if path.partition(".")[0] != ACTORS_FIELD:
        return
    if not any(each.approvals is not None and each.approvals.location is action.location for each in _events(report)):
        report.add_reserved("field", ACTORS_FIELD, action.location)


def _events(report: CheckReport) -> tuple[EventType, ...]:
    return report.chart.events or ()


def check_access(report: CheckReport) -> None:
    """Check `create` and `read`, and the approvals of events."""
    for name, access in (("create", report.chart.create), ("read", report.chart.read)):
        if access is not None and access.roles is None and access.permit is None and access.owner is None:
            message = f"`{name}` is empty, so it does not say who may {name} entities"
            report.add("access.empty", message, access.location, "add `roles` or `permit`")
    if report.chart.read is not None and report.chart.read.owner is not None:
        _check_owner(report, report.chart.read, report.chart.read.owner)
    if report.chart.read is not None:
        for _, inline in report.chart.inline:
            if inline.read is None:
                message = f"every reader may read the entities of the inline chart `{inline.kind}`: it has no `read`"
                hint = "write `read` in the inline chart, too"
                report.add("read.inline", message, inline.states[0].location, hint, within=0)
    declared = {each.name: each for each in _events(report)}
    _check_actors(report)
    since: dict[str, str | None] = {}
    for event in declared.values():
        if event.approvals is not None:
            _check_approvals(report, event, event.approvals, declared)
            first = since.setdefault(event.approvals.of, event.approvals.since)
            if first != event.approvals.since:
                message = f'the approvals of "{event.approvals.of}" start with another event elsewhere: "{first}"'
                report.add("approvals.since", message, event.approvals.location, "write the same `since` in both")


def _check_actors(report: CheckReport) -> None:
    """`actors` reads only events that approvals name: others are not recorded."""
    found = [each.approvals for each in _events(report) if each.approvals is not None]
    recorded = {name for each in found for name in (each.of, *each.without)}
    for reading in expression_sites(report.chart):
        parsed = report.names.parsed.get(reading.expression.text)
        for name, offset in () if parsed is None else parsed.actors:
            if name not in recorded:
                location = reading.expression.location.shift(offset, offset + len(name))
                hint = report.suggestion(name, recorded) or "name it in the `approvals` of an event: `of` or `not`"
                report.add("actors.unknown", f'the senders of the event "{name}" are not recorded', location, hint)


def _check_owner(report: CheckReport, access: Access, owner: str) -> None:
    """The owner must be a field that lists can be filtered by."""
    fields = {each.name: each for each in report.chart.states[0].context}
    field = fields.get(owner)
    if field is None:
        hint = report.suggestion(owner, fields) or "declare it under the root's `context`"
        report.add("read.owner", f"the root's context has no field `{owner}`", access.location, hint)
    elif not field.index or field.type != "string":
        message = f"the owner field `{owner}` must be a string with `index: true`, because lists are filtered by it"
        report.add("read.owner", message, access.location, f"write {owner}: {{type: string, index: true}}")
    if access.permit is not None:
        message = "`read` has `owner` and `permit`: lists can be filtered by the owner only"
        report.add("read.owner", message, access.location, "remove one of them")


def _check_approvals(
    report: CheckReport, event: EventType, approvals: Approvals, declared: dict[str, EventType]
) -> None:
    if approvals.count > APPROVERS_MAX:
        message = f'"{event.name}" needs {approvals.count} approvals; at most {APPROVERS_MAX} are remembered'
        report.add("approvals.count", message, approvals.location, f"write a `count` of {APPROVERS_MAX} or less")
    named = [approvals.of, *approvals.without, *(() if approvals.since is None else (approvals.since,))]
    for name in named:
        if name not in declared or declared[name].direction != "in":
            hint = report.suggestion(name, declared) or "declare it under `events`"
            message = f'the approvals of "{event.name}" name the event "{name}", which users cannot send'
            report.add("approvals.event", message, approvals.location, hint)
    if approvals.without and approvals.since is None:
        message = f'the approvals of "{event.name}" have `not` without `since`: nothing ends the list of those users'
        report.add("approvals.since", message, approvals.location, "name the event that starts a new round in `since`")
    if event.name in (approvals.of, approvals.since) or approvals.of in (approvals.since, *approvals.without):
        message = f'the approvals of "{event.name}" name one event twice'
        report.add("approvals.event", message, approvals.location, "name another event in `of`, `not` and `since`")
