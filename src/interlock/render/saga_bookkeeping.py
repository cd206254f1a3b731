"""Hide the bookkeeping of sagas in drawings.

The compiler expands a saga to states that record in a separate context field which steps are done. These assigns are
left out of a drawing, and their guards are shown as text. The chart that runs is not changed.
"""

from __future__ import annotations

from dataclasses import replace

from interlock.compiler.saga import generated_guards
from interlock.model.charts.chart import Chart
from interlock.model.document.actions import Action, Assign, Block, Guard, GuardAll, GuardExpression, GuardName, If


def hide_bookkeeping(chart: Chart) -> Chart:
    """Return the chart for a drawing: without assigns to the fields of sagas."""
    fields = chart.saga_fields
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
    words = _guard_words(chart)
    transitions = tuple(
        replace(each, block=_visible(each.block, fields), guard=_worded(each.guard, words.get(each.source, {})))
        for each in chart.transitions
    )
    return replace(chart, states=states, transitions=transitions)


def _guard_words(chart: Chart) -> dict[int, dict[str, str]]:
    """Return the words for the guards of each generated state of a saga."""
    sagas = ((each, generated_guards(each.saga)) for each in chart.states if each.saga is not None)
    return {index: words for state, words in sagas for index in range(state.index + 1, state.last + 1)}


def _worded(guard: Guard | None, words: dict[str, str]) -> Guard | None:
    """Return a readable guard in place of one that the compiler made."""
    match guard:
        case GuardExpression():
            text = words.get(guard.expression.text)
            return guard if text is None else GuardName(name=text, location=guard.location)
        case GuardAll():
            parts = (_worded(each, words) for each in guard.guards)
            return replace(guard, guards=tuple(each for each in parts if each is not None))
        case _:
            return guard


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
            is_visible = otherwise or any(block for _, block in branches)
            return replace(action, branches=branches, otherwise=otherwise) if is_visible else None
        case _:
            return action
