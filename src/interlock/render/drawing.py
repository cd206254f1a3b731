"""Draw a chart: as SVG, as a tree of text, and as a value that notebooks show.

Three words name three things. A `Drawing` is what `chart.draw()` returns. A `Diagram` is what the text formats
(Mermaid, PlantUML, DOT) are written from. A `Picture` is a finished layout: boxes and lines with coordinates.

Rule 1: drawing a compiled chart cannot fail. If the layout fails or breaks an invariant, the chart is drawn as an
        outline, which says why.
Rule 2: the same chart and options give the same bytes. Active states differ by their classes, never by their geometry.
Rule 3: a notebook that is not trusted hides SVG, so `text/plain` is always there. Nothing needs a script.
Rule 4: each output of a notebook has its own prefix for ids, so that two drawings on one page do not clash. `svg` has
        none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from interlock.model.charts.chart import Chart
from interlock.model.snapshot import Snapshot
from interlock.render.diagram.model import check_states
from interlock.render.layout.compose import compose_picture
from interlock.render.layout.invariants import broken_rules
from interlock.render.layout.level import WORK_MAX, Budget, WorkSpentError
from interlock.render.layout.outline import outline, outline_text
from interlock.render.shapes.boxes import BoxTree, make_box_tree, state_key
from interlock.render.shapes.collapse import collapse_boxes
from interlock.render.shapes.compare import compare_trees
from interlock.render.shapes.geometry import Picture
from interlock.render.shapes.visible import make_visible_tree
from interlock.render.svg.painter import SvgOptions, svg
from interlock.render.svg.theme import Theme, theme_named

REPORT_HINT = "this is a bug in Interlock; please report it with the chart"

_OUTPUTS = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to draw of a chart, and how.

    `active` are ids of states, highlighted with their ancestors. `took` and `visited` are transitions as (state id,
    ordinal). `classes` are added to the states of these ids, and `badges` are short texts next to their titles. States
    below the depth `collapse` and the states in `shut`
    are drawn closed.
    """

    active: frozenset[str] = frozenset()
    took: frozenset[tuple[str, int]] = frozenset()
    visited: frozenset[tuple[str, int]] = frozenset()
    classes: tuple[tuple[str, str], ...] = ()
    badges: tuple[tuple[str, str], ...] = ()
    theme: Theme = "vars"
    prefix: str = ""
    collapse: int | None = None
    shut: frozenset[str] = frozenset()
    role: Literal["img", "group"] = "img"


@dataclass(frozen=True, slots=True, kw_only=True)
class SvgResult:
    """A chart as SVG text. `fallback_reason` says why it is only an outline, or is empty."""

    svg: str
    fallback_reason: str = ""


def draw_svg(chart: Chart, options: Options | None = None) -> SvgResult:
    """Return a chart as SVG. Raises UsageError for a state in the options that is not in the chart."""
    options = options or Options()
    check_states(chart, (*options.active, *options.shut))
    whole = make_box_tree(chart)
    return _paint(whole, options)


def draw_visible_svg(chart: Chart, options: Options | None = None) -> SvgResult:
    """Return a chart as SVG without its hidden states. Raises UsageError for a state in the options that is hidden."""
    options = options or Options()
    hidden = frozenset() if chart.hidden is None else chart.hidden.states
    named = (*options.active, *options.shut)
    check_states(replace(chart, states=tuple(each for each in chart.states if each.id not in hidden)), named)
    return _paint(make_visible_tree(chart), options)


def draw_diff_svg(old: Chart, new: Chart, options: Options | None = None) -> SvgResult:
    """Return two revisions in one SVG: green `+` was added, red `-` was removed, amber `~` was changed."""
    options = options or Options()
    check_states(new, (*options.active, *options.shut))
    return _paint(compare_trees(make_box_tree(old), make_box_tree(new)), options)


def text_tree(chart: Chart, *, active: frozenset[str] = frozenset()) -> str:
    """Return a chart as an indented tree, with a mark before active states.

    Raises UsageError for an active state that is not in the chart.
    """
    check_states(chart, active)
    whole = make_box_tree(chart)
    return outline_text(whole, active=frozenset(_with_ancestors(whole, active))) + "\n"


def _paint(whole: BoxTree, options: Options) -> SvgResult:
    shown = collapse_boxes(whole, depth=options.collapse, states=options.shut)
    picture = lay_out(shown)
    states = dict(options.classes)
    for state in _with_ancestors(whole, options.active):
        states[state] = f"{states.get(state, '')} on".strip()
    transitions = dict.fromkeys(sorted(options.visited), "path") | dict.fromkeys(sorted(options.took), "took")
    svg_options = SvgOptions(
        theme=options.theme,
        prefix=options.prefix,
        role=options.role,
        states=states,
        transitions=transitions,
        badges=dict(options.badges),
    )
    return SvgResult(svg=svg(picture, svg_options), fallback_reason=picture.fallback_reason)


def _with_ancestors(whole: BoxTree, active: Iterable[str]) -> list[str]:
    """Return the active states and their ancestors, without the root."""
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
    """Return the picture of a tree; an outline if the layout fails, breaks an invariant or takes too much work."""
    try:
        picture = lay(shown, Budget(work))
        broken = next(broken_rules(picture), None)
    except WorkSpentError:
        return outline(shown, "the chart is too large to be laid out")
    except Exception as error:  # noqa: BLE001 - Rule 1
        return outline(shown, f"{type(error).__name__} in the layout; {REPORT_HINT}")
    return picture if broken is None else outline(shown, f"{broken}; {REPORT_HINT}")


def next_prefix() -> str:
    """Return a prefix for ids that no other output of this process has."""
    return f"il{next(_OUTPUTS)}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart to be drawn with options. With `before`, the differences from an earlier revision are drawn."""

    chart: Chart
    options: Options = field(default_factory=Options)
    before: Chart | None = None

    @property
    def svg(self) -> str:
        """The SVG text; the same bytes every time."""
        return self._draw(self.options).svg

    @property
    def text(self) -> str:
        """The chart as an indented tree of text."""
        return text_tree(self.chart, active=self.options.active)

    def against(self, before: Chart) -> Drawing:
        """Return this drawing with the differences from an earlier revision."""
        return replace(self, before=before)

    def __str__(self) -> str:
        return self.text

    def _draw(self, options: Options) -> SvgResult:
        if self.before is None:
            return draw_svg(self.chart, options)
        return draw_diff_svg(self.before, self.chart, options)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's
        options = replace(self.options, prefix=next_prefix())
        return {"image/svg+xml": self._draw(options).svg, "text/plain": self.text}


def make_drawing(
    chart: Chart, active: Iterable[str | Snapshot], *, theme: str = "vars", collapse: int | None = None
) -> Drawing:
    """Return the drawing of a chart with these states highlighted, given by id or by a snapshot.

    Raises UsageError for a state that is not in the chart, and for an unknown theme.
    """
    names: list[str] = []
    for each in active:
        names += each.configuration if isinstance(each, Snapshot) else (each,)
    check_states(chart, names)
    return Drawing(chart=chart, options=Options(active=frozenset(names), theme=theme_named(theme), collapse=collapse))
