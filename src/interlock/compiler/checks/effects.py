"""Checks of effects: invokes, durations, retries, sagas, and the keys of the root."""

from __future__ import annotations

import re
from datetime import date

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import LINTS, RULE, CheckReport, describe_trigger
from interlock.compiler.checks.states import exits_of
from interlock.compiler.resolve import exact_descriptor
from interlock.errors import SourceLocation
from interlock.model.charts.chart import Invoke, State
from interlock.model.charts.sites import block_sites, expression_sites
from interlock.model.document.actions import Do, Emit, Send
from interlock.model.document.document import Document, Removed, Retry, Saga
from interlock.model.duration import parse_duration

_RANGE = re.compile(r"(?:>=|<=|>|<|=)?\s*[0-9]+(?:\.[0-9]+)*(?:\s+(?:>=|<=|>|<|=)?\s*[0-9]+(?:\.[0-9]+)*)*")


def check_effects(report: CheckReport, graph: Graph) -> None:
    """Check the invokes, delays and expectations of every state, and the keys of the root."""
    _check_chart(report)
    _check_inert(report)
    _check_allow(report)
    invoking: dict[str, list[State]] = {}
    for state in graph.states:
        if state.expect is not None and state.expect.within != "forever":
            _check_duration(report, state.expect.within, state.location, "`within`")
        for invoke, written in zip(state.invokes, report.tree.states[state.index].invokes, strict=True):
            _check_invoke(report, invoke)
            if isinstance(written.src, Document) and written.type == "handler":
                message = "expected a handler as `src`, got an inline chart"
                report.add("invoke.type", message, invoke.location, "remove `type`, or write `type: chart`")
            if invoke.id is not None:
                invoking.setdefault(invoke.id, []).append(state)
    for name, states in invoking.items():
        _check_duplicate_ids(report, graph, name, states)
    for site in block_sites(report.chart):
        for action in site.actions():
            if isinstance(action, Send):
                _check_send(report, action)


def _check_send(report: CheckReport, action: Send) -> None:
    if isinstance(action.delay, str):
        _check_duration(report, action.delay, action.location, "`delay`")
    if action.restore is not None and action.delay is None:
        message = "`onRestore` applies to timers, and this `send` has no `delay`"
        report.add("send.no_timer", message, action.location, "add a `delay`, or remove `onRestore`")


def _check_invoke(report: CheckReport, invoke: Invoke) -> None:
    if invoke.src is None:
        report.add("invoke.no_src", "the key `src` of this invoke is missing", invoke.location)
    if invoke.retry is not None:
        _check_backoff(report, invoke.retry, invoke.location)


def _check_duplicate_ids(report: CheckReport, graph: Graph, name: str, states: list[State]) -> None:
    for position, second in enumerate(states):
        first = next(
            (each for each in states[:position] if graph.can_be_active_together(each.index, second.index)), None
        )
        if first is not None:
            location = next(each.location for each in reversed(second.invokes) if each.id == name)
            where = "has two invokes" if first is second else f"and {report.name(first)} each have an invoke"
            message = f'{report.name(second)} {where} "{name}", so their results cannot be distinguished'
            report.add("invoke.duplicate_id", message, location, "give one of them another id")


def _check_backoff(report: CheckReport, retry: Retry, location: SourceLocation) -> None:
    if retry.backoff is None:
        return
    parts = retry.backoff.split("..")
    waits = [parse_duration(each) for each in parts]
    if len(parts) > 2 or None in waits:
        message = f'the backoff "{retry.backoff}" is not a duration or a range of durations'
        report.add("duration.syntax", message, location, "write it like 1s or 1s..30s")
    elif (waits[0] or 0) > (waits[-1] or 0):
        message = f'the backoff "{retry.backoff}" decreases'
        report.add("duration.range", message, location, f"write {parts[-1]}..{parts[0]}")


