"""Views of entities and kinds for notebooks: HTML and plain text.

Rule 1: one function makes all elements and escapes all text. The renderer escapes the text in drawings. There are no
        scripts, links or addresses.
Rule 2: views are small: texts are truncated, and lists say how many items are left out.
Rule 3: `text` has the same content for terminals and for notebooks that show no HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from math import log1p
from typing import Any

from interlock.model.charts.chart import Chart
from interlock.model.encoding.codec import encode
from interlock.model.journal.entry import CREATE, Entry
from interlock.model.snapshot import Snapshot
from interlock.render.drawing import Options, draw_svg, next_prefix

TEXT_MAX = 120
"""Characters of a value in a table."""

FIELDS_MAX = 40
"""Fields of a context that are shown."""

CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top;border:0;background:none"
QUIET = "opacity:.7"
FACTS = "margin:.2em 0 .6em"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView:
    """An entity: its chart with the active states highlighted, its context, and its last entries."""

    chart: Chart
    snapshot: Snapshot
    entries: tuple[Entry, ...]

    @property
    def left_out(self) -> int:
        """The number of earlier entries that are not shown."""
        return self.entries[0].version - 1 if self.entries else self.snapshot.version

    @property
    def text(self) -> str:
        """The same content as plain text."""
        shown = self.snapshot
        lines = [f"{shown.entity}  {_where(shown)}  version {shown.version}  revision {self.chart.revision_text}"]
        lines += [f"  {name} = {value}" for name, value in _fields(shown.context, self.chart)]
        lines += [f"  {'  '.join(each)}" for each in _journal(self.entries)]
        if self.left_out:
            lines.append(f"  and {self.left_out:,} earlier")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown = self.snapshot
        facts = f"{_where(shown)} · version {shown.version} · revision {self.chart.revision_text}"
        more = element("p", f"and {self.left_out:,} earlier entries", style=QUIET) if self.left_out else ""
        return card(
            shown.entity,
            facts,
            _drawing(self.chart, Options(active=_known(self.chart, shown.configuration), prefix=next_prefix())),
            html_table(("field", "value"), _fields(shown.context, self.chart)),
            html_table(("version", "time", "event", "from → to", "by", "outcome"), _journal(self.entries)),
            more,
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's
        return {"text/html": self._repr_html_(), "text/plain": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindView:
    """A kind: its chart, warmer where more entities are, and how many are in each state.

    `more`: the count ended at its bound, so there are more.
    """

    chart: Chart
    entities: int
    states: tuple[tuple[str, int], ...]
    more: bool = False

    @property
    def text(self) -> str:
        """The same content as plain text."""
        lines = [f"{self.chart.kind}  revision {self.chart.revision_text}  {self._count()}"]
        return "\n".join([*lines, *(f"  {name}  {count:,}" for name, count in self.states)])

    def _count(self) -> str:
        return f"{self.entities:,}{'+' if self.more else ''} {'entity' if self.entities == 1 else 'entities'}"

    def _repr_html_(self) -> str:
        return card(
            self.chart.kind,
            f"{self._count()} · revision {self.chart.revision_text}",
            _drawing(self.chart, Options(classes=_heat(self.chart, self.states), prefix=next_prefix())),
            html_table(("state", "entities"), [(name, f"{count:,}") for name, count in self.states]),
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's
        return {"text/html": self._repr_html_(), "text/plain": self.text}


# Words


def _where(snapshot: Snapshot) -> str:
    sign = "■" if snapshot.ended is not None else "●"
    return f"{sign} {', '.join(snapshot.configuration)}"


def _fields(context: dict[str, Any], chart: Chart) -> list[tuple[str, str]]:
    hidden = chart.hidden_fields
    found = [(name, _cut(encode(value).decode())) for name, value in context.items() if name not in hidden]
    rest = len(found) - FIELDS_MAX
    return found if rest <= 0 else [*found[:FIELDS_MAX], ("…", f"{rest} more")]


def _journal(entries: Iterable[Entry]) -> list[tuple[str, ...]]:
    return [
        (
            str(each.version),
            f"{datetime.fromtimestamp(each.event.time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}",
            _cut("create" if each.event.name == CREATE else each.event.name),
            _cut("stays" if each.before == each.after else f"{', '.join(each.before)} → {', '.join(each.after)}"),
            _cut(str((each.event.principal or {}).get("id", ""))),
            each.outcome,
        )
        for each in entries
    ]


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _known(chart: Chart, names: Iterable[str]) -> frozenset[str]:
    """Return the states that the chart has. Those of another revision may differ."""
    ids = {each.id for each in chart.states}
    return frozenset(each for each in names if each in ids)


def _heat(chart: Chart, states: Iterable[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
    """Return the class of each state with entities: ten levels on a logarithmic scale."""
    known = _known(chart, (name for name, _ in states))
    counts = {name: count for name, count in states if count and name in known}
    most = log1p(max(counts.values(), default=1))
    return tuple((name, f"heat-{min(9, int(9 * log1p(count) / most))}") for name, count in counts.items())


# HTML


def element(name: str, *inside: str, style: str = "", raw: bool = False) -> str:
    """Return an element around text, which is escaped, or around elements (`raw`)."""
    body = "".join(inside) if raw else "".join(escape(each, quote=True) for each in inside)
    styled = f' style="{style}"' if style else ""
    return f"<{name}{styled}>{body}</{name}>"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty text if there are no rows."""
    lines = [element("tr", *(element("td", each, style=CELL) for each in row), raw=True) for row in rows]
    if not lines:
        return ""
    head = element("tr", *(element("th", each, style=f"{CELL};{QUIET}") for each in heads), raw=True)
    whole = element("thead", head, raw=True) + element("tbody", *lines, raw=True)
    return element("table", whole, style="border-collapse:collapse;margin:.6em 0", raw=True)


def card(title: str, facts: str, *parts: str) -> str:
    """Return a heading, a line of facts, and elements below them."""
    head = element("b", title) + element("p", facts, style=FACTS)
    return element("div", head, *parts, style="max-width:100%;overflow-x:auto", raw=True)


def _drawing(chart: Chart, options: Options) -> str:
    return draw_svg(chart, replace(options, theme="vars")).svg
