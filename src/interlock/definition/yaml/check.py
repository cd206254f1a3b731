"""What no shape can say about a definition in our own vocabulary: reserved names, first values, ranges.

Rule 1: some names belong to the kernel (V6; `model.event` says which). Converted charts may carry them, so they
are refused in the dialect `interlock` only.
Rule 2: a field of the context must say how it gets its first value.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.errors import Place
from interlock.model.diagnostics import Findings
from interlock.model.document.actions import Block, Raise, Send, block_actions
from interlock.model.document.document import Document, Invoke, Retry, State
from interlock.model.document.field import UNSET
from interlock.model.duration import parse_duration
from interlock.model.event import RESERVED_HINT, is_reserved


def check_names(document: Document, findings: Findings) -> None:
    """Adds a finding for each reserved name of a document, and of the charts inside it."""
    if document.dialect == "interlock":
        for event in document.events or ():
            if is_reserved(event.name):
                _reserved("event", event.name, event.place, findings)
        for state in _states(document.root):
            _check_reserved(state, findings)
    for chart in _inline_charts(document):
        check_names(chart, findings)


def check_values(document: Document, findings: Findings) -> None:
    """Adds a finding for each field without a first value, invoke without a source, and falling range.

    For whole documents only: where a part has been left out, what it said would be told as missing.
    """
    for state in _states(document.root):
        for field in state.context:
            if field.default is UNSET and not (field.required or field.nullable or field.type == "any"):
                message = f'the field "{field.name}" has no first value'
                findings.error("context.no_value", message, field.place, "say one of default, required or nullable")
        for invoke in state.invokes:
            _check_invoke(invoke, findings, own=document.dialect == "interlock")
        for step in state.saga.steps if state.saga is not None else ():
            _check_range(step.retry, step.place, findings)
    for chart in _inline_charts(document):
        check_values(chart, findings)


def _inline_charts(document: Document) -> Iterator[Document]:
    invokes = (invoke for state in _states(document.root) for invoke in state.invokes)
    return (invoke.src for invoke in invokes if isinstance(invoke.src, Document))


def _states(root: State) -> Iterator[State]:
    stack = [root]
    while stack:
        state = stack.pop()
        yield state
        stack.extend(reversed(state.states))


def _reserved(what: str, name: str, place: Place, findings: Findings) -> None:
    message = f'the {what} "{name}" has a name of the kernel\'s'
    findings.error("name.reserved", message, place, RESERVED_HINT)


def _check_reserved(state: State, findings: Findings) -> None:
    if state.key.startswith("_"):
        _reserved("state", state.key, state.place, findings)
    for field in state.context:
        if field.name.startswith("_"):
            _reserved("field", field.name, field.place, findings)
    for block in _blocks(state):
        for action in block_actions(block):
            if isinstance(action, Raise | Send) and isinstance(action.event, str) and is_reserved(action.event):
                _reserved("event", action.event, action.place, findings)


def _blocks(state: State) -> Iterator[Block]:
    yield from (*state.entry, *state.exit, state.actions)
    if state.initial is not None:
        yield state.initial.actions
    transitions = list(state.transitions)
    for invoke in state.invokes:
        yield invoke.finalize or ()
        transitions += (*invoke.done, *invoke.error)
    if state.saga is not None:
        transitions += (*state.saga.done, *state.saga.compensated, *state.saga.error)
    for each in transitions:
        yield each.actions


def _check_invoke(invoke: Invoke, findings: Findings, *, own: bool) -> None:
    _check_range(invoke.retry, invoke.place, findings)
    if invoke.src is None and own:
        findings.error("invoke.no_src", 'an invoke needs the key "src"', invoke.place)
    if isinstance(invoke.src, Document) and invoke.type == "handler":
        message = "an inline chart is no handler"
        findings.error("invoke.type", message, invoke.place, "leave `type` out, or write chart")


def _check_range(retry: Retry | None, place: Place, findings: Findings) -> None:
    if retry is None or retry.backoff is None:
        return
    first, _, last = retry.backoff.partition("..")
    first_ms, last_ms = parse_duration(first), parse_duration(last or first)
    assert first_ms is not None
    assert last_ms is not None
    if first_ms > last_ms:
        findings.error("duration.range", f'the backoff "{retry.backoff}" falls', place, f"write {last}..{first}")
