"""Errors about what a chart asks for: invokes, durations, retries, and what is said once for the whole chart."""

from __future__ import annotations

import re

from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.report import LINTS, Review
from interlock.compiler.checks.sites import sites
from interlock.errors import Place
from interlock.model.chart import Invoke, State
from interlock.model.document.actions import Send
from interlock.model.document.document import Retry
from interlock.model.duration import parse_duration

_RANGE = re.compile(r"(?:>=|<=|>|<|=)?\s*[0-9]+(?:\.[0-9]+)*(?:\s+(?:>=|<=|>|<|=)?\s*[0-9]+(?:\.[0-9]+)*)*")


def check_effects(review: Review, graph: Graph) -> None:
    """Invokes, delays and expectations of every state, and the keys of the root."""
    _check_chart(review)
    _check_allow(review)
    invoking: dict[str, list[State]] = {}
    for state in graph.states:
        if state.expect is not None and state.expect.within != "forever":
            _check_duration(review, state.expect.within, state.place, "`within`")
        for invoke in state.invokes:
            _check_invoke(review, invoke)
            if invoke.id is not None:
                invoking.setdefault(invoke.id, []).append(state)
    for name, states in invoking.items():
        _check_twins(review, graph, name, states)
    for site in sites(review.chart):
        for action in site.actions():
            if isinstance(action, Send):
                _check_send(review, action)


def _check_send(review: Review, action: Send) -> None:
    if isinstance(action.delay, str):
        _check_duration(review, action.delay, action.place, "`delay`")
    if action.restore is not None and action.delay is None:
        message = "`onRestore` says what downtime means to a timer, and this send is none"
        review.rule("send.no_timer", message, action.place, "give it a `delay`, or leave `onRestore` out")


def _check_invoke(review: Review, invoke: Invoke) -> None:
    if invoke.src is None:
        review.rule("invoke.no_src", 'an invoke needs the key "src"', invoke.place)
    if invoke.retry is not None:
        _check_backoff(review, invoke.retry, invoke.place)


def _check_twins(review: Review, graph: Graph, name: str, states: list[State]) -> None:
    for position, second in enumerate(states):
        first = next((each for each in states[:position] if graph.together(each.index, second.index)), None)
        if first is not None:
            place = next(each.place for each in reversed(second.invokes) if each.id == name)
            where = "has two invokes" if first is second else f"and {review.name(first)} each have an invoke"
            message = f'{review.name(second)} {where} "{name}", and their results could not be told apart'
            review.rule("invoke.duplicate_id", message, place, "give one of them another id")


def _check_backoff(review: Review, retry: Retry, place: Place) -> None:
    if retry.backoff is None:
        return
    parts = retry.backoff.split("..")
    waits = [parse_duration(each) for each in parts]
    if len(parts) > 2 or None in waits:
        message = f'"{retry.backoff}" is not a duration or a range of durations'
        review.error("duration.syntax", message, place, "such as 1s or 1s..30s")
    elif (waits[0] or 0) > (waits[-1] or 0):
        message = f'the backoff "{retry.backoff}" falls'
        review.error("duration.range", message, place, f"write {parts[-1]}..{parts[0]}")


def _check_duration(review: Review, text: str, place: Place, what: str) -> None:
    if parse_duration(text) is None:
        review.rule("duration.syntax", f'{what}: "{text}" is not a duration', place, "such as 30s or 1h30m")


def _check_chart(review: Review) -> None:
    document, root = review.document, review.document.root.place
    if document.compatible is not None and _RANGE.fullmatch(document.compatible.strip()) is None:
        message = f'"{document.compatible}" is not a range of revisions'
        review.error("compatible.syntax", message, root, 'such as ">=3.0 <4"')
    for old, new in document.renamed:
        if new not in review.tree.by_id:
            hint = review.suggestion(new, review.tree.ids[1:])
            review.error("renamed.unknown", f'renamed: no state has the id "{new}"', root, hint)
        if old in review.tree.by_id:
            message = f'renamed: "{old}" is still a state of the chart'
            review.error("renamed.exists", message, root, "take the entry out, or rename the state")


def _check_allow(review: Review) -> None:
    for state in review.tree.states:
        for code, reason in state.allow:
            if code not in LINTS:
                hint = review.suggestion(code, LINTS) or "see the reference of diagnostics for the lints there are"
                review.error("allow.unknown", f'"{code}" is no lint that can be allowed', state.place, hint)
            if not reason.strip():
                message = f'allowing "{code}" needs a reason'
                review.error("allow.reason", message, state.place, "say why it is right here")
