"""From a chart to a drawing, with what is lit in it: the door of this room for everybody who wants a picture.

Rule 1: it cannot fail for a chart that compiled. What the layout does not manage, or manages badly, is drawn as an
outline, which says why.
Rule 2: the same chart and options give the same bytes; classes light up what is active, never the geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from interlock.errors import UsageError
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.render.layout.compose import compose_picture
from interlock.render.layout.invariants import broken_rules
from interlock.render.layout.level import WORK_MAX, Budget, WorkSpentError
from interlock.render.layout.outline import outline, outline_text
from interlock.render.shapes.boxes import BoxTree, make_box_tree, state_key
from interlock.render.shapes.collapse import collapse_boxes
from interlock.render.shapes.compare import compare_trees
from interlock.render.shapes.geometry import Picture
from interlock.render.svg.painter import Look, svg
from interlock.render.svg.theme import Theme

REPORT_HINT = "this is a bug of Interlock; please report it with the chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to draw of a chart, and how.

    `active`: ids of states, lit with what is around them. `took` and `visited`: transitions as (state id, ordinal).
    `classes` are added to the states of these ids. `collapse` is a depth, `shut` names states to be drawn closed.
    """

    active: frozenset[str] = frozenset()
    took: frozenset[tuple[str, int]] = frozenset()
    visited: frozenset[tuple[str, int]] = frozenset()
    classes: tuple[tuple[str, str], ...] = ()
    theme: Theme = "vars"
    prefix: str = ""
    collapse: int | None = None
    shut: frozenset[str] = frozenset()
    role: Literal["img", "group"] = "img"


@dataclass(frozen=True, slots=True, kw_only=True)
class SvgResult:
    """A drawing as SVG text. `trouble` is empty, or says why it is only an outline."""

    svg: str
    trouble: str = ""


def draw_svg(chart: Chart, options: Options | None = None) -> SvgResult:
    """The chart as SVG. Raises UsageError when a state to be lit or shut is not in the chart."""
    options = options or Options()
    check_states(chart, (*options.active, *options.shut))
    whole = make_box_tree(chart)
    return _painted(whole, options)


def draw_diff_svg(old: Chart, new: Chart, options: Options | None = None) -> SvgResult:
    """Both revisions in one SVG: what was added is green with `+`, removed red with `-`, changed amber with `~`."""
    options = options or Options()
    check_states(new, (*options.active, *options.shut))
    return _painted(compare_trees(make_box_tree(old), make_box_tree(new)), options)


def text_tree(chart: Chart, *, active: frozenset[str] = frozenset()) -> str:
    """The chart as an indented tree, with a mark before what is active.

    Raises UsageError when a state to be lit is not in the chart.
    """
    check_states(chart, active)
    whole = make_box_tree(chart)
    return outline_text(whole, active=frozenset(_lit(whole, active))) + "\n"


def check_states(chart: Chart, names: Iterable[str]) -> None:
    """Raise UsageError when one of the states is not in the chart."""
    known = {state.id for state in chart.states}
    for name in sorted(set(names) - known):
        raise UsageError(f'no state "{name}" in chart {chart.kind}', code="state.unknown", hint=suggestion(name, known))


def _painted(whole: BoxTree, options: Options) -> SvgResult:
    shown = collapse_boxes(whole, depth=options.collapse, states=options.shut)
    picture = lay_out(shown)
    states = dict(options.classes)
    for state in _lit(whole, options.active):
        states[state] = f"{states.get(state, '')} on".strip()
    transitions = dict.fromkeys(sorted(options.visited), "path") | dict.fromkeys(sorted(options.took), "took")
    look = Look(theme=options.theme, prefix=options.prefix, role=options.role, states=states, transitions=transitions)
    return SvgResult(svg=svg(picture, look), trouble=picture.trouble)


def _lit(whole: BoxTree, active: Iterable[str]) -> list[str]:
    """The active states with all that are around them, without the root: it always is."""
    found: dict[str, None] = {}
    for name in sorted(active):
        for key in (state_key(name), *whole.above(state_key(name))):
            box = whole.boxes[key]
            if box.state is not None and box.parent is not None:
                found[box.state] = None
    return list(found)


def lay_out(
    shown: BoxTree, *, lay: Callable[[BoxTree, Budget], Picture] = compose_picture, work: int = WORK_MAX
) -> Picture:
    """The tree laid out; as an outline when that fails, breaks a hard rule or takes more work than it may."""
    try:
        picture = lay(shown, Budget(work))
        broken = next(broken_rules(picture), None)
    except WorkSpentError:
        return outline(shown, "the chart is too large to be laid out")
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a layout, there is a drawing
        return outline(shown, f"{type(error).__name__} in the layout; {REPORT_HINT}")
    return picture if broken is None else outline(shown, f"{broken}; {REPORT_HINT}")
