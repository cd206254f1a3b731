"""A drawing as a value that notebooks show: SVG, and always words beside it.

Rule 1: a notebook that is not trusted hides SVG, so `text/plain` is there too. Nothing needs a script.
Rule 2: every output gets a prefix of its own for its ids: two drawings on one page do not clash. `svg` has none, so
that its bytes are the same every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from interlock.model.chart import Chart
from interlock.model.snapshot import Snapshot
from interlock.render.picture import Options, SvgResult, check_states, draw_diff_svg, draw_svg, text_tree
from interlock.render.svg.theme import theme_named

_OUTPUTS = count(1)


def next_prefix() -> str:
    """A prefix of ids that no other output of this process has."""
    return f"il{next(_OUTPUTS)}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart drawn with options, or, with `before`, what differs from an earlier revision of it."""

    chart: Chart
    options: Options = field(default_factory=Options)
    before: Chart | None = None

    @property
    def svg(self) -> str:
        """The drawing as SVG text; the same bytes every time."""
        return self._drawn(self.options).svg

    @property
    def text(self) -> str:
        """The chart as an indented tree of words."""
        return text_tree(self.chart, active=self.options.active)

    def against(self, before: Chart) -> Drawing:
        """The same drawing with what differs from an earlier revision."""
        return replace(self, before=before)

    def __str__(self) -> str:
        return self.text

    def _drawn(self, options: Options) -> SvgResult:
        if self.before is None:
            return draw_svg(self.chart, options)
        return draw_diff_svg(self.before, self.chart, options)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's
        options = replace(self.options, prefix=next_prefix())
        return {"image/svg+xml": self._drawn(options).svg, "text/plain": self.text}


def make_drawing(
    chart: Chart, active: Iterable[str | Snapshot], *, theme: str = "vars", collapse: int | None = None
) -> Drawing:
    """A chart with states lit, given by id or by a snapshot in which they are active.

    Raises UsageError for a state that is not in the chart, and for an unknown theme.
    """
    names: list[str] = []
    for each in active:
        names += each.configuration if isinstance(each, Snapshot) else (each,)
    check_states(chart, names)
    return Drawing(chart=chart, options=Options(active=frozenset(names), theme=theme_named(theme), collapse=collapse))
