"""Hide the bookkeeping of sagas in drawings.

The compiler expands a saga to states that record in a separate context field which steps are done. These assigns are
left out of a drawing, and their guards are shown as text. The chart that runs is not changed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from interlock.compiler.saga import NOT_DONE
from interlock.model.chart import Chart
from interlock.model.document.actions import Action, Assign, Block, Guard, GuardAll, GuardExpression, GuardName, If
from interlock.model.document.field import Field

_NOTES = {"step", "key", "done"}
_SKIPPED = re.compile(r"context\.(?P<field>\w+)\.step == null")
_NOT_LISTED = re.compile(r"context\.(?P<field>\w+)\.done\[(?P<quote>['\"])(?P<step>.+)(?P=quote)\] == null")


def hide_bookkeeping(chart: Chart) -> Chart:
    """Return the chart for a drawing: without assigns to the fields of sagas."""
    fields = frozenset(field.name for state in chart.states for field in state.context if _is_made(field))
    if not fields:
        return chart
    states = tuple(
        replace(
            state,
            entry=tuple(_visible(block, fields) for block in state.entry),
            exit=tuple(_visible(block, fields) for block in state.exit),
        )
        for state in chart.states
    )
    transitions = tuple(
        replace(each, block=_visible(each.block, fields), guard=_worded(each.guard, fields))
        for each in chart.transitions
    )
    return replace(chart, states=states, transitions=transitions)


def _is_made(field: Field) -> bool:
    return field.name.startswith("saga_") and isinstance(field.default, dict) and field.default.keys() == _NOTES


def _worded(guard: Guard | None, fields: frozenset[str]) -> Guard | None:
    """Return a readable guard in place of one that the compiler made."""
    match guard:
        case GuardExpression():
            words = _words(guard.expression.text, fields)
            return guard if words is None else GuardName(name=words, place=guard.place)
        case GuardAll():
            parts = (_worded(each, fields) for each in guard.guards)
            return replace(guard, guards=tuple(each for each in parts if each is not None))
        case _:
            return guard


def _words(text: str, fields: frozenset[str]) -> str | None:
    if text == NOT_DONE:
        return "surely not done"
    found = _NOT_LISTED.fullmatch(text) or _SKIPPED.fullmatch(text)
    if found is None or found["field"] not in fields:
        return None
    return f"{found['step']} not done" if "step" in found.groupdict() else "skipped"


def _visible(block: Block, fields: frozenset[str]) -> Block:
    return tuple(action for each in block if (action := _shown(each, fields)) is not None)


def _shown(action: Action, fields: frozenset[str]) -> Action | None:
    """Return an action without the bookkeeping; None if nothing remains."""
    match action:
        case Assign():
            values = tuple(pair for pair in action.values if pair[0].partition(".")[0] not in fields)
            return replace(action, values=values) if values else None
        case If():
            branches = tuple((guard, _visible(block, fields)) for guard, block in action.branches)
            otherwise = _visible(action.otherwise, fields)
            said = otherwise or any(block for _, block in branches)
            return replace(action, branches=branches, otherwise=otherwise) if said else None
        case _:
            return action