def _check_duration(report: CheckReport, text: str, location: SourceLocation, what: str) -> None:
    if parse_duration(text) is None:
        message = f'{what}: "{text}" is not a duration'
        report.add("duration.syntax", message, location, "write it like 30s or 1h30m", severity=RULE)


def _check_chart(report: CheckReport) -> None:
    document, root = report.document, report.document.root.location
    if document.compatible is not None and _RANGE.fullmatch(document.compatible.strip()) is None:
        message = f'"{document.compatible}" is not a range of revisions'
        report.add("compatible.syntax", message, root, 'write it like ">=3.0 <4"')
    for old, new in document.renamed:
        if new not in report.tree.by_id:
            hint = report.suggestion(new, report.tree.ids[1:])
            report.add("renamed.unknown", f'renamed: no state has the id "{new}"', root, hint)
        if old in report.tree.by_id:
            message = f'renamed: the chart still has a state "{old}"'
            report.add("renamed.exists", message, root, "remove the entry, or rename the state")
    if document.removed is not None:
        _check_removed(report, document.removed)


def _check_removed(report: CheckReport, removed: Removed) -> None:
    """A tombstone is of something that the chart no longer has, and its day exists."""
    document, root = report.document, report.document.root.location
    declared = {each.name for each in document.events or ()}
    for what, stones, known in (("state", removed.states, report.tree.by_id), ("event", removed.events, declared)):
        for name, day in stones:
            if name in known:
                message = f'removed: the chart still has the {what} "{name}"'
                report.add("removed.exists", message, root, f"remove the entry, or the {what}")
            if not _is_day(day):
                report.add("removed.day", f'removed: "{day}" is not a day', root, "write it like 2027-01-31")


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2027-01-31")


def _check_inert(report: CheckReport) -> None:
    """Keys that are read and checked but have no effect yet. `then` of `expect` has its own code."""
    if report.document.properties is not None:
        hint = "remove it, or allow this lint with a reason"
        report.add("vocabulary.inert", "`properties` has no effect yet", 0, hint)


def _check_allow(report: CheckReport) -> None:
    for state in report.tree.states:
        for code, reason in state.allow:
            if code not in LINTS:
                hint = (
                    report.suggestion(code, LINTS) or "the reference of diagnostics lists the codes that can be allowed"
                )
                report.add("allow.unknown", f'"{code}" is not a lint that can be allowed', state.location, hint)
            if not reason.strip():
                message = f'`allow` of "{code}" has no reason'
                report.add("allow.reason", message, state.location, "write why it is acceptable here")


def lint_invokes(report: CheckReport, graph: Graph) -> None:
    """Invokes without error handling, without a timeout, or with an input that depends on the last event."""
    for state in graph.states:
        if report.is_from_saga(state.index):
            continue
        for invoke in state.invokes:
            _lint_invoke(report, graph, state, invoke)
    for reading in expression_sites(report.chart):
        parsed = report.names.parsed.get(reading.expression.text)
        if reading.invoke and parsed is not None and "event" in parsed.roots:
            message = "`event` is the last event of the step here, which may differ from the one that led to this state"
            hint = "assign the value to a field first and read the field"
            report.add("invoke.event_input", message, reading.expression.location, hint, within=reading.state)


def _lint_invoke(report: CheckReport, graph: Graph, state: State, invoke: Invoke) -> None:
    failure = exact_descriptor("error.invoke") if invoke.id is None else exact_descriptor(f"error.invoke.{invoke.id}")
    around = [graph.by_event[each] for each in graph.path(state.index)]
    if not any(True for each in around for _ in each.matching(failure)):
        message = f"no transition handles the failure of this invoke of {report.name(state)}"
        report.add("invoke.no_error", message, invoke.location, "add `onError`", within=state.index)
    timed = any(graph.states[each].after for each in graph.path(state.index))
    if invoke.timeout_ms is None and invoke.type != "chart" and not timed:
        message = f"this invoke of {report.name(state)} has no timeout and may run forever"
        report.add("invoke.no_timeout", message, invoke.location, "add `timeout`", within=state.index)


