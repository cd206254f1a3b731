"""Drawings of charts for pages, and what differs between two revisions.

Rule: the drawing is the renderer's, in its theme without colours; pages colour it by classes and move nothing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from interlock.model.chart import Chart, State
from interlock.model.document.actions import guard_text
from interlock.render.drawing import Options, draw_diff_svg, draw_svg

LOOK = Options(theme="bare", role="group")


class ChangeView(Struct, frozen=True):
    """One difference: a state or a transition that was added, removed or changed, and how many entities are there."""

    what: Literal["state", "transition"]
    change: Literal["added", "removed", "changed"]
    name: str
    detail: str = ""
    entities: int = 0


def changes(before: Chart, after: Chart, inside: dict[str, int]) -> tuple[ChangeView, ...]:
    """What differs, states first, in document order. `inside`: how many entities of the first are in each state."""
    old, new = _states(before), _states(after)
    found: list[ChangeView] = []
    for name, state in new.items():
        if name not in old:
            found.append(ChangeView("state", "added", name))
        elif _said(before, old[name]) != _said(after, state):
            found.append(
                ChangeView("state", "changed", name, _detail(before, old[name], after, state), inside.get(name, 0))
            )
    found.extend(ChangeView("state", "removed", name, "", inside.get(name, 0)) for name in old if name not in new)
    was, now = _transitions(before), _transitions(after)
    found.extend(ChangeView("transition", "added", each) for each in now if each not in was)
    found.extend(ChangeView("transition", "removed", each) for each in was if each not in now)
    return tuple(found)


def _states(chart: Chart) -> dict[str, State]:
    return {each.id: each for each in chart.states[1:]}


def _said(chart: Chart, state: State) -> tuple[object, ...]:
    after = tuple((each.event, each.delay, each.restore) for each in state.after)
    children = tuple(chart.states[each].id for each in state.children)
    return (
        state.type,
        children,
        state.entry,
        state.exit,
        after,
        state.invokes,
        state.expect,
        state.sensitive,
        state.output,
        state.tags,
    )


_PARTS = ("type", "children", "entry", "exit", "timers", "invokes", "expect", "sensitive", "output", "tags")


def _detail(before: Chart, old: State, after: Chart, new: State) -> str:
    pairs = zip(_PARTS, _said(before, old), _said(after, new), strict=True)
    return ", ".join(part for part, left, right in pairs if left != right)


def _transitions(chart: Chart) -> dict[str, None]:
    """Every transition in words: where from, by what, if what, where to, doing what."""
    found: dict[str, None] = {}
    for each in chart.transitions:
        guard = "" if each.guard is None else f" [{guard_text(each.guard)}]"
        targets = ", ".join(chart.states[target].id for target in each.targets) or "stays"
        label = each.label or ", ".join(one.text for one in each.descriptors) or "always"
        found[f"{chart.states[each.source].id or chart.kind}: {label}{guard} → {targets}"] = None
    return found


def svg(chart: Chart) -> str:
    """The drawing of a chart."""
    return draw_svg(chart, LOOK).svg


def diff_svg(before: Chart, after: Chart) -> str:
    """Two revisions in one drawing."""
    return draw_diff_svg(before, after, LOOK).svg
