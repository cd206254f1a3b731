"""The names that code must bring to a chart: guards, assign functions, handlers, and charts to invoke."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from interlock.model.chart import Chart
from interlock.model.document.actions import AssignCall, Block, Do, Guard, GuardName, If, block_actions, guard_parts


def with_names(chart: Chart) -> Chart:
    """The chart with its lists of names filled, each sorted."""
    inline = {name for name, _ in chart.inline}
    sources = [
        (invoke.src, invoke.type == "chart")
        for state in chart.states
        for invoke in state.invokes
        if isinstance(invoke.src, str) and invoke.src not in inline
    ]
    actions = [action for block in _blocks(chart) for action in block_actions(block)]
    calls = {action.name for action in actions if isinstance(action, Do)}
    return replace(
        chart,
        guards=_sorted(
            {part.name for guard in _guards(chart) for part in guard_parts(guard) if isinstance(part, GuardName)}
        ),
        assigns=_sorted({action.name for action in actions if isinstance(action, AssignCall)}),
        handlers=_sorted(calls | {src for src, is_chart in sources if not is_chart}),
        charts=_sorted({src for src, is_chart in sources if is_chart}),
    )


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _blocks(chart: Chart) -> Iterator[Block]:
    for transition in chart.transitions:
        yield transition.block
    for state in chart.states:
        yield from (*state.entry, *state.exit, state.initial_block, state.default_block)
        for invoke in state.invokes:
            yield invoke.finalize or ()


def _guards(chart: Chart) -> Iterator[Guard]:
    for transition in chart.transitions:
        if transition.guard is not None:
            yield transition.guard
    for block in _blocks(chart):
        for action in block_actions(block):
            if isinstance(action, If):
                yield from (guard for guard, _ in action.branches)