def lint_sagas(report: CheckReport, graph: Graph) -> None:
    """Sagas without error handling, timeouts or compensations, and sagas that an outer transition can interrupt."""
    for state in graph.states:
        saga = report.tree.states[state.index].saga
        if saga is None:
            continue
        _lint_steps(report, state, saga)
        if not saga.error:
            message = f"no transition handles the failure of the saga of {report.name(state)}"
            report.add("invoke.no_error", message, saga.location, "add `onError`", within=state.index)
        for transition in exits_of(graph, state.index):
            if transition.origin != "onDone":  # a completed saga is not interrupted
                message = (
                    f"{describe_trigger(transition)} can leave the saga of {report.name(state)} before it is complete"
                )
                hint = "handle the event inside the saga's state, or `allow` this lint with a reason"
                report.add("saga.left_midway", message, transition.location, hint, within=state.index)


def _lint_steps(report: CheckReport, state: State, saga: Saga) -> None:
    for step in saga.steps:
        if step.timeout is None:
            message = f'the saga step "{step.id}" has no timeout and may run forever'
            report.add("invoke.no_timeout", message, step.location, "add `timeout`", within=state.index)
        call = step.compensate
        if call is not None and call.input is not None and not isinstance(call.input, dict):
            message = (
                f'the input of the compensation of "{step.id}" must be a mapping, because `compensates` is added to it'
            )
            report.add("saga.input", message, call.location, "write a mapping of named inputs", within=state.index)
        if call is None and step is not saga.steps[-1] and saga.compensation != "none":
            message = f'the saga step "{step.id}" has no `compensate`, so it is not undone if a later step fails'
            hint = "add `compensate`, move the step to the end, or write `compensation: none`"
            report.add("saga.no_compensation", message, step.location, hint, within=state.index)


def lint_actions(report: CheckReport, graph: Graph) -> None:
    """Effects that are hard to audit, unhandled errors, and events that are ignored without a trace."""
    first_call = None
    for site in block_sites(report.chart):
        effects = [each for each in site.actions() if isinstance(each, Do | Emit | Send)]
        moves = site.role == "exit" or (site.transition is not None and site.transition.targets)
        if effects and moves and not report.is_from_saga(site.state):
            where = "on exit" if site.role == "exit" else "on a transition"
            message = f"an effect {where} of {report.name(site.state)}: effects on entry are easier to audit"
            report.add(
                "effect.outside_entry",
                message,
                effects[0].location,
                "move it to the `entry` of the next state",
                within=site.state,
            )
        first_call = first_call or next(((site, each) for each in effects if isinstance(each, Do)), None)
    takers = (one for each in graph.transitions for one in each.descriptors)
    if first_call is not None and not any(each.matches("error.communication") for each in takers):
        message = (
            f'no transition handles "error.communication", which is raised if `{first_call[1].name}` fails permanently'
        )
        report.add(
            "error.unhandled",
            message,
            first_call[1].location,
            "add a transition for it, or monitor the faults",
            within=first_call[0].state,
        )
    _lint_swallowed(report)


def _lint_swallowed(report: CheckReport) -> None:
    if report.is_native and report.document.unhandled == "ignore":
        message = "with `unhandled: ignore` an illegal event cannot be distinguished from a repeated one"
        report.add("events.swallowed", message, 0, "remove it, and list the events that may be repeated with `{}`")
    for transition in report.chart.transitions:
        has_no_effect = not transition.targets and not transition.block and transition.guard is None
        if has_no_effect and any(not each.tokens for each in transition.descriptors):
            message = "a `*` transition without effect hides illegal events"
            hint = "list the events that may be repeated"
            report.add("events.swallowed", message, transition.location, hint, within=transition.source)
